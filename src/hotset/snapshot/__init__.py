"""From a listing to a snapshot: which objects there are, and in which pack, at which place, each one lies.

Everything here but reading and writing the two index files is a pure function of the listing. `Listing` holds the sorted
columns, `plan` cuts them into packs and names the packs, `write_index` puts the result into a directory, `Snapshot` maps
it and answers questions in microseconds, `diff` says what changed between two of them.
"""

from hotset.snapshot.diff import Changes, diff
from hotset.snapshot.index import Pack, Snapshot, prepare, write_index
from hotset.snapshot.listing import Listing
from hotset.snapshot.plan import Plan, PlanParameters, plan
from hotset.snapshot.units import Units

__all__ = [
    "Changes",
    "Listing",
    "Pack",
    "Plan",
    "PlanParameters",
    "Snapshot",
    "Units",
    "diff",
    "plan",
    "prepare",
    "write_index",
]
