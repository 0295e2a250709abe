"""`HotSampler` over a dataset that only says how long it is and remembers what it was told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import Changed, InvalidInput
from hotset.torch.sampler import HotBatches, HotSampler


class Told:
    """What a sampler needs of a dataset."""

    def __init__(self, count: int, snapshot: str = "digest", *, complete: bool = False) -> None:
        self.count = count
        self.snapshot = snapshot
        self.complete = complete
        self.orders: list[tuple[list[int], int | None]] = []

    def __len__(self) -> int:
        return self.count

    def prefetch(self, order, *, lookahead=None) -> None:
        self.orders.append((np.asarray(order).tolist(), lookahead))


def sampler(count: int = 10, **how) -> HotSampler:
    return HotSampler(Told(count), **{"rank": 0, "world": 1, **how})


class TestOrder:
    def test_each_iteration_is_the_next_epoch(self):
        one, other = sampler(), sampler()
        first, second = list(one), list(one)
        assert sorted(first) == sorted(second) == list(range(10))
        assert first != second
        other.set_epoch(1)
        assert list(other) == second

    def test_a_broken_off_epoch_is_over(self):
        one, other = sampler(), sampler()
        next(iter(one))
        list(other)
        assert list(one) == list(other)

    def test_neither_workers_nor_cache_nor_world_change_it(self):
        alone = list(HotSampler(Told(11, complete=True), rank=0, world=1, seed=3))
        ranks = [list(sampler(11, rank=rank, world=3, seed=3)) for rank in range(3)]
        together = [index for step in zip(*ranks, strict=True) for index in step]
        assert together[:11] == alone
        assert together[11:] == alone[: len(together) - 11]

    def test_drop_last(self):
        ranks = [sampler(11, rank=rank, world=3, drop_last=True) for rank in range(3)]
        assert [len(rank) for rank in ranks] == [3, 3, 3]
        assert len(set().union(*ranks)) == 9

    def test_in_the_order_of_keys(self):
        assert list(sampler(5, shuffle=False)) == [0, 1, 2, 3, 4]

    def test_as_torch_partitions(self):
        """Without shuffling, exactly what torch's DistributedSampler gives."""
        from torch.utils.data.distributed import DistributedSampler

        for drop_last in (False, True):
            for rank in range(3):
                theirs = DistributedSampler(range(11), 3, rank, shuffle=False, drop_last=drop_last)
                assert list(sampler(11, rank=rank, world=3, shuffle=False, drop_last=drop_last)) == list(theirs)

    @pytest.mark.parametrize("given", [{"rank": 1, "world": None}, {"rank": None, "world": 2}, {"rank": 2, "world": 2}])
    def test_no_place_in_a_world(self, given):
        with pytest.raises(InvalidInput, match="rank"):
            sampler(**given)

    def test_more_ranks_than_samples(self):
        assert [list(sampler(2, rank=rank, world=5, shuffle=False)) for rank in range(5)] == [[0], [1], [0], [1], [0]]
        with pytest.raises(InvalidInput, match="2 samples for 5 ranks"):
            sampler(2, rank=0, world=5, drop_last=True)


class TestPrefetcher:
    def test_it_is_told_this_epoch_and_the_next(self):
        told = Told(10)
        walk = HotSampler(told, rank=1, world=2, lookahead=1000)
        orders = [list(walk), list(walk), list(walk)]
        assert told.orders[:2] == [(orders[0] + orders[1], 1000), (orders[1] + orders[2], 1000)]

    def test_where_nothing_is_absent_nothing_is_told(self):
        told = Told(10, complete=True)
        list(HotSampler(told, rank=0, world=1))
        assert told.orders == []


class TestState:
    @given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 5), st.integers(0, 60), st.booleans())
    def test_another_world_goes_on(self, count: int, before: int, after: int, steps: int, drop_last: bool):
        if drop_last and count < max(before, after):
            return
        whole = list(sampler(count))
        ranks = [sampler(count, rank=rank, world=before, drop_last=drop_last) for rank in range(before)]
        steps = min(steps, len(ranks[0]))
        walks = [iter(rank) for rank in ranks]
        seen = [next(walk) for _ in range(steps) for walk in walks]
        state = ranks[-1].state_dict()
        following = [sampler(count, rank=rank, world=after, drop_last=drop_last) for rank in range(after)]
        for one in following:
            one.load_state_dict(state)
        rest = [index for step in zip(*following, strict=True) for index in step]
        if state["consumed"] >= count or (drop_last and count - state["consumed"] < after):
            second = sampler(count)
            second.set_epoch(1)
            assert rest[:count] == list(second)[: len(rest)]
        else:
            together = (seen + rest)[:count]
            assert together == whole[: len(together)]
            assert len(seen + rest) >= (count - after + 1 if drop_last else count)

    def test_of_what_has_not_begun(self):
        one, other = sampler(), sampler()
        one.set_epoch(4)
        other.load_state_dict(one.state_dict())
        assert list(other) == list(one)

    def test_set_epoch_keeps_what_was_loaded(self):
        """Trainers call it before each epoch, also the one that is resumed."""
        one, other = sampler(), sampler()
        walk = iter(one)
        seen = [next(walk) for _ in range(4)]
        other.load_state_dict(one.state_dict())
        other.set_epoch(0)
        assert len(other) == 6
        assert seen + list(other) == list(sampler())

    def test_another_snapshot(self):
        state = sampler().state_dict()
        changed = HotSampler(Told(12, "other"), rank=0, world=1)
        with pytest.raises(Changed, match=r"belongs to snapshot digest, and open is other.*accept_other_snapshot"):
            changed.load_state_dict(state)
        accepting = HotSampler(Told(8, "other"), rank=0, world=1, accept_other_snapshot=True)
        accepting.load_state_dict(state | {"consumed": 10})
        assert sorted(accepting) == list(range(8)), "the epoch was over: it is the next one"

    def test_what_is_no_state(self):
        with pytest.raises(InvalidInput, match="lacks consumed, epoch"):
            sampler().load_state_dict({"seed": 1, "shuffle": True, "snapshot": "digest"})


def test_batches_are_those_of_torch():
    from torch.utils.data import BatchSampler

    for drop_last in (False, True):
        ours = HotBatches(sampler(11), 4, drop_last=drop_last)
        assert list(ours) == list(BatchSampler(sampler(11), 4, drop_last))
        assert len(ours) == (2 if drop_last else 3)
