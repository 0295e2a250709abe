"""Amazon's request signature, version 4. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote

from hotset.source.signing import Credentials

__all__ = ["EMPTY_SHA256", "canonical_query", "encode_key", "signed_headers"]

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def encode_key(key: str) -> str:
    """A key as it stands in a URL: everything percent-encoded but unreserved characters and slashes."""
    return quote(key, safe="/-_.~")


def canonical_query(query: Mapping[str, str]) -> str:
    """The query string, sorted and encoded in the one way that the signature and the request must share."""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def signed_headers(
    method: str,
    *,
    host: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    credentials: Credentials,
    region: str,
    now: datetime,
    service: str = "s3",
    body_sha256: str = EMPTY_SHA256,
) -> dict[str, str]:
    """``headers`` and those that prove who sends them. ``path`` and ``query`` are encoded already; ``now`` is UTC."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    result = {**headers, "x-amz-date": stamp, "x-amz-content-sha256": body_sha256}
    if credentials.session_token:
        result["x-amz-security-token"] = credentials.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in {**result, "host": host}.items()}
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        [method, path, query, *(f"{name}:{signed[name]}" for name in sorted(signed)), "", names, body_sha256]
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{credentials.access_key}/{scope}"
    result["Authorization"] = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return result
