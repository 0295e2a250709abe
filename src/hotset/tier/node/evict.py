"""Who has to go when room is needed. The decisions are pure functions; `make_room` gathers facts, asks them, and unlinks.

Training reads a dataset in cycles, where "least recently used" throws each pack away just before it is needed. So:

* Between datasets, the least recently used goes first.
* Inside a dataset in use, nothing is evicted to admit more of the same: which packs are admitted is a fixed choice (by a
  hash of the pack's name), the rest is read through. Hit rate = share / size.
* Datasets in use divide the quota fairly: what a small one does not need goes to the others; nobody gets 0. One that
  holds more than its share loses the packs that it would not be admitted with now. Its readers keep the bytes that they
  have mapped (an unlinked file lives on under its maps), and fetch the rest anew.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hotset.base.files import half_removed
from hotset.errors import Corrupt, NotFound
from hotset.snapshot import Snapshot
from hotset.tier.node.packfile import PackGeometry
from hotset.tier.node.space import cost_of, directory_cost
from hotset.tier.node.treepaths import beside_tree, remove_tree

if TYPE_CHECKING:
    from hotset.tier.node.cache import CacheDirectory
    from hotset.tier.node.dataset import DatasetDirectory

__all__ = ["admitted", "fair_shares", "make_room", "pack_costs", "share_of"]


# -- decisions ---------------------------------------------------------------------------------------------------------


def fair_shares(capacity: int, demands: Mapping[str, int]) -> dict[str, int]:
    """Divide ``capacity``: equal parts, but nobody gets more than it demands and what is left over goes to the others."""
    shares: dict[str, int] = {}
    left = capacity
    by_demand = sorted(demands.items(), key=lambda item: (item[1], item[0]))
    for done, (name, demand) in enumerate(by_demand):
        shares[name] = min(demand, left // (len(by_demand) - done))
        left -= shares[name]
    return shares


def admitted(names: Sequence[bytes], costs: Sequence[int], share: int, held: Iterable[int] = ()) -> set[int]:
    """Which packs may stay in a share: those ``held`` already, then by their names (which are hashes) while they fit."""
    chosen: set[int] = set()
    left = share
    ranked = sorted(range(len(names)), key=names.__getitem__)
    held = set(held)
    for number in [*(n for n in ranked if n in held), *(n for n in ranked if n not in held)]:
        if costs[number] <= left:
            chosen.add(number)
            left -= costs[number]
    return chosen


@dataclass(frozen=True)
class Victim:
    """Something that may be evicted: a pack file, or the tree of a whole snapshot."""

    path: Path
    cost: int


def enough(victims: Iterable[Victim], need: int) -> list[Victim]:
    """The first victims that together give ``need`` bytes (or all of them)."""
    taken = []
    for victim in victims:
        if need <= 0:
            break
        taken.append(victim)
        need -= victim.cost
    return taken


# -- facts -------------------------------------------------------------------------------------------------------------


def pack_costs(snapshot: Snapshot) -> list[int]:
    return [
        cost_of(PackGeometry(units, size).length)
        for units, size in zip(snapshot.pack_units, snapshot.pack_sizes, strict=True)
    ]


def share_of(cache: CacheDirectory, dataset: DatasetDirectory, demand: int) -> int:
    """The part of the quota that packs of ``dataset`` may take while it and others are in use."""
    demands = {dataset.identifier: demand}
    fixed = 0
    for other in cache.all():
        fixed += directory_cost(other.path / "snapshots")
        if other.identifier != dataset.identifier and (snapshot := _open_current(other, leased=True)) is not None:
            demands[other.identifier] = sum(pack_costs(snapshot))
    return fair_shares(max(0, cache.space.capacity - fixed), demands)[dataset.identifier]


def make_room(cache: CacheDirectory, need: int, *, for_dataset: str) -> int:
    """Evict until ``need`` bytes are free, for a dataset in use; returns what is free then, which may be less.

    Order: what no living snapshot contains; then datasets that nobody uses, the one used longest ago first; then what
    other datasets in use hold above their fair share.
    """
    with cache.space.locked(), ExitStack() as locks:
        _finish_removals(cache)
        short = cache.space.short_of(need)
        if short <= 0:
            return cache.space.free
        idle: list[tuple[int, list[Victim]]] = []
        garbage: list[Victim] = []
        active: list[tuple[DatasetDirectory, Snapshot]] = []
        for dataset in cache.all():
            unused = _lock_unused(dataset, locks)
            living = [digest for digest in dataset.digests() if digest not in unused or dataset.pinned(digest)]
            current = dataset.current()
            in_use = bool(living) or dataset.identifier == for_dataset
            if current is not None and in_use:
                living.append(current.digest)
            kept = _names_in(dataset, living)
            current_names = _names_in(dataset, [current.digest]) if current is not None else set()
            mine: list[Victim] = []
            for victim in _victims(dataset, kept, living):
                (garbage if not _belongs(victim, current_names, current) else mine).append(victim)
            if not in_use:
                idle.append((dataset.last_used_ns(), mine))
            elif dataset.identifier != for_dataset and (snapshot := _open_current(dataset, leased=False)) is not None:
                active.append((dataset, snapshot))
        idle.sort(key=lambda entry: entry[0])
        order = [*garbage, *(victim for _, victims in idle for victim in victims)]
        for victim in enough(order, short):
            short -= _remove(cache, victim)
        if short > 0:
            for victim in enough(_over_share(cache, active, for_dataset, need), short):
                _remove(cache, victim)
        return cache.space.free


def _open_current(dataset: DatasetDirectory, *, leased: bool) -> Snapshot | None:
    current = dataset.current()
    if current is None or (leased and not dataset.leased(current.digest)):
        return None
    with suppress(NotFound, Corrupt):
        return Snapshot(dataset.snapshot_path(current.digest))
    return None


def _lock_unused(dataset: DatasetDirectory, locks: ExitStack) -> set[str]:
    """Lock all snapshots that nobody has open, until ``locks`` closes: no opener comes between here and the unlink."""
    unused = set()
    for digest in dataset.digests():
        if (lock := dataset.exclusive(digest)) is not None:
            locks.callback(lock.release)
            unused.add(digest)
    return unused


def _names_in(dataset: DatasetDirectory, digests: Iterable[str]) -> set[str]:
    names: set[str] = set()
    for digest in set(digests):
        with suppress(NotFound, Corrupt):
            names.update(name.hex() for name in Snapshot(dataset.snapshot_path(digest)).pack_names())
    return names


def _victims(dataset: DatasetDirectory, kept: set[str], living: Sequence[str]) -> list[Victim]:
    """Packs outside ``kept``, in the reverse of the order of admission, and trees of snapshots that are not living."""
    victims = []
    with suppress(FileNotFoundError):
        for entry in sorted(os.scandir(dataset.packs), key=lambda entry: entry.name, reverse=True):
            if entry.name not in kept and not entry.name.startswith("."):
                with suppress(FileNotFoundError):
                    victims.append(Victim(Path(entry.path), cost_of(entry.stat().st_size)))
    with suppress(FileNotFoundError):
        victims.extend(
            _tree_victim(Path(entry.path))
            for entry in os.scandir(dataset.trees)
            if entry.is_dir() and entry.name not in living and not entry.name.startswith(".")
        )
    return victims


def _tree_victim(tree: Path) -> Victim:
    """A tree goes with what lies beside it: the ledger of one that is not full counts as long as all that is missing. Files
    that are in other trees as well live on.
    """
    cost = directory_cost(tree, own=True)
    for path in beside_tree(tree):
        with suppress(FileNotFoundError):
            cost += cost_of(path.stat().st_size)
    return Victim(tree, cost)


def _belongs(victim: Victim, names: set[str], current: object) -> bool:
    return victim.path.name in names or victim.path.name == getattr(current, "digest", None)


def _over_share(
    cache: CacheDirectory, active: Sequence[tuple[DatasetDirectory, Snapshot]], for_dataset: str, need: int
) -> list[Victim]:
    """What other datasets in use hold beyond their fair shares, once ``for_dataset`` has at least what it needs now."""
    demands = {dataset.identifier: sum(pack_costs(snapshot)) for dataset, snapshot in active}
    mine = _open_current(cache.by_id(for_dataset), leased=False)
    demands[for_dataset] = max(need, sum(pack_costs(mine)) if mine is not None else 0)
    fixed = sum(directory_cost(dataset.path / "snapshots") for dataset in cache.all())
    shares = fair_shares(max(0, cache.space.capacity - fixed), demands)
    victims = []
    for dataset, snapshot in active:
        costs = pack_costs(snapshot)
        keep = admitted(snapshot.pack_names(), costs, shares[dataset.identifier])
        pinned = _names_in(dataset, filter(dataset.pinned, dataset.digests()))
        for number, name in enumerate(snapshot.pack_names()):
            path = dataset.packs / name.hex()
            if number not in keep and path.name not in pinned and path.exists():
                victims.append(Victim(path, costs[number]))
    return victims


def _remove(cache: CacheDirectory, victim: Victim) -> int:
    try:
        if victim.path.is_dir():
            remove_tree(victim.path)
        else:
            victim.path.unlink()
    except FileNotFoundError:
        return 0
    cache.space.release(victim.cost)
    return victim.cost


def _finish_removals(cache: CacheDirectory) -> None:
    """What killed processes began to remove takes room, and nobody but who makes room looks for it."""
    places = [cache.root / "datasets"]
    for dataset in cache.all():
        places += [dataset.path / "snapshots", dataset.trees]
    doomed = [path for place in places for path in half_removed(place)]
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)
    if doomed:
        cache.space.recount()
