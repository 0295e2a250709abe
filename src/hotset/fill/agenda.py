"""What to fetch next: wanted objects first, then the order that the training will read in, then everything else.

While there is plenty for everybody, a thread is given several small units at once: threads that meet after each unit at one
lock, and at the interpreter's, spend more on meeting than on the unit. A thread that has reason to stop gives the rest back.

No clock, no lock, no I/O: the engine calls this under its own lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotset.snapshot import Snapshot

__all__ = ["Agenda", "Batch", "Unit"]

Unit = tuple[int, int]
"""(pack, unit in the pack): the smallest thing that is fetched."""

#: A batch has no more units than this, and is not added to once it has so many bytes.
BATCH_UNITS = 32
BATCH_BYTES = 2**18
#: There must be so many batches for each thread, so that towards the end nobody has much to do while others have nothing.
BATCHES_EACH = 2


@dataclass(eq=False)
class Batch:
    """What one thread fetches next, in this order. Each unit is begun by the thread or withdrawn by another, never both:
    either takes it off the row in one step, without a lock.
    """

    units: list[Unit]
    lane: deque[Unit]  #: where the rest goes if the thread stops; one that is not the agenda's any more is a bin

    def __post_init__(self) -> None:
        self._todo = deque(self.units)

    def begin(self) -> Unit | None:
        """The next unit, which is the thread's to finish."""
        try:
            return self._todo.popleft()
        except IndexError:
            return None

    def withdraw(self, unit: Unit) -> bool:
        """Take a unit away from the thread; False if it has begun it."""
        try:
            self._todo.remove(unit)
        except ValueError:
            return False
        return True

    @property
    def rest(self) -> list[Unit]:
        """What is not begun."""
        return list(self._todo)


class Agenda:
    """Units to come, in three classes of urgency. A unit may be named several times; `take` asks whether it is needed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._wanted: deque[Unit] = deque()
        self._order: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._occurrences: _Occurrences | None = None  # where each object stands in the order; made when asked
        self._ends: npt.NDArray[np.int64] = np.empty(0, np.int64)  # bytes of the order up to and with each place
        self._next = 0  # place in the order of what is fetched next
        self._read = 0  # place in the order behind what was read last
        self._ahead = 0  # bytes that may be fetched beyond what was read
        self._held: deque[Unit] = deque()  # units of the object that the order has come to
        self._load: deque[range] = deque()  # positions
        self._loading: deque[Unit] = deque()

    def want(self, units: Iterable[Unit]) -> None:
        """Somebody waits for these: before all else, and not a second time when the order comes to them."""
        for unit in units:
            self._wanted.append(unit)
            with suppress(ValueError):
                self._held.remove(unit)

    def repair(self, units: Iterable[Unit]) -> None:
        """These are lost again after they were here: before the rest of a load."""
        self._loading.extendleft(units)

    def follow(self, order: npt.NDArray[np.uint64], ahead: int) -> None:
        """The positions that will be read, in that order; replaces an earlier order. At most ``ahead`` bytes are fetched
        beyond the last one that was read.
        """
        places = order.astype(np.int64)
        self._ends = np.cumsum(self._snapshot.size_array()[places], dtype=np.int64)  # first, since it may be refused
        self._order = places
        self._occurrences = None
        self._next = self._read = 0
        self._ahead = ahead
        self._held = deque()

    def load(self, positions: range) -> None:
        """Everything, in the order of keys, when nothing more urgent is left."""
        self._load.append(positions)

    def jump(self, part: float) -> None:
        """Go on with the load elsewhere: behind this part of what comes next, which comes last then. Another filler loads
        here, and two that walk side by side would do nothing but wait for one another.
        """
        if self._load:
            following = self._load.popleft()
            cut = int(len(following) * part)
            self._load.append(following[:cut])
            self._load.appendleft(following[cut:])

    def advance(self, positions: Iterable[int]) -> None:
        """These were read: the window of the order moves on."""
        if not len(self._order):
            return
        for position in positions:
            place, repeated = self._stands(position, self._read)
            # An object that the order names again only far ahead was read for an earlier place, by a slower reader.
            if place is not None and not (repeated and place >= self._next):
                self._read = place + 1
        if self._read >= self._next:  # what was read was fetched on demand if the order had not come to it
            self._next = self._read
            self._held = deque()

    def due(self, position: int, late: int) -> bool:
        """Whether the object stands in the window of what is read next, or at most ``late`` bytes behind what was read
        last: of several readers, some are slower.
        """
        if not len(self._order):
            return False
        behind = int(self._ends[self._read - 1]) if self._read else 0
        place, _ = self._stands(position, int(np.searchsorted(self._ends, max(0, behind - late), side="left")))
        return place is not None and (place < self._next or self._within_window(place))

    def _stands(self, position: int, start: int) -> tuple[int | None, bool]:
        if self._occurrences is None:
            self._occurrences = _Occurrences(self._order)
        return self._occurrences.first(position, start)

    def cancel(self) -> None:
        """Forget the order and the load; what is wanted stays."""
        self.follow(np.empty(0, np.uint64), 0)
        self._load.clear()
        self._loading = deque()

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for a unit that no thread has taken yet."""
        return bool(self._wanted)

    @property
    def loading(self) -> bool:
        """Whether something that was asked for, by a wait or a load, has not been taken yet."""
        return bool(self._wanted or self._load or self._loading)

    @property
    def pending(self) -> bool:
        """Whether `take` may find something, so that one more thread should look."""
        return self.loading or bool(self._held) or (self._next < len(self._order) and self._within_window(self._next))

    def take(
        self,
        needed: Callable[[Unit], bool],
        awaited: Callable[[Unit], bool],
        ahead: Callable[[Unit], bool],
        keep: Callable[[Unit], bool],
        *,
        threads: int,
    ) -> Batch | None:
        """What a thread, one of ``threads``, fetches next, or None if there is nothing to do now.

        ``needed`` says whether a unit is absent and nobody fetches it yet; ``awaited`` whether who wanted it still waits
        (it may have come by another way); ``ahead`` whether it has a place to wait in until it is read, if it is fetched
        ahead (else the order pauses); ``keep`` whether it has a place in the cache, if it is only loaded (else it is
        left out). What is wanted goes to the one who waits and needs no place.
        """
        wanted = self._take_wanted(needed, awaited)
        if (unit := next(wanted, None)) is not None:
            return self._batch(unit, wanted, self._wanted, len(self._wanted), threads)
        order = self._take_ahead(needed, ahead)
        if (unit := next(order, None)) is not None:
            return self._batch(unit, order, self._held, self._places_ahead(), threads)
        load = self._take_loaded(needed, keep)
        if (unit := next(load, None)) is not None:
            return self._batch(unit, load, self._loading, sum(map(len, self._load)), threads)
        return None

    def give_back(self, batch: Batch, rest: Sequence[Unit]) -> None:
        """The thread stopped before these; they come first again, unless what they were taken for was cancelled."""
        batch.lane.extendleft(reversed(rest))

    def cancelled(self, batch: Batch) -> bool:
        """Whether what the batch was taken for is not on the agenda any more."""
        lane = batch.lane
        return lane is not self._wanted and lane is not self._held and lane is not self._loading

    def loads(self, batch: Batch) -> bool:
        """Whether the batch is a part of a load, which all else goes before."""
        return batch.lane is self._loading

    def _batch(self, first: Unit, more: Iterator[Unit], lane: deque[Unit], left: int, threads: int) -> Batch:
        """The first unit and those behind it, as many as is fair where ``left`` more are there to do."""
        units, size = [first], self._size(first)
        most = min(BATCH_UNITS, left // (threads * BATCHES_EACH))
        while len(units) < most and size < BATCH_BYTES and (unit := next(more, None)) is not None:
            if unit not in units:
                units.append(unit)
                size += self._size(unit)
        return Batch(units, lane)

    def _take_wanted(self, needed: Callable[[Unit], bool], awaited: Callable[[Unit], bool]) -> Iterator[Unit]:
        while self._wanted:
            unit = self._wanted.popleft()
            if awaited(unit) and needed(unit):
                yield unit

    def _take_ahead(self, needed: Callable[[Unit], bool], ahead: Callable[[Unit], bool]) -> Iterator[Unit]:
        while (unit := self._head_of_order()) is not None:
            if not needed(unit):
                self._held.popleft()
            elif not ahead(unit):
                return
            else:
                yield self._held.popleft()

    def _take_loaded(self, needed: Callable[[Unit], bool], keep: Callable[[Unit], bool]) -> Iterator[Unit]:
        while (unit := self._head_of_load()) is not None:
            self._loading.popleft()
            if needed(unit) and keep(unit):
                yield unit

    def _places_ahead(self) -> int:
        """How many places of the order lie between what was fetched and the end of the window."""
        behind = int(self._ends[self._read - 1]) if self._read else 0
        return int(np.searchsorted(self._ends, behind + self._ahead, side="right")) - self._next

    def _size(self, unit: Unit) -> int:
        _, start, end = self._snapshot.unit_range(*unit)
        return end - start

    def _head_of_order(self) -> Unit | None:
        while not self._held:
            if self._next >= len(self._order) or not self._within_window(self._next):
                return None
            self._held.extend(units_of(self._snapshot, int(self._order[self._next])))
            self._next += 1
        return self._held[0]

    def _within_window(self, place: int) -> bool:
        behind = int(self._ends[self._read - 1]) if self._read else 0
        ahead = int(self._ends[place]) - behind
        return ahead <= self._ahead or place == self._read  # a single object larger than the window still goes

    def _head_of_load(self) -> Unit | None:
        while not self._loading:
            if not self._load:
                return None
            positions = self._load.popleft()
            if not positions:
                continue
            self._loading.extend(units_of(self._snapshot, positions[0]))
            if len(positions) > 1:
                self._load.appendleft(positions[1:])
        return self._loading[0]


class _Occurrences:
    """Where each position stands in an order, which may name it several times. 16 bytes for each place."""

    def __init__(self, order: npt.NDArray[np.int64]) -> None:
        self._places = np.argsort(order, kind="stable")
        self._positions = order[self._places]

    def first(self, position: int, start: int) -> tuple[int | None, bool]:
        """The first place at or after ``start``, if there is one, and whether there is one before ``start``."""
        low, high = np.searchsorted(self._positions, [position, position + 1])
        places = self._places[low:high]
        at = int(np.searchsorted(places, start))
        return (int(places[at]) if at < len(places) else None), at > 0


def units_of(snapshot: Snapshot, position: int) -> Sequence[Unit]:
    number, units = snapshot.units_of(position)
    return [(number, unit) for unit in units]
