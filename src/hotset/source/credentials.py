"""Which credentials a source of S3 or of a service that speaks it uses.

The order is that of Amazon's own tools: what the caller gives, environment variables, a web identity, a profile, the
container's or the machine's role. All of it is looked up in the ``env`` that the caller hands over, never in the
process's own environment, so that a filler uses exactly what its owner sent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotset.errors import Denied
from hotset.source.dialects import DIALECTS, S3_VARIABLES, Variables, first_set
from hotset.source.options import SourceOptions
from hotset.source.profiles import Profile, load_profile
from hotset.source.signing import Credentials, Provider, Renewed

__all__ = ["FoundCredentials", "find_credentials", "variables_of"]


@dataclass(frozen=True, slots=True)
class FoundCredentials:
    """``kind`` says in words where they come from, without a value. ``provider`` is None for anonymous access.

    ``hint`` ends a message about denied access: what to check.
    """

    kind: str
    provider: Provider | None
    hint: str


def variables_of(scheme: str) -> Variables:
    return DIALECTS[scheme].variables if scheme in DIALECTS else S3_VARIABLES


def find_credentials(
    scheme: str, options: SourceOptions, env: Mapping[str, str], *, region: str, aws: bool
) -> FoundCredentials:
    """The credentials for ``scheme``, found without a request. Raises `Denied`, saying what to set, if there are none.

    ``aws`` tells whether the endpoint is Amazon's own: only then is the machine's role worth asking for, which happens
    at the first use.
    """
    if options.anonymous:
        return FoundCredentials("anonymous", None, "the bucket is not public: give credentials")
    found = _given(scheme, options) or (_from_profile(options, env) if scheme == "s3" and options.profile else None)
    found = found or _from_variables(scheme, env)
    if found is None and scheme == "s3":
        found = _from_web_identity(options, env, region) or _from_profile(options, env) or _from_container(options, env)
    if found is not None:
        return found
    names = variables_of(scheme)
    missing = f"no credentials for {scheme}://: set {names.access_key[0]} and {names.secret_key[0]}"
    missing += ", or AWS_PROFILE," if scheme == "s3" else ""
    missing += " or ask for anonymous access if the bucket is public"
    if scheme == "s3" and aws and env.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
        from hotset.source.roles import instance

        return FoundCredentials(
            "role of this machine (instance metadata)", Renewed(instance(options, env, missing)), "check its role"
        )
    raise Denied(missing)


def _given(scheme: str, options: SourceOptions) -> FoundCredentials | None:
    if not options.access_key and not options.secret_key:
        return None
    if not options.access_key or not options.secret_key:
        raise Denied(f"{scheme}://: an access key and a secret key must be given together")
    static = Credentials(options.access_key, options.secret_key, options.session_token)
    return FoundCredentials("given by the caller", lambda: static, "check the keys that were given")


def _from_variables(scheme: str, env: Mapping[str, str]) -> FoundCredentials | None:
    names = variables_of(scheme)
    access_key, secret_key = first_set(names.access_key, env), first_set(names.secret_key, env)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        there, absent = (
            (names.secret_key[0], names.access_key[0]) if secret_key else (names.access_key[0], names.secret_key[0])
        )
        raise Denied(f"{there} is set but {absent} is not: set both")
    static = Credentials(access_key, secret_key, first_set(names.session_token, env))
    which = next(name for name in names.access_key if env.get(name))
    return FoundCredentials(f"environment variable {which}", lambda: static, f"check {which} and what it may read")


def _from_web_identity(options: SourceOptions, env: Mapping[str, str], region: str) -> FoundCredentials | None:
    if not env.get("AWS_WEB_IDENTITY_TOKEN_FILE") or not env.get("AWS_ROLE_ARN"):
        return None
    from hotset.source.roles import web_identity

    return FoundCredentials(
        "web identity (AWS_WEB_IDENTITY_TOKEN_FILE)",
        Renewed(web_identity(options, env, region)),
        "check what the role AWS_ROLE_ARN may read",
    )


def _from_profile(options: SourceOptions, env: Mapping[str, str]) -> FoundCredentials | None:
    profile = load_profile(options.profile, env)
    if profile is None or not profile.gives_credentials:
        return None
    how, provider = _profile_provider(profile, env)
    hint = f"check what the profile {profile.name!r} may read"
    return FoundCredentials(f"profile {profile.name!r} ({how})", provider, hint)


def _profile_provider(profile: Profile, env: Mapping[str, str]) -> tuple[str, Provider]:
    if profile.conversation is None and profile.access_key and profile.secret_key:
        static = Credentials(profile.access_key, profile.secret_key, profile.session_token)
        return "static keys", lambda: static
    from hotset.source import roles

    if profile.conversation is not None:
        provider = roles.botocore_profile(profile.name, profile.conversation, env)
        return profile.conversation, Renewed(provider)
    assert profile.process is not None, "gives_credentials says that one of the three is there"
    return "credential_process", Renewed(roles.process(profile.process, profile.name))


def _from_container(options: SourceOptions, env: Mapping[str, str]) -> FoundCredentials | None:
    if not (env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") or env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")):
        return None
    from hotset.source.roles import container

    return FoundCredentials(
        "role of the container (AWS_CONTAINER_CREDENTIALS_*)",
        Renewed(container(options, env)),
        "check what the role of the task or pod may read",
    )
