"""Who has to go: the decisions as properties, and the deeds in real directories."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.snapshot import PlanParameters, Snapshot
from hotset.tier.node import CacheDirectory, DatasetDirectory
from hotset.tier.node.evict import Victim, admitted, enough, fair_shares, make_room, pack_costs, share_of
from hotset.tier.node.shelf import open_reader, open_shelf
from tests.support.datasets import content
from tests.unit.tier import making
from tests.unit.tier.making import LISTED, all_units, check, dataset_in, fill, hidden_files, unit_of

demands = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=2), st.integers(0, 10**13), min_size=1, max_size=8)
costs = st.lists(st.integers(1, 1000), max_size=40)


class TestFairShares:
    @given(st.integers(0, 10**13), demands)
    def test_together_no_more_than_the_capacity_and_nobody_more_than_it_wants(
        self, capacity: int, demands: dict[str, int]
    ):
        shares = fair_shares(capacity, demands)
        assert shares.keys() == demands.keys()
        assert sum(shares.values()) <= capacity
        assert all(0 <= shares[name] <= demand for name, demand in demands.items())

    @given(st.integers(8, 10**13), demands)
    def test_nobody_who_wants_something_gets_nothing(self, capacity: int, demands: dict[str, int]):
        shares = fair_shares(capacity, demands)
        assert all(shares[name] > 0 for name, demand in demands.items() if demand)

    @given(st.integers(0, 10**13), demands)
    def test_nothing_is_wasted(self, capacity: int, demands: dict[str, int]):
        shares = fair_shares(capacity, demands)
        assert sum(shares.values()) == sum(demands.values()) or sum(shares.values()) > capacity - len(demands)

    @given(st.integers(0, 10**13), demands)
    def test_who_gets_less_than_it_wants_gets_as_much_as_anybody(self, capacity: int, demands: dict[str, int]):
        shares = fair_shares(capacity, demands)
        most = max(shares.values())
        assert all(shares[name] >= most - len(demands) for name, demand in demands.items() if shares[name] < demand)

    @given(st.integers(0, 10**13), demands)
    def test_every_process_computes_the_same(self, capacity: int, demands: dict[str, int]):
        assert fair_shares(capacity, demands) == fair_shares(capacity, dict(reversed(demands.items())))


class TestAdmitted:
    @given(costs, st.integers(0, 10_000), st.data())
    def test_fits_is_deterministic_and_keeps_what_is_held(self, costs: list[int], share: int, data: st.DataObject):
        names = [b"%032d" % (7919 * number % 10_007) for number in range(len(costs))]
        held = data.draw(st.sets(st.sampled_from(range(len(costs))))) if costs else set()
        chosen = admitted(names, costs, share, held)
        assert chosen == admitted(names, costs, share, sorted(held, reverse=True))
        assert sum(costs[number] for number in chosen) <= share
        if sum(costs[number] for number in held) <= share:
            assert held <= chosen
        if sum(costs) <= share:
            assert chosen == set(range(len(costs)))

    @given(costs.filter(bool), st.integers(0, 10_000))
    def test_no_room_is_left_that_another_pack_would_fit_into(self, costs: list[int], share: int):
        names = [b"%032d" % number for number in range(len(costs))]
        chosen = admitted(names, costs, share)
        left = share - sum(costs[number] for number in chosen)
        assert all(costs[number] > left for number in range(len(costs)) if number not in chosen)

    def test_the_choice_follows_the_names_which_are_hashes(self):
        assert admitted([b"c", b"a", b"b"], [1, 1, 1], 2) == {1, 2}
        assert admitted([b"c", b"a", b"b"], [1, 1, 1], 2, held=[0]) == {0, 1}


@given(costs, st.integers(-5, 3000))
def test_enough_takes_no_more_victims_than_necessary(costs: list[int], need: int):
    taken = enough([Victim(Path(str(number)), cost) for number, cost in enumerate(costs)], need)
    assert [victim.path.name for victim in taken] == [str(number) for number in range(len(taken))]
    got = sum(victim.cost for victim in taken)
    assert got >= need or len(taken) == len(costs)
    assert not taken or got - taken[-1].cost < need


def objects(name: str, count: int = 40, size: int = 100_000, seed: int = 0) -> dict[str, bytes]:
    """4 MB of objects that no two datasets have in common."""
    return {f"{name}/{n:03}": content(f"{name}{n}", size, seed=seed) for n in range(count)}


MEDIUM = PlanParameters(limit=2**20, stripe=2**19)
publish, filled = partial(making.publish, parameters=MEDIUM), partial(making.filled, parameters=MEDIUM)

BIG = 16 * 2**20
"""The smallest quota: room for four of these datasets and not for five."""


@pytest.fixture
def cache(tmp_path: Path) -> CacheDirectory:
    return CacheDirectory(tmp_path / "cache", quota=BIG)


def held(dataset: DatasetDirectory) -> int:
    return len(os.listdir(dataset.packs))


def used_at(dataset: DatasetDirectory, seconds: int) -> None:
    for digest in dataset.digests():
        os.utime(dataset.snapshot_path(digest) / "lease", (seconds, seconds))


def used_up(cache: CacheDirectory) -> int:
    """Take all the room that is left; the account then says that the cache is full."""
    free = cache.space.free
    assert cache.space.reserve(free)
    return free


class TestMakeRoom:
    def test_with_room_enough_nothing_happens(self, cache: CacheDirectory):
        old = dataset_in(cache, "old")
        filled(old, objects("old"))
        before = held(old)
        assert make_room(cache, 1000, for_dataset="another") >= 1000
        assert held(old) == before

    def test_garbage_first(self, cache: CacheDirectory):
        """Packs that only an old snapshot of an unused dataset has, before any dataset's current ones."""
        idle, other = dataset_in(cache, "idle"), dataset_in(cache, "other")
        before = objects("idle")
        filled(idle, before)
        after = {**before, "idle/000": content("changed", 100_000)}
        filled(idle, after, listed_ns=LISTED + 1)
        filled(other, objects("other"))
        used_at(idle, 1)
        current = idle.current()
        assert current is not None
        snapshot = Snapshot(idle.snapshot_path(current.digest))
        assert held(idle) == snapshot.pack_count + 1
        used_up(cache)
        make_room(cache, 50_000, for_dataset="another")
        assert sorted(os.listdir(idle.packs)) == sorted(name.hex() for name in snapshot.pack_names())
        assert check(open_reader(idle, snapshot), snapshot, after) == len(all_units(snapshot))

    def test_then_the_dataset_that_was_used_longest_ago(self, cache: CacheDirectory):
        datasets = [dataset_in(cache, name) for name in ("a", "b", "c")]
        for dataset, used in zip(datasets, (300, 100, 200), strict=True):
            filled(dataset, objects(dataset.identifier))
            used_at(dataset, used)
        full = held(datasets[0])
        free = used_up(cache)
        cost = cache.space.committed - free
        make_room(cache, cost // 3 + 100_000, for_dataset="another")
        assert [held(dataset) for dataset in datasets][:2] == [full, 0]
        assert 0 < held(datasets[2]) < full

    def test_what_a_process_has_open_stays(self, cache: CacheDirectory):
        used, idle = dataset_in(cache, "used"), dataset_in(cache, "idle")
        snapshot = filled(used, objects("used"))
        filled(idle, objects("idle"))
        used_at(used, 1)
        used_at(idle, 1000)
        _, lease = used.open()
        before = held(used)
        used_up(cache)
        make_room(cache, 2_000_000, for_dataset="another")
        assert held(used) == before
        assert held(idle) < before
        make_room(cache, 100_000_000, for_dataset=idle.identifier)
        lease.release()
        assert check(open_reader(used, snapshot), snapshot, objects("used")) == len(all_units(snapshot))
        make_room(cache, 100_000_000, for_dataset="another")
        assert held(used) == 0

    def test_an_open_old_snapshot_keeps_its_packs(self, cache: CacheDirectory):
        dataset = dataset_in(cache, "data")
        before = objects("data")
        snapshot, lease = dataset.open(filled(dataset, before).digest)
        filled(dataset, objects("data", seed=1), listed_ns=LISTED + 1)
        used_up(cache)
        make_room(cache, 100_000_000, for_dataset="another")
        assert check(open_reader(dataset, snapshot), snapshot, before) == len(all_units(snapshot))
        lease.release()

    def test_what_is_pinned_stays_whoever_needs_room(self, cache: CacheDirectory):
        pinned, active = dataset_in(cache, "pinned"), dataset_in(cache, "active")
        snapshot = filled(pinned, objects("pinned", count=100))
        pinned.pin(snapshot.digest)
        filled(active, objects("active"))
        _, lease = active.open()
        used_up(cache)
        make_room(cache, 100_000_000, for_dataset=active.identifier)
        assert check(open_reader(pinned, snapshot), snapshot, objects("pinned", count=100)) == len(all_units(snapshot))
        pinned.pin(snapshot.digest, pinned=False)
        make_room(cache, 100_000_000, for_dataset=active.identifier)
        assert held(pinned) == 0
        lease.release()

    def test_a_second_dataset_in_use_gets_its_fair_share(self, cache: CacheDirectory):
        """The first one has taken everything; it gives back what it would not be admitted with now."""
        first, second = dataset_in(cache, "first"), dataset_in(cache, "second")
        large = objects("first", count=400)
        one, lease_one = first.open(publish(first, large).digest)
        shelf_one = open_shelf(first, one)
        fill(shelf_one, one, large)
        alone = held(first)
        assert sum(pack_costs(one)) > cache.space.capacity
        other = objects("second", count=400)
        two, lease_two = second.open(publish(second, other).digest)
        shelf_two = open_shelf(second, two)
        assert share_of(cache, second, sum(pack_costs(two))) > cache.space.capacity * 0.4
        stored = fill(shelf_two, two, other)
        assert held(second) > alone * 0.4, "a fair share, never 0"
        assert held(first) > alone * 0.4
        assert stored == check(open_reader(second, two), two, other)
        assert check(open_reader(first, one), one, large) == sum(
            open_reader(first, one).held(n) for n in range(one.pack_count)
        )
        assert cache.usage() <= BIG
        lease_one.release()
        lease_two.release()

    def test_a_dataset_does_not_evict_itself(self, cache: CacheDirectory):
        """Read in cycles, least recently used would give a hit rate of 0: what was admitted stays."""
        dataset = dataset_in(cache, "data")
        large = objects("data", count=400)
        snapshot, lease = dataset.open(publish(dataset, large).digest)
        shelf = open_shelf(dataset, snapshot)
        fill(shelf, snapshot, large)
        kept = sorted(os.listdir(dataset.packs))
        again = open_shelf(dataset, snapshot)
        assert fill(again, snapshot, large) == 0
        assert sorted(os.listdir(dataset.packs)) == kept
        share = sum(os.path.getsize(dataset.packs / name) for name in kept) / sum(pack_costs(snapshot))
        assert share > 0.9 * cache.space.capacity / sum(pack_costs(snapshot))
        lease.release()

    def test_old_views_stay_right_through_eviction(self, cache: CacheDirectory):
        dataset = dataset_in(cache, "data")
        snapshot = filled(dataset, objects("data"))
        reader = open_reader(dataset, snapshot)
        views = {unit: reader.unit(*unit) for unit in all_units(snapshot)}
        used_up(cache)
        make_room(cache, 100_000_000, for_dataset="another")
        assert held(dataset) == 0
        assert reader.forget_unlinked() == list(range(snapshot.pack_count))
        for (number, unit), view in views.items():
            position, _, _ = snapshot.unit_range(number, unit)
            assert view == objects("data")[snapshot.key(position)]

    def test_trees_go_as_a_whole_and_only_when_nobody_uses_them(self, cache: CacheDirectory):
        dataset = dataset_in(cache, "files", layout="files")
        snapshot = filled(dataset, objects("files"))
        _, lease = dataset.open()
        used_up(cache)
        make_room(cache, 100_000_000, for_dataset="another")
        assert check(open_reader(dataset, snapshot), snapshot, objects("files")) == len(all_units(snapshot))
        lease.release()
        make_room(cache, 1, for_dataset="another")
        assert os.listdir(dataset.trees) == []
        assert check(open_reader(dataset, snapshot), snapshot, objects("files")) == 0

    def test_what_a_tree_shares_with_another_one_is_not_counted_as_freed(self, cache: CacheDirectory):
        dataset = dataset_in(cache, "files", layout="files")
        before = objects("files")
        filled(dataset, before)
        after = {**before, "files/000": content("changed", 100_000)}
        snapshot = filled(dataset, after, listed_ns=LISTED + 1)
        _, lease = dataset.open()
        committed = cache.space.committed
        free = used_up(cache)
        make_room(cache, 50_000, for_dataset="another")
        assert len([name for name in os.listdir(dataset.trees) if not name.endswith(".ledger")]) == 1
        assert committed + free - cache.space.committed < 200_000
        assert cache.space.recount() <= committed
        assert check(open_reader(dataset, snapshot), snapshot, after) == len(all_units(snapshot))
        lease.release()

    def test_an_unfinished_tree_gives_back_all_that_it_would_have_taken(self, cache: CacheDirectory):
        """Its ledger counts as long as what is missing, and a large object on its way as long as all of it."""
        unfinished, other = dataset_in(cache, "files", layout="files"), dataset_in(cache, "other")
        data = objects("files") | {"large": content("large", 2**21)}
        snapshot, lease = unfinished.open(publish(unfinished, data).digest)
        shelf = open_shelf(unfinished, snapshot)
        number = snapshot.packs[snapshot.find("large")]
        for place in ((0, 0), (number, 0)):
            assert shelf.write(*place, unit_of(snapshot, data, *place))
        shelf.close()
        lease.release()
        filled(other, objects("other"))
        used_at(unfinished, 1)
        before = held(other)
        used_up(cache)
        assert make_room(cache, 5 * 2**20, for_dataset="another") > 5 * 2**20
        assert held(other) == before, "nobody else had to go"
        assert os.listdir(unfinished.trees) == []
        assert unfinished.digests() == [snapshot.digest]

    @pytest.mark.parametrize("doomed", ["tree", "snapshot", "dataset"])
    def test_what_a_killed_process_began_to_remove_goes_first(
        self, cache: CacheDirectory, doomed: str, monkeypatch: pytest.MonkeyPatch
    ):
        """It has no name any more under which somebody could evict it."""
        gone, kept = dataset_in(cache, "gone", layout="files"), dataset_in(cache, "kept")
        snapshot = filled(gone, objects("gone", count=80))
        filled(kept, objects("kept"))
        used_at(gone, 1)
        before = held(kept)
        with monkeypatch.context() as patch:
            patch.setattr("hotset.base.files.shutil.rmtree", lambda *_, **__: None)  # as if killed here
            if doomed == "tree":
                make_room(cache, cache.space.free + 1, for_dataset="another")
            elif doomed == "snapshot":
                gone.remove_snapshot(snapshot.digest)
            else:
                gone.drop()
        assert len(hidden_files(cache.root)) == (2 if doomed == "snapshot" else 1)
        taken = cache.space.recount()
        assert taken > 12 * 10**6
        need = cache.space.free + 7 * 10**6
        assert make_room(cache, need, for_dataset="another") >= need
        assert held(kept) == before, "nobody else had to go"
        assert hidden_files(cache.root) == []
        assert cache.space.committed == cache.space.recount()

    @pytest.mark.parametrize("what", ["current", "index", "snapshot gone", "record"])
    def test_damage_in_one_dataset_is_no_harm_to_the_others(self, cache: CacheDirectory, what: str):
        sick, well = dataset_in(cache, "sick"), dataset_in(cache, "well")
        snapshot = filled(sick, objects("sick"))
        _, lease = sick.open()
        place = sick.snapshot_path(snapshot.digest)
        if what == "current":
            (sick.path / "current").write_bytes(b"{")
        elif what == "index":
            (place / "packs.arrow").write_bytes(b"")
        elif what == "snapshot gone":
            place.rename(place.with_name(".doomed"))
        else:
            (sick.path / "dataset.json").write_bytes(b"[]")
        used_up(cache)
        make_room(cache, 100_000, for_dataset=well.identifier)
        assert share_of(cache, well, 10**6) == 10**6
        cache.space.recount()
        other = filled(well, objects("well"))
        assert check(open_reader(well, other), other, objects("well")) == len(all_units(other))
        lease.release()
