"""Samplers whose numbers mean samples of one window."""

from __future__ import annotations

import pytest
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, SubsetRandomSampler

from hotset.alnair.samplers import check, fit, is_sized
from hotset.errors import InvalidInput


class Windows:
    """A dataset of which there is a window of ``count`` samples at the moment."""

    chunks = (1, 2, 3)

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count


def distributed(dataset, rank, **more):
    return DistributedSampler(dataset, num_replicas=3, rank=rank, **more)


class TestCheck:
    @pytest.mark.parametrize(
        "make",
        [
            RandomSampler,
            SequentialSampler,
            lambda ds: RandomSampler(ds, replacement=True, num_samples=5),
            lambda ds: distributed(ds, 0),
            lambda ds: BatchSampler(RandomSampler(ds), 2, drop_last=False),
        ],
    )
    def test_those_that_go_by_the_dataset_are_good(self, make):
        dataset = Windows(8)
        check(make(dataset), dataset)

    @pytest.mark.parametrize(
        "sampler",
        [
            SubsetRandomSampler(range(3)),
            RandomSampler(range(8)),
            [0, 1, 2],
            BatchSampler(SubsetRandomSampler(range(3)), 2, drop_last=False),
            [[0, 1], [2]],
        ],
    )
    def test_numbers_made_for_one_window_are_refused(self, sampler):
        with pytest.raises(InvalidInput, match="3 windows"):
            check(sampler, Windows(8))


class TestDistributed:
    @pytest.mark.parametrize("shuffle", [True, False])
    def test_each_sample_of_each_window_is_given_to_a_rank(self, shuffle):
        dataset = Windows(7)
        samplers = [distributed(dataset, rank, shuffle=shuffle) for rank in range(3)]
        for dataset.count in (7, 12, 1, 2, 30):
            for sampler in samplers:
                fit(sampler, dataset.count)
            shares = [list(sampler) for sampler in samplers]
            assert {index for share in shares for index in share} == set(range(dataset.count))
            assert {len(share) for share in shares} == {-(-dataset.count // 3)}
            assert [len(sampler) for sampler in samplers] == [len(share) for share in shares]

    def test_dropping_the_rest_of_each(self):
        dataset = Windows(7)
        sampler = distributed(dataset, 0, drop_last=True, shuffle=False)
        for dataset.count, expected in ((7, 2), (12, 4), (2, 0)):
            fit(sampler, dataset.count)
            assert len(list(sampler)) == expected

    def test_within_a_batch_sampler(self):
        dataset = Windows(3)
        batches = BatchSampler(distributed(dataset, 0, shuffle=False), 2, drop_last=False)
        dataset.count = 12
        fit(batches, 12)
        assert list(batches) == [[0, 3], [6, 9]]

    def test_others_are_left_alone(self):
        fit(None, 3)
        fit([1, 2], 3)


def test_a_sampler_may_not_say_how_much_it_gives():
    assert is_sized([1])
    assert not is_sized(iter([1]))
    assert not is_sized(BatchSampler(iter([1]), 2, drop_last=False))
