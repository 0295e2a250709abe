"""The index of records: places in, places out, whatever is cut into segments, killed, or damaged on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotset.loaders.records import frames
from hotset.loaders.records.format import Malformed
from hotset.loaders.records.frames import Frames, ObjectOut
from hotset.loaders.records.index import RecordIndex

Span = tuple[int, int]


class Paper:
    """A `Draft` in memory."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.published = False

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def truncate(self, size: int) -> None:
        del self.data[size:]

    def append(self, *data: bytes) -> None:
        for part in data:
            self.data += part

    def publish(self) -> None:
        self.published = True


@pytest.fixture(autouse=True, params=[None, (3, 100)], ids=["large segments", "small segments"])
def segments(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(frames, "SEGMENT_RECORDS", request.param[0])
        monkeypatch.setattr(frames, "SEGMENT_BYTES", request.param[1])


def write(paper: Paper, objects: list[list[Span]], *, from_: int = 0) -> None:
    """Go on with the objects from a position on."""
    writing = Frames(paper, "identity")
    writing.resume()
    assert writing.objects_done == from_
    for position in range(from_, len(objects)):
        out = ObjectOut(writing, position, skip_damaged=True)
        end = None
        for start, stop in objects[position]:
            if start != end:
                out.begin(start)
            out.ends([stop])
            end = stop
        out.close()
        writing.mark(position, f"fact {position % 2}", [])
    writing.publish()


def spans(index: RecordIndex) -> list[tuple[int, int, int]]:
    found = index.find_many(np.arange(len(index))).places
    one_by_one = [index.find(record)[2:] for record in range(len(index))]
    assert one_by_one == [tuple(map(int, row)) for row in zip(*found, strict=True)]
    return one_by_one


@st.composite
def objects(draw) -> list[list[Span]]:
    """Records one behind the other, with a gap now and then."""
    made = []
    for _ in range(draw(st.integers(1, 5))):
        at = 0
        records = []
        for gap, length in draw(st.lists(st.tuples(st.sampled_from([0, 0, 0, 7]), st.integers(1, 60)), max_size=12)):
            records.append((at + gap, at + gap + length))
            at += gap + length
        made.append(records)
    return made


@given(objects=objects())
def test_what_is_written_is_found(objects):
    paper = Paper()
    write(paper, objects)
    assert paper.published
    index = RecordIndex(memoryview(bytes(paper.data)))
    wanted = [(position, *span) for position, records in enumerate(objects) for span in records]
    assert len(index) == len(wanted)
    assert spans(index) == wanted
    for position, records in enumerate(objects):
        assert len(index.of(position)) == len(records)
        assert [wanted[record] for record in index.of(position)] == [(position, *span) for span in records]
    assert index.notes.facts == {f"fact {n}": n for n in range(min(2, len(objects)))}


@given(objects=objects(), data=st.data())
def test_cut_off_or_damaged_anywhere_it_is_gone_on_with(objects, data):
    """The result is the same to the byte, and objects that were complete are not scanned again."""
    whole = Paper()
    write(whole, objects)
    half = Paper()
    writing = Frames(half, "identity")
    writing.resume()
    out = ObjectOut(writing, 0, skip_damaged=False)
    for start, stop in objects[0]:
        out.begin(start)
        out.ends([stop])
    out.close()
    writing.mark(0, "fact 0", [])
    writing._flush()
    complete = half.size
    half.append(data.draw(st.binary(max_size=80)))
    cut = data.draw(st.integers(0, half.size))
    half.truncate(cut)
    write(half, objects, from_=int(cut >= complete))
    assert spans(RecordIndex(memoryview(bytes(half.data)))) == spans(RecordIndex(memoryview(bytes(whole.data))))


@given(objects=objects(), data=st.data())
def test_a_flipped_bit_in_a_draft_is_never_believed(objects, data):
    paper = Paper()
    write(paper, objects)
    place = data.draw(st.integers(0, paper.size - 1))
    paper.data[place] ^= 1 << data.draw(st.integers(0, 7))
    resumed = Frames(paper, "identity")
    resumed.resume()
    for position in range(resumed.objects_done, len(objects)):
        out = ObjectOut(resumed, position, skip_damaged=False)
        for start, stop in objects[position]:
            out.begin(start)
            out.ends([stop])
        out.close()
        resumed.mark(position, "", [])
    resumed.publish()
    wanted = [(position, *span) for position, records in enumerate(objects) for span in records]
    assert spans(RecordIndex(memoryview(bytes(paper.data)))) == wanted


def test_another_identity_begins_anew():
    paper = Paper()
    write(paper, [[(0, 5)]])
    other = Frames(paper, "another")
    other.resume()
    assert (other.objects_done, paper.size) == (0, 64)


def test_beyond_four_gigabytes():
    paper = Paper()
    far = 2**40
    write(paper, [[(0, 5), (far, far + 90), (far + 90, far + 99)], [(2**50, 2**50 + 1)]])
    index = RecordIndex(memoryview(bytes(paper.data)))
    assert spans(index) == [(0, 0, 5), (0, far, far + 90), (0, far + 90, far + 99), (1, 2**50, 2**50 + 1)]


def test_a_record_that_is_too_long():
    writing = Frames(Paper(), "identity")
    writing.resume()
    out = ObjectOut(writing, 0, skip_damaged=False)
    out.begin(10)
    out.ends([20])
    with pytest.raises(Malformed, match="the longest has") as caught:
        out.ends([20 + 2**32])
    assert caught.value.at == 20


def test_groups():
    paper = Paper()
    writing = Frames(paper, "identity")
    writing.resume()
    out = ObjectOut(writing, 0, skip_damaged=False)
    for group in [(4, 100, 3), (100, 100, 0), (100, 2**33, 2)]:
        out.group(*group)
    out.close()
    writing.mark(0, "", [])
    writing.publish()
    index = RecordIndex(memoryview(bytes(paper.data)))
    assert len(index) == 5
    found = index.find_many(np.arange(5))
    assert found.segments.tolist() == [0, 0, 0, 2, 2]
    assert found.inside.tolist() == [0, 1, 2, 0, 1]
    assert found.places.starts.tolist() == [4, 4, 4, 100, 100]
    assert found.places.ends[:3].tolist() == [100] * 3
    assert [index.find(record)[:2] for record in range(5)] == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    assert index.first_segments().tolist() == [0, 0, 0]
    starts, _ = index.blocks(np.array([50]))
    assert starts.tolist() == [0, 3, 3]


def test_damage_is_kept_and_bounded(monkeypatch):
    monkeypatch.setattr(frames, "_MOST_DAMAGE", 3)
    paper = Paper()
    writing = Frames(paper, "identity")
    writing.resume()
    for position in range(3):
        out = ObjectOut(writing, position, skip_damaged=True)
        out.damaged(5, "broken")
        out.damaged(9, "broken too")
        writing.mark(position, "", out.damage)
    writing.publish()
    index = RecordIndex(memoryview(bytes(paper.data)))
    assert index.notes.damage == [(0, 5, "broken"), (0, 9, "broken too"), (1, 5, "broken")]


class TestBlocks:
    """What is fetched together."""

    def test_stripes_and_small_objects(self):
        paper = Paper()
        tens = [(n, n + 10) for n in range(0, 100, 10)]
        write(paper, [tens, tens[:3], [], tens])
        index = RecordIndex(memoryview(bytes(paper.data)))
        starts, sizes = index.blocks(np.array([35, 0, 0, 1000]))
        # Records that begin in bytes 0-34, 35-69, 70-99 of the first object; all of the second; all of the fourth.
        assert {0, 4, 7, 10, 13} <= set(starts.tolist())
        assert sizes.sum() == 100 + 30 + 100
        assert starts.tolist() == sorted(set(starts.tolist()))

    def test_records_longer_than_stripes(self):
        paper = Paper()
        write(paper, [[(0, 95), (95, 97), (97, 99)]])
        starts, sizes = RecordIndex(memoryview(bytes(paper.data))).blocks(np.array([10]))
        assert starts.tolist() == [0, 1]
        assert sizes.tolist() == [95, 4]


def test_files_are_small(tmp_path: Path):
    """Four bytes a record."""
    paper = Paper()
    writing = Frames(paper, "identity")
    writing.resume()
    out = ObjectOut(writing, 0, skip_damaged=False)
    out.begin(0)
    out.ends(np.arange(1, 10_001))
    out.close()
    writing.mark(0, "", [])
    writing.publish()
    if frames.SEGMENT_RECORDS > 3:
        assert paper.size < 4 * 10_000 + 400
