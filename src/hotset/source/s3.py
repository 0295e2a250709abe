"""S3 and the services that speak it: URI, options and environment become one resolved place, then a source."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from obstore.store import S3Store

from hotset.source.base import Source
from hotset.source.client import NO_RETRIES, client_config
from hotset.source.clients import ObstoreClient, StoreClient
from hotset.source.credentials import FoundCredentials, find_credentials
from hotset.source.globs import EVERYTHING
from hotset.source.objectstore import ObjectStoreSource
from hotset.source.options import SourceOptions
from hotset.source.place import AWS, S3Place, resolve
from hotset.source.s3client import S3Client
from hotset.source.signing import Credentials
from hotset.source.uri import Location
from hotset.source.web import Web

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential

__all__ = ["open_s3", "place_credentials"]


def open_s3(
    location: Location,
    options: SourceOptions,
    env: Mapping[str, str],
    *,
    beginnings: tuple[str, ...] = EVERYTHING,
    forkable: bool = False,
) -> Source:
    """The source at ``location``; see `open_source`. Raises `Denied` if no credentials can be found."""
    place = resolve(location, options, env)
    found = place_credentials(place, options, env)
    bucket = f"{location.scheme}://{location.bucket}"
    literal = S3Client(
        Web(options, env),
        bucket_url=place.bucket_url,
        region=place.region,
        provider=found.provider,
        requester_pays=options.requester_pays,
        bucket=bucket,
        hint=found.hint,
    )
    client: StoreClient = literal
    if not forkable:
        client = ObstoreClient(_store(place, found, options, env), bucket=bucket, hint=found.hint)
    return ObjectStoreSource(
        client,
        partial(literal.list, location.prefix, beginnings),
        identity=place.identity,
        prefix=location.prefix,
        where=place.where,
        if_match=options.if_match,
        literal=literal,
    )


def place_credentials(place: S3Place, options: SourceOptions, env: Mapping[str, str]) -> FoundCredentials:
    """The credentials for ``place``, found without a request."""
    aws = place.service == AWS
    return find_credentials(place.location.scheme, options, env, region=place.region, aws=aws)


def _store(place: S3Place, found: FoundCredentials, options: SourceOptions, env: Mapping[str, str]) -> S3Store:
    """An obstore client that takes nothing from the process's environment: whatever obstore would read there by itself
    is given here, because ``AWS_ENDPOINT_URL_S3`` would send requests for another service astray.
    """
    config: S3Config = {
        "endpoint": place.bucket_url if place.bucket_in_host else place.endpoint,
        "aws_endpoint_url_s3": place.bucket_url if place.bucket_in_host else place.endpoint,
        "virtual_hosted_style_request": place.bucket_in_host,
        "region": place.region,
        "skip_signature": found.provider is None,
        "request_payer": options.requester_pays,
    }
    config.update(cast("S3Config", options.extra))
    provider = found.provider
    return S3Store(
        place.location.bucket,
        config=config,
        client_options=client_config(place.endpoint, options, env),
        retry_config=NO_RETRIES,
        credential_provider=None if provider is None else lambda: _for_obstore(provider()),
    )


def _for_obstore(credentials: Credentials) -> S3Credential:
    return {
        "access_key_id": credentials.access_key,
        "secret_access_key": credentials.secret_key,
        "token": credentials.session_token,
        "expires_at": credentials.expires,
    }
