"""What an Alnair job is told by its environment: its name, where the files of its pod are, or a URI in their place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hotset.errors import InvalidInput

__all__ = ["VARIABLES", "AlnairSettings"]

#: Every variable of ours for Alnair's jobs, and what it means. JOBNAME, which Alnair's operator sets, is not ours.
VARIABLES = {
    "HOTSET_ALNAIR_URI": "what an Alnair script reads where there is no job file: a URI that stands for the bucket",
    "HOTSET_ALNAIR_QOS": "its configurations where there is no job file, e.g. lazyloading=true,maxmemory=50",
    "HOTSET_ALNAIR_JOBS": "the directory of the job files (default: /jobs)",
    "HOTSET_ALNAIR_SHARE": "the directory of what the client container tells the job (default: /share)",
    "HOTSET_ALNAIR_SECRET": "the directory of client.conf (default: /secret)",
    "HOTSET_ALNAIR_WAIT": "seconds to wait for what the client container tells the job (default: 600)",
}


@dataclass(frozen=True)
class AlnairSettings:
    """What the variables say; see `VARIABLES` for their meaning."""

    jobname: str | None = None
    uri: str | None = field(default=None, repr=False)  #: a signed URL is a secret
    qos: Mapping[str, str] = field(default_factory=dict)
    jobs: Path = Path("/jobs")
    share: Path = Path("/share")
    secret: Path = Path("/secret")
    wait: float = 600.0

    @classmethod
    def of(cls, env: Mapping[str, str]) -> AlnairSettings:
        """From environment variables; `InvalidInput` names the variable that makes no sense."""
        default = cls()
        return cls(
            jobname=env.get("JOBNAME") or None,
            uri=env.get("HOTSET_ALNAIR_URI") or None,
            qos=_pairs("HOTSET_ALNAIR_QOS", env.get("HOTSET_ALNAIR_QOS", "")),
            jobs=Path(env.get("HOTSET_ALNAIR_JOBS") or default.jobs),
            share=Path(env.get("HOTSET_ALNAIR_SHARE") or default.share),
            secret=Path(env.get("HOTSET_ALNAIR_SECRET") or default.secret),
            wait=_seconds("HOTSET_ALNAIR_WAIT", env.get("HOTSET_ALNAIR_WAIT", ""), default.wait),
        )


def _pairs(name: str, text: str) -> dict[str, str]:
    pairs = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise InvalidInput(f"{name}: {part!r} is not of the form name=value")
        pairs[key.strip()] = value.strip()
    return pairs


def _seconds(name: str, text: str, default: float) -> float:
    if not text:
        return default
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInput(f"{name}: {text!r} is not a number of seconds") from error
    if not 0 <= value < math.inf:
        raise InvalidInput(f"{name}: {text!r} is not a number of seconds from 0 on")
    return value
