"""Amazon's shared configuration: the profile of ``~/.aws/credentials`` and ``~/.aws/config`` that applies.

Only what a file says is read here. Static keys and ``credential_process`` are used directly; profiles that need a
conversation (single sign-on, assumed roles) are left to botocore.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from hotset.errors import InvalidInput

__all__ = ["Profile", "load_profile"]

_CONVERSATION = ("sso_session", "sso_start_url", "role_arn", "login_session")


@dataclass(frozen=True, slots=True)
class Profile:
    """What the files say under one name. ``conversation`` is the setting that only botocore can act on, or None."""

    name: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    process: str | None = field(default=None, repr=False)
    conversation: str | None = None
    region: str | None = None
    endpoint: str | None = None

    @property
    def gives_credentials(self) -> bool:
        return bool((self.access_key and self.secret_key) or self.process or self.conversation)


def load_profile(name: str | None, env: Mapping[str, str]) -> Profile | None:
    """The profile ``name``, else that of AWS_PROFILE, else ``default``; None if there is no file or no such default.

    Raises `InvalidInput` if a profile was named that no file holds.
    """
    named = name or env.get("AWS_PROFILE") or env.get("AWS_DEFAULT_PROFILE")
    wanted = named or "default"
    credentials_file = _path(env, "AWS_SHARED_CREDENTIALS_FILE", "credentials")
    config_file = _path(env, "AWS_CONFIG_FILE", "config")
    section = "default" if wanted == "default" else f"profile {wanted}"
    config = _read(config_file)
    settings = {**config.get(section, {}), **_read(credentials_file).get(wanted, {})}
    if not settings:
        if named is None:
            return None
        raise InvalidInput(
            f"the profile {wanted!r} is neither in {credentials_file} nor in {config_file}; "
            "check AWS_PROFILE, or AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE"
        )
    service = config.get(f"services {settings.get('services', '')}", {})
    return Profile(
        name=wanted,
        access_key=settings.get("aws_access_key_id"),
        secret_key=settings.get("aws_secret_access_key"),
        session_token=settings.get("aws_session_token"),
        process=settings.get("credential_process"),
        conversation=next((key for key in _CONVERSATION if key in settings), None),
        region=settings.get("region"),
        endpoint=_nested(service.get("s3", ""), "endpoint_url") or settings.get("endpoint_url"),
    )


def _path(env: Mapping[str, str], variable: str, name: str) -> str:
    given = env.get(variable)
    home = env.get("HOME", "")
    if given:
        return os.path.join(home, given[2:]) if given.startswith("~/") else given
    return os.path.join(home, ".aws", name)


def _read(path: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise InvalidInput(f"{path}: cannot be read as a file of profiles ({type(error).__name__})") from error
    return {name: dict(parser.items(name)) for name in parser.sections()}


def _nested(block: str, wanted: str) -> str | None:
    r"""A setting of an indented block such as ``s3 =\\n  endpoint_url = ...``."""
    for line in block.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() == wanted:
            return value.strip()
    return None
