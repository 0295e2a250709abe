"""The engine: threads that fetch units of one snapshot, each unit once.

Nobody in this process fetches a unit twice at a time (`_running`), nobody on this machine does (a lock byte in the
claims file, so that a killed filler's claims end with it), and after each lock the state is looked at again. The bytes
come from an older snapshot's pack if it has the same version of the object, else from the source; they go to their place
in the cache if the pack was admitted, else to the one who waits for them or to the staging buffer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from random import random

import numpy as np
import numpy.typing as npt

from hotset.errors import Changed, Closed, HotsetError
from hotset.fill.agenda import Agenda, Batch, Unit
from hotset.fill.claims import AHEAD, Claims
from hotset.fill.coverage import Coverage
from hotset.fill.donors import Donors
from hotset.fill.limit import LimitState
from hotset.fill.pace import Pace
from hotset.fill.progress import Counters, FillStats, Progress
from hotset.fill.staging import Staging
from hotset.fill.unit import Elsewhere, Fetched, Outcome, Result, UnitWork, defect
from hotset.snapshot import Snapshot
from hotset.source.base import Buffer, Source
from hotset.tier.node.shelf import Shelf

__all__ = ["Engine", "Outcome"]

#: A unit that another filler holds is looked at again after this many seconds.
CONTESTED_PAUSE = 0.01
#: A batch is broken off after so many seconds: with a slow source meeting the others after each unit costs nothing.
BATCH_SECONDS = 0.05
IDLE_SECONDS = 30.0  #: so often an idle filler looks what was evicted
#: After so long the other filler counts as stalled, and the unit is fetched here as well.
CONTESTED_PATIENCE = 60.0


class Engine:
    """Fetches units of one snapshot. Thread-safe; `close` ends all threads promptly."""

    def __init__(
        self,
        snapshot: Snapshot,
        shelf: Shelf,
        source: Source,
        claims: Claims,
        *,
        donors: Donors | None = None,
        staging: int = 256 * 2**20,
        limit: LimitState | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.snapshot = snapshot
        self._shelf = shelf
        self._unit = UnitWork(snapshot, shelf, source, claims, donors)
        self._claims = claims
        self._clock = clock
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        # All below is protected by the lock.
        self._agenda = Agenda(snapshot)
        self._staging = Staging(staging)
        self._pace = Pace(limit or LimitState(), clock)
        self._coverage = Coverage(snapshot, shelf, clock)
        self._counters = Counters(clock)
        self._running: dict[Unit, Batch] = {}
        self._busy = 0  # threads that have a batch
        self._waiters: dict[Unit, list[Future[Outcome]]] = {}
        self._contested: dict[Unit, float] = {}  # -> when to stop waiting for the other filler
        self._look_again: deque[tuple[float, Unit]] = deque()
        self._failed: dict[Unit, HotsetError] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._watching = 0  # of the idle ones, those that wake up in time for `_look_again`
        self._closed = False
        self._broken: HotsetError | None = None

    # -- what callers ask for ------------------------------------------------------------------------------------------

    def want(self, units: Iterable[Unit]) -> list[Future[Outcome]]:
        """One future a unit: its bytes if they have no place in the cache, None if they are there (now).

        The caller has looked and did not find them, so what is remembered of their packs is not trusted.
        """
        units = list(units)
        damaged = [unit for unit in units if not self._shelf.verify_presence(*unit)]
        futures: list[Future[Outcome]] = []
        with self._lock:
            self._check_open()
            self._counters.damaged += len(damaged)
            self._agenda.advance(dict.fromkeys(self.snapshot.unit_range(*unit)[0] for unit in units))
            for unit in units:
                future: Future[Outcome] = Future()
                futures.append(future)
                if (staged := self._staging.take(unit)) is not None:
                    future.set_result(staged)
                elif unit not in self._running and self._shelf.present(*unit):
                    future.set_result(None)
                else:
                    self._waiters.setdefault(unit, []).append(future)
                    self._overtake(unit)
                    self._agenda.want([unit])
            self._wake(len(units))
        return futures

    def newest(self, position: int) -> Buffer:
        """An object as the source has it now, whatever the snapshot says."""
        data = self._unit.newest(position)
        with self._lock:
            self._counters.fetched(len(data))
        return data

    def follow(self, order: npt.NDArray[np.uint64], ahead: int) -> None:
        """Fetch in this order of positions, at most ``ahead`` bytes beyond what was read."""
        self._shelf.reconsider()
        with self._lock:
            self._check_open()
            self._agenda.follow(order, ahead)
            self._drop_stale()
            self._wake(self._pace.limit)

    def advance(self, positions: Sequence[int]) -> None:
        """These objects were read without being asked for here."""
        with self._lock:
            self._agenda.advance(positions)
            self._wake(len(positions))

    def load(self) -> None:
        """Fetch everything that has a place in the cache, in the order of keys."""
        self._shelf.reconsider()
        with self._lock:
            self._check_open()
            self._failed.clear()
            self._agenda.load(range(len(self.snapshot)))
            self._wake(self._pace.limit)

    def cancel(self) -> None:
        """Stop fetching ahead; what somebody waits for is still fetched."""
        with self._lock:
            self._agenda.cancel()
            self._claims.release_runs(keep=self._running.keys())
            self._drop_stale()

    def wait_loaded(self, timeout: float | None = None) -> bool:
        """Wait until nothing that was wanted or is to be loaded is left; False if the time was over first."""
        with self._lock:
            done = self._settled.wait_for(lambda: self._closed or self._broken or self._quiet(), timeout)
            if self._broken is not None:
                raise self._broken
            return bool(done)

    def failures(self) -> dict[Unit, HotsetError]:
        """The units whose last fetch failed, and why."""
        with self._lock:
            return dict(self._failed)

    def note_retry(self, *, throttled: bool) -> None:
        """The source was asked again; if it was for too many requests, there will be fewer."""
        with self._lock:
            self._counters.retried += 1
            if throttled:
                self._counters.throttled += 1
                self._pace.throttled()

    def stats(self) -> FillStats:
        with self._lock:
            limit, staged, waiting = self._pace.limit, self._staging.used, len(self._waiters)
            failed, busy = len(self._failed), self._busy
            return self._counters.stats(running=busy, waiting=waiting, limit=limit, staged=staged, failed=failed)

    def progress(self) -> Progress:
        """How far the load is; exact once nothing is left to do."""
        with self._lock:
            finished, stats = self._quiet(), self.stats()
        return self._coverage.progress(stats, finished=finished)

    def close(self) -> None:
        """End all threads; whoever waits gets `Closed`. Requests under way are waited for."""
        with self._lock:
            self._closed = True
            waiters, self._waiters = self._waiters, {}
            self._work.notify_all()
            self._settled.notify_all()
        for futures in waiters.values():
            for future in futures:
                future.set_exception(Closed("the filler was closed"))
        for thread in self._threads:
            thread.join()

    def _check_open(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._closed:
            raise Closed("the filler was closed")

    # -- threads -------------------------------------------------------------------------------------------------------

    def _wake(self, units: int) -> None:
        """Make sure that somebody looks at the agenda: sleeping threads, and a new one while the limit allows."""
        self._work.notify(units)
        if self._idle < units and len(self._threads) < self._pace.limit:
            thread = threading.Thread(target=self._run, name=f"hotset-fetch-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        try:
            self._fetch_until_closed()
        except Exception as error:  # noqa: BLE001  without this thread somebody would wait for ever
            self._break(error if isinstance(error, HotsetError) else defect(error))

    def _break(self, error: HotsetError) -> None:
        """The cache itself fails (dropped, not writable, a defect): everybody gets the reason, nothing more is tried."""
        with self._lock:
            self._broken = error
            for unit in list(self._waiters):
                self._answer(unit, error)
            self._work.notify_all()
            self._settled.notify_all()

    def _fetch_until_closed(self) -> None:
        batch: Batch | None = None
        done: list[tuple[Unit, Result]] = []
        while (batch := self._exchange(batch, done)) is not None:
            done = self._work_through(batch)

    def _work_through(self, batch: Batch) -> list[tuple[Unit, Result]]:
        """The results of the units of a batch, or of the first of them if there is reason to meet the others."""
        begun: list[Unit] = []
        got: list[Result | Fetched] = []
        until = self._clock() + BATCH_SECONDS
        while (unit := batch.begin()) is not None:
            begun.append(unit)
            got.append(self._unit.fetch(unit, patient=self._clock() < self._contested.get(unit, float("inf"))))
            # Looked at without the lock: whoever is overlooked now is seen after the next unit.
            wanted = unit in self._waiters or self._agenda.urgent
            if wanted or self._closed or self._agenda.cancelled(batch) or self._clock() > until:
                break
        return list(zip(begun, self._unit.store(begun, got), strict=True))

    def _exchange(self, batch: Batch | None, done: Sequence[tuple[Unit, Result]]) -> Batch | None:
        """Hand in results and get the next batch, under one lock; waits for work, None when closed."""
        with self._lock:
            if batch is not None:
                self._hand_in(batch, done)
            while not self._closed and self._broken is None:
                if self._busy < self._pace.limit and (batch := self._take()) is not None:
                    self._busy += 1
                    self._running.update(dict.fromkeys(batch.units, batch))
                    if self._agenda.pending or (self._look_again and not self._watching):
                        self._wake(1)  # one after the other, so that there are never more threads than work
                    return batch
                if self._quiet():
                    self._settled.notify_all()
                if self._busy < self._pace.limit:
                    self._pace.idle()
                pause = max(0.001, self._look_again[0][0] - self._clock()) if self._look_again else IDLE_SECONDS
                self._idle, self._watching = self._idle + 1, self._watching + (watching := bool(self._look_again))
                woken = self._work.wait(pause)
                self._idle, self._watching = self._idle - 1, self._watching - watching
                if not woken and threading.current_thread() is self._threads[0]:
                    self._shelf.let_go()
            return None

    def _hand_in(self, batch: Batch, done: Sequence[tuple[Unit, Result]]) -> None:
        """Settle what was done, and let others have the rest."""
        self._busy -= 1
        for unit, result in done:
            del self._running[unit]
            self._settle(unit, result)
        rest = batch.rest
        for unit in rest:
            self._put_down(unit)
        self._agenda.give_back(batch, rest)
        if self._quiet():
            self._settled.notify_all()

    def _overtake(self, unit: Unit) -> None:
        """Nobody waits behind what else a thread was given, which may hang."""
        batch = self._running.get(unit)
        if batch is not None and unit not in self._contested and batch.withdraw(unit):
            self._put_down(unit)

    def _put_down(self, unit: Unit) -> None:
        """A thread was given the unit and did not begin it."""
        del self._running[unit]
        self._staging.withdraw(unit)
        self._claims.release_ahead(unit)

    def _take(self) -> Batch | None:
        while self._look_again and self._look_again[0][0] <= self._clock():
            _, unit = self._look_again.popleft()
            if not self._shelf.present(*unit):
                return Batch([unit], deque())  # alone, so that nothing is given back
            del self._contested[unit]
            self._answer(unit, None)
        awaited, threads = self._waiters.__contains__, self._pace.limit
        batch = self._agenda.take(self._needed, awaited, self._has_place, self._keep, threads=threads)
        if batch is not None and not self._agenda.loads(batch):
            # The load rests now: what it claimed ahead, another filler may be waiting for.
            self._claims.release_runs(keep=self._running.keys())
        return batch

    def _needed(self, unit: Unit) -> bool:
        if unit in self._running or unit in self._staging or unit in self._contested:
            return False
        if self._shelf.present(*unit):
            self._answer(unit, None)
            return False
        return unit in self._waiters or unit not in self._failed

    def _has_place(self, unit: Unit) -> bool:
        if self._shelf.admissible(unit[0]):
            return True  # its pack's file is made by the thread that fetches it: thousands of them would be made here
        while not self._staging.promise(unit, self._size(unit)):
            oldest = self._staging.oldest()
            if oldest is None or self._due(oldest):
                return False
            self._staging.withdraw(oldest)
        return True

    def _due(self, unit: Unit) -> bool:
        position, _, _ = self.snapshot.unit_range(*unit)
        return self._agenda.due(position, late=self._staging.capacity // 2)

    def _keep(self, unit: Unit) -> bool:
        """Whether a unit that a load has come to has a place; claims the absent units behind it together with it."""
        number, start = unit
        if not self._shelf.admit(number):
            return False
        if not self._claims.holds(unit):
            run = [unit]
            for following in range(start + 1, min(start + AHEAD, self.snapshot.pack_units[number])):
                if not self._needed((number, following)):
                    break
                run.append((number, following))
            if len(run) > 1 and not self._claims.take_run(self.snapshot.pack_name(number), run):
                self._agenda.jump(random())
        return True

    def _quiet(self) -> bool:
        return not (self._running or self._contested or self._waiters or self._agenda.loading)

    def _size(self, unit: Unit) -> int:
        _, start, end = self.snapshot.unit_range(*unit)
        return end - start

    # -- results --------------------------------------------------------------------------------------------------------

    def _settle(self, unit: Unit, result: Result) -> None:
        outcome = result.outcome
        if isinstance(outcome, Elsewhere):
            self._staging.withdraw(unit)
            self._contested.setdefault(unit, self._clock() + CONTESTED_PATIENCE)
            self._look_again.append((self._clock() + CONTESTED_PAUSE, unit))
            return
        self._contested.pop(unit, None)
        if isinstance(outcome, HotsetError):
            self._counters.changed += isinstance(outcome, Changed)
            self._failed[unit] = outcome
        else:
            self._failed.pop(unit, None)
        self._counters.copied_bytes += result.copied
        if result.fetched >= 0:
            self._counters.fetched(result.fetched)
            self._pace.fetched(result.fetched)
        if result.damaged:
            self._counters.damaged += len(result.damaged)
            self._agenda.repair(result.damaged)
        self._answer(unit, outcome)

    def _answer(self, unit: Unit, outcome: Outcome | HotsetError) -> None:
        """Tell whoever waits for the unit; bytes that nobody waits for stay in the staging buffer if they were promised
        a place there.
        """
        waiters = self._waiters.pop(unit, ())
        for future in waiters:
            if isinstance(outcome, HotsetError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if waiters or outcome is None or isinstance(outcome, HotsetError):
            self._staging.withdraw(unit)
        elif self._staging.promise(unit, len(outcome)):  # else made before, or a place in the cache was expected
            self._staging.put(unit, outcome)

    def _drop_stale(self) -> None:
        """Free the places of staged objects that the order does not come to soon."""
        for unit in self._staging.units():
            if not self._due(unit):
                self._staging.withdraw(unit)
