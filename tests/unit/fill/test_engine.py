"""The engine over a source in memory whose answers the test holds back, so that every overtaking is arranged."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotset.errors import Changed, Closed, Denied, HotsetError, NotFound, Unavailable
from hotset.fill import engine as engine_module
from hotset.fill.engine import Engine
from hotset.fill.limit import LimitState
from hotset.fill.progress import FillStats
from hotset.fill.service import FillService
from hotset.source.base import FingerprintKind
from hotset.testing.source import FaultySource, MemorySource
from tests.support.datasets import many_small
from tests.support.opening import Gate, engine_of, service_over
from tests.support.processes import wait_until

SMALLEST_QUOTA = 16 * 2**20


class Held(FaultySource):
    """Counts the reads of each key, and lets each wait at the gate until the test opens it."""

    def __init__(self, objects, fault=lambda _key, _n: None, *, gate: Gate | None = None) -> None:
        self.memory = MemorySource(objects)
        super().__init__(self.memory, fault)
        self.gate = gate

    def read(self, key, start, end, expect):
        if self.gate is not None:
            self.gate.pass_through(key)
        return super().read(key, start, end, expect)


class Digested(Held):
    """Lists objects with their SHA-256, and serves whatever it has: as a manifest's servers may."""

    def __init__(self, objects) -> None:
        super().__init__(objects)
        self.served = dict(objects)

    def list(self):
        for batch in super().list():
            yield [
                info._replace(
                    kind=FingerprintKind.SHA256, fingerprint=sha256(self.served[info.key]).hexdigest().encode()
                )
                for info in batch
            ]

    def read(self, key, start, end, expect):
        return self.served[key][start:end]


@contextmanager
def filling(source: Held, root: Path, **settings: Any) -> Iterator[FillService]:
    """A service whose requests go on when the test is over, since closing waits for them."""
    with service_over(source, root, **settings) as service:
        try:
            yield service
        finally:
            if source.gate is not None:
                source.gate.open()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def units(engine: Engine, *positions: int) -> list[tuple[int, int]]:
    return [(number, unit) for number, of in map(engine.snapshot.units_of, positions) for unit in of]


def want(engine: Engine, *positions: int) -> list[Future]:
    return engine.want(units(engine, *positions))


def held(engine: Engine) -> int:
    return engine.progress().objects


def order(*positions: int) -> np.ndarray:
    return np.array(positions, np.uint64)


def results(futures: list[Future]) -> list[bytes | None]:
    return [None if (got := future.result(30)) is None else bytes(got) for future in futures]


SMALL = dict(many_small(60, 1000))


@pytest.fixture
def gate() -> Gate:
    return Gate()


class TestOnce:
    def test_a_load_fetches_each_object_once(self, root, no_leaks):
        source = Held(SMALL)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.load()
            assert engine.wait_loaded(30)
            progress = engine.progress()
            assert (progress.objects, progress.bytes, progress.finished) == (60, 60_000, True)
            assert engine.stats().fetched_objects == 60
        assert source.reads == dict.fromkeys(SMALL, 1)

    def test_many_who_want_the_same_object_at_once_cause_one_read(self, root, gate):
        source = Held(SMALL, gate=gate)
        with filling(source, root) as service:
            engine = engine_of(service)
            with ThreadPoolExecutor(8) as pool:
                waiting = [future for got in pool.map(lambda _: want(engine, 7), range(40)) for future in got]
            gate.wait_for(1)
            gate.open()
            assert results(waiting) == [None] * 40
        assert source.reads.total() == 1

    def test_load_order_and_wants_together_fetch_each_object_once(self, root):
        source = Held(SMALL)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.load()
            engine.follow(order(*reversed(range(60))), 10_000)
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda n: results(want(engine, n % 60)), range(240)))
            engine.load()
            assert engine.wait_loaded(30)
        assert source.reads == dict.fromkeys(SMALL, 1)

    def test_two_fillers_of_one_machine_share_the_work(self, root):
        """Two services as two processes have them: nothing is common but the directory."""
        source = Held(SMALL)
        with filling(source, root) as one, filling(source, root) as other:
            engines = [engine_of(one), other.engine(one.dataset.current().digest)]
            for engine in engines:
                engine.load()
            for engine in engines:
                assert engine.wait_loaded(30)
                assert held(engine) == 60
        assert source.reads == dict.fromkeys(SMALL, 1)

    def test_what_another_filler_holds_is_waited_for_and_not_fetched(self, root, gate):
        source = Held(SMALL, gate=gate)
        with filling(source, root) as one, filling(source, root) as other:
            first = engine_of(one)
            second = other.engine(one.dataset.current().digest)
            waiting = want(first, 3)
            gate.wait_for(1)
            waiting += want(second, 3)
            assert not waiting[1].done()
            gate.open()
            assert results(waiting) == [None, None]
        assert source.reads.total() == 1

    def test_a_filler_that_stalls_is_not_waited_for_for_ever(self, root, gate, monkeypatch):
        """After a while the unit is fetched privately: "once" holds for fillers that live and do not stall."""
        monkeypatch.setattr(engine_module, "CONTESTED_PATIENCE", 0.05)
        stalled, quick = Held(SMALL, gate=gate), Held(SMALL)
        with filling(stalled, root) as one, filling(quick, root) as other:
            first = engine_of(one)
            want(first, 3)
            gate.wait_for(1)
            second = other.engine(first.snapshot.digest)
            assert results(want(second, 3)) == [None]
        assert quick.reads.total() == 1

    def test_what_another_filler_finished_is_noticed_while_something_slow_is_fetched(self, root, gate):
        """The thread that watches the claims of others may get other work; then somebody else watches."""
        elsewhere = Gate()
        source, slow = Held(SMALL, gate=elsewhere), Held(SMALL, gate=gate)
        with filling(source, root) as one, filling(slow, root) as other:
            first = engine_of(one)
            second = other.engine(first.snapshot.digest)
            want(first, 3)
            elsewhere.wait_for(1)
            contested = want(second, 3)
            wait_until(lambda: second._contested and second._idle, what="its only thread watches")
            hanging = want(second, 50)
            gate.wait_for(1)
            elsewhere.open()
            assert results(contested) == [None]
            assert not hanging[0].done()
            gate.open()

    def test_a_load_that_rests_holds_nothing_back_from_others(self, root, gate):
        """What a load claimed ahead is free for others as long as more urgent work keeps it from going on."""
        source = Held(SMALL, gate=gate)
        with filling(source, root, max_requests=1) as one, filling(Held(SMALL), root) as other:
            first = engine_of(one)
            second = other.engine(first.snapshot.digest)
            first.load()
            [begun] = gate.wait_for(1)
            want(first, 59)  # urgent: the load rests after what it has begun
            gate.open(begun)
            gate.wait_for(2)
            position = first.snapshot.find(begun)
            assert results(want(second, position + 5, position + 20)) == [None, None]
            gate.open()
            assert first.wait_loaded(30)

    def test_a_filler_that_leaves_leaves_its_claims_to_others(self, root, gate):
        source = Held(SMALL, lambda key, n: Denied("no more") if n == 0 else None, gate=gate)
        with filling(source, root) as other:
            second = engine_of(other)
            with filling(source, root) as one:
                first = one.engine(other.dataset.current().digest)
                failing = want(first, 3)
                gate.wait_for(1)
                waiting = want(second, 3)
                gate.open()
                with pytest.raises(Denied):
                    results(failing)
            assert results(waiting) == [None]


class TestUrgency:
    def test_a_wanted_object_overtakes_a_load(self, root, gate):
        source = Held(SMALL, gate=gate)
        with filling(source, root, max_requests=2) as service:
            engine = engine_of(service)
            engine.load()
            busy = gate.wait_for(2)
            future = want(engine, 50)[0]
            gate.open(busy[0])
            assert gate.wait_for(3)[2] == engine.snapshot.key(50)
            gate.open(engine.snapshot.key(50))
            assert future.result(30) is None

    def test_nobody_waits_behind_a_request_that_hangs(self, root, gate):
        """A thread is given several objects; one that is wanted is taken over by another while the first hangs."""
        source = Held(SMALL, gate=gate)
        with filling(source, root, max_requests=2) as service:
            engine = engine_of(service)
            engine.load()
            hanging, other = gate.wait_for(2)
            behind = engine.snapshot.find(hanging) + 1
            future = want(engine, behind)[0]
            gate.open(other, engine.snapshot.key(behind))
            assert future.result(30) is None
            gate.open()
            assert engine.wait_loaded(30)
        assert source.reads == dict.fromkeys(SMALL, 1)

    def test_a_freed_window_is_fetched_in_parallel(self, root, gate):
        """One large object read frees room for many small ones: all of them are asked for at once, not in turn."""
        source = Held({"a": b"a" * 20_000} | {f"b{n:02}": b"b" * 1000 for n in range(40)}, gate=gate)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.follow(order(*range(41)), 20_000)
            gate.wait_for(1)
            gate.open("a")
            assert results(want(engine, 0)) == [None]
            assert len(gate.wait_for(1 + 16)) == 17

    def test_an_order_stays_within_its_window(self, root):
        source = Held(SMALL)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.follow(order(*range(60)), 10_000)
            for position in range(60):
                results(want(engine, position))
                ahead = set(source.reads) - {engine.snapshot.key(n) for n in range(position + 1)}
                assert len(ahead) <= 10
        assert source.reads == dict.fromkeys(SMALL, 1)

    def test_cancel_ends_a_load_but_not_who_waits(self, root, gate):
        source = Held(SMALL, gate=gate)
        with filling(source, root, max_requests=2) as service:
            engine = engine_of(service)
            engine.load()
            gate.wait_for(2)
            waiting = want(engine, 50)
            engine.cancel()
            gate.open()
            assert results(waiting) == [None]
            assert engine.wait_loaded(30)
            assert source.reads.total() == 3
            engine.load()
            assert engine.wait_loaded(30)
            assert held(engine) == 60

    def test_a_cancelled_load_leaves_the_rest_to_other_fillers(self, root, gate):
        source = Held(SMALL, gate=gate)
        with filling(source, root, max_requests=1) as one, filling(source, root) as other:
            engine = engine_of(one)
            engine.load()
            gate.wait_for(1)
            engine.cancel()
            second = other.engine(engine.snapshot.digest)
            waiting = want(second, *range(1, 10))
            gate.open(*SMALL)
            assert results(waiting) == [None] * 9


class TestFailures:
    def test_one_that_fails_is_told_to_who_waits_and_the_rest_comes(self, root):
        source = Held(SMALL, lambda key, n: Denied("not yours") if key == "samples/00000/00000005.bin" else None)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.load()
            assert engine.wait_loaded(30)
            assert [type(error) for error in engine.failures().values()] == [Denied]
            assert engine.progress().failed == 1
            assert held(engine) == 59
            with pytest.raises(Denied, match="not yours"):
                results(want(engine, 5))

    def test_what_failed_once_is_tried_again_when_it_is_wanted_or_loaded(self, root):
        source = Held(SMALL, lambda key, n: Unavailable("later") if n < 1 + key.endswith("5.bin") else None)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.load()
            assert engine.wait_loaded(30)
            assert len(engine.failures()) == 60
            with pytest.raises(Unavailable):
                results(want(engine, 5))
            engine.load()
            assert engine.wait_loaded(30)
            assert (engine.failures().keys(), held(engine)) == (set(units(engine, 15, 25, 35, 45, 55)), 55)
        assert source.reads[engine.snapshot.key(5)] == 3

    def test_an_order_goes_on_past_what_failed(self, root):
        source = Held(SMALL, lambda key, n: Denied("no") if key.endswith("1.bin") else None)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.follow(order(*range(60)), 2**30)
            for position in range(60):
                if position % 10 != 1:
                    results(want(engine, position))
            assert engine.wait_loaded(30)
            assert len(engine.failures()) == 6

    def test_an_object_that_vanished_is_changed_and_not_missing(self, root):
        source = Held(SMALL)
        with filling(source, root) as service:
            engine = engine_of(service)
            source.memory.delete(engine.snapshot.key(0))
            with pytest.raises(Changed, match="removed"):
                results(want(engine, 0))
            assert engine.stats().changed == 1

    def test_a_defect_reaches_who_waits(self, root):
        source = Held(SMALL, lambda key, n: ZeroDivisionError("a defect"))
        with filling(source, root) as service, pytest.raises(HotsetError, match="ZeroDivisionError: a defect"):
            results(want(engine_of(service), 0))

    def test_a_damaged_unit_is_found_when_the_pack_is_sealed_and_fetched_again(self, root):
        source = Held(SMALL)
        with filling(source, root) as service:
            engine = engine_of(service)
            shelf = service.shelf(engine.snapshot.digest)
            results(want(engine, 0))
            path = shelf.reader.path(0)
            mapped = shelf.reader.open(0)
            with open(path, "r+b") as file:
                file.seek(mapped.geometry.length - mapped.geometry.size)
                file.write(b"\xff")
            engine.load()
            assert engine.wait_loaded(30)
            assert engine.stats().damaged == 1
            assert held(engine) == 60
            first = service.shelf(engine.snapshot.digest).reader
            first.forget(0)
            assert bytes(first.unit(0, 0)) == SMALL[engine.snapshot.key(0)]
        assert source.reads.total() == 61

    def test_what_a_reader_cannot_read_is_fetched_again_and_counted(self, root):
        source = Held(SMALL)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.load()
            assert engine.wait_loaded(30)
            mapped = service.shelf(engine.snapshot.digest).reader.open(0)
            with open(service.shelf(engine.snapshot.digest).reader.path(0), "r+b") as file:
                file.seek(mapped.geometry.length - mapped.geometry.size)
                file.write(b"\xff")
            assert results(want(engine, 0)) == [None]
            assert engine.stats().damaged == 1
            fresh = service.shelf(engine.snapshot.digest).reader
            fresh.forget(0)
            assert bytes(fresh.unit(0, 0)) == SMALL[engine.snapshot.key(0)]
        assert source.reads == dict.fromkeys(SMALL, 1) | {engine.snapshot.key(0): 2}

    @pytest.mark.parametrize("layout", ["packs", "files"])
    def test_a_large_object_known_by_its_digest_is_that_object_or_none(self, root, layout):
        """Its stripes cannot be told from those of another version one by one: all of it is compared before the seal."""
        body = b"a" * 200_000
        source = Digested({"large": body})
        with filling(source, root, layout=layout) as service:
            engine = engine_of(service)
            source.served = {"large": body[:150_000] + b"b" * 50_000}
            engine.load()
            assert engine.wait_loaded(30)
            errors = list(engine.failures().values())  # of whichever stripes were the last
            assert errors
            assert all(isinstance(error, Changed) and "SHA-256" in str(error) for error in errors)
            assert held(engine) == 0
            source.served = {"large": body}
            engine.load()
            assert engine.wait_loaded(30)
            assert (held(engine), engine.failures()) == (1, {})

    def test_nothing_there_is_told(self, root):
        with filling(Held({}), root) as service, pytest.raises(NotFound, match="no objects"):
            engine_of(service)


class TestClose:
    def test_who_waits_is_told_and_no_thread_stays(self, root, gate, no_leaks):
        source = Held(SMALL, gate=gate)
        with filling(source, root, max_requests=2) as service:
            engine = engine_of(service)
            waiting = want(engine, *range(10))
            gate.wait_for(2)
            closing = threading.Thread(target=engine.close)
            closing.start()
            with pytest.raises(Closed):
                results(waiting)
            gate.open()
            closing.join(30)
            assert not closing.is_alive()
            with pytest.raises(Closed):
                want(engine, 0)

    def test_twice_is_once(self, root, no_leaks):
        with filling(Held(SMALL), root) as service:
            engine_of(service).load()
            service.close()

    def test_without_work_there_are_no_threads(self, root):
        before = threading.active_count()
        with filling(Held(SMALL), root) as service:
            engine_of(service)
            assert threading.active_count() == before


class TestThrottle:
    def test_the_limit_shrinks_and_everything_still_comes(self, root):
        source = Held(SMALL)
        with filling(source, root) as service:
            engine = engine_of(service)
            start = engine.stats().limit
            for _ in range(10):
                engine.note_retry(throttled=True)
            assert (engine.stats().limit, start) == (1, LimitState().limit)
            engine.load()
            assert engine.wait_loaded(30)
            assert held(engine) == 60
            assert engine.stats().throttled == 10

    def test_a_retry_that_is_no_throttle_shrinks_nothing(self, root):
        with filling(Held(SMALL), root) as service:
            engine = engine_of(service)
            engine.note_retry(throttled=False)
            assert (engine.stats().limit, engine.stats().retried) == (LimitState().limit, 1)

    def test_never_more_at_once_than_allowed(self, root, gate):
        source = Held(SMALL, gate=gate)
        with filling(source, root, max_requests=3) as service:
            engine = engine_of(service)
            engine.load()
            want(engine, *range(20))
            gate.wait_for(3)
            assert engine.stats().running == 3
            assert len(gate.waiting) == 3


LARGE = {f"{n:04}": b"%04d" % n * 8000 for n in range(1000)}
"""32 MB: twice the smallest quota."""


class TestStaging:
    """A cache of half the dataset: what has no place is fetched ahead all the same, once, and handed over."""

    def test_an_epoch_fetches_each_object_once_and_keeps_to_the_quota(self, root):
        source = Held(LARGE)
        with filling(source, root, quota=SMALLEST_QUOTA, staging=2**20) as service:
            engine = engine_of(service)
            positions = np.random.default_rng(1).permutation(1000).astype(np.uint64)
            engine.follow(positions, 8 * 2**20)
            through = 0
            for position in positions.tolist():
                [got] = results(want(engine, position))
                if got is None:
                    engine.advance([position])
                else:
                    through += 1
                    assert got == LARGE[engine.snapshot.key(position)]
                assert engine.stats().staged_bytes <= 2**20
            assert 400 < through < 600
            assert service.cache.usage() <= SMALLEST_QUOTA
            assert source.reads == dict.fromkeys(LARGE, 1)
            source.reads.clear()
            engine.follow(positions, 8 * 2**20)
            hits = sum(results(want(engine, position)) == [None] for position in positions.tolist())
            assert hits == 1000 - through
            assert hits >= 450
            assert max(source.reads.values()) == 1

    def test_a_slower_reader_still_gets_what_was_staged_for_it(self, root):
        """Two workers read batches in turn, one of them far behind: nothing that waits for it is thrown away."""
        source = Held(LARGE)
        with filling(source, root, quota=SMALLEST_QUOTA, staging=16 * 2**20) as service:
            engine = engine_of(service)
            engine.follow(np.arange(1000, dtype=np.uint64), 4 * 2**20)
            behind: list[int] = []
            for first in range(0, 1000, 20):
                batch = list(range(first, first + 20))
                behind += batch[:10]
                for position in batch[10:]:
                    results(want(engine, position))
                if len(behind) >= 100:  # 3.2 MB behind the other
                    for position in behind:
                        results(want(engine, position))
                    behind.clear()
        assert max(source.reads.values()) == 1

    def test_a_reader_that_skips_gets_the_room_back(self, root):
        """What the order named and nobody read must not hold up what comes after it."""
        source = Held(LARGE)
        with filling(source, root, quota=SMALLEST_QUOTA, staging=2**20) as service:
            engine = engine_of(service)
            engine.follow(np.arange(1000, dtype=np.uint64), 2**20)
            for position in range(0, 1000, 50):
                results(want(engine, position))
            engine.advance([900])
            assert engine.stats().staged_bytes <= 2**20
            for position in range(951, 1000):  # 950 was read: it need not be anywhere any more
                results(want(engine, position))
        assert max(source.reads.values()) == 1

    def test_a_batch_that_names_an_object_twice_gets_it_twice(self, root):
        source = Held(LARGE)
        with filling(source, root, quota=SMALLEST_QUOTA) as service:
            engine = engine_of(service)
            refused = next(
                n for n in range(1000) if not service.shelf(engine.snapshot.digest).admit(engine.snapshot.packs[n])
            )
            data = LARGE[engine.snapshot.key(refused)]
            assert results(want(engine, refused, refused)) == [data, data]

    def test_a_load_keeps_what_fits_and_fetches_nothing_else(self, root):
        source = Held(LARGE)
        with filling(source, root, quota=SMALLEST_QUOTA) as service:
            engine = engine_of(service)
            engine.load()
            assert engine.wait_loaded(60)
            progress = engine.progress()
            assert progress.finished
            assert progress.objects == source.reads.total() == len(source.reads)
            assert 450 <= progress.objects < 600
            assert service.cache.usage() <= SMALLEST_QUOTA


class TestReload:
    """A new snapshot takes over what did not change."""

    @pytest.mark.parametrize(
        ("change", "reads"),
        [
            (lambda memory: None, 0),
            (lambda memory: memory.put("samples/00000/00000030.bin", b"other"), 1),
            (lambda memory: memory.put("samples/00000/00000030.bin", b"x" * 1000), 1),
            (lambda memory: memory.put("samples/00000/00000030a.bin", b"new"), 1),
            (lambda memory: memory.put("a", b"new at the front"), 1),
            (lambda memory: memory.delete("samples/00000/00000030.bin"), 0),
        ],
        ids=["nothing", "another size", "the same size", "inserted", "inserted first", "removed"],
    )
    def test_only_what_changed_is_read(self, root, change, reads):
        source = Held(SMALL)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.load()
            assert engine.wait_loaded(30)
        source.reads.clear()
        change(source.memory)
        with filling(source, root) as service:
            engine = engine_of(service)
            engine.load()
            assert engine.wait_loaded(30)
            reader = service.shelf(engine.snapshot.digest).reader
            expected = {key: bytes(source.memory.newest(key)) for key in engine.snapshot.keys()}  # noqa: SIM118
            for position, data in enumerate(expected.values()):
                number, [unit] = engine.snapshot.units_of(position)
                assert bytes(reader.unit(number, unit)) == data
        assert source.reads.total() == reads

    def test_a_dataset_that_changed_wholly_gets_the_room_of_the_old_one(self, root):
        """The old snapshot is a donor, but must not keep the new one out of the cache."""
        source = Held({key: data[:16_000] for key, data in LARGE.items()})  # fits the quota once, not twice
        with filling(source, root, quota=18 * 2**20) as service:
            engine = engine_of(service)
            engine.load()
            assert engine.wait_loaded(60)
            assert held(engine) == 1000
        for key, data in LARGE.items():
            source.memory.put(key, data[1:16_001])
        with filling(source, root, quota=18 * 2**20) as service:
            engine = engine_of(service)
            engine.load()
            assert engine.wait_loaded(60)
            assert held(engine) >= 900
            assert service.cache.usage() <= 18 * 2**20


def test_counts_are_of_objects_and_bytes(root):
    source = Held(SMALL)
    with filling(source, root) as service:
        engine = engine_of(service)
        results(want(engine, 1, 2, 3))
        stats = engine.stats()
        assert (stats.fetched_objects, stats.fetched_bytes, stats.running, stats.failed) == (3, 3000, 0, 0)
        assert FillStats(**stats.encoded()) == stats
