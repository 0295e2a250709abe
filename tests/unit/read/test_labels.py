"""Classes from the names of directories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.read.keys import Keys
from hotset.read.labels import classes_of
from tests.unit.snapshot.making import snapshot_of


def keys_of(directory, *names: str) -> Keys:
    return Keys(snapshot_of(directory, dict.fromkeys(names, (1, 0))))


@pytest.mark.parametrize(
    ("names", "root", "classes", "indices"),
    [
        (["cat/1", "dog/1", "dog/2"], "", ("cat", "dog"), [0, 1, 1]),
        (["cat/1", "cat/deep/er/1"], "", ("cat",), [0, 0]),
        (["README", "cat/1", "labels.txt"], "", ("cat",), [-1, 0, -1]),
        (["train/b/1", "train/c/1", "val/a/1"], "train", ("b", "c"), [0, 1, -1]),
        (["train/b/1", "trainer/c/1"], "/train/", ("b",), [0, -1]),
        (["a-b/1", "a/1", "a0/1"], "", ("a", "a-b", "a0"), [1, 0, 2]),
        (["1", "2"], "", (), [-1, -1]),
        (["cat/1"], "nowhere", (), [-1]),
        ([], "", (), []),
    ],
    ids=[
        "classes",
        "any depth",
        "files at the root",
        "below a root",
        "a root by name",
        "sorted names",
        "flat",
        "no",
        "nil",
    ],
)
def test_the_class_is_the_directory(tmp_path, names, root, classes, indices):
    keys = keys_of(tmp_path / "index", *names)
    found = classes_of(keys, root)
    assert found.names == classes
    assert found.indices.tolist() == indices
    assert found.members.tolist() == [place for place, index in enumerate(indices) if index >= 0]


PARTS = st.text(st.sampled_from("ab-0é"), min_size=1, max_size=2)


@given(st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=40), st.sampled_from(["", "a", "a/b"]))
def test_the_same_as_one_key_at_a_time(tmp_path_factory, names, root):
    keys = keys_of(tmp_path_factory.mktemp("index") / "index", *names)
    found = classes_of(keys, root)
    prefix = f"{root}/" if root else ""
    relative = [key.removeprefix(prefix).split("/") if key.startswith(prefix) else [] for key in keys]
    wanted = sorted({parts[0] for parts in relative if len(parts) > 1})
    assert list(found.names) == wanted
    assert found.indices.tolist() == [wanted.index(parts[0]) if len(parts) > 1 else -1 for parts in relative]
    assert found.indices.dtype == np.int64
