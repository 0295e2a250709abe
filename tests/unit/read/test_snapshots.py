"""Snapshots from Python: listed, pinned, opened, rolled forward."""

from __future__ import annotations

from pathlib import Path

import pytest

import hotset


def test_snapshots_are_listed_pinned_and_opened(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_bytes(b"first")
    with hotset.open(str(source), "d") as ds:
        ds.load()
        first = ds.snapshot
        (source / "b").write_bytes(b"second")
        changes = ds.reload()
        assert changes.added == ["b"]
        assert list(ds.keys) == ["a"], "an open dataset stays bound to its snapshot"
    hotset.pin("d", first[:12])
    records = hotset.snapshots("d")
    assert [(record.digest, record.pinned, record.current) for record in records] == [
        (first, True, False),
        (changes.after, False, True),
    ]
    with hotset.open(name="d", snapshot=first[:12]) as old, hotset.open(name="d", refresh="never") as new:
        assert list(old.keys) == ["a"]
        assert list(new.keys) == ["a", "b"]
        assert new.read("b") == b"second"
    hotset.pin("d", first, pinned=False)
    assert not any(record.pinned for record in hotset.snapshots("d"))


def test_no_cache_directory_yet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOTSET_CACHE", str(tmp_path / "none"))
    assert hotset.datasets() == []
    with pytest.raises(hotset.NotFound, match="does not exist"):
        hotset.snapshots("d")
    with pytest.raises(hotset.NotFound, match="does not exist"):
        hotset.pin("d", "00")
    assert not (tmp_path / "none").exists()


def test_old_snapshots_are_forgotten_but_for_the_newest_pinned_and_open(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    seen = []
    (source / "0").write_bytes(b"0")
    with hotset.open(str(source), "d") as opened:
        seen.append(opened.snapshot)
        for number in range(1, 8):
            (source / str(number)).write_bytes(b"x")
            seen.append(opened.reload().after)
            if number == 1:
                hotset.pin("d", seen[-1])
        left = [record.digest for record in hotset.snapshots("d")]
    assert left == [seen[0], seen[1], *seen[4:]], "open, pinned, three old ones, current"
