"""A cold load: everything from the bucket to this machine, from an empty directory. Everybody lists, then fetches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from bench import limits
from bench.peers.base import Copies
from bench.report import Row, speed, unavailable, what_broke
from bench.servers import Stored
from bench.session import Session
from bench.subject import load
from bench.timing import take_turns
from bench.workloads import IMAGES, LARGE, RECORDS, Workload

__all__ = ["run"]

_LIMITS_AT_LEAST = {"bare threads": 0.8, "bare threads + tmpfs write": 0.9}
_PEERS_AT_LEAST = {"JuiceFS": 1.0, "rclone": 1.4, "s3torchconnector": 2.5}
_COMMANDS = {"JuiceFS": "juicefs sync", "rclone": "rclone copy"}


def run(session: Session) -> Iterator[Row]:
    yield from _images(session)
    for workload in (RECORDS, LARGE):
        yield from _others(session, workload)


def _images(session: Session) -> Iterator[Row]:
    data = session.data(IMAGES)
    work = f"load, cold, {data.workload.label}"
    loads = _Loads(session, data)
    contestants = {"hotset": loads.hotset, **loads.bare()}
    for name, peer in session.able(Copies).items():
        contestants[name] = lambda n=name, p=peer: loads.peer(n, p)
    taken = take_turns(contestants, session.turns)
    rate = {name: data.workload.count / samples.best for name, samples in taken.items()}
    required = _LIMITS_AT_LEAST | _PEERS_AT_LEAST
    for name in contestants:
        if name != "hotset":
            shown = _COMMANDS.get(name, name)
            if name in loads.broken:
                yield unavailable(work, shown, loads.broken[name])
                continue
            yield speed(work, rate["hotset"], shown, rate[name], unit="objects/s", at_least=required.get(name))
    for name, best in loads.fetching.items():
        if name != "hotset":
            ours = data.workload.count / loads.fetching["hotset"]
            yield speed(f"{work}: without the LIST", ours, name, data.workload.count / best, unit="objects/s")
    yield from session.absent(work, Copies)


def _others(session: Session, kind: Workload) -> Iterator[Row]:
    """Small and large objects: against the limits only, once more often would take too long."""
    data = session.data(kind)
    loads = _Loads(session, data)
    megabytes = data.workload.total_bytes / 1e6
    taken = take_turns({"hotset": loads.hotset, **loads.bare()}, min(session.turns, 2))
    for name in limits.FETCHES:
        ours, other = megabytes / taken["hotset"].best, megabytes / taken[name].best
        yield speed(f"load, cold, {data.workload.label}", ours, name, other, unit="MB/s")
    session.forget(data)


class _Loads:
    """Cold loads of one bucket, each into a new directory. Also keeps the best time of the fetching alone, and which peer
    broke off and why."""

    def __init__(self, session: Session, data: Stored) -> None:
        self._session = session
        self._data = data
        self.fetching: dict[str, float] = {}
        self.broken: dict[str, str] = {}

    def hotset(self) -> float:
        with self._session.directory() as cache:
            took = load(self._data, cache)
        self._keep("hotset", took.filled)
        return took.total

    def bare(self) -> dict[str, Callable[[], float]]:
        return {name: lambda n=name, w=writes: self._bare(n, writes=w) for name, writes in limits.FETCHES.items()}

    def peer(self, name: str, peer: Copies) -> float:
        if name in self.broken:
            return math.inf
        with self._session.directory() as into:
            try:
                return peer.copy(self._data, into)
            except Exception as error:
                self.broken[name] = what_broke(error)
                return math.inf

    def _bare(self, name: str, *, writes: bool) -> float:
        with self._session.directory() as into:
            listed, fetched = limits.fetch(self._data, into if writes else None)
        self._keep(name, fetched)
        return listed + fetched

    def _keep(self, name: str, seconds: float) -> None:
        self.fetching[name] = min(seconds, self.fetching.get(name, seconds))
