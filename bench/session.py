"""What all scenarios of a run share: where to work, how much, how often, with whom, and the data in the server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.peers.base import Peer
from bench.report import Row, unavailable
from bench.servers import Stored, store
from bench.workloads import Workload
from tests.support.s3 import S3Server

__all__ = ["Session"]

T = TypeVar("T")


@dataclass
class Session:
    """One run. ``share`` of each workload's objects is used, and contestants take ``turns`` turns."""

    root: Path
    server: S3Server
    share: float
    turns: int
    peers: Mapping[str, Peer]
    _stored: dict[str, Stored] = field(default_factory=dict)
    _reasons: dict[str, str | None] = field(default_factory=dict)

    def data(self, workload: Workload) -> Stored:
        """The workload, scaled, in the server; put there when it is first asked for."""
        if workload.name not in self._stored:
            self._stored[workload.name] = store(self.server, workload.scaled(self.share))
        return self._stored[workload.name]

    def forget(self, data: Stored) -> None:
        """Remove a workload from the server, when a scenario changed it or it is too large to keep."""
        self._stored.pop(data.workload.name, None)
        data.bucket.remove()

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """An empty directory on the session's file system, gone after the block."""
        path = Path(tempfile.mkdtemp(dir=self.root))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def able(self, ability: type[T]) -> dict[str, T]:
        """The peers that have the ability and can run here."""
        return {name: peer for name, peer in self.peers.items() if isinstance(peer, ability) and not self.reason(name)}

    def absent(self, work: str, ability: type) -> Iterator[Row]:
        """A row for each peer that has the ability and cannot run here."""
        for name, peer in self.peers.items():
            if isinstance(peer, ability) and (reason := self.reason(name)):
                yield unavailable(work, name, reason)

    def reason(self, name: str) -> str | None:
        """Why the peer cannot run here, or None. Asked once, since it may build the peer."""
        if name not in self._reasons:
            self._reasons[name] = self.peers[name].missing()
        return self._reasons[name]
