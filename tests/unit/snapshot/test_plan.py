"""The plan: complete, a function of the set of objects alone, and local: one change touches few packs."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotset.errors import InvalidInput
from hotset.snapshot import Listing, PlanParameters, plan
from hotset.source.base import FingerprintKind, ObjectInfo
from tests.support.processes import call
from tests.unit.snapshot.making import (
    IDENTITY,
    SMALL,
    Objects,
    drawn,
    infos,
    listing_of,
    objects,
    one_change,
    packs_of,
    planned,
)


class TestComplete:
    @given(objects)
    def test_every_object_is_in_exactly_one_pack_in_key_order(self, objects: Objects):
        members = [key for keys in packs_of(objects).values() for key in keys]
        assert members == sorted(objects, key=str.encode)

    @given(objects)
    def test_a_pack_is_never_larger_than_the_limit_unless_it_is_one_object(self, objects: Objects):
        for keys in packs_of(objects).values():
            cost = sum(objects[key][0] + SMALL.overhead for key in keys)
            assert cost <= SMALL.limit or len(keys) == 1

    @given(objects)
    def test_an_object_larger_than_a_pack_is_alone(self, objects: Objects):
        packs = list(packs_of(objects).values())
        for key, (size, _) in objects.items():
            if size + SMALL.overhead > SMALL.limit:
                assert [key] in packs

    def test_an_object_exactly_as_large_as_a_pack_fits(self):
        assert len(packs_of({"a": (SMALL.limit - SMALL.overhead, 0)})) == 1
        assert len(packs_of({"a": (SMALL.limit - 2 * SMALL.overhead, 0), "b": (0, 0)})) == 1
        assert len(packs_of({"a": (SMALL.limit - 2 * SMALL.overhead, 0), "b": (1, 0)})) == 2

    def test_no_objects_make_no_packs(self):
        made = planned({})
        assert (made.packs, made.first.tolist()) == (0, [0])

    def test_zero_byte_objects_have_a_place_as_well(self):
        packs = packs_of({f"{number:05}": (0, 0) for number in range(6000)})
        assert len(packs) > 1, "their checksums fill packs, too"
        assert sum(map(len, packs.values())) == 6000

    def test_a_stripe_must_fit_in_a_pack(self):
        with pytest.raises(ValueError, match="stripe"):
            PlanParameters(limit=100, stripe=101)


class TestListing:
    def test_directory_markers_are_left_out_and_empty_files_are_not(self):
        listing = Listing.of(
            [
                [
                    ObjectInfo("dir/", 0, FingerprintKind.ETAG, b"a"),
                    ObjectInfo("dir/empty", 0, FingerprintKind.ETAG, b"b"),
                    ObjectInfo("odd/", 5, FingerprintKind.ETAG, b"c"),
                ]
            ],
            listed_ns=0,
        )
        assert listing.key_list() == [b"dir/empty", b"odd/"]

    def test_two_objects_of_one_key_are_refused_by_name(self):
        one = ObjectInfo("dir/twice", 3, FingerprintKind.ETAG, b"a")
        other = ObjectInfo("dir/twice", 3, FingerprintKind.ETAG, b"b")
        between = ObjectInfo("dir/between", 3, FingerprintKind.ETAG, b"c")
        with pytest.raises(InvalidInput, match="'dir/twice'"):
            Listing.of([[one], [between, other]], listed_ns=0)

    @given(objects, st.randoms(use_true_random=False), st.integers(1, 7))
    def test_batches_and_their_order_do_not_matter(self, objects: Objects, rng: random.Random, size: int):
        shuffled = infos(objects)
        rng.shuffle(shuffled)
        batches = [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
        listing = Listing.of(iter(batches), listed_ns=10**18)
        whole = listing_of(objects)
        assert plan(listing, IDENTITY, SMALL).digest == plan(whole, IDENTITY, SMALL).digest
        for column in ("sizes", "kinds", "modified_ns", "key_offsets", "fingerprint_offsets"):
            assert np.array_equal(getattr(listing, column), getattr(whole, column))
        assert (listing.keys, listing.fingerprints) == (whole.keys, whole.fingerprints)
        assert listing.total_bytes == sum(size for size, _ in objects.values())

    def test_keys_are_sorted_by_their_bytes_as_object_stores_do(self):
        names = ["é", "z", "Z", "a/b", "a-b", "a", "\U0001f600", "\uffff"]
        listing = listing_of(dict.fromkeys(names, (1, 0)))
        assert listing.key_list() == sorted(name.encode() for name in names)


class TestHistory:
    @given(objects, st.data())
    def test_the_plan_does_not_remember_what_came_before(self, objects: Objects, data: st.DataObject):
        """Removing some objects and adding them again gives the old plan: nothing but the set of objects counts."""
        removed = data.draw(st.sets(st.sampled_from(sorted(objects)))) if objects else set()
        smaller = {key: value for key, value in objects.items() if key not in removed}
        packs_of(smaller)
        assert packs_of({**smaller, **{key: objects[key] for key in removed}}) == packs_of(objects)

    def test_the_same_in_another_process_with_another_hash_seed(self):
        """Nothing of Python's randomised hashes gets into a plan."""
        here = digest_of_a_dataset(5)
        for seed in ("0", "1", "4242"):
            with call(digest_of_a_dataset, 5, env={"PYTHONHASHSEED": seed}) as other:
                assert other.result() == here


class TestLocal:
    """The bound that the docstring of `hotset.snapshot.plan` states."""

    @settings(max_examples=300)
    @given(st.randoms(use_true_random=False))
    def test_what_changes_lies_within_one_pack_to_each_side(self, rng: random.Random):
        before = drawn(rng)
        _, after = one_change(rng, before)
        check_bytes(before, after)

    @settings(max_examples=300)
    @given(objects.filter(bool), st.data())
    def test_also_for_datasets_made_to_break_it(self, objects: Objects, data: st.DataObject):
        key = data.draw(st.sampled_from(sorted(objects)))
        smaller = {other: value for other, value in objects.items() if other != key}
        check_bytes(objects, smaller)
        check_bytes(smaller, objects)
        check_bytes(objects, {**objects, key: (data.draw(st.integers(0, 30_000)), 9)})

    def test_how_many_packs_change(self):
        rng = random.Random(20260101)
        counted: dict[str, Counter[int]] = {}
        for _ in range(1500):
            before = drawn(rng)
            what, after = one_change(rng, before)
            old, new = packs_of(before), packs_of(after)
            counted.setdefault(what, Counter())[len(new.keys() - old.keys())] += 1
        assert set(counted["same size"]) == {1}, "a new version of the same size changes its own pack only"
        everything = sum(counted.values(), Counter())
        total = everything.total()
        assert sum(count for packs, count in everything.items() if packs <= 1) >= 0.9 * total
        assert sum(count for packs, count in everything.items() if packs <= 3) >= 0.985 * total
        assert max(everything) <= 10

    def test_a_change_among_small_objects_changes_one_pack_almost_always(self):
        rng = random.Random(7)
        many = {f"{number:06}": (rng.randint(25, 75), 0) for number in range(4000)}
        old = packs_of(many)
        changes: Counter[int] = Counter()
        for _ in range(150):
            _, after = one_change(rng, many)
            changes[len(packs_of(after).keys() - old.keys())] += 1
        assert changes[0] + changes[1] >= 145
        assert max(changes) <= 2


class TestNames:
    base: ClassVar[Objects] = {"a": (5, 0), "b": (6, 0)}

    @pytest.mark.parametrize(
        "other",
        [
            {"a": (5, 1), "b": (6, 0)},
            {"a": (6, 0), "b": (5, 0)},
            {"aa": (5, 0), "b": (6, 0)},
            {"a": (5, 0)},
            {"a": (5, 0), "b": (6, 0), "c": (0, 0)},
        ],
    )
    def test_another_key_size_or_version_gives_another_name(self, other: Objects):
        assert not packs_of(self.base).keys() & packs_of(other).keys()
        assert planned(self.base).digest != planned(other).digest

    def test_another_dataset_or_other_parameters_never_share_a_pack(self):
        here = planned(self.base)
        there = planned(self.base, identity=b"another dataset")
        coarser = planned(self.base, parameters=PlanParameters(limit=20_000, stripe=9_000))
        assert len({here.names[0], there.names[0], coarser.names[0]}) == 3
        assert len({here.digest, there.digest, coarser.digest}) == 3

    def test_keys_and_fingerprints_cannot_run_into_one_another(self):
        """Without lengths, ("ab", "c") and ("a", "bc") would hash the same bytes."""
        one = Listing.of([[info("ab", b"x"), info("c", b"yz")]], listed_ns=0)
        two = Listing.of([[info("a", b"x"), info("bc", b"yz")]], listed_ns=0)
        three = Listing.of([[info("ab", b"xy"), info("c", b"z")]], listed_ns=0)
        assert len({plan(listing, IDENTITY, SMALL).digest for listing in (one, two, three)}) == 3

    def test_the_kind_of_a_fingerprint_counts(self):
        tag = Listing.of([[ObjectInfo("a", 1, FingerprintKind.ETAG, b"abcd")]], listed_ns=0)
        digest = Listing.of([[ObjectInfo("a", 1, FingerprintKind.SHA256, b"abcd")]], listed_ns=0)
        assert plan(tag, IDENTITY).digest != plan(digest, IDENTITY).digest

    def test_the_time_of_change_alone_does_not_count_where_a_tag_is_known(self):
        one = Listing.of([[ObjectInfo("a", 1, FingerprintKind.ETAG, b"abcd", 5)]], listed_ns=0)
        two = Listing.of([[ObjectInfo("a", 1, FingerprintKind.ETAG, b"abcd", 6)]], listed_ns=0)
        assert plan(one, IDENTITY).digest == plan(two, IDENTITY).digest

    def test_a_pack_has_its_name_from_its_members_only(self):
        """Packs far from a change keep their names: that is what makes a reload cheap."""
        many = {f"{number:05}": (900, 0) for number in range(300)}
        old, new = packs_of(many), packs_of({**many, "00150": (900, 1)})
        assert len(old) > 25
        assert len(old.keys() & new.keys()) == len(old) - 1


def test_two_million_keys():
    """Works at the size that the goal names; the time is measured in the benchmarks."""
    count = 2_000_000
    batch = (
        [
            ObjectInfo(f"train/{n >> 10:05}/{n:08}", 33_000, FingerprintKind.ETAG, b"%032x" % n, 1)
            for n in range(low, low + 50_000)
        ]
        for low in range(0, count, 50_000)
    )
    made = plan(Listing.of(batch, listed_ns=10**18), IDENTITY)
    assert made.first[-1] == count
    full = PlanParameters().limit / 33_004
    assert count / full < made.packs < 3 * count / full


def info(key: str, tag: bytes) -> ObjectInfo:
    return ObjectInfo(key, 1, FingerprintKind.ETAG, tag)


def check_bytes(before: Objects, after: Objects) -> None:
    """What lies in packs that one plan has and the other has not, besides the changed object, fits into two packs."""
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    old, new = packs_of(before), packs_of(after)
    for packs, others, sizes in ((old, new, before), (new, old, after)):
        moved = [key for name, keys in packs.items() if name not in others for key in keys if key not in changed]
        assert sum(sizes[key][0] + SMALL.overhead for key in moved) <= 2 * SMALL.limit


def digest_of_a_dataset(seed: int) -> str:
    return planned(drawn(random.Random(seed))).digest + os.environ.get("PYTHONHASHSEED", "")[:0]
