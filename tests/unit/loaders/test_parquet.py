"""Where the row groups of a Parquet file lie."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotset.loaders.records.format import Malformed
from hotset.loaders.records.parquet import Parquet
from tests.unit.loaders.scanning import scan


def parquet(rows: int, group: int) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"n": range(rows), "text": [f"row {n % 10}" for n in range(rows)]})
    pq.write_table(table, sink, row_group_size=group)
    return sink.getvalue()


def test_groups_follow_one_another_and_fill_the_file():
    data = parquet(1000, 300)
    facts, found = scan(Parquet(), data)
    assert [records for _, _, records in found.groups] == [300, 300, 300, 100]
    assert found.groups[0][0] == 4
    assert all(one[1] == two[0] for one, two in zip(found.groups, found.groups[1:], strict=False))
    assert found.groups[-1][1] < len(data)
    assert json.loads(facts) == ["n", "text"]


def test_no_rows():
    assert sum(records for _, _, records in scan(Parquet(), parquet(0, 10))[1].groups) == 0


@pytest.mark.parametrize("wrong", [b"no parquet", parquet(10, 10)[:-5], b"PAR1", parquet(10, 10)[:-20] + b"PAR1"])
def test_what_is_not_a_whole_file(wrong):
    with pytest.raises(Malformed, match="not a whole Parquet file"):
        scan(Parquet(), wrong)
    assert scan(Parquet(), wrong, skip_damaged=True)[1].groups == []
