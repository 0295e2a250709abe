"""The order of an epoch: the same for ever, whoever asks and however many share it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.errors import InvalidInput
from hotset.read.order import SampleOrder, WindowedOrder

counts = st.integers(0, 300)
seeds = st.integers(-(2**40), 2**40)
worlds = st.integers(1, 9)


@given(counts, seeds, st.integers(0, 1000))
def test_each_sample_once(count: int, seed: int, epoch: int):
    order = SampleOrder("digest", count, seed).epoch(epoch)
    assert sorted(order.tolist()) == list(range(count))


GOLDEN = [
    [5, 11, 4, 8, 0, 6, 10, 9, 2, 1, 7, 3],
    [0, 1, 4, 8, 9, 5, 10, 3, 6, 11, 2, 7],
]


def test_it_never_changes():
    """Written down once: another machine, or a later version, must go on where this one stopped."""
    assert SampleOrder("digest", 12).epoch(0).tolist() == GOLDEN[0]
    assert SampleOrder("digest", 12, seed=7).epoch(3).tolist() == GOLDEN[1]


def test_snapshot_seed_and_epoch_decide():
    def first(snapshot: str = "a", seed: int = 0, epoch: int = 0) -> list[int]:
        return SampleOrder(snapshot, 100, seed).epoch(epoch).tolist()

    assert first() == first()
    assert len({tuple(order) for order in (first(), first("b"), first(seed=1), first(epoch=1))}) == 4


def test_without_shuffling_it_is_the_order_of_the_keys():
    assert SampleOrder("digest", 5, shuffle=False).epoch(3).tolist() == [0, 1, 2, 3, 4]


def test_it_looks_random():
    """No sample prefers a place: over many epochs each is early as often as late."""
    orders = np.array([np.argsort(SampleOrder("digest", 50).epoch(epoch)) for epoch in range(400)])
    assert np.abs(orders.mean(axis=0) - 24.5).max() < 4


@given(counts, worlds, st.data(), st.booleans())
def test_ranks_in_step_read_the_order(count: int, world: int, data: st.DataObject, drop_last: bool):
    start = data.draw(st.integers(0, count))
    order = SampleOrder("digest", count)
    shares = [order.share(2, rank=rank, world=world, start=start, drop_last=drop_last) for rank in range(world)]
    assert {len(share) for share in shares} == {order.share_length(world=world, start=start, drop_last=drop_last)}
    together = np.stack(shares, axis=1).ravel().tolist()
    rest = order.epoch(2)[start:].tolist()
    if drop_last:
        assert together == rest[: len(together)]
        assert len(rest) - len(together) < world
    else:
        assert together[: len(rest)] == rest
        assert len(together) - len(rest) < world
        padding = together[len(rest) :]
        assert padding == np.resize(order.epoch(2), len(padding)).tolist()


@given(st.integers(1, 300), worlds, worlds, st.data())
def test_another_world_goes_on_where_the_first_stopped(count: int, before: int, after: int, data: st.DataObject):
    steps = data.draw(st.integers(0, count // before))
    order = SampleOrder("digest", count)
    read = [order.share(0, rank=rank, world=before)[:steps] for rank in range(before)]
    rest = [order.share(0, rank=rank, world=after, start=steps * before, drop_last=False) for rank in range(after)]
    seen = np.concatenate([*read, *rest]).tolist()
    assert set(seen) == set(range(count))
    assert len(seen) - count < after


@pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_that_is_none(rank: int, world: int):
    with pytest.raises(InvalidInput, match=f"rank {rank} of a world of {world}"):
        SampleOrder("digest", 5).share(0, rank=rank, world=world)


def test_more_was_read_than_there_is():
    with pytest.raises(InvalidInput, match="6 samples of an epoch of 5"):
        SampleOrder("digest", 5).share(0, start=6)


WINDOWED = [11, 8, 0, 10, 9, 2, 1, 7, 5, 4, 6, 3]
BLOCKS = [11, 8, 10, 9, 7, 0, 2, 1, 5, 4, 6, 3]


def windowed(seed: int = 0, *, window: int = 100, starts=(0, 3, 3, 7), sizes=(40, 0, 60, 50), count: int = 12):
    return WindowedOrder("digest", count, seed, starts=np.array(starts), sizes=np.array(sizes), window=window)


class TestWindows:
    """Neighbours are read at about the same time."""

    def test_it_never_changes(self):
        assert windowed().epoch(0).tolist() == WINDOWED
        assert windowed(window=1).epoch(0).tolist() == BLOCKS

    @given(lengths=st.lists(st.integers(0, 20), min_size=1, max_size=20), seed=seeds, window=st.integers(0, 300))
    def test_each_sample_once_and_each_window_for_itself(self, lengths, seed, window):
        starts = np.cumsum([0, *lengths])[:-1]
        order = windowed(seed, window=window, starts=starts, sizes=np.array(lengths) * 10, count=sum(lengths))
        samples = order.epoch(1)
        assert sorted(samples.tolist()) == list(range(sum(lengths)))
        blocks = np.searchsorted(starts, samples, side="right") - 1
        at = 0
        while at < len(samples):  # blocks come in groups that are whole, and hardly larger than the window
            together: set[int] = set()
            length = 0
            while not together or length < sum(lengths[block] for block in together):
                together.add(int(blocks[at + length]))
                length += 1
            assert len(together) == 1 or 10 * length <= window + 10 * max(lengths)
            at += length

    def test_one_window_for_all_is_a_shuffle_of_all(self):
        samples = windowed(window=10**6).epoch(0)
        assert samples.tolist() == SampleOrder("digest", 12).epoch(0).tolist()

    def test_it_is_shared_and_gone_on_with_as_any_order(self):
        order = windowed()
        shares = [order.share(0, rank=rank, world=2, start=4) for rank in range(2)]
        assert np.stack(shares, axis=1).ravel().tolist() == order.epoch(0)[4:].tolist()
