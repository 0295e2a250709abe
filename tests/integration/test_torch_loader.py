"""`HotLoader`, torch's `DataLoader` and torchdata's `StatefulDataLoader` over a real S3 server: every way to stop and go on."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import hotset
from hotset.errors import Changed, HotsetError, InvalidInput
from hotset.torch import HotDataset, HotLoader, HotSampler, loader
from tests.support.datasets import many_small
from tests.support.opening import use
from tests.support.processes import alive, wait_until

pytestmark = pytest.mark.integration

COUNT = 103
DATA = dict(many_small(COUNT, 500))
KEYS = sorted(DATA)

#: Workers and how they are started.
WAYS = [(0, None), (2, "fork"), (2, "spawn")]


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    use(monkeypatch, proxy.env())
    bucket.put_many(DATA)
    return bucket.url


def keys_of(batches) -> list[str]:
    """Checks the bytes of each sample, and gives the keys in their order."""
    found = []
    for data, keys in batches:
        assert [DATA[key] for key in keys] == list(data)
        found += keys
    return found


class TestLoader:
    @pytest.mark.parametrize(("workers", "method"), WAYS)
    def test_every_sample_once_an_epoch_and_one_get_each(self, place, proxy, workers, method, no_leaks):
        options = {"persistent_workers": True, "multiprocessing_context": method} if workers else {}
        with loader(place, batch_size=10, target="key", num_workers=workers, **options) as batches:
            assert len(batches) == 11
            epochs = [keys_of(batches) for _ in range(3)]
            stats = batches.stats()
        assert all(sorted(epoch) == KEYS for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) == 3
        assert proxy.gets == dict.fromkeys(KEYS, 1)
        assert (stats.epoch, stats.batches, stats.samples, stats.counts.reads) == (2, 11, COUNT, COUNT)
        assert stats.counts.bytes_from_cache == sum(map(len, DATA.values()))
        assert stats.hit_rate == 1.0

    def test_workers_and_cache_do_not_change_the_order(self, place):
        with loader(place, batch_size=7, target="key", seed=5) as batches:
            cold = keys_of(batches)
        with loader(place, batch_size=7, target="key", seed=5, num_workers=2) as batches:
            assert keys_of(batches) == cold

    def test_the_prefetcher_fetches_in_the_order_of_training(self, place, proxy, monkeypatch):
        """With one request at a time, objects arrive at the source in the order of the epoch, and then of the next."""
        monkeypatch.setenv("HOTSET_MAX_REQUESTS", "1")
        with loader(place, batch_size=1, target="key", lookahead=20 * 500) as batches:
            walk = iter(batches)
            first = [next(walk)[1][0] for _ in range(5)]
            proxy.wait_for("GET", 20)
            arrived = [request.key for request in proxy.requests() if request.kind == "GET"]
            rest = [keys[0] for _, keys in walk]
        assert arrived[:15] == (first + rest)[:15]
        assert len(arrived) < 40, "the look-ahead is bounded"

    def test_the_next_epoch_is_fetched_ahead_too(self, place, proxy):
        with hotset.open(place) as hot:
            half = HotDataset(hot)
            half._select(torch.arange(0, COUNT, 2).numpy())
            list(HotLoader(half, 10))
            order = [half.key(index) for index in HotSampler(half, rank=0, world=1)]
        assert set(order) == set(proxy.gets) == set(KEYS[::2])

    def test_a_broken_off_epoch_leaves_no_process(self, place, no_leaks):
        with loader(place, batch_size=10, num_workers=2) as batches:
            for _ in islice(batches, 3):
                pass
            assert len(list(batches)) == 11

    def test_drop_last(self, place):
        with loader(place, batch_size=10, drop_last=True) as batches:
            assert [len(batch) for batch in batches] == [10] * 10 == [10] * len(batches)
        with pytest.raises(InvalidInput, match=r"batches of 200 and drop_last leave nothing of 103"):
            loader(place, batch_size=200, drop_last=True)
        with loader(place, batch_size=200) as batches:
            assert [len(batch) for batch in batches] == [COUNT]

    def test_it_collates_as_torch_does(self, place):
        with loader(place, batch_size=4, decode=len, target=KEYS.index, shuffle=False) as batches:
            sizes, positions = next(iter(batches))
        assert torch.equal(sizes, torch.tensor([len(DATA[key]) for key in KEYS[:4]]))
        assert torch.equal(positions, torch.arange(4))

    def test_bad_samples_are_counted(self, place):
        def decode(data: bytes) -> bytes:
            if data in (DATA[KEYS[3]], DATA[KEYS[4]]):
                raise ValueError("bad")
            return data

        with loader(place, batch_size=10, decode=decode, on_bad="skip", target="key", num_workers=2) as batches:
            assert sorted(keys_of(batches)) == [key for key in KEYS if key not in KEYS[3:5]]
            assert (batches.stats().counts.bad, batches.stats().counts.left_out) == (2, 2)

    def test_a_batch_of_which_nothing_is_left(self, place):
        told = pytest.raises(HotsetError, match="nothing of a batch could be decoded")
        with loader(place, batch_size=10, decode=lambda data: 1 / 0, on_bad="skip") as batches, told:
            next(iter(batches))

    def test_the_stall_is_measured(self, place):
        with loader(place, batch_size=50, decode=lambda data: time.sleep(0.005) or data) as batches:
            list(batches)
            waiting = batches.stats()
        assert waiting.stall_share > 0.9
        with loader(place, batch_size=50) as batches:
            for _ in batches:
                time.sleep(0.2)
            assert batches.stats().stall_share < 0.5
            assert set(batches.stats().encoded()) >= {"hotset/stall_percent", "hotset/hit_rate"}
            assert "samples/s, data stall" in str(batches.stats())

    def test_it_shows_in_torchs_profiler(self, place):
        with loader(place, batch_size=50) as batches, torch.profiler.profile() as profile:
            list(batches)
        assert {event.key: event.count for event in profile.key_averages()}["hotset.wait"] == 4

    def test_what_was_open_stays_open(self, place):
        with hotset.open(place) as hot:
            with loader(hot, batch_size=10) as batches:
                list(batches)
            assert hot[0] == DATA[KEYS[0]]
            with pytest.raises(InvalidInput, match="open already"):
                loader(hot, cache="/elsewhere")

    def test_a_batch_of_nothing(self, place):
        with pytest.raises(InvalidInput, match="a batch of 0"):
            loader(place, batch_size=0)


class TestTrouble:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_an_object_that_vanished_is_named(self, place, bucket, workers):
        with loader(place, batch_size=10, num_workers=workers) as batches:
            bucket.delete(KEYS[50])
            with pytest.raises(Changed, match=KEYS[50]):
                list(batches)

    def test_a_worker_that_is_killed_is_a_clear_error(self, place):
        with loader(place, batch_size=5, num_workers=2) as batches:
            walk = iter(batches)
            next(walk)
            multiprocessing.active_children()[0].kill()
            with pytest.raises(RuntimeError, match=r"killed by signal|exited unexpectedly") as caught:
                for _ in walk:
                    pass
            assert any("smaller batches" in note for note in caught.value.__notes__)
            assert sorted(keys_of(HotLoader(HotDataset(batches.dataset.hot, target="key"), 10))) == KEYS

    def test_workers_forked_after_threads_have_started(self, place, proxy):
        """The supervisor of the filler and its connections are there when the workers are forked, and fill goes on."""
        with hotset.open(place) as hot:
            hot.load(wait=False)
            assert hot[3] == DATA[KEYS[3]]
            samples = HotDataset(hot, target="key")
            assert sorted(keys_of(HotLoader(samples, 10, num_workers=3, multiprocessing_context="fork"))) == KEYS
        assert max(proxy.gets.values()) == 1

    def test_an_interrupt_ends_all_of_it(self, place, proxy, tmp_path):
        """Ctrl-C, as a terminal sends it: to the training process and to its workers."""
        program = (
            "import signal, sys, time\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # also where the test runner is in the background
            "from hotset.torch import loader\n"
            "if __name__ == '__main__':\n"
            "    with loader(sys.argv[1], batch_size=5, num_workers=2) as batches:\n"
            "        for number, batch in enumerate(batches):\n"
            "            print(number, flush=True)\n"
            "            time.sleep(0.2)\n"
        )
        script = tmp_path / "train.py"
        script.write_text(program)
        process = subprocess.Popen(
            [sys.executable, script, place],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout.readline() == "0\n"
        family = [process.pid, *children_of(process.pid)]
        assert len(family) >= 3
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (1, -signal.SIGINT, 130)
        assert "KeyboardInterrupt" in errors
        wait_until(lambda: not any(alive(pid) for pid in family), what="all processes have ended")


class TestResume:
    @pytest.mark.parametrize(
        ("workers", "method", "steps"),
        [*((0, None, steps) for steps in (0, 1, 6, 11)), (2, "fork", 6), (2, "fork", 11), (2, "spawn", 6)],
    )
    def test_in_the_middle_of_an_epoch(self, place, workers, method, steps):
        options = {"target": "key", "batch_size": 10, "num_workers": workers, "multiprocessing_context": method}
        if method == "spawn":
            options["persistent_workers"] = True  # each imports torch
        with loader(place, target="key", batch_size=10) as batches:
            whole = [keys_of(batches), keys_of(batches), keys_of(batches)]
        with loader(place, **options) as batches:
            before = keys_of(batches)
            walk = iter(batches)
            before += keys_of(islice(walk, steps))
            state = batches.state_dict()
            del walk
        with loader(place, **options) as batches:
            batches.load_state_dict(state)
            assert len(batches) == (11 - steps or 11)
            after = keys_of(batches)
            after += keys_of(batches) if len(after) + len(before) < 3 * COUNT else []
        assert before + after == whole[0] + whole[1] + whole[2]

    def test_on_another_number_of_ranks(self, place):
        """Two ranks are interrupted after four steps; five go on; together they see each sample of the epoch once."""

        def ranks(world: int) -> list[HotLoader]:
            return [HotLoader(HotDataset(hot, target="key"), 5, rank=rank, world=world) for rank in range(world)]

        with hotset.open(place) as hot:
            [alone] = ranks(1)
            whole = keys_of(alone)
            first = ranks(2)
            seen = [keys_of(islice(iter(rank), 4)) for rank in first]
            states = [rank.state_dict() for rank in first]
            assert states[0] == states[1]
            second = ranks(5)
            for rank in second:
                rank.load_state_dict(states[0])
            rest = [keys_of(rank) for rank in second]
        read = [key for step in zip(*seen, strict=True) for key in step]
        left = [key for step in zip(*rest, strict=True) for key in step]
        assert (read + left)[:COUNT] == whole
        assert len(read + left) - COUNT == 2  # padding, defined at the end of the epoch: 63 samples for 5 ranks

    def test_another_snapshot_is_an_error_unless_accepted(self, place, bucket):
        with loader(place, batch_size=10) as batches:
            next(iter(batches))
            state = batches.state_dict()
        bucket.put("new", b"new")
        told = pytest.raises(Changed, match="accept_other_snapshot")
        with loader(place, batch_size=10, refresh="always") as batches, told:
            batches.load_state_dict(state)
        with loader(place, batch_size=10, snapshot=state["snapshot"]) as batches:
            batches.load_state_dict(state)
            assert len(list(batches)) == 10
        with loader(place, batch_size=10, refresh="always", accept_other_snapshot=True) as batches:
            batches.load_state_dict(state)
            assert sum(map(len, batches)) == COUNT + 1 - 10

    def test_what_drop_last_leaves_is_not_an_epoch_of_its_own(self, place):
        with loader(place, batch_size=10, drop_last=True, target="key") as batches:
            keys_of(batches)
            state = batches.state_dict()
            second = keys_of(batches)
        with loader(place, batch_size=10, drop_last=True, target="key") as batches:
            batches.load_state_dict(state)
            assert keys_of(batches) == second


class TestOtherLoaders:
    """For those who have a loader of their own."""

    @pytest.mark.parametrize(("workers", "method"), WAYS[:2])
    def test_torchs(self, place, proxy, workers, method):
        with HotDataset(place, target="key") as samples:
            sampler = HotSampler(samples, seed=1)
            batches = DataLoader(samples, 10, sampler=sampler, num_workers=workers, multiprocessing_context=method)
            epochs = [keys_of(batches), keys_of(batches)]
            with loader(samples.hot, batch_size=10, target="key", seed=1) as ours:
                assert [keys_of(ours), keys_of(ours)] == epochs
        assert proxy.gets == dict.fromkeys(KEYS, 1)

    @pytest.mark.parametrize(("workers", "method"), WAYS[:2])
    def test_torchdatas_with_its_state(self, place, workers, method):
        def stateful(samples):
            return StatefulDataLoader(
                samples, 10, sampler=HotSampler(samples), num_workers=workers, multiprocessing_context=method
            )

        with HotDataset(place, target="key") as samples:
            batches = stateful(samples)
            whole = [keys_of(batches), keys_of(batches)]
            interrupted = stateful(samples)
            walk = iter(interrupted)
            before = keys_of(islice(walk, 4))
            state = interrupted.state_dict()
            del walk
            resumed = stateful(samples)
            resumed.load_state_dict(state)
            assert before + keys_of(resumed) == whole[0]
            assert keys_of(resumed) == whole[1]


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]
