"""What a source would use, for `hotset doctor`: endpoint, region, kind of credentials; and a cheap test of access.

Names of variables, never their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotset.errors import HotsetError
from hotset.source.base import Source
from hotset.source.client import ca_file_of, proxy_for
from hotset.source.dialects import DIALECTS
from hotset.source.options import SourceOptions
from hotset.source.uri import display_uri, parse_uri

__all__ = ["Environment", "check", "describe_environment"]


@dataclass(frozen=True, slots=True)
class Environment:
    """How a source would be reached. ``problem`` is what stands in the way, None if nothing does."""

    source: str
    scheme: str
    endpoint: str | None = None
    region: str | None = None
    credentials: str | None = None
    proxy: bool = False
    ca_file: str | None = None
    problem: str | None = None


def describe_environment(uri: str, env: Mapping[str, str], *, options: SourceOptions | None = None) -> Environment:
    """What `open_source` would use for ``uri``. Sends no request. A wrong URI raises `InvalidInput`; whatever else is
    wrong is the ``problem`` of the answer.
    """
    location = parse_uri(uri)
    chosen = options or SourceOptions()
    endpoint: str | None = None
    region: str | None = None
    credentials: str | None = None
    problem: str | None = None
    try:
        if location.scheme == "s3" or location.scheme in DIALECTS:
            from hotset.source.place import resolve
            from hotset.source.s3 import place_credentials

            place = resolve(location, chosen, env)
            endpoint, region = place.endpoint, place.region
            credentials = place_credentials(place, chosen, env).kind
        elif location.scheme == "gs":
            from hotset.source.gcs import gcs_credentials, gcs_endpoint

            endpoint = gcs_endpoint(chosen, env)
            credentials, _ = gcs_credentials(chosen, env)
        elif location.scheme == "az":
            from hotset.source.azure import azure_place

            account = azure_place(location, chosen, env)
            endpoint, credentials = account.endpoint, account.kind
        elif location.scheme in ("http", "https"):
            endpoint = location.root
    except HotsetError as error:
        problem = str(error)
    return Environment(
        source=display_uri(uri),
        scheme=location.scheme,
        endpoint=endpoint,
        region=region,
        credentials=credentials,
        proxy=endpoint is not None and proxy_for(endpoint, chosen, env) is not None,
        ca_file=ca_file_of(chosen, env),
        problem=problem,
    )


def check(source: Source) -> int:
    """The number of objects in the first batch of a listing: one request that shows whether the source can be read.

    Raises what the listing raises, which says what to set.
    """
    for batch in source.list():
        if batch:
            return len(batch)
    return 0
