"""The loader: epochs, windows, samplers, parameters. Over local directories without a cache, which starts no process."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SubsetRandomSampler

from hotset.alnair import AlnairJobDataLoader
from hotset.errors import InvalidInput
from tests.support.alnair import COUNT, MB, SIZES, Numbers, numbered, numbers_of, opened

pytestmark = pytest.mark.integration


@pytest.fixture
def root(tmp_path):
    numbered(tmp_path / "data", SIZES)
    return tmp_path / "data"


@pytest.fixture
def windows(root, no_leaks):
    """Five windows."""
    with opened(root, maxmemory=1) as dataset:
        assert [len(window) for window in dataset.chunks] == [2, 3, 1, 3, 1]
        yield dataset


@pytest.fixture
def one(root, no_leaks):
    with opened(root) as dataset:
        assert len(dataset.chunks) == 1
        yield dataset


class TestEpochs:
    def test_each_has_all_samples(self, one):
        """In Alnair the second epoch of one window was empty."""
        loader = AlnairJobDataLoader(one, batch_size=4)
        for _ in range(3):
            assert numbers_of(loader) == list(range(COUNT))

    def test_each_has_all_windows(self, windows):
        """In Alnair a sample was lost at each border, and from the second epoch on the whole first window."""
        loader = AlnairJobDataLoader(windows, batch_size=4)
        for _ in range(3):
            assert numbers_of(loader) == list(range(COUNT))

    def test_shuffled_each_time_anew_and_reproducibly(self, one):
        def two_epochs():
            loader = AlnairJobDataLoader(one, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(1))
            return numbers_of(loader), numbers_of(loader)

        first, second = two_epochs()
        assert sorted(first) == sorted(second) == list(range(COUNT))
        assert first != second
        assert two_epochs() == (first, second)

    def test_shuffled_within_windows(self, windows):
        loader = AlnairJobDataLoader(windows, batch_size=4, shuffle=True)
        for _ in range(2):
            seen = numbers_of(loader)
            assert [sorted(seen[a:b]) for a, b in ((0, 2), (2, 5), (5, 6), (6, 9), (9, 10))] == [
                [0, 1],
                [2, 3, 4],
                [5],
                [6, 7, 8],
                [9],
            ]

    def test_counted(self, one):
        loader = AlnairJobDataLoader(one, batch_size=4)
        for epoch in range(2):
            assert [number for number, _ in enumerate(loader)] == [0, 1, 2], epoch

    def test_one_that_is_broken_off_does_not_shorten_the_next(self, windows):
        loader = AlnairJobDataLoader(windows, batch_size=4)
        for _ in loader:
            break
        assert numbers_of(loader) == list(range(COUNT))

    def test_an_older_iterator_ends_when_a_new_epoch_begins(self, one):
        loader = AlnairJobDataLoader(one, batch_size=4)
        old = iter(loader)
        next(old)
        new = iter(loader)
        assert list(old) == []
        assert next(new)[0].tolist() == [0, 1, 2, 3]
        assert [batch[0].tolist() for batch in new] == [[4, 5, 6, 7], [8, 9]]

    def test_the_window_that_comes_next_is_known(self, windows):
        loader = AlnairJobDataLoader(windows)
        assert [(loader.index, len(windows.keys)) for _ in loader][:6] == [
            (1, 2),
            (1, 2),
            (2, 3),
            (2, 3),
            (2, 3),
            (3, 1),
        ]
        assert loader.index == 1


class TestNext:
    def test_goes_through_an_epoch_and_then_the_next(self, windows):
        loader = AlnairJobDataLoader(windows, batch_size=4)
        for _ in range(2):
            seen = []
            while True:
                try:
                    seen += next(loader)[0].tolist()
                except StopIteration:
                    break
            assert seen == list(range(COUNT))

    def test_goes_on_where_a_loop_stopped(self, one):
        loader = AlnairJobDataLoader(one, batch_size=4)
        for batch in loader:
            assert batch[0].tolist() == [0, 1, 2, 3]
            break
        assert next(loader)[0].tolist() == [4, 5, 6, 7]

    def test_after_a_loop_begins_an_epoch(self, one):
        loader = AlnairJobDataLoader(one, batch_size=4)
        numbers_of(loader)
        assert next(loader)[0].tolist() == [0, 1, 2, 3]
        loader.init_loader()
        assert next(loader)[0].tolist() == [0, 1, 2, 3]


class TestSizes:
    @pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 10])
    def test_only_the_last_batch_of_an_epoch_is_short(self, windows, size):
        loader = AlnairJobDataLoader(windows, batch_size=size)
        lengths = [len(data) for data, _ in loader]
        assert lengths == [size] * (COUNT // size) + ([COUNT % size] if COUNT % size else [])
        assert len(loader) == loader.num_batches == len(lengths)

    def test_dropping_the_last_drops_it_once_and_not_in_each_window(self, windows):
        loader = AlnairJobDataLoader(windows, batch_size=3, drop_last=True)
        assert numbers_of(loader) == list(range(9))
        assert len(loader) == 3

    def test_a_batch_may_be_larger_than_the_dataset(self, windows):
        assert [len(data) for data, _ in AlnairJobDataLoader(windows, batch_size=100)] == [COUNT]
        assert list(AlnairJobDataLoader(windows, batch_size=100, drop_last=True)) == []

    def test_the_number_of_batches_is_known_before_the_first(self, one, windows):
        for dataset in (one, windows):
            assert len(AlnairJobDataLoader(dataset, batch_size=4)) == 3
            assert AlnairJobDataLoader(dataset, batch_size=4).num_batches == 3

    def test_and_exactly_known_after_an_epoch_of_samples_that_are_no_objects(self, root):
        """An object of n bytes is n // 100,000 samples here, so the first windows do not tell what the others hold."""
        with opened(root, Pieces, maxmemory=1) as dataset:
            loader = AlnairJobDataLoader(dataset, batch_size=4)
            assert len(loader) > 0
            samples = sum(len(data) for data in loader)
            assert samples == sum(size // 100_000 for size in SIZES)
            assert len(loader) == -(-samples // 4)

    def test_without_batches_there_are_samples(self, windows):
        loader = AlnairJobDataLoader(windows, batch_size=None)
        assert [data for data, _ in loader] == list(range(COUNT))
        assert len(loader) == COUNT

    def test_a_window_without_samples_is_passed_over(self, root):
        with opened(root, Odd, maxmemory=1) as dataset:
            loader = AlnairJobDataLoader(dataset, batch_size=2, shuffle=True)
            for _ in range(2):
                batches = [data.tolist() for data, _ in loader]
                assert sorted(chain.from_iterable(batches)) == [1, 3, 7]
                assert [len(batch) for batch in batches] == [2, 1]


class Pieces(Numbers):
    def __convert__(self):
        pieces = [self.data[key][:1] for key in self.keys for _ in range(len(self.data[key]) // 100_000)]
        return pieces, pieces

    def __getitem__(self, index):
        return int(self.get_data(index))


class Odd(Numbers):
    """Only some objects are samples; the windows of 5 and of 9 alone have none."""

    def __convert__(self):
        keys = [key for key in self.keys if int(key[-4:]) in {1, 3, 7}]
        return [self.data[key] for key in keys], [int(key[-4:]) for key in keys]


class TestWindows:
    def test_memory_holds_one_at_a_time(self, windows):
        held = [sum(map(len, windows.data)) for _ in AlnairJobDataLoader(windows)]
        assert max(size for size in held if size < 3 * MB) <= MB
        assert held.count(3 * MB) == 1

    def test_the_next_is_read_while_this_one_is_consumed(self, windows):
        """Its thread has begun before the first batch was asked for a second time."""
        loader = AlnairJobDataLoader(windows)
        next(loader)
        staged = windows._AlnairJobDataset__objects._connected.staged
        assert staged.positions == [2, 3, 4]
        assert [len(data) for data in staged.future.result()] == [300_000] * 3
        loader.close()

    def test_two_loops_over_them_are_told_apart(self, windows):
        first, second = AlnairJobDataLoader(windows), AlnairJobDataLoader(windows)
        for _ in range(4):
            next(first)
        next(second)
        with pytest.raises(InvalidInput, match="another loop"):
            next(first)

    def test_a_failure_to_load_one_is_raised_and_the_next_epoch_begins_anew(self, windows, root):
        loader = AlnairJobDataLoader(windows, batch_size=1)
        (root / "set/0006").rename(root / "away")
        with pytest.raises(Exception, match="0006"):
            numbers_of(loader)
        (root / "away").rename(root / "set/0006")
        assert numbers_of(loader) == list(range(COUNT))


class TestSamplers:
    def test_one_that_goes_by_the_dataset_covers_each_window(self, windows):
        loader = AlnairJobDataLoader(windows, 4, sampler=RandomSampler(windows))
        for _ in range(2):
            assert sorted(numbers_of(loader)) == list(range(COUNT))
        loader = AlnairJobDataLoader(windows, batch_sampler=BatchSampler(RandomSampler(windows), 2, drop_last=False))
        for _ in range(2):
            assert sorted(numbers_of(loader)) == list(range(COUNT))
        assert len(loader) == 1 + 2 + 1 + 2 + 1

    def test_the_ranks_of_a_job_share_each_window(self, windows):
        seen = []
        for rank in range(3):
            sampler = DistributedSampler(windows, num_replicas=3, rank=rank)
            sampler.set_epoch(1)
            seen.append(numbers_of(AlnairJobDataLoader(windows, 4, sampler=sampler)))
        assert len({len(share) for share in seen}) == 1
        assert {sample for share in seen for sample in share} == set(range(COUNT))

    def test_one_made_for_a_window_is_refused_if_there_are_several(self, windows):
        with pytest.raises(InvalidInput, match="5 windows"):
            AlnairJobDataLoader(windows, sampler=SubsetRandomSampler(range(2)))

    def test_and_used_if_there_is_one(self, one):
        loader = AlnairJobDataLoader(one, 2, sampler=[7, 1, 5])
        assert [numbers_of(loader) for _ in range(2)] == [[7, 1, 5]] * 2
        assert len(loader) == 2

    def test_one_without_an_end(self, one):
        def forever():
            while True:
                yield from range(COUNT)

        class Endless:
            def __iter__(self):
                return forever()

        loader = AlnairJobDataLoader(one, 4, sampler=Endless())
        assert [next(loader)[0].tolist() for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
        loader.close()
        loader = AlnairJobDataLoader(one, batch_size=None, sampler=Endless())
        assert [next(loader)[0] for _ in range(12)] == [*range(COUNT), 0, 1]


class TestParameters:
    def test_are_those_of_alnair_by_position(self, one):
        names = ["batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory"]
        names += ["drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator"]
        values = [2, False, None, None, 0, tuple, False, True, 0, None, None, None]
        loader = AlnairJobDataLoader(one, *values, prefetch_factor=2, persistent_workers=False)
        assert [getattr(loader, name) for name in names] == values
        assert loader.dataset is one
        assert next(loader) == ((0, 0), (1, 1))

    def test_a_prefetch_factor_needs_no_workers(self, one):
        """torch 2 refuses it without workers; Alnair's loader has it as its default."""
        assert numbers_of(AlnairJobDataLoader(one, prefetch_factor=2)) == list(range(COUNT))

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"batch_size": 0}, "batch_size is 0"),
            ({"batch_size": -1}, "batch_size is -1"),
            ({"sampler": [1], "shuffle": True}, "excludes shuffle"),
            ({"batch_sampler": [[1]], "batch_size": 2}, "excludes batch_size"),
            ({"batch_sampler": [[1]], "drop_last": True}, "excludes batch_size"),
            ({"batch_size": None, "drop_last": True}, "batch_size=None"),
            ({"batch_size": None, "on_error": "skip"}, "batch_size=None"),
            ({"on_error": "ignore"}, "'ignore'"),
        ],
    )
    def test_that_cannot_be_right(self, one, wrong, said):
        with pytest.raises(InvalidInput, match=said):
            AlnairJobDataLoader(one, **wrong)

    @pytest.mark.parametrize("wrong", [{"num_workers": -1}, {"timeout": -1}, {"persistent_workers": True}])
    def test_that_torch_refuses(self, one, wrong):
        with pytest.raises(ValueError, match=next(iter(wrong)).partition("_")[0]):
            AlnairJobDataLoader(one, **wrong)

    def test_another_dataset_is_refused(self):
        with pytest.raises(InvalidInput, match="list"):
            AlnairJobDataLoader([1, 2, 3])

    def test_an_empty_one_is_refused(self, root):
        class Nothing(Numbers):
            def __convert__(self):
                return [], []

        with opened(root, Nothing) as dataset, pytest.raises(InvalidInput, match="Nothing is empty"):
            AlnairJobDataLoader(dataset)
