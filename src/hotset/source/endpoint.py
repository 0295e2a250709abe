"""An endpoint as it may go into identities, records and messages. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from hotset.errors import InvalidInput

__all__ = ["normal_endpoint"]


def normal_endpoint(endpoint: str, scheme: str = "https") -> str:
    """The endpoint as a URL without closing slash; ``scheme`` is for one that has none.

    Raises `InvalidInput`, which does not repeat it, if it holds a user name, a password or a query: what it holds is
    written down.
    """
    try:
        url = urlsplit(endpoint if "://" in endpoint else f"{scheme}://{endpoint}")
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInput("the endpoint is not a URL such as https://host:port")
    if "@" in url.netloc or url.query:
        raise InvalidInput("the endpoint must hold no user name, password or query; give credentials separately")
    return f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"
