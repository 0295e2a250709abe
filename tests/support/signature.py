"""AWS signature, version 4, with the standard library: for requests that tests make and that the proxy changes."""

from __future__ import annotations

import hashlib
import hmac
import time

ACCESS_KEY = "AKIDTESTACCESSKEY123"  # rclone refuses short ones
SECRET_KEY = "secret-of-the-tests"
REGION = "us-east-1"


def sign(method: str, host: str, path: str, query: str, digest: str) -> dict[str, str]:
    """The headers of a signed request. `path` and `query` are already quoted, `digest` is the SHA-256 of the body."""
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    signed = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(signed)
    lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
    arguments = "&".join(sorted(query.split("&")))
    canonical = f"{method}\n{path}\n{arguments}\n{lines}\n{names}\n{digest}"
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{SECRET_KEY}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={ACCESS_KEY}/{scope}"
    authorization = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"
    return {**signed, "authorization": authorization}
