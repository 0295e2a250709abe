"""Listings for tests, out of plain dictionaries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st

from hotset.snapshot import Listing, Plan, PlanParameters, Snapshot, plan, write_index
from hotset.source.base import FingerprintKind, ObjectInfo

#: A pack of 10,000 bytes: everything that happens to packs happens with small numbers.
SMALL = PlanParameters(limit=10_000, stripe=9_000)
IDENTITY = b"a dataset"

Objects = Mapping[str, tuple[int, int]]
"""Key -> (size, version)."""


def infos(objects: Objects) -> list[ObjectInfo]:
    return [
        ObjectInfo(key, size, FingerprintKind.ETAG, b"version-%d" % version, 1000 + version)
        for key, (size, version) in objects.items()
    ]


def listing_of(objects: Objects) -> Listing:
    return Listing.of([infos(objects)], listed_ns=10**18)


def planned(objects: Objects, *, parameters: PlanParameters = SMALL, identity: bytes = IDENTITY) -> Plan:
    return plan(listing_of(objects), identity, parameters)


def packs_of(objects: Objects, *, parameters: PlanParameters = SMALL) -> dict[bytes, list[str]]:
    """Name of each pack -> the keys in it."""
    listing = listing_of(objects)
    keys = [key.decode() for key in listing.key_list()]
    made = plan(listing, IDENTITY, parameters)
    bounds = made.first.tolist()
    return {name: keys[low:high] for name, low, high in zip(made.names, bounds, bounds[1:], strict=False)}


def snapshot_of(directory: Path, objects: Objects, *, parameters: PlanParameters = SMALL) -> Snapshot:
    directory.mkdir(parents=True)
    listing = listing_of(objects)
    write_index(directory, listing, plan(listing, IDENTITY, parameters))
    return Snapshot(directory)


keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
sizes = st.one_of(st.integers(0, 60), st.integers(0, 3_000), st.integers(8_990, 10_010), st.integers(0, 50_000))
objects = st.dictionaries(
    keys.filter(lambda key: not key.endswith("/")), st.tuples(sizes, st.integers(0, 2)), max_size=60
)


def drawn(rng: random.Random) -> dict[str, tuple[int, int]]:
    """A random dataset of one of four kinds: like images, a tenth of a pack each, anything, and near or above the limit."""
    size = rng.choice(
        [
            lambda: rng.randint(25, 75),
            lambda: rng.randint(500, 1500),
            lambda: int(10 ** rng.uniform(0, 4.7)),
            lambda: rng.choice([rng.randint(0, 60), rng.randint(5000, 9990), rng.randint(9990, 50_000)]),
        ]
    )
    return {f"{rng.getrandbits(32):08x}": (size(), 0) for _ in range(rng.choice([1, 5, 50, 400, 1000]))}


def one_change(rng: random.Random, before: Objects) -> tuple[str, dict[str, tuple[int, int]]]:
    """What was done, and the dataset after one object was added, removed, or became another version."""
    after = dict(before)
    some_key = rng.choice(list(before))
    some_size = rng.choice(list(before.values()))[0]
    what = rng.choice(["added", "removed", "same size", "other size"])
    if what == "added":
        after[f"{rng.getrandbits(32):08x}+"] = (some_size, 0)
    elif what == "removed":
        del after[some_key]
    else:
        after[some_key] = (before[some_key][0] if what == "same size" else some_size, 1)
    return what, after
