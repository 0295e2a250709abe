"""The same listing gives the same plan in every version of hotset: packs in caches keep their names.

If this fails, everything that users have cached is fetched again. That is right only together with a new
`hotset.snapshot.plan.FORMAT`; then run ``python -m tests.golden.test_plans`` and say so in the change log.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hotset.snapshot import Listing, Plan, PlanParameters, plan
from hotset.source.base import FingerprintKind, ObjectInfo

DIRECTORY = Path(__file__).parent
LISTED = 1_700_000_000 * 10**9


def images() -> list[ObjectInfo]:
    """3,000 objects like the study's images, with MD5 tags."""
    return [
        ObjectInfo(
            f"train/n{n % 30:08}/{n:06}.JPEG",
            20_000 + 9_973 * n % 26_000,
            FingerprintKind.ETAG,
            b"%032x" % (n * 2**100),
            LISTED - 10**13,
        )
        for n in range(3000)
    ]


def everything() -> list[ObjectInfo]:
    """All kinds of keys, sizes and fingerprints."""
    return [
        ObjectInfo("empty", 0, FingerprintKind.ETAG, b"d41d8cd98f00b204e9800998ecf8427e", 5),
        ObjectInfo("large", 50_000_000, FingerprintKind.ETAG, b"0123456789abcdef0123456789abcdef-7", 5),
        ObjectInfo("as large as a pack", 7 * 2**20 - 4096 - 4, FingerprintKind.SHA256, b"ab" * 32, 0),
        ObjectInfo("one byte more", 7 * 2**20 - 4096 - 3, FingerprintKind.SHA256, b"cd" * 32, 0),
        ObjectInfo("UPPER tag", 100, FingerprintKind.ETAG, b"ABCDEF", 5),
        ObjectInfo("no tag", 100, FingerprintKind.MODIFIED, b"1600000000", 1_600_000_000 * 10**9),
        ObjectInfo("no tag and young", 100, FingerprintKind.MODIFIED, b"1699999999", LISTED - 10**9),
        ObjectInfo("日本/語", 3, FingerprintKind.ETAG, b"\xff\x00", 5),
        ObjectInfo("a", 1, FingerprintKind.ETAG, b"", 5),
        ObjectInfo("a/b", 2, FingerprintKind.ETAG, b"x", 5),
    ]  # fmt: skip


PLANS = {
    "images": (images, PlanParameters()),
    "images-in-small-packs": (images, PlanParameters(limit=2**20, stripe=2**19)),
    "everything": (everything, PlanParameters()),
}


def made(name: str) -> Plan:
    objects, parameters = PLANS[name]
    return plan(Listing.of([objects()], listed_ns=LISTED), b"golden", parameters)


def described(planned: Plan) -> dict[str, object]:
    return {"digest": planned.digest, "first": planned.first.tolist(), "names": [name.hex() for name in planned.names]}


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_is_what_it_always_was(name: str):
    assert described(made(name)) == json.loads((DIRECTORY / f"{name}.json").read_text())


if __name__ == "__main__":
    for each in PLANS:
        (DIRECTORY / f"{each}.json").write_text(json.dumps(described(made(each)), indent=1) + "\n")
        sys.stdout.write(f"{each}: {made(each).packs} packs\n")
