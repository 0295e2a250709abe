"""What is written down of a dataset and its snapshots, and shown of them. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Literal

__all__ = ["Current", "DatasetRecord", "Layout", "SnapshotRecord", "SourceRecord"]

Layout = Literal["packs", "files"]


@dataclass(frozen=True)
class SourceRecord:
    """One source of a dataset, as far as it may be written down: ``options`` hold no secret."""

    uri: str
    identity: str
    path: str = ""  #: where its objects lie in the dataset
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetRecord:
    """What a dataset is. Two records with one identifier are the same dataset and share packs."""

    sources: tuple[SourceRecord, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    layout: Layout = "packs"
    trust_domain: str = "local"

    @property
    def identity(self) -> bytes:
        """Everything that tells this dataset from another; part of each pack's name (rule 1)."""
        parts = [self.trust_domain, *(f"{source.path}={source.identity}" for source in self.sources)]
        return json.dumps([parts, self.include, self.exclude]).encode()

    @property
    def identifier(self) -> str:
        return hashlib.sha256(self.identity).hexdigest()[:32]

    def encoded(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def decode(cls, value: dict[str, object]) -> DatasetRecord:
        fields = dict(value)
        fields["sources"] = tuple(SourceRecord(**source) for source in fields["sources"])  # type: ignore[attr-defined]
        fields["include"], fields["exclude"] = tuple(fields["include"]), tuple(fields["exclude"])  # type: ignore[arg-type]
        return cls(**fields)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Current:
    """The snapshot that an opener gets, and when the source was last seen to be equal to it."""

    digest: str
    listed_ns: int


@dataclass(frozen=True)
class SnapshotRecord:
    """One snapshot in the cache, as `hotset snapshots` shows it."""

    digest: str
    created_ns: int
    objects: int
    bytes: int
    pinned: bool
    leased: bool
    current: bool
    damaged: bool = False  #: its index cannot be read; objects and bytes are 0 then
