"""Lines: as Python splits bytes at newlines, wherever the chunks end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.loaders.records.lines import Lines, _as_they_are, _without_return
from tests.unit.loaders.scanning import read, scan

CUTS = st.lists(st.integers(1, 60), max_size=5)


def lines_of(data: bytes, cuts=()) -> list[bytes]:
    facts, found = scan(Lines(), data, cuts)
    return read(_without_return if facts else _as_they_are, data + b"\n", found.spans, tail=1)


def reference(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nbb\n", [b"a", b"bb"]),
        (b"a\nbb", [b"a", b"bb"]),
        (b"a\r\nbb\r\n", [b"a", b"bb"]),
        (b"a\r\nbb\n\r\n", [b"a", b"bb", b""]),
        (b"\n\n", [b"", b""]),
        (b"a\n\n", [b"a", b""]),
        (b"x", [b"x"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\r", [b"a"]),
    ],
)
def test_examples(data, lines):
    assert lines_of(data) == reference(data) == lines


@given(data=st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"abc", b"x"]), min_size=1, max_size=30), cuts=CUTS)
def test_as_python_splits_them(data, cuts):
    assert lines_of(b"".join(data), cuts) == reference(b"".join(data))
