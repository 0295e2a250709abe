"""The dataset's own interface, over local directories: hooks, properties, helpers, what is asked for, what goes wrong."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from hotset.alnair import AlnairJobDataset, dotdict
from hotset.alnair import direct as direct_module
from hotset.errors import Changed, Closed, InvalidInput, NotFound
from hotset.source import open_source
from tests.support.alnair import Numbers, numbered

pytestmark = pytest.mark.integration

WAYS = {"lazy": {"lazyloading": True}, "eager": {}, "windows": {"maxmemory": 1}}


@pytest.fixture
def root(tmp_path):
    numbered(tmp_path / "data", [400_000] * 5)
    return tmp_path / "data"


@pytest.fixture(params=WAYS.values(), ids=WAYS.keys())
def qos(request):
    return {"usecache": False, **request.param}


def opened(root, kind=Numbers, keys=None, **qos):
    return kind(keys, uri=str(root), qos={"usecache": False, **qos})


class TestConversion:
    def test_is_done_by_the_constructor(self, root, qos):
        """Scripts read what it made right after the constructor, and some set what it needs before."""

        class Early(AlnairJobDataset):
            def __init__(self, keys):
                self.prefix = "number "
                super().__init__(keys, uri=str(root), qos=qos)
                self.labels = sorted(set(self.targets))

            def __convert__(self):
                self.seen = (dict(self.data), list(self.keys), self.targets)
                return [self.prefix + key for key in self.keys], list(self.keys)

            def __getitem__(self, index):
                return self.data[index], self.targets[index]

        with Early(["set"]) as dataset:
            raw, keys, targets = dataset.seen
            assert list(raw) == keys == dataset.labels
            assert keys[:2] == ["set/0000", "set/0001"]
            assert targets is None
            lazy = dataset.qos["LazyLoading"]
            assert raw["set/0001"] == ("set/0001" if lazy else (root / "set/0001").read_bytes())
            assert dataset[1] == ("number set/0001", "set/0001")
            assert len(dataset) == len(keys) == (2 if dataset.qos["MaxMemory"] else 5)

    def test_what_is_set_after_the_constructor_is_named(self, root):
        class Late(Numbers):
            def __init__(self):
                super().__init__(uri=str(root), qos={"usecache": False})
                self.classes = {}

            def __convert__(self):
                return self.classes, None

        with pytest.raises(AttributeError) as caught:
            Late()
        assert caught.value.__notes__ == [
            "__convert__ is first called by the constructor: set 'classes' before super().__init__()."
        ]

    @pytest.mark.parametrize("name", ["__convert__", "__preprocess__", "preprocess"])
    def test_has_older_names(self, root, name):
        hook = {name: lambda self: ([1, 2, 3], [4, 5, 6])}
        dataset = opened(root, type("Old", (AlnairJobDataset,), hook))
        assert (dataset.data, dataset.targets, len(dataset)) == ([1, 2, 3], [4, 5, 6], 3)
        assert (dataset.get_data(1), dataset.get_target(1)) == (2, 5)

    def test_the_newest_name_wins(self, root):
        class Both(AlnairJobDataset):
            def __convert__(self):
                return [1], [1]

            def preprocess(self, image):
                raise AssertionError("a helper of the script")

        assert opened(root, Both).data == [1]

    def test_without_any_there_is_no_dataset(self, root):
        with pytest.raises(NotImplementedError, match="Bare has no __convert__"):
            opened(root, type("Bare", (AlnairJobDataset,), {}))

    def test_without_getitem_there_are_no_samples(self, root):
        dataset = opened(root, type("Bare", (AlnairJobDataset,), {"__convert__": lambda self: ([1], [2])}))
        with pytest.raises(NotImplementedError, match="Bare has no __getitem__"):
            dataset[0]

    @pytest.mark.parametrize("wrong", [None, [1, 2, 3], "ab", 7])
    def test_must_return_a_pair(self, root, wrong):
        with pytest.raises(InvalidInput, match=r"Bad\.__convert__ returns a pair"):
            opened(root, type("Bad", (AlnairJobDataset,), {"__convert__": lambda self: wrong}))

    def test_may_return_arrays(self, root):
        class Arrays(AlnairJobDataset):
            def __convert__(self):
                return np.stack([np.frombuffer(self.data[key], np.uint8)[:4] for key in self.keys]), np.arange(5)

        dataset = opened(root, Arrays)
        assert bytes(dataset.get_data(3)) == b"3   "
        assert len(dataset) == 5

    def test_an_array_of_lazy_names_is_read_all_the_same(self, root):
        class Arrays(Numbers):
            def __convert__(self):
                return np.array(self.keys), np.arange(5)

        dataset = opened(root, Arrays, lazyloading=True)
        assert dataset.get_data(3)[:4] == b"3   "
        assert [number for number, _ in dataset.__getitems__([4, 0])] == [4, 0]


class TestInterface:
    def test_data_keys_and_targets_are_read_only(self, root):
        dataset = opened(root)
        for name in ("data", "keys", "targets"):
            with pytest.raises(AttributeError):
                setattr(dataset, name, [])

    def test_load(self, root, qos):
        with Numbers(uri=str(root), qos=qos) as dataset:
            expected = {f"set/{number:04}": (root / f"set/{number:04}").read_bytes() for number in range(5)}
            assert dataset.load("set/0004") == expected["set/0004"]
            everything = {}
            for window in dataset.chunks:
                everything |= dataset.mload(window)
            assert everything == expected
            assert dataset.mload([{"name": "set/0002"}]) == {"set/0002": expected["set/0002"]}
            assert dataset.get_data(1) == expected["set/0001"]

    def test_windows_are_lists_of_records(self, root):
        dataset = opened(root, maxmemory=1)
        assert [[record["name"] for record in window] for window in dataset.chunks] == [
            ["set/0000", "set/0001"],
            ["set/0002", "set/0003"],
            ["set/0004"],
        ]
        assert dataset.chunks[0][0] == {"name": "set/0000", "key": "set/0000", "size": 400_000}
        dataset.load_data(2)
        assert (dataset.keys, dataset[0]) == (["set/0004"], (4, 4))
        dataset.load_all_redis_keys()
        dataset.load_all_s3_keys()
        assert len(dataset.chunks) == 3

    @pytest.mark.parametrize("wrong", [3, -1])
    def test_a_window_that_is_not_there(self, root, wrong):
        with pytest.raises(InvalidInput, match="the dataset has 3"):
            opened(root, maxmemory=1).load_data(wrong)

    def test_lazy_data_have_one_window_whatever_the_limit(self, root):
        assert len(opened(root, maxmemory=1, lazyloading=True).chunks) == 1

    def test_attributes(self, root, monkeypatch):
        monkeypatch.setenv("JOBNAME", "train")
        dataset = opened(root, maxmemory=7)
        assert (dataset.jobname, dataset.bucket_name) == ("train", None)
        assert dataset.qos == {"UseCache": False, "MaxMemory": 7, "DurabilityInDisk": 0, "LazyLoading": False}
        assert isinstance(dataset.jobinfo, dotdict)
        assert dataset.jobinfo.qos.MaxMemory == 7
        assert dataset.load_jobinfo() == dataset.load_metainfo() == dataset.jobinfo

    def test_the_variable_stands_for_the_argument(self, root, monkeypatch):
        monkeypatch.setenv("HOTSET_ALNAIR_URI", f"file://{root}")
        monkeypatch.setenv("HOTSET_ALNAIR_QOS", "usecache=false")
        assert len(Numbers(["set"])) == 5

    def test_is_pickled_into_workers(self, root, qos):
        with Numbers(uri=str(root), qos=qos) as dataset:
            copy = pickle.loads(pickle.dumps(dataset))
            assert [copy[index] for index in range(len(copy))] == [dataset[index] for index in range(len(dataset))]
            assert copy.load("set/0004")[:1] == b"4"
            copy.close()

    def test_closing_ends_reading_but_not_what_is_in_memory(self, root):
        dataset = opened(root)
        dataset.close()
        dataset.close()
        assert dataset[0] == (0, 0)
        with pytest.raises(Closed):
            dataset.load("set/0000")


class TestKeys:
    @pytest.fixture
    def tree(self, tmp_path):
        for key in ("b/2", "b/1", "a/x/1", "a/y", "ab", "c/1"):
            path = tmp_path / "tree" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(key)
        return tmp_path / "tree"

    @pytest.mark.parametrize(
        ("keys", "names"),
        [
            (None, ["a/x/1", "a/y", "ab", "b/1", "b/2", "c/1"]),
            ([], ["a/x/1", "a/y", "ab", "b/1", "b/2", "c/1"]),
            ([""], ["a/x/1", "a/y", "ab", "b/1", "b/2", "c/1"]),
            (["c", "b"], ["c/1", "b/1", "b/2"]),
            (["a"], ["a/x/1", "a/y", "ab"]),
            (["a/"], ["a/x/1", "a/y"]),
            (["a/x"], ["a/x/1"]),
            (["ab"], ["ab"]),
            (["a/x", "a", "a"], ["a/x/1", "a/y", "ab"]),
            ("b/", ["b/1", "b/2"]),
            (("b/2", "b/1"), ["b/2", "b/1"]),
        ],
    )
    @pytest.mark.parametrize("cached", [False, True])
    def test_are_prefixes_in_an_order_that_is_always_the_same(self, tree, keys, names, cached):
        class Texts(AlnairJobDataset):
            def __convert__(self):
                return [self.data[key].decode() for key in self.keys], None

        with opened(tree, Texts, keys, usecache=cached) as dataset:
            assert dataset.keys == dataset.data == names

    @pytest.mark.parametrize("cached", [False, True])
    @pytest.mark.parametrize("wrong", [["d"], ["a", "d"], ["a/z"]])
    def test_a_prefix_of_nothing_is_named(self, tree, wrong, cached, no_leaks):
        with pytest.raises(NotFound, match=f"begins with .*{wrong[-1]}'"):
            opened(tree, Numbers, wrong, usecache=cached)

    @pytest.mark.parametrize("wrong", [[1], [None], [b"a"]])
    def test_are_text(self, tree, wrong):
        with pytest.raises(InvalidInput, match="keys are prefixes"):
            opened(tree, Numbers, wrong)

    @pytest.mark.parametrize("cached", [False, True])
    def test_an_empty_place_is_named(self, tmp_path, cached, no_leaks):
        (tmp_path / "empty").mkdir()
        with pytest.raises(NotFound, match=r"nothing to read at .*/empty"):
            opened(tmp_path / "empty", usecache=cached)

    def test_characters_of_patterns_mean_themselves(self, tmp_path):
        for key in ("a[1]*?", "a1", "a\\b"):
            (tmp_path / key).write_text("7")
        for key in ("a[1]*?", "a\\"):
            with opened(
                tmp_path, type("Raw", (Numbers,), {"__convert__": lambda self: (self.keys, self.keys)}), [key]
            ) as ds:
                assert len(ds) == 1

    def test_an_object_that_nobody_asked_for(self, root):
        with pytest.raises(NotFound, match="'set/9999'"):
            opened(root).load("set/9999")


class TestObjectsThatChange:
    """Nobody waits for what does not come: in Alnair a reader span for ever."""

    @pytest.mark.parametrize("cached", [False, True])
    def test_one_that_vanished(self, root, cached, no_leaks):
        with opened(root, lazyloading=True, usecache=cached) as dataset:
            (root / "set/0003").unlink()
            with pytest.raises(Changed, match="0003"):
                dataset[3]
            with pytest.raises(Changed, match="0003"):
                dataset.__getitems__([1, 3])
            assert dataset[4] == (4, 4)

    @pytest.mark.parametrize("cached", [False, True])
    def test_one_that_is_another_now(self, root, cached, no_leaks):
        with opened(root, lazyloading=True, usecache=cached) as dataset:
            (root / "set/0003").write_bytes(b"33")
            with pytest.raises(Changed, match="0003"):
                dataset[3]

    def test_within_a_window(self, root):
        with opened(root, maxmemory=1) as dataset:
            (root / "set/0003").unlink()
            with pytest.raises(Changed, match="0003"):
                dataset.load_data(1)
            dataset.load_data(2)
            assert dataset[0] == (4, 4)


class TestWithoutACache:
    def test_large_objects_are_read_in_parts(self, root, monkeypatch):
        monkeypatch.setattr(direct_module, "PART", 150_000)
        with opened(root) as dataset:
            assert dataset.load("set/0002") == (root / "set/0002").read_bytes()

    def test_a_window_that_was_staged_in_vain_is_let_go(self, root):
        with opened(root, maxmemory=1) as dataset:
            dataset._stage(1)
            dataset.load_data(2)
            assert dataset[0] == (4, 4)
            dataset._stage(0)
            dataset._stage(0)
            dataset._stage(1)
            dataset.load_data(1)
            assert dataset[0] == (2, 2)

    def test_a_staged_window_that_cannot_be_had_says_so_when_it_is_loaded(self, root):
        with opened(root, maxmemory=1) as dataset:
            (root / "set/0003").unlink()
            dataset._stage(1)
            with pytest.raises(Changed, match="0003"):
                dataset.load_data(1)

    def test_closing_stops_what_is_being_staged(self, root, monkeypatch, no_leaks):
        dataset = opened(root, maxmemory=1)
        dataset._stage(1)
        dataset.close()

    def test_stores_that_cannot_be_read_so_say_it(self):
        with pytest.raises(InvalidInput, match="without a cache"):
            open_source("gs://bucket", env={}, forkable=True)
