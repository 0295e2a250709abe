"""CSV: the rows that Python's csv module reads, wherever the chunks end and whatever stands in quotes."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotset.errors import InvalidInput
from hotset.loaders.records.csv import Csv
from hotset.loaders.records.format import Malformed
from tests.unit.loaders.scanning import read, scan

CUTS = st.lists(st.integers(1, 80), max_size=6)
CELL = st.text(st.sampled_from('ab"\n,; é'), max_size=6)
ROWS = st.lists(st.lists(CELL, min_size=2, max_size=4), min_size=1, max_size=8)
ODD_ROWS = st.lists(
    st.lists(st.text(st.sampled_from('a"\r\n,'), max_size=6), min_size=1, max_size=4), min_size=1, max_size=8
)


def rows_of(data: bytes, cuts=(), form: Csv = Csv(header=False)) -> list:  # noqa: B008  (a frozen dataclass)
    facts, found = scan(form, data, cuts)
    return read(form._decoder({facts: "a key"} if facts else {}), data, found.spans)


def reference(data: bytes, **dialect) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(data.decode(), newline="\n"), **dialect) if row]


def written(rows, **dialect) -> bytes:
    sink = io.StringIO(newline="")
    csv.writer(sink, **dialect).writerows(rows)
    return sink.getvalue().encode()


@given(rows=ROWS, cuts=CUTS, end=st.sampled_from(["\n", "\r\n"]), delimiter=st.sampled_from(",;\t"))
def test_what_csv_writes_is_read(rows, cuts, end, delimiter):
    data = written(rows, lineterminator=end, delimiter=delimiter)
    assert rows_of(data, cuts, Csv(header=False, delimiter=delimiter)) == rows


@given(rows=ODD_ROWS, cuts=CUTS)
def test_what_is_quoted_may_hold_anything(rows, cuts):
    assert rows_of(written(rows, quoting=csv.QUOTE_ALL), cuts) == rows


@given(rows=ROWS, cuts=CUTS, blank=st.lists(st.integers(0, 8), max_size=3), last=st.booleans())
def test_blank_lines_are_no_rows_and_the_last_end_may_lack(rows, cuts, blank, last):
    lines = [written([row], lineterminator="\n") for row in rows]
    for place in blank:
        lines.insert(min(place, len(lines)), b"\r\n" if place % 2 else b"\n")
    data = b"".join(lines) if last else b"".join(lines).removesuffix(b"\n")
    assert rows_of(data, cuts) == reference(data) == rows


@given(
    parts=st.lists(st.sampled_from(['"', '""', ",", "\n", "\r\n", "a", "b c", '"x"', '"x\ny"', ' "']), max_size=25),
    cuts=CUTS,
)
@example(parts=["a", '"', "\n", "b", "\n"], cuts=[2])
@example(parts=['"x"', "a", '"', "\n", "b", "\n"], cuts=[3])
def test_quotes_anywhere_mean_what_they_mean_to_csv(parts, cuts):
    """Also where no writer would put them. Only a quote that is never closed is an error here, and not the rest of the file."""
    data = "".join(parts).encode()
    if not data:
        return
    _, found = scan(Csv(header=False), data, cuts, skip_damaged=True)
    if found.damage:
        with pytest.raises(csv.Error):
            list(csv.reader(io.StringIO(data.decode(), newline="\n"), strict=True))
    else:
        assert rows_of(data, cuts) == reference(data)


@given(parts=st.lists(st.sampled_from(['"', "\t", "\n", "a"]), min_size=1, max_size=25), cuts=CUTS)
def test_without_quotes_every_newline_ends_a_row(parts, cuts):
    data = "".join(parts).encode()
    got = rows_of(data, cuts, Csv(header=False, delimiter="\t", quote=""))
    assert got == reference(data, delimiter="\t", quoting=csv.QUOTE_NONE)


@given(rows=ROWS, cuts=CUTS, mark=st.booleans())
def test_a_header_names_the_columns(rows, cuts, mark):
    rows = [[*row, "", ""][:3] for row in rows]
    head = ["first", 'the "second"\n', "é"]
    data = (b"\xef\xbb\xbf" if mark else b"") + written([head, *rows])
    assert rows_of(data, cuts, Csv()) == [dict(zip(head, row, strict=True)) for row in rows]
    assert rows_of(data, cuts, Csv(columns=("é", "first"))) == [{"é": row[2], "first": row[0]} for row in rows]


class TestColumns:
    DATA = b"a,b\n1,2\n3,4\n"

    def test_names_for_all_where_there_is_no_header(self):
        assert rows_of(b"1,2\n3,4\n", form=Csv(header=False, columns=("x", "y"))) == [
            {"x": "1", "y": "2"},
            {"x": "3", "y": "4"},
        ]

    def test_what_is_not_there_is_said_with_what_is(self):
        with pytest.raises(InvalidInput, match="no column 'c'; there are a, b"):
            rows_of(self.DATA, form=Csv(columns=("a", "c")))

    def test_objects_with_other_columns_do_not_go_together(self):
        with pytest.raises(InvalidInput, match=r"'one' has the columns .*'two' has"):
            Csv()._decoder({'["a"]': "one", '["b"]': "two"})

    def test_a_header_and_nothing_else(self):
        for data in (b"a,b\n", b"a,b", b"\n\na,b\r\n\n"):
            facts, found = scan(Csv(), data)
            assert (facts, found.spans) == ('["a", "b"]', [])

    def test_nothing_but_blank_lines(self):
        assert scan(Csv(), b"\n\r\n\n")[1].spans == []
        assert scan(Csv(), b"\n\r\n\n")[0] == ""

    def test_a_row_that_does_not_fit_is_named(self):
        data = b"a,b\n1,2\n3\n"
        _, found = scan(Csv(), data)
        views = [memoryview(data)[start:end] for start, end in found.spans]
        with pytest.raises(Malformed, match="1 fields; there are 2") as caught:
            Csv()._decoder({'["a", "b"]': "key"})(views)
        assert caught.value.at == 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a,a\n1,2\n", "named twice"),
        (b"\xff,b\n", "not a row of text"),
        (b'a,"b\n1,2\n', "not closed"),
        (b"x" * (2**24 + 1), "does not end within"),
    ],
)
def test_a_header_that_is_none(data, says):
    with pytest.raises(Malformed, match=says):
        scan(Csv(), data)


def test_text_that_is_not_utf8_is_named_by_its_place():
    decode = Csv(header=False)._decoder({})
    with pytest.raises(Malformed, match="not a row of text") as caught:
        decode([memoryview(b"a,b\n"), memoryview(b"\xff\n"), memoryview(b"c\n")])
    assert caught.value.at == 1


@pytest.mark.parametrize("wrong", [{"delimiter": ""}, {"delimiter": ",,"}, {"delimiter": "\n"}, {"quote": "é"}])
def test_options_that_cannot_be(wrong):
    with pytest.raises(InvalidInput, match="one ASCII character"):
        Csv(**wrong)


def test_skipping_damage_leaves_out_what_the_open_quote_swallows():
    _, found = scan(Csv(header=False), b'1,2\n3,"4\n5,6\n', skip_damaged=True)
    assert found.spans == [(0, 4)]
    assert found.damage == [(4, "a quote is not closed before the end of the file")]
