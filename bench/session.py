"""What all scenarios of a run share: where to work, how much, how often, with whom, and the data in the server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench.peers.base import Peer
from bench.report import Row, unavailable, what_broke
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

    def able(self, ability: type[T], among: Container[str] | None = None) -> dict[str, T]:
        """The peers that have the ability and can run here; only those named in ``among``, if it is given."""
        asked = self._asked(ability, among)
        return {name: peer for name, peer in asked.items() if not self.reason(name)}

    def absent(self, work: str, ability: type[T], among: Container[str] | None = None) -> Iterator[Row]:
        """A row for each of these peers that cannot run here."""
        for name in self._asked(ability, among):
            if reason := self.reason(name):
                yield unavailable(work, name, reason)

    def beside(
        self,
        work: str,
        ability: type[T],
        compare: Callable[[str, T], Iterator[Row]],
        among: Container[str] | None = None,
    ) -> Iterator[Row]:
        """The rows of ``compare`` for each of these peers. One that cannot run here, or breaks off (no FUSE, no server of
        its own), gets a row that says why, and the others go on.
        """
        for name, peer in self.able(ability, among).items():
            try:
                yield from compare(name, peer)
            except Exception as error:
                yield unavailable(work, name, what_broke(error))
        yield from self.absent(work, ability, among)

    def _asked(self, ability: type[T], among: Container[str] | None) -> dict[str, T]:
        return {
            name: peer
            for name, peer in self.peers.items()
            if isinstance(peer, ability) and (among is None or name in among)
        }

    def reason(self, name: str) -> str | None:
        """Why the peer cannot run here, or None. Asked once, since it may build the peer."""
        if name not in self._reasons:
            self._reasons[name] = self.peers[name].missing()
        return self._reasons[name]
