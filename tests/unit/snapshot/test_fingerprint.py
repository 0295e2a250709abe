"""Fingerprints survive being written down, and a time that proves nothing is read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.snapshot import Listing, plan
from hotset.snapshot.fingerprint import decode, encode
from hotset.snapshot.listing import SETTLING_NS
from hotset.source.base import Fingerprint, FingerprintKind, ObjectInfo

LISTED = 1_700_000_000 * 10**9

values = st.one_of(
    st.binary(max_size=80),
    st.text("0123456789abcdef", max_size=64).map(str.encode),
    st.text("0123456789abcdefABCDEF- ", max_size=64).map(str.encode),
)


@given(st.sampled_from(FingerprintKind), values, st.sampled_from([0, 1, LISTED]))
def test_what_is_stored_gives_the_same_fingerprint_back(kind: FingerprintKind, value: bytes, unsettled: int):
    code, stored = encode(kind, value, unsettled)
    assert 0 <= code < 256
    assert decode(code, stored) == Fingerprint(kind, value)


@given(st.sampled_from(FingerprintKind), values, st.sampled_from(FingerprintKind), values)
def test_equal_as_stored_exactly_if_equal(
    kind: FingerprintKind, value: bytes, other_kind: FingerprintKind, other: bytes
):
    assert (encode(kind, value) == encode(other_kind, other)) == ((kind, value) == (other_kind, other))


@pytest.mark.parametrize("kind", [FingerprintKind.ETAG, FingerprintKind.SHA256])
def test_hex_takes_half_the_room(kind: FingerprintKind):
    assert len(encode(kind, b"0123456789abcdef" * 2)[1]) == 16
    assert len(encode(kind, b"0123456789ABCDEF" * 2)[1]) == 32, "upper case would not come back as it was"


def digest(kind: FingerprintKind, modified_ns: int, listed_ns: int) -> str:
    value = b"%d" % modified_ns if kind is FingerprintKind.MODIFIED else b"tag"
    listing = Listing.of([[ObjectInfo("a", 5, kind, value, modified_ns)]], listed_ns=listed_ns)
    return plan(listing, b"").digest


def test_a_weak_fingerprint_that_is_too_young_differs_at_the_next_listing():
    """Modified within two seconds of the listing: the next version may carry the same time, so it is read again."""
    young = LISTED - SETTLING_NS
    assert digest(FingerprintKind.MODIFIED, young, LISTED) != digest(FingerprintKind.MODIFIED, young, LISTED + 1)


def test_once_settled_it_stays_the_same():
    young = LISTED - 1
    later, latest = LISTED + 3 * SETTLING_NS, LISTED + 9 * SETTLING_NS
    assert digest(FingerprintKind.MODIFIED, young, LISTED) != digest(FingerprintKind.MODIFIED, young, later)
    assert digest(FingerprintKind.MODIFIED, young, later) == digest(FingerprintKind.MODIFIED, young, latest)


def test_an_old_one_never_differs():
    old = LISTED - SETTLING_NS - 1
    assert digest(FingerprintKind.MODIFIED, old, LISTED) == digest(FingerprintKind.MODIFIED, old, LISTED + 10**12)


@pytest.mark.parametrize("kind", [FingerprintKind.ETAG, FingerprintKind.SHA256])
def test_strong_ones_need_no_settling(kind: FingerprintKind):
    assert digest(kind, LISTED, LISTED) == digest(kind, LISTED, LISTED + 1)
