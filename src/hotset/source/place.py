"""Where a bucket of S3, or of a service that speaks it, is: a pure function of URI, options and environment.

Apart from `s3`, because telling one place from another must not cost the import of any client.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from hotset.errors import InvalidInput
from hotset.source.credentials import variables_of
from hotset.source.dialects import DIALECTS, first_set
from hotset.source.endpoint import normal_endpoint
from hotset.source.options import SourceOptions
from hotset.source.profiles import load_profile
from hotset.source.uri import Location

__all__ = ["AWS", "S3Place", "resolve"]

#: The endpoint that stands for all of Amazon's in an identity.
AWS = "https://s3.amazonaws.com"


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket, found: where to send requests. Holds no secret."""

    location: Location
    endpoint: str  #: of the service, without the bucket, no slash at the end
    bucket_url: str  #: what a key is appended to
    bucket_in_host: bool
    region: str
    service: str  #: the endpoint as part of the identity; of AWS the same for every region, as bucket names are

    @property
    def identity(self) -> str:
        return f"{self.location.scheme}+{self.service}/{self.location.bucket}/{self.location.prefix}"

    @property
    def where(self) -> str:
        return f"{self.location.scheme}://{self.location.bucket}/{self.location.root}"


def resolve(location: Location, options: SourceOptions, env: Mapping[str, str]) -> S3Place:
    """Endpoint, region and style of addressing. Raises `InvalidInput` if the endpoint cannot be known."""
    dialect = DIALECTS.get(location.scheme)
    names = variables_of(location.scheme)
    region = options.region or location.region or first_set(names.region, env)
    given = options.endpoint or location.endpoint or first_set(names.endpoint, env)
    if env.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true" and location.scheme == "s3":
        given = options.endpoint
    if dialect is None:
        if region is None or given is None:
            profile = load_profile(options.profile, env)
            region = region or (profile.region if profile else None)
            given = given or (profile.endpoint if profile else None)
        region = region or "us-east-1"
        endpoint = normal_endpoint(given) if given else _aws_endpoint(region)
        in_host = given is None and "." not in location.bucket
        service = endpoint if given else AWS
    else:
        if given is None:
            raise InvalidInput(
                f"{location.scheme}://{location.bucket}: the endpoint of {dialect.name} is not known; "
                f"write {dialect.example}, or set {names.endpoint[0]}"
            )
        endpoint = normal_endpoint(given)
        region = region or "us-east-1"
        in_host = dialect.bucket_in_host and not _is_plain_host(endpoint)
        service = endpoint
    if options.bucket_in_host is not None:
        in_host = options.bucket_in_host
    bucket_url = f"{endpoint}/{location.bucket}"
    if in_host:
        url = urlsplit(endpoint)
        bucket_url = f"{url.scheme}://{location.bucket}.{url.netloc}{url.path}"
    return S3Place(location, endpoint, bucket_url, in_host, region, service)


def _aws_endpoint(region: str) -> str:
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://s3.{region}.{domain}"


def _is_plain_host(endpoint: str) -> bool:
    """An address or a single-label name: a bucket in front of it would not resolve."""
    host = urlsplit(endpoint).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host
    return True
