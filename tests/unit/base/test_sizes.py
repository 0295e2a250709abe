"""Sizes as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.base.sizes import format_size, parse_size
from hotset.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("12345", 12345),
        (678, 678),
        ("20GiB", 20 * 2**30),
        ("20 gib", 20 * 2**30),
        ("500 MB", 500_000_000),
        ("500m", 500_000_000),
        ("1.5T", 1_500_000_000_000),
        (" 7Ki ", 7168),
        ("3B", 3),
    ],
)
def test_parse(text: str | int, size: int):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "20 XB", "1.GiB", "ten", "1 2", "5 Gi B x", -3])
def test_what_is_no_size_is_named(text: str | int):
    with pytest.raises(InvalidInput, match=str(text).strip() or "not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**30, "5.0 GiB"), (3 * 2**50, "3072.0 TiB")],
)
def test_format(size: int, text: str):
    assert format_size(size) == text


@given(st.integers(0, 2**60))
def test_what_is_written_can_be_read_again(size: int):
    assert abs(parse_size(format_size(size)) - size) <= size * 0.06
