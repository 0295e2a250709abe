"""Azure Blob Storage through obstore, which knows keys, signatures, service principals and managed identities."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from obstore.store import AzureStore

from hotset.errors import InvalidInput
from hotset.source.base import Source
from hotset.source.client import NO_RETRIES, client_config
from hotset.source.clients import ObstoreClient
from hotset.source.dialects import first_set
from hotset.source.endpoint import normal_endpoint
from hotset.source.objectstore import ObjectStoreSource
from hotset.source.options import SourceOptions
from hotset.source.uri import Location

if TYPE_CHECKING:
    from obstore.store import AzureConfig

__all__ = ["AzurePlace", "azure_place", "open_azure"]

#: Settings that only carry over from the environment, by obstore's names.
_PASSED_ON = {
    "client_id": ("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"),
    "client_secret": ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"),
    "tenant_id": ("AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID"),
    "authority_host": ("AZURE_STORAGE_AUTHORITY_HOST", "AZURE_AUTHORITY_HOST"),
    "federated_token_file": ("AZURE_FEDERATED_TOKEN_FILE",),
    "msi_endpoint": ("AZURE_MSI_ENDPOINT", "AZURE_IDENTITY_ENDPOINT"),
    "object_id": ("AZURE_OBJECT_ID",),
    "msi_resource_id": ("AZURE_MSI_RESOURCE_ID",),
    "use_azure_cli": ("AZURE_USE_AZURE_CLI",),
}
_ACCOUNT = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
_KEY = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_KEY")
_SAS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_ENDPOINT = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"


class AzurePlace:
    """An account, found: its endpoint, and how to sign."""

    def __init__(self, account: str, endpoint: str, kind: str, config: AzureConfig) -> None:
        self.account = account
        self.endpoint = endpoint
        self.kind = kind  #: of the credentials, in words
        self.config = config  #: obstore's settings; holds secrets


def azure_place(location: Location, options: SourceOptions, env: Mapping[str, str]) -> AzurePlace:
    """Account, endpoint and credentials. Raises `InvalidInput` if the account cannot be known."""
    connection = _connection(env.get(_CONNECTION, ""))
    account = options.account or location.account or first_set(_ACCOUNT, env) or connection.get("accountname")
    if not account:
        raise InvalidInput(
            f"az://{location.bucket}: the storage account is not known; "
            "set AZURE_STORAGE_ACCOUNT_NAME, or write az://container@account/prefix"
        )
    endpoint = normal_endpoint(
        options.endpoint
        or location.endpoint
        or first_set(_ENDPOINT, env)
        or connection.get("blobendpoint")
        or f"https://{account}.blob.{connection.get('endpointsuffix', 'core.windows.net')}"
    )
    kind, credentials = _credentials(options, env, connection)
    config: dict[str, object] = {"account_name": account, "endpoint": endpoint, **credentials}
    return AzurePlace(account, endpoint, kind, cast("AzureConfig", config))


def _credentials(
    options: SourceOptions, env: Mapping[str, str], connection: Mapping[str, str]
) -> tuple[str, Mapping[str, object]]:
    if options.anonymous:
        return "anonymous", {"skip_signature": True}
    if options.secret_key:
        return "key given by the caller", {"account_key": options.secret_key}
    if options.session_token:
        return "signature given by the caller", {"sas_key": options.session_token.removeprefix("?")}
    for setting, names, secret in (
        ("account_key", _KEY, "accountkey"),
        ("sas_key", _SAS, "sharedaccesssignature"),
        ("token", ("AZURE_STORAGE_TOKEN",), ""),
    ):
        found = next((name for name in names if env.get(name)), None)
        if found is not None:
            return f"environment variable {found}", {setting: env[found].removeprefix("?")}
        if connection.get(secret):
            return f"environment variable {_CONNECTION}", {setting: connection[secret].removeprefix("?")}
    passed = {setting: value for setting, names in _PASSED_ON.items() if (value := first_set(names, env))}
    if "client_secret" in passed:
        return "service principal (AZURE_CLIENT_SECRET)", passed
    if "federated_token_file" in passed:
        return "workload identity (AZURE_FEDERATED_TOKEN_FILE)", passed
    if "use_azure_cli" in passed:
        return "login of the az command (AZURE_USE_AZURE_CLI)", passed
    return "managed identity of this machine", passed


def _connection(text: str) -> dict[str, str]:
    """``AccountName=...;AccountKey=...`` as a dictionary with names in lower case. Keys end in ``=`` themselves."""
    pairs = (part.partition("=") for part in text.split(";") if part)
    return {name.strip().lower(): value for name, _, value in pairs}


def open_azure(location: Location, options: SourceOptions, env: Mapping[str, str]) -> Source:
    place = azure_place(location, options, env)
    place.config.update(cast("AzureConfig", options.extra))
    where = f"az://{location.bucket}@{place.account}/{location.root}"
    hint = "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or ask for anonymous access"
    store = AzureStore(
        location.bucket,
        config=place.config,
        client_options=client_config(place.endpoint, options, env),
        retry_config=NO_RETRIES,
    )
    client = ObstoreClient(store, bucket=f"az://{location.bucket}@{place.account}", hint=hint)
    return ObjectStoreSource(
        client,
        partial(client.list, location.prefix),
        identity=f"az+{place.endpoint}/{location.bucket}/{location.prefix}",
        prefix=location.prefix,
        where=where,
        if_match=options.if_match,
    )
