"""What a filler is told when it is started: which dataset, from where, how."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hotset.base.retry import RetryPolicy
from hotset.source import SourceOptions

if TYPE_CHECKING:
    from hotset.snapshot import PlanParameters

__all__ = ["FillSettings", "SourceSettings", "decode_settings", "encode_settings"]


@dataclass(frozen=True)
class SourceSettings:
    """How to reach one source: its URI as given, and options that may hold secrets (left out of the repr)."""

    uri: str = field(repr=False)  #: a signed URL is a secret
    path: str = ""
    options: SourceOptions = field(default_factory=SourceOptions, repr=False)


@dataclass(frozen=True)
class FillSettings:
    """What a filler must know. Travels to the filler's process through a pipe, never in arguments."""

    cache: str
    dataset: str  #: its identifier
    sources: tuple[SourceSettings, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_rate: float | None = None  #: bytes a second
    max_requests: int = 256
    staging: int = 256 * 2**20
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    parameters: PlanParameters | None = None  #: None: the default


def encode_settings(settings: FillSettings, env: Mapping[str, str], socket_path: str, parent: int) -> bytes:
    message = {"settings": asdict(settings), "env": dict(env), "socket": socket_path, "parent": parent}
    return json.dumps(message).encode()


def decode_settings(message: Mapping[str, Any]) -> FillSettings:
    fields = dict(message)
    fields["sources"] = tuple(
        SourceSettings(entry["uri"], entry["path"], SourceOptions(**entry["options"])) for entry in fields["sources"]
    )
    fields["include"], fields["exclude"] = tuple(fields["include"]), tuple(fields["exclude"])
    fields["retry"] = RetryPolicy(**fields["retry"])
    if fields["parameters"] is not None:
        from hotset.snapshot import PlanParameters

        fields["parameters"] = PlanParameters(**fields["parameters"])
    return FillSettings(**fields)
