"""What a caller may say about a source beyond its URI. What is not said comes from the cloud's own variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SourceOptions"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Explicit settings of one source; None and empty mean "as the environment says".

    Secrets are left out of the repr. ``anonymous`` reads a public bucket without signing. ``ca_file`` is a PEM file
    whose certificates are trusted besides the system's. ``bucket_in_host`` chooses between ``bucket.host/key`` and
    ``host/bucket/key`` where the service leaves the choice. ``if_match=False`` is for a server that fails on the header
    (one that merely ignores it needs nothing). ``extra`` goes to the store's configuration as it is, for the settings
    that have no name here.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    account: str | None = None  #: of Azure
    anonymous: bool = False
    requester_pays: bool = False
    profile: str | None = None
    ca_file: str | None = None
    proxy: str | None = field(default=None, repr=False)  #: may hold a password
    allow_http: bool | None = None  #: None: as the endpoint's scheme says
    bucket_in_host: bool | None = None
    if_match: bool = True
    user: str | None = None  #: of HDFS
    connect_timeout: float = 10.0  #: seconds
    read_timeout: float = 60.0  #: seconds without a byte
    request_timeout: float = 300.0  #: seconds for a whole answer, which has 7 MiB at most but for `Source.newest`
    max_connections: int = 256  #: idle connections kept for the next request
    extra: Mapping[str, str] = field(default_factory=dict, repr=False)
