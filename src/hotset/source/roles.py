"""Expiring credentials that the surroundings hand out: web identity (Kubernetes), containers, the machine itself.

Each function returns a `Provider`: nothing is asked before its first call, and each call asks anew. Whoever keeps the
answer is `hotset.source.credentials.Renewed`.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from hotset.errors import Denied, Unavailable
from hotset.source.options import SourceOptions
from hotset.source.signing import Credentials, Provider
from hotset.source.web import Reply, Web

__all__ = ["botocore_profile", "container", "instance", "process", "web_identity"]

_LIMIT = 1 << 20
_METADATA = "http://169.254.169.254"
_CONTAINER = "http://169.254.170.2"
#: Hosts that may be asked for a container's credentials without TLS, as in Amazon's own clients.
_CONTAINER_HOSTS = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23", "localhost", "127.0.0.1", "::1"})


def _quick(options: SourceOptions) -> SourceOptions:
    """Link-local services answer at once or not at all, and never through a proxy."""
    return replace(options, connect_timeout=1.0, read_timeout=5.0, proxy="")


def web_identity(options: SourceOptions, env: Mapping[str, str], region: str) -> Provider:
    """AWS_WEB_IDENTITY_TOKEN_FILE, read at each renewal, and AWS_ROLE_ARN, exchanged at the token service."""
    web = Web(options, env)
    endpoint = env.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
    what = "exchange of the web identity token (AWS_WEB_IDENTITY_TOKEN_FILE)"

    def provide() -> Credentials:
        token = _read_file(env["AWS_WEB_IDENTITY_TOKEN_FILE"], "AWS_WEB_IDENTITY_TOKEN_FILE")
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": env["AWS_ROLE_ARN"],
            "RoleSessionName": env.get("AWS_ROLE_SESSION_NAME") or "hotset",
            "WebIdentityToken": token,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        reply = web.request("POST", endpoint, headers=headers, body=urlencode(form).encode(), what=what, limit=_LIMIT)
        _check(reply, what, "check AWS_ROLE_ARN and the role's trust policy")
        text = reply.body.decode(errors="replace")
        fields = {
            name: found[1]
            for name in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
            if (found := re.search(rf"<{name}>([^<]+)</{name}>", text))
        }
        return _credentials(fields, "SessionToken", what)

    return provide


def container(options: SourceOptions, env: Mapping[str, str]) -> Provider:
    """The task role of ECS or the pod identity of EKS."""
    web = Web(_quick(options), {})
    relative = env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    url = f"{_CONTAINER}{relative}" if relative else env["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    what = "credentials of the container (AWS_CONTAINER_CREDENTIALS_*)"
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _CONTAINER_HOSTS:
        raise Denied("AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or an address of this machine")

    def provide() -> Credentials:
        token_file = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        token = (
            _read_file(token_file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
            if token_file
            else env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
        )
        headers = {"Authorization": token.strip()} if token else {}
        reply = web.request("GET", url, headers=headers, what=what, limit=_LIMIT)
        _check(reply, what, "check the role of the task or pod")
        return _credentials(_json(reply.body, what), "Token", what)

    return provide


def instance(options: SourceOptions, env: Mapping[str, str], missing: str) -> Provider:
    """The role of the machine (IMDSv2). ``missing`` is the message if the machine has none."""
    web = Web(_quick(options), {})
    base = (env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _METADATA).rstrip("/")
    path = f"{base}/latest/meta-data/iam/security-credentials/"
    what = "credentials of this machine (instance metadata)"

    def provide() -> Credentials:
        try:
            token = web.request(
                "PUT",
                f"{base}/latest/api/token",
                headers={"X-aws-ec2-metadata-token-ttl-seconds": "300"},
                what=what,
                limit=_LIMIT,
            )
            headers = {"X-aws-ec2-metadata-token": token.body.decode()} if token.ok else {}
            roles = web.request("GET", path, headers=headers, what=what, limit=_LIMIT) if token.ok else token
            if not roles.ok or not roles.body.strip():
                raise Denied(missing)
            role = roles.body.decode().split()[0]
            reply = web.request("GET", path + role, headers=headers, what=what, limit=_LIMIT)
        except (Unavailable, UnicodeDecodeError) as error:
            raise Denied(missing) from error
        _check(reply, what, "check the role of the machine")
        return _credentials(_json(reply.body, what), "Token", what)

    return provide


def process(command: str, profile: str) -> Provider:
    """``credential_process`` of a profile: a command that prints credentials as JSON."""
    what = f"credential_process of the profile {profile!r}"

    def provide() -> Credentials:
        try:
            done = subprocess.run(shlex.split(command), capture_output=True, timeout=60, check=False)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise Denied(f"{what}: cannot be run ({type(error).__name__})") from error
        if done.returncode != 0:
            raise Denied(f"{what}: ended with status {done.returncode}")  # its output may hold secrets
        return _credentials(_json(done.stdout, what), "SessionToken", what)

    return provide


def botocore_profile(profile: str, setting: str, env: Mapping[str, str]) -> Provider:
    """A profile with a role or single sign-on, through botocore, which keeps and renews what it was given."""
    try:
        import botocore.session
    except ImportError as error:
        raise Denied(f"the profile {profile!r} uses {setting}: install hotset[aws] for it") from error
    session = botocore.session.Session(profile=profile)
    for variable, name in (("AWS_CONFIG_FILE", "config_file"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials_file")):
        if env.get(variable):
            session.set_config_variable(name, env[variable])

    def provide() -> Credentials:
        try:
            found = session.get_credentials()
            frozen = found.get_frozen_credentials() if found is not None else None
        except Exception as error:  # botocore's many errors share no useful base, and their texts may hold tokens
            raise Denied(f"the profile {profile!r}: {type(error).__name__}; is the login still valid?") from error
        if frozen is None or frozen.access_key is None or frozen.secret_key is None:
            raise Denied(f"the profile {profile!r} gives no credentials")
        # botocore renews by itself; asking again in a quarter of an hour is cheap and early enough.
        expires = datetime.now(UTC) + timedelta(minutes=15)
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token, expires)

    return provide


def _read_file(path: str, variable: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise Denied(f"{path}: cannot be read, but {variable} names it ({error.strerror})") from error


def _check(reply: Reply, what: str, hint: str) -> None:
    if reply.ok:
        return
    if reply.status == 429 or reply.status >= 500:
        raise Unavailable(f"{what}: HTTP {reply.status}")
    raise Denied(f"{what}: HTTP {reply.status}; {hint}")


def _json(body: bytes, what: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise Denied(f"{what}: the answer is not JSON") from error
    if not isinstance(fields, dict):
        raise Denied(f"{what}: the answer is not a JSON object")
    return fields


def _credentials(fields: Mapping[str, Any], token_name: str, what: str) -> Credentials:
    """Credentials as the services write them: AccessKeyId, SecretAccessKey, a token, Expiration."""
    try:
        expires = datetime.fromisoformat(fields["Expiration"]) if fields.get("Expiration") else None
        if expires is not None and expires.tzinfo is None:
            expires = expires.replace(tzinfo=UTC)
        return Credentials(fields["AccessKeyId"], fields["SecretAccessKey"], fields.get(token_name), expires)
    except (KeyError, ValueError, TypeError) as error:
        raise Denied(f"{what}: the answer lacks keys or has a wrong time of expiry") from error
