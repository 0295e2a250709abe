"""A view shows all of a snapshot or is not made."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotset.errors import AlreadyExists, NotFound
from hotset.snapshot import Snapshot
from hotset.tier.node import CacheDirectory, DatasetDirectory
from hotset.tier.node.shelf import open_reader, open_shelf
from hotset.tier.node.view import link_view
from tests.unit.tier.making import LISTED, all_units, contents, dataset_in, filled, publish, unit_of

OBJECTS = contents()


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetDirectory:
    return dataset_in(CacheDirectory(tmp_path / "cache", quota=64 * 2**20), layout="files")


def partly_filled(dataset: DatasetDirectory, *absent: str, **how: int) -> Snapshot:
    """As a filler leaves it that was killed, or that could not have everything; nobody has sealed it."""
    snapshot = publish(dataset, OBJECTS, **how)
    shelf = open_shelf(dataset, snapshot)
    for number, unit in all_units(snapshot):
        position, start, _ = snapshot.unit_range(number, unit)
        if snapshot.key(position) not in absent or start:
            assert shelf.write(number, unit, unit_of(snapshot, OBJECTS, number, unit))
    shelf.close()
    return snapshot


def shown(link: Path) -> dict[str, bytes]:
    return {str(path.relative_to(link)): path.read_bytes() for path in link.rglob("*") if path.is_file()}


def test_all_of_a_snapshot(dataset: DatasetDirectory, tmp_path: Path):
    snapshot = filled(dataset, OBJECTS)
    assert link_view(tmp_path / "new" / "v", dataset, snapshot) == tmp_path / "new" / "v"
    assert shown(tmp_path / "new" / "v") == OBJECTS


def test_nothing_that_is_not_complete(dataset: DatasetDirectory, tmp_path: Path):
    """What is missing is named, and an older view stays as it was."""
    older = filled(dataset, {"old": b"old"})
    link = link_view(tmp_path / "v", dataset, older)
    snapshot = partly_filled(dataset, "dir0/0003", "large", listed_ns=LISTED + 1)
    with pytest.raises(
        NotFound, match=r"2 of 62 objects are not in the cache \('dir0/0003', 'large'\).*load .* reload"
    ):
        link_view(link, dataset, snapshot)
    assert shown(link) == {"old": b"old"}


def test_nothing_of_a_tree_that_is_gone(dataset: DatasetDirectory, tmp_path: Path):
    snapshot = publish(dataset, OBJECTS)
    with pytest.raises(
        NotFound, match=r"62 of 62 objects are not in the cache \('dir0/0000', 'dir0/0003', 'dir0/0006', \.\.\.\)"
    ):
        link_view(tmp_path / "v", dataset, snapshot)
    assert not dataset.trees.joinpath(snapshot.digest).exists(), "looking makes no tree"


def test_what_nobody_has_sealed_yet_is_read_and_sealed(dataset: DatasetDirectory, tmp_path: Path):
    """Another process wrote the last object and is still at it, or was killed."""
    snapshot = partly_filled(dataset)
    link_view(tmp_path / "v", dataset, snapshot)
    assert shown(tmp_path / "v") == OBJECTS
    assert open_reader(dataset, snapshot).complete


def test_but_not_shown_if_it_is_damaged(dataset: DatasetDirectory, tmp_path: Path):
    snapshot = partly_filled(dataset)
    path = dataset.trees / snapshot.digest / "dir1/0001"
    path.chmod(0o600)
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(NotFound, match=r"1 of 62 .*'dir1/0001'"):
        link_view(tmp_path / "v", dataset, snapshot)
    assert not (tmp_path / "v").is_symlink()


def test_something_else_is_not_replaced(dataset: DatasetDirectory, tmp_path: Path):
    (tmp_path / "v").write_text("mine")
    with pytest.raises(AlreadyExists, match="not a view"):
        link_view(tmp_path / "v", dataset, filled(dataset, OBJECTS))
    assert (tmp_path / "v").read_text() == "mine"
