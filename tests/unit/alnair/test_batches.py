"""How an epoch becomes batches, and what becomes of samples that fail."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.alnair import dotdict
from hotset.alnair.batches import Batch, Collate, Failure, Samples, plan


def run(windows, size, *, drop_last=False):
    """The batches that come out if each sample is its own number: (before joining, after joining)."""
    carried, out, samples = [], [], iter(range(10**6))
    for number, count in enumerate(windows):
        indices = [next(samples) for _ in range(count)]
        last = number == len(windows) - 1
        for batch in plan(indices, size, carried=len(carried), last=last, drop_last=drop_last):
            assert 0 < len(batch) <= size
            if not batch.part:
                out.append(list(batch))
                continue
            carried += batch
            assert len(carried) <= size
            if len(carried) == size:
                out.append(carried)
                carried = []
    if carried and not drop_last:
        out.append(carried)
    return out


class TestPlan:
    @given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 12))
    def test_windows_cannot_be_told_from_the_batches(self, windows, size):
        total = sum(windows)
        whole = [list(range(start, min(start + size, total))) for start in range(0, total, size)]
        assert run(windows, size) == whole
        assert run(windows, size, drop_last=True) == [batch for batch in whole if len(batch) == size]

    def test_a_part_is_marked(self):
        batches = plan(range(10), 4, carried=3, last=False, drop_last=False)
        assert batches == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9]]
        assert [batch.part for batch in batches] == [True, False, False, True]

    def test_the_mark_reaches_a_worker(self):
        [head, *_] = plan(range(10), 4, carried=3, last=False, drop_last=False)
        assert (pickle.loads(pickle.dumps(head)), pickle.loads(pickle.dumps(head)).part) == ([0], True)


class TestCollate:
    def samples(self, *values, part=False):
        samples = Samples(values)
        samples.part = part
        return samples

    def test_good_samples_become_a_batch(self):
        assert Collate(tuple, "raise")(self.samples(1, 2)) == ((1, 2), False, 0, False)

    def test_a_part_is_left_as_it_is(self):
        assert Collate(tuple, "raise")(self.samples(1, 2, part=True)) == ([1, 2], False, 0, True)

    def test_a_failure_is_raised_as_it_was(self):
        error = OSError("broken")
        with pytest.raises(OSError, match="broken") as caught:
            Collate(tuple, "raise")(self.samples(1, Failure(7, error)))
        assert caught.value is error

    def test_or_left_out_and_counted(self):
        assert Collate(tuple, "skip")(self.samples(1, Failure(7, OSError()), 3)) == ((1, 3), False, 1, False)

    def test_or_replaced(self):
        collate = Collate(tuple, lambda index, error: f"{index} {error}")
        assert collate(self.samples(1, Failure(7, OSError("broken")))) == ((1, "7 broken"), False, 0, False)

    def test_a_batch_of_failures_is_empty(self):
        result = Collate(tuple, "skip")(self.samples(Failure(7, OSError())))
        assert (result.empty, result.skipped) == (True, 1)

    def test_a_dataset_may_make_batches_itself(self):
        assert Collate(tuple, "raise")("ab") == (("a", "b"), False, 0, False)

    def test_a_batch_is_a_list_of_indices(self):
        assert Batch([1, 2]) == [1, 2]


class TestDotdict:
    INFO = dotdict({"jinfo": {"ccauth": {"port": 6379, "cluster": []}}})

    def test_values_are_attributes_at_any_depth(self):
        assert self.INFO.jinfo.ccauth.port == 6379
        assert self.INFO["jinfo"]["ccauth"]["port"] == 6379

    def test_what_is_not_there_is_none(self):
        assert self.INFO.policy is None
        assert self.INFO.jinfo.jobId is None

    def test_is_written_like_a_dictionary(self):
        info = dotdict()
        info.a = 1
        assert info == {"a": 1}
        del info.a
        assert info == {}
        with pytest.raises(AttributeError):
            del info.a

    def test_is_copied_and_pickled(self):
        for other in (copy.deepcopy(self.INFO), copy.copy(self.INFO), pickle.loads(pickle.dumps(self.INFO))):
            assert (other, type(other)) == (self.INFO, dotdict)
