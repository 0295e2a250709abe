"""A cache for half of the data: a steady hit rate where least recently used would have none, and never above the quota."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hotset
from hotset.config import builder
from hotset.errors import Full
from hotset.fill.settings import FillSettings
from hotset.snapshot import PlanParameters
from hotset.tier.node import CacheDirectory
from tests.support.datasets import content
from tests.support.processes import call

pytestmark = pytest.mark.integration

QUOTA = 16 * 2**20
"""The smallest there is."""

INDEX = 90
"""Bytes that an object takes in the index, and its checksum in a pack."""


def written(place: Path, count: int, size: int) -> Path:
    """A directory as a source, of objects that can be told from one another."""
    for number in range(count):
        path = place / f"{number // 1000:03}" / f"{number:06}"
        if number % 1000 == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(made(number, size))
        os.utime(path, (10**9, 10**9))  # a time so long ago that it tells versions apart
    return place


def made(number: int, size: int) -> bytes:
    return (b"%06d " % number) * (size // 7 + 1)


@contextmanager
def watched(root: Path) -> Iterator[list[int]]:
    """What `du` says of the directory, again and again; the largest number is in the list afterwards."""
    sizes: list[int] = []
    end = threading.Event()

    def watch() -> None:
        while not end.wait(0.01):
            if (root / "hotset.json").exists():
                sizes.append(usage_of(root))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield sizes
    finally:
        end.set()
        watcher.join()


def usage_of(root: Path) -> int:
    return CacheDirectory(root).usage()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("count", "size"), [(1100, 33_000), (33_000, 1000)])
def test_half_of_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, size: int):
    # Packs are admitted as wholes. A real dataset has thousands; with the usual ones this small one would have ten, and
    # chance would decide how well the last one fits.
    small = PlanParameters(limit=2**19, stripe=2**19)
    monkeypatch.setattr(builder, "FillSettings", partial(FillSettings, parameters=small))
    source = written(tmp_path / "source", count, size)
    length = len(made(0, size))
    root = tmp_path / "cache"
    # Half of the bytes; and the index, which with small objects is a share of its own and cannot be left out.
    quota = count * (length // 2 + INDEX)
    rates = []
    with watched(root) as sizes, hotset.open(str(source), "data", cache=root, quota=quota) as ds:
        for epoch in range(3):
            order = np.random.default_rng(epoch).permutation(count)
            before = ds.stats()
            ds.prefetch(order)
            for start in range(0, count, 256):
                batch = order[start : start + 256]
                for index, data in zip(batch, ds.read_many(batch), strict=True):
                    assert len(data) == length
                    assert data[:6] == data[-7:-1] == b"%06d" % index
            after = ds.stats()
            assert after.reads - before.reads == count
            rates.append((after.hits - before.hits) / count)
    assert min(rates[1:]) >= 0.45, rates
    assert len(sizes) > 20
    assert max(sizes) <= quota
    assert usage_of(root) > 0.85 * quota, "the quota is used"


def test_two_programs_share_the_quota(tmp_path: Path):
    """Each with a dataset larger than the cache: both get a part of it, together never more than there is."""
    sources = [written(tmp_path / f"source{n}", 700, 33_000) for n in range(2)]
    root = tmp_path / "cache"
    CacheDirectory(root, quota=QUOTA)
    with watched(root) as sizes:
        children = [call(two_epochs, str(source), str(root), f"data{n}") for n, source in enumerate(sources)]
        rates = [child.result(timeout=100) for child in children]
        for child in children:
            child.close()
    assert max(sizes) <= QUOTA
    assert min(rates) > 0.1, rates


def two_epochs(source: str, root: str, name: str) -> float:
    """The hit rate of the second one."""
    with hotset.open(source, name, cache=root) as ds:
        for epoch in range(2):
            before = ds.stats()
            order = np.random.default_rng(epoch).permutation(len(ds))
            ds.prefetch(order)
            for index in order:
                assert ds[index][:6] == b"%06d" % index
        after = ds.stats()
        return (after.hits - before.hits) / (after.reads - before.reads)


def test_a_smaller_quota_is_kept_from_the_next_opening_on(tmp_path: Path):
    source = written(tmp_path / "source", 900, 33_000)
    root = tmp_path / "cache"
    with hotset.open(str(source), "data", cache=root, quota=3 * QUOTA) as ds:
        ds.load()
        assert ds.complete
    assert CacheDirectory(root).usage() > QUOTA
    other = written(tmp_path / "other", 300, 33_000)
    with hotset.open(str(other), "other", cache=root, quota=QUOTA) as ds:
        ds.load()
        assert CacheDirectory(root).usage() <= QUOTA
        assert ds.complete


def test_files_that_do_not_fit_are_refused_before_anything_is_fetched(tmp_path: Path):
    source = written(tmp_path / "source", 600, 33_000)
    root = tmp_path / "cache"
    with (
        watched(root) as sizes,
        hotset.open(str(source), "data", cache=root, quota=QUOTA, layout="files") as ds,
        pytest.raises(Full, match="HOTSET_QUOTA"),
    ):
        ds.load()
    assert max(sizes, default=0) < 1_000_000


def test_a_changed_object_in_a_full_cache_costs_its_pack_at_most(tmp_path: Path):
    """The new snapshot takes the room of what only the old one had: one pack, whose other members may have to go first."""
    source = written(tmp_path / "source", 440, 33_000)
    root = tmp_path / "cache"
    with hotset.open(str(source), "data", cache=root, quota=QUOTA) as ds:
        ds.load()
        assert ds.complete
    changed = content("changed", 33_007)
    (source / "000" / "000123").write_bytes(changed)
    with watched(root) as sizes, hotset.open(str(source), "data", cache=root, refresh="always") as ds:
        ds.load()
        assert ds.complete
        assert ds.read("000/000123") == changed
        assert 1 <= ds.stats().fill.fetched_objects <= 7 * 2**20 // 33_000
    assert max(sizes) <= QUOTA
