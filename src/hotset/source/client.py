"""HTTP settings of obstore, the same for every cloud."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hotset.errors import InvalidInput
from hotset.source.options import SourceOptions

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

__all__ = ["NO_RETRIES", "ca_file_of", "client_config", "proxy_for", "read_certificates"]

#: Retries are ours: inside obstore they would hide that a server asks for fewer requests.
NO_RETRIES: RetryConfig = {"max_retries": 0}


def ca_file_of(options: SourceOptions, env: Mapping[str, str]) -> str | None:
    """The file of additional certificates, by the variables that the clouds' tools know."""
    names = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
    return options.ca_file or next((env[name] for name in names if env.get(name)), None)


def read_certificates(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidInput(
            f"{path}: cannot read the certificates named by ca_file or AWS_CA_BUNDLE ({error.strerror})"
        ) from error


def proxy_for(url: str, options: SourceOptions, env: Mapping[str, str]) -> str | None:
    """The proxy for requests to ``url``: given, or HTTPS_PROXY, HTTP_PROXY, ALL_PROXY but for hosts in NO_PROXY.

    The variables count in either case, the lower one first, as in most tools.
    """
    if options.proxy is not None:
        return options.proxy or None
    parts = urlsplit(url)
    names = (f"{parts.scheme}_proxy", f"{parts.scheme}_PROXY".upper(), "all_proxy", "ALL_PROXY")
    proxy = next((env[name] for name in names if env.get(name)), None)
    if proxy is None or _bypassed(parts.hostname or "", env.get("no_proxy") or env.get("NO_PROXY") or ""):
        return None
    return proxy


def _bypassed(host: str, no_proxy: str) -> bool:
    """Whether ``no_proxy`` names ``host``: a name, a domain with or without a dot before it, an address, a network."""
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        if not entry:
            continue
        domain = entry.lstrip("*").lstrip(".")
        if not domain or host == domain or host.endswith(f".{domain}"):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue  # the host or the entry is a name
    return False


def client_config(endpoint: str, options: SourceOptions, env: Mapping[str, str]) -> ClientConfig:
    """obstore's client options for requests to ``endpoint``."""
    config: ClientConfig = {
        "connect_timeout": f"{int(options.connect_timeout * 1000)}ms",
        "read_timeout": f"{int(options.read_timeout * 1000)}ms",
        # Ends bodies that trickle; one that stalls ends above.
        "timeout": f"{int(options.request_timeout * 1000)}ms",
        "pool_max_idle_per_host": str(options.max_connections),
        "pool_idle_timeout": "60s",
        "allow_http": endpoint.startswith("http:") if options.allow_http is None else options.allow_http,
        "user_agent": "hotset",
    }
    ca_file = ca_file_of(options, env)
    if ca_file is not None:
        config["root_certificate"] = read_certificates(ca_file)
    proxy = proxy_for(endpoint, options, env)
    if proxy is not None:
        config["proxy_url"] = proxy
    else:
        # Left alone, the library would look for a proxy in the process's own environment.
        config["proxy_url"] = endpoint
        config["proxy_excludes"] = urlsplit(endpoint).hostname or ""
    return config
