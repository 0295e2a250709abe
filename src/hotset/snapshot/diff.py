"""What changed between two snapshots. Only packs whose names differ are looked into, so a small change is found fast."""

from __future__ import annotations

from dataclasses import dataclass, field

from hotset.snapshot.index import Snapshot

__all__ = ["Changes", "diff"]


@dataclass(frozen=True)
class Changes:
    """Keys that a reload found added, modified or removed, and what the new snapshot needs from its source."""

    before: str | None  #: digest of the old snapshot; None if there was none
    after: str
    added: list[str] = field(default_factory=list)
    modified: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    packs_kept: int = 0
    packs_new: int = 0
    bytes_to_fetch: int = 0

    def __bool__(self) -> bool:
        return self.before != self.after

    def __str__(self) -> str:
        if not self:
            return "nothing changed"
        return f"{len(self.added)} added, {len(self.modified)} modified, {len(self.removed)} removed"


def diff(before: Snapshot | None, after: Snapshot) -> Changes:
    """Compare by pack names first, then by fingerprint inside the packs that only one side has."""
    if before is None:
        return Changes(
            None, after.digest, list(after.keys()), packs_new=after.pack_count, bytes_to_fetch=after.total_bytes
        )
    if before.digest == after.digest:
        return Changes(before.digest, after.digest, packs_kept=after.pack_count)
    old_names, new_names = set(before.pack_names()), set(after.pack_names())
    old, new = _members(before, new_names), _members(after, old_names)
    added, modified, fetch = [], [], 0
    for key, (version, size) in new.items():
        known = old.get(key)
        if known is None:
            added.append(key)
        elif known != (version, size):
            modified.append(key)
        else:
            continue
        fetch += size
    return Changes(
        before=before.digest,
        after=after.digest,
        added=added,
        modified=modified,
        removed=[key for key in old if key not in new],
        packs_kept=len(new_names & old_names),
        packs_new=len(new_names - old_names),
        bytes_to_fetch=fetch,
    )


def _members(snapshot: Snapshot, shared: set[bytes]) -> dict[str, tuple[tuple[int, bytes], int]]:
    """Key -> (version, size) of all objects that lie in packs outside ``shared``."""
    members = {}
    for number in range(snapshot.pack_count):
        pack = snapshot.pack(number)
        if pack.name in shared:
            continue
        for position in range(pack.first, pack.first + pack.objects):
            members[snapshot.key(position)] = (snapshot.stored_fingerprint(position), snapshot.sizes[position])
    return members
