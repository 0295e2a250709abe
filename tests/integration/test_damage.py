"""A damaged index, or one that was lost: noticed, listed again and told; the packs that it names are not fetched again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import hotset
from hotset.tier.node import CacheDirectory

pytestmark = pytest.mark.integration

DATA = {f"{index:03}": os.urandom(5000) for index in range(20)}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    root = tmp_path / "place"
    root.mkdir()
    for key, data in DATA.items():
        (root / key).write_bytes(data)
        os.utime(root / key, (1e9, 1e9))  # long settled: another listing is the same snapshot
    return root


def index(cache: Path, name: str) -> Path:
    [path] = cache.glob(f"datasets/*/snapshots/*/{name}")
    return path


def flip_a_bit(cache: Path) -> None:
    path = index(cache, "objects.arrow")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)


#: Files are replaced, not written to: who has the index open keeps reading what it has mapped.
DAMAGE = {
    "a flipped bit": flip_a_bit,
    "no packs": lambda cache: index(cache, "packs.arrow").unlink(),
    "no sums": lambda cache: index(cache, "sums.json").write_bytes(b""),
    "no index": lambda cache: shutil.rmtree(index(cache, "objects.arrow").parent),
    "current": lambda cache: next(cache.glob("datasets/*/current")).write_bytes(b"{"),
}


@pytest.fixture(params=DAMAGE.values(), ids=DAMAGE)
def damaged(request: pytest.FixtureRequest, place: Path, tmp_path: Path) -> str:
    """The digest of a snapshot that is whole in the cache but for its index."""
    with hotset.open(str(place), "t") as ds:
        ds.load()
        digest = ds.snapshot
    request.param(tmp_path / "cache")
    return digest


def check(ds: hotset.Dataset, digest: str) -> None:
    assert ds.snapshot == digest
    assert ds.complete, "the packs are those that were there"
    assert dict(zip(ds.keys, ds, strict=True)) == DATA


def test_opening_lists_again_and_says_so(place, damaged, no_leaks):
    with pytest.warns(UserWarning, match="t is listed again: .* (damaged|gone)"), hotset.open(str(place), "t") as ds:
        check(ds, damaged)
    with hotset.open(name="t", refresh="never") as ds:  # and the next one finds it mended
        check(ds, damaged)


def test_what_may_not_be_listed_or_was_asked_for_by_digest_is_an_error(damaged, request):
    with pytest.raises(hotset.Corrupt, match="hotset reload"):
        hotset.open(name="t", refresh="never")
    if "current" not in request.node.name:
        with pytest.raises((hotset.Corrupt, hotset.NotFound)):
            hotset.open(name="t", snapshot=damaged)


def test_a_source_that_is_gone_as_well_is_an_error_and_takes_nothing_away(place, damaged, tmp_path):
    place.rename(tmp_path / "moved")
    with pytest.warns(UserWarning, match="listed again"), pytest.raises(hotset.NotFound):
        hotset.open(str(place), "t")
    (tmp_path / "moved").rename(place)
    with pytest.warns(UserWarning, match="listed again"), hotset.open(name="t") as ds:
        check(ds, damaged)


@pytest.mark.parametrize("changed", [False, True], ids=["same", "changed"])
@pytest.mark.parametrize("what", [name for name in DAMAGE if name != "a flipped bit"])
def test_reload_of_an_open_dataset(place, tmp_path, what, changed):
    with hotset.open(str(place), "t") as ds:
        ds.load()
        DAMAGE[what](tmp_path / "cache")
        if changed:
            (place / "new").write_bytes(b"new")
        with pytest.warns(UserWarning, match="t is listed again"):
            changes = ds.reload()
        assert changes.added == (["new"] if changed else [])
        assert dict(zip(ds.keys, ds, strict=True)) == DATA
    with hotset.open(name="t", refresh="never") as ds:
        assert len(ds) == len(DATA) + changed


def test_an_old_damaged_snapshot_is_in_nobodys_way(place, tmp_path):
    with hotset.open(str(place), "t") as ds:
        ds.load()
        old = index(tmp_path / "cache", "objects.arrow")
        (place / "new").write_bytes(b"new")
        ds.reload()
        old.unlink()
        (place / "newer").write_bytes(b"newer")
        assert ds.reload().added == ["new", "newer"]
    assert sorted(record.damaged for record in hotset.snapshots("t")) == [False, False, True]


def test_one_of_several_is_shown_beside_the_others(place, damaged, tmp_path):
    hotset.open(str(place), "well", include="00?").close()
    dropped = CacheDirectory(tmp_path / "cache")
    (dropped.root / "names" / "dropped").symlink_to("../datasets/nowhere")
    infos = {info.name: info for info in hotset.datasets()}
    assert set(infos) == {"t", "well"}
    assert (infos["well"].objects, infos["well"].damage) == (10, None)
    assert "hotset reload" in str(infos["t"].damage)
