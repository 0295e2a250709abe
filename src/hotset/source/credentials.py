"""Credentials for S3 and the services that speak it: which ones a source uses, and how they are renewed.

The order is that of Amazon's own tools: what the caller gives, environment variables, a web identity, a profile, the
container's or the machine's role. All of it is asked for through the ``env`` that the caller hands over, never through
the process's own environment, so that a filler uses exactly what its owner sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hotset.errors import Denied
from hotset.source.dialects import DIALECTS, S3_VARIABLES, Variables, first_set
from hotset.source.options import SourceOptions

__all__ = ["Credentials", "FoundCredentials", "Provider", "find_credentials", "variables_of"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Keys to sign with. ``expires`` is None for those that last."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires: datetime | None = None


#: Called again whenever the last answer is about to expire.
Provider = Callable[[], Credentials]


@dataclass(frozen=True, slots=True)
class FoundCredentials:
    """``kind`` says in words where they come from, without a value. ``provider`` is None for anonymous access."""

    kind: str
    provider: Provider | None
    hint: str


def variables_of(scheme: str) -> Variables:
    return DIALECTS[scheme].variables if scheme in DIALECTS else S3_VARIABLES


def find_credentials(scheme: str, options: SourceOptions, env: Mapping[str, str]) -> FoundCredentials:
    """The credentials for ``scheme``. Raises `Denied`, saying what to set, if there are none."""
    names = variables_of(scheme)
    hint = f"set {names.access_key[0]} and {names.secret_key[0]}"
    hint += (
        ", or AWS_PROFILE, or anonymous for a public bucket" if scheme == "s3" else ", or anonymous for a public bucket"
    )
    if options.anonymous:
        return FoundCredentials("anonymous", None, "the bucket is not public: give credentials")
    if options.access_key and options.secret_key:
        given = Credentials(options.access_key, options.secret_key, options.session_token)
        return FoundCredentials("given by the caller", lambda: given, "check the access key that was given")
    access_key, secret_key = first_set(names.access_key, env), first_set(names.secret_key, env)
    if access_key and secret_key:
        static = Credentials(access_key, secret_key, first_set(names.session_token, env))
        which = next(name for name in names.access_key if env.get(name))
        return FoundCredentials(f"environment variable {which}", lambda: static, f"check {which}")
    raise Denied(f"no credentials for {scheme}://: {hint}")
