"""Google Cloud Storage through obstore, which knows service accounts, identity files and the machine's account."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from obstore.store import GCSStore

from hotset.source.base import Source
from hotset.source.client import NO_RETRIES, client_config
from hotset.source.clients import ObstoreClient
from hotset.source.dialects import first_set
from hotset.source.endpoint import normal_endpoint
from hotset.source.objectstore import ObjectStoreSource
from hotset.source.options import SourceOptions
from hotset.source.uri import Location

if TYPE_CHECKING:
    from obstore.store import GCSConfig

__all__ = ["gcs_credentials", "gcs_endpoint", "open_gcs"]

_ENDPOINT = "https://storage.googleapis.com"


def gcs_endpoint(options: SourceOptions, env: Mapping[str, str]) -> str:
    given = options.endpoint or first_set(("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"), env) or _ENDPOINT
    return normal_endpoint(given, scheme="http")  # the emulator's variable has none


def gcs_credentials(options: SourceOptions, env: Mapping[str, str]) -> tuple[str, GCSConfig]:
    """Where credentials come from, in words, and obstore's settings for them."""
    if options.anonymous or (env.get("STORAGE_EMULATOR_HOST") and not options.endpoint):
        return "anonymous", {"skip_signature": True}
    if options.session_token:
        return "token given by the caller", {"bearer_token": options.session_token}
    for name in ("GOOGLE_BEARER_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"):
        if env.get(name):
            return f"environment variable {name}", {"bearer_token": env[name]}
    if env.get("GOOGLE_SERVICE_ACCOUNT_KEY"):
        name = "GOOGLE_SERVICE_ACCOUNT_KEY"
        return f"environment variable {name}", {"service_account_key": env[name]}
    for name in ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"):
        if env.get(name):
            return f"file of {name}", {"service_account": env[name]}
    if env.get("GOOGLE_APPLICATION_CREDENTIALS"):
        name = "GOOGLE_APPLICATION_CREDENTIALS"
        return f"file of {name}", {"application_credentials": env[name]}
    default = os.path.join(env.get("HOME", ""), ".config/gcloud/application_default_credentials.json")
    if os.path.exists(default):
        return "login of gcloud (application default credentials)", {"application_credentials": default}
    return "account of this machine (metadata server)", {}


def open_gcs(location: Location, options: SourceOptions, env: Mapping[str, str]) -> Source:
    endpoint = gcs_endpoint(options, env)
    _, config = gcs_credentials(options, env)
    if endpoint != _ENDPOINT:
        config["base_url"] = endpoint
    config.update(cast("GCSConfig", options.extra))
    where = f"gs://{location.bucket}/{location.root}"
    hint = "set GOOGLE_APPLICATION_CREDENTIALS, log in with gcloud, or ask for anonymous access"
    store = GCSStore(
        location.bucket, config=config, client_options=client_config(endpoint, options, env), retry_config=NO_RETRIES
    )
    client = ObstoreClient(store, bucket=f"gs://{location.bucket}", hint=hint)
    return ObjectStoreSource(
        client,
        partial(client.list, location.prefix),
        identity=f"gs+{endpoint}/{location.bucket}/{location.prefix}",
        prefix=location.prefix,
        where=where,
        if_match=options.if_match,
    )
