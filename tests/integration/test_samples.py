"""What the frameworks share: samples, epochs, and what takes the place of a bad sample."""

from __future__ import annotations

import gc
import pickle
from unittest import mock

import numpy as np
import pytest

import hotset
from hotset.errors import Changed, InvalidInput
from hotset.loaders.samples import Epochs, Samples, in_place_of
from hotset.read.order import SampleOrder
from tests.support.processes import wait_until_gone

pytestmark = pytest.mark.integration

DATA = {"README": b"about", "cat/1": b"good 1", "cat/2": b"bad", "dog/1": b"bad", "eel/1": b"good 4"}


@pytest.fixture
def place(tmp_path):
    for key, data in DATA.items():
        path = tmp_path / "data" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "data"


@pytest.fixture
def samples(place):
    with hotset.open(str(place)) as ds:
        yield Samples(ds, target="directory")


class TestSamples:
    def test_only_objects_in_directories_have_a_class(self, samples):
        assert len(samples) == 4
        assert samples.classes == ("cat", "dog", "eel")
        assert samples.targets(range(4)) == [0, 0, 1, 2]
        assert [samples.key(index) for index in range(4)] == list(DATA)[1:]
        assert samples.read([3, 0]) == [b"good 4", b"good 1"]

    @pytest.mark.parametrize(
        ("target", "expected"), [("key", list(DATA)), ("index", list(range(5))), (len, [6, 5, 5, 5, 5])]
    )
    def test_else_every_object_is_one(self, samples, target, expected):
        every = Samples(samples.hot, target=target)
        assert every.targets(range(5)) == expected
        assert len(every) == 5

    def test_a_copy_is_the_same(self, samples):
        copy = pickle.loads(pickle.dumps(samples))
        assert (copy.targets(range(4)), copy.read([0])) == (samples.targets(range(4)), samples.read([0]))
        copy.hot.close()

    def test_changed_objects_are_missing_where_they_are_to_be_skipped(self, place):
        with hotset.open(str(place), on_changed="skip") as ds:
            (place / "cat/1").write_bytes(b"changed meanwhile")
            assert Samples(ds).read([0, 1, 2]) == [b"about", None, b"bad"]
        with hotset.open(str(place), refresh="never") as ds, pytest.raises(Changed, match="cat/1"):
            Samples(ds).read([0, 1, 2])

    def test_what_it_opened_it_closes_when_it_is_dropped(self, place):
        samples = Samples(str(place))
        filler = samples.hot._fill.pid
        assert filler is not None
        del samples
        gc.collect()
        wait_until_gone(filler)

    def test_what_cannot_be(self, samples, place):
        with pytest.raises(InvalidInput, match="open already"):
            Samples(samples.hot, refresh="always")
        with pytest.raises(InvalidInput, match="targets are"):
            Samples(str(place), target="directories")
        with hotset.open(str(place), include="README") as ds, pytest.raises(InvalidInput, match="lies in a directory"):
            Samples(ds, target="directory")


class TestEpochs:
    def test_the_order_is_told_with_that_of_the_next_epoch(self, samples):
        order = SampleOrder(samples.hot.snapshot, 4, seed=3)
        epochs = Epochs(samples, shuffle=True, seed=3, rank=1, world=2, lookahead=99)
        with mock.patch.object(hotset.Dataset, "prefetch") as prefetch:
            assert epochs.begin(5).tolist() == order.share(5, rank=1, world=2).tolist()
        told = np.concatenate([order.share(epoch, rank=1, world=2) for epoch in (5, 6)])
        assert prefetch.call_args.args[0].tolist() == (told + 1).tolist()  # places: README comes before all samples
        assert prefetch.call_args.kwargs == {"lookahead": 99}

    def test_nothing_is_told_when_all_is_there(self, samples):
        samples.hot.load()
        with mock.patch.object(hotset.Dataset, "prefetch") as prefetch:
            assert sorted(Epochs(samples, shuffle=True).begin(0)) == [0, 1, 2, 3]
        assert not prefetch.called

    @pytest.mark.parametrize(("drop_last", "length"), [(False, 2), (True, 1)])
    def test_a_world_that_does_not_divide(self, samples, drop_last, length):
        shares = [Epochs(samples, shuffle=True, rank=rank, world=3, drop_last=drop_last) for rank in range(3)]
        assert [len(share) for share in shares] == [length] * 3
        assert [len(share.begin(0)) for share in shares] == [length] * 3

    def test_what_cannot_be(self, samples):
        with pytest.raises(InvalidInput, match="rank 3 of a world of 3"):
            Epochs(samples, shuffle=True, rank=3, world=3)
        with pytest.raises(InvalidInput, match="4 samples are not one for each of 5 ranks"):
            Epochs(samples, shuffle=True, world=5, drop_last=True)


class TestBadSamples:
    @staticmethod
    def decode(data: bytes) -> str:
        if data == b"bad":
            raise ValueError("no good")
        return data.decode()

    def outcome(self, samples, index, policy):
        return in_place_of(samples, index, ValueError("no good"), self.decode, policy)

    def test_policies(self, samples):
        with pytest.raises(InvalidInput, match="'cat/2' cannot be decoded: ValueError: no good"):
            self.outcome(samples, 1, "raise")
        assert self.outcome(samples, 1, "skip") is None
        assert self.outcome(samples, 1, "replace") == (3, "good 4")
        assert self.outcome(samples, 1, lambda key, error: f"{key}: {error}") == (1, "cat/2: no good")

    def test_after_the_last_comes_the_first(self, samples):
        assert self.outcome(samples, 3, "replace") == (0, "good 1")

    def test_nothing_is_good(self, place):
        with (
            hotset.open(str(place), include="*/[12]", exclude=["cat/1", "eel/1"]) as ds,
            pytest.raises(InvalidInput, match="neither 'cat/2' nor those after it"),
        ):
            self.outcome(Samples(ds), 0, "replace")
