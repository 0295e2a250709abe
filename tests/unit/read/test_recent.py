"""The stripes that were read through last."""

from __future__ import annotations

from hotset.read.recent import Recent


def test_what_was_used_last_stays():
    recent = Recent(100)
    for unit in range(3):
        recent.put((0, unit), memoryview(bytes(30)))
    assert recent.get((0, 0)) == bytes(30)
    recent.put((1, 0), memoryview(bytes(40)))
    assert recent.get((0, 1)) is None
    assert [recent.get(unit) is not None for unit in ((0, 0), (0, 2), (1, 0))] == [True, True, True]


def test_more_than_fits_is_not_kept():
    recent = Recent(100)
    recent.put((0, 0), memoryview(bytes(101)))
    assert recent.get((0, 0)) is None
