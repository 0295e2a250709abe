"""`hotset.records` as a user meets it: every format over a real server, in workers, interrupted, without room, with bad data."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import pickle
import signal
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import hotset
from hotset.errors import Changed, Closed, Corrupt, Full, InvalidInput, NotFound
from hotset.loaders.records import Damage, IndexProgress, Records, frames
from hotset.loaders.records import parquet as parquet_module
from hotset.tier.node import CacheDirectory
from hotset.tier.node import side as side_module
from tests.support.datasets import content
from tests.support.opening import SMALL_PACKS, give_up_soon, use
from tests.support.processes import Child, call, wait_until

pytestmark = pytest.mark.integration

#: Two large objects, of stripes, among small and empty ones.
LINES = {
    f"part-{n}.txt": [b"%d %d " % (n, line) + b"x" * (line * 7 % 90) for line in range(count)]
    for n, count in enumerate([3, 4000, 0, 1, 3000, 20])
}
TEXT = {key: b"".join(line + b"\n" for line in lines) for key, lines in LINES.items()}
ALL_LINES = [line for lines in LINES.values() for line in lines]


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    use(monkeypatch, proxy.env())
    return bucket


def opened(place, objects, kind="lines", *, parameters=SMALL_PACKS, on_changed="raise", quota=None, **said) -> Records:
    """Records of these objects, in small packs. Closing them closes the dataset."""
    if objects is not None:
        place.put_many(objects)
    ds = give_up_soon(
        place.url, parameters=parameters, on_changed=on_changed, quota=quota, refresh="always" if objects else "auto"
    )
    try:
        records = hotset.records(ds, kind, **said)
    except BaseException:
        ds.close()
        raise
    records._owner = True
    return records


@pytest.fixture
def records(place, no_leaks):
    with opened(place, TEXT) as made:
        yield made


def parquet(rows: list[dict], group: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=group)
    return sink.getvalue()


def tar(files: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def tfrecord(tmp_path: Path, payloads: list[bytes]) -> bytes:
    tf = pytest.importorskip("tensorflow", reason="platform: no TensorFlow for this Python")
    path = tmp_path / "written.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for payload in payloads:
            writer.write(payload)
    return path.read_bytes()


def index_files() -> list[Path]:
    root = Path(os.environ["HOTSET_CACHE"])
    return sorted(root.glob("datasets/*/snapshots/*/records-*"))


def forget_packs() -> None:
    """As if all of them had been evicted."""
    for pack in Path(os.environ["HOTSET_CACHE"]).glob("datasets/*/packs/*"):
        pack.unlink()


class TestReading:
    def test_everything_once(self, records, proxy):
        assert len(records) == len(ALL_LINES)
        assert list(records) == ALL_LINES
        assert [records[n] for n in range(0, len(records), 37)] == ALL_LINES[::37]
        assert all(count <= 7 for count in proxy.gets.values())  # stripes, each once
        assert records.stats().fill.fetched_bytes == sum(map(len, TEXT.values()))

    def test_indices_are_those_of_a_sequence(self, records):
        count = len(ALL_LINES)
        assert records[-1] == ALL_LINES[-1]
        assert records[np.int64(5)] == records[torch.tensor(5)] == records[5 - count] == ALL_LINES[5]
        assert records[3:10] == ALL_LINES[3:10]
        assert records[::-1000] == ALL_LINES[::-1000]
        assert records[5:5] == []
        order = [7, -1, 7, 0, count - 1]
        wanted = [ALL_LINES[n] for n in order]
        for given in (
            order,
            np.array(order),
            iter(order),
            torch.tensor(order),
            tuple(order),
            np.array(order, np.int16),
        ):
            assert records.read_many(given) == wanted
        assert records.__getitems__(order) == wanted
        assert records.read_many([]) == records.read_many(np.array([], int)) == []
        for wrong in (count, -count - 1):
            with pytest.raises(IndexError, match=f"of {count}"):
                records[wrong]
            with pytest.raises(IndexError, match=f"record {wrong} of {count}"):
                records.read_many([0, wrong])
        for wrong in (1.0, "1", None):
            with pytest.raises(TypeError):
                records[wrong]
            with pytest.raises(TypeError):
                records.read_many([wrong])
        with pytest.raises(TypeError, match="any"):
            assert b"x" in records

    def test_where_a_record_is_from(self, records):
        assert list(records.keys) == list(TEXT)
        assert [len(records.of(key)) for key in TEXT] == [len(lines) for lines in LINES.values()]
        for number in (0, 3, 4002, 4003, len(records) - 1):
            key, start, end = records.origin(number)
            assert number in records.of(key)
            assert TEXT[key][start:end].rstrip(b"\n") == records[number]
        with pytest.raises(NotFound):
            records.of("nothing")

    def test_facts(self, records):
        assert records.snapshot == records.dataset.snapshot
        assert records.damage == []
        assert "7024 in 6 objects" in repr(records)

    def test_closed(self, place, no_leaks):
        records = opened(place, TEXT)
        records.close()
        records.close()
        for use_it in (lambda: records[0], lambda: records.read_many([0]), lambda: records.prefetch([0]),
                       lambda: pickle.dumps(records)):  # fmt: skip
            with pytest.raises(Closed):
                use_it()

    def test_the_dataset_of_the_caller_stays_open(self, place, no_leaks):
        place.put_many(TEXT)
        with hotset.open(place.url) as ds:
            with hotset.records(ds) as records:
                assert records[0] == ALL_LINES[0]
            assert ds[0] == TEXT["part-0.txt"]
            with pytest.raises(InvalidInput, match="open already"):
                hotset.records(ds, "lines", refresh="never")

    def test_by_uri_and_by_name(self, place, no_leaks):
        place.put_many(TEXT)
        with hotset.records(place.url, "lines", name="text", exclude="part-1*") as records:
            assert len(records) == len(ALL_LINES) - 4000
        with hotset.records(name="text", refresh="never") as records:
            assert records[-1] == ALL_LINES[-1]


class TestFormats:
    def test_lines_of_windows(self, place, no_leaks):
        with opened(place, {"a": b"one\r\ntwo\r\n\r\nlast", "b": b"x\ny\r"}) as records:
            assert list(records) == [b"one", b"two", b"", b"last", b"x", b"y"]

    def test_csv(self, place, no_leaks):
        rows = [{"n": str(n), "text": f'a "{n}"\nin, lines' * (n % 3)} for n in range(3000)]

        def written(part) -> bytes:
            sink = io.StringIO(newline="")
            writer = csv.DictWriter(sink, ["n", "text"])
            writer.writeheader()
            writer.writerows(part)
            return sink.getvalue().encode()

        with opened(place, {"a.csv": written(rows[:2500]), "b.csv": written(rows[2500:])}, "csv") as records:
            assert list(records) == rows
            assert records[2999] == rows[2999]
        with opened(place, None, "csv", columns=["text"]) as records:
            assert records.read_many([2, 2500]) == [{"text": rows[2]["text"]}, {"text": rows[2500]["text"]}]
        assert len(index_files()) == 1, "columns are chosen when a row is read"

    def test_csv_without_a_header(self, place, no_leaks):
        with opened(place, {"a.tsv": b"1\ta\n2\tb\n"}, "csv", delimiter="\t", header=False) as records:
            assert list(records) == [["1", "a"], ["2", "b"]]

    def test_columns_that_differ(self, place, no_leaks):
        with pytest.raises(InvalidInput, match=r"'a.csv' has the columns .*'b.csv' has"):
            opened(place, {"a.csv": b"x,y\n1,2\n", "b.csv": b"x,z\n1,2\n"}, "csv")

    def test_parquet(self, place, no_leaks, monkeypatch):
        rows = [{"n": n, "text": f"row {n}" * (n % 5), "list": [n] * (n % 3)} for n in range(5000)]
        data = {"a.parquet": parquet(rows[:4000], 300), "b.parquet": parquet(rows[4000:], 5000)}
        with opened(place, data, "parquet") as records:
            assert len(records) == 5000
            order = np.random.default_rng(0).permutation(5000)[:300]
            assert records.read_many(order) == [rows[n] for n in order]
            assert records[4999] == rows[4999]
            assert list(records) == rows
            assert records.origin(0).end < len(data["a.parquet"])
            # Kept groups are bounded: with room for nothing, the one that is needed.
            monkeypatch.setattr(parquet_module, "GROUP_BYTES", 0)
            assert records.read_many([0, 4500, 1]) == [rows[0], rows[4500], rows[1]]
            assert len(records._reader._groups) == 1
        with opened(place, None, "parquet", columns=["n"]) as records:
            assert records.read_many([1, 4500]) == [{"n": 1}, {"n": 4500}]
        with pytest.raises(InvalidInput, match="no column 'm'; it has n, text, list"):
            opened(place, None, "parquet", columns=["m"])

    def test_parquet_is_indexed_by_its_end(self, place, proxy, no_leaks):
        """Of large files, the data is fetched when it is read."""
        rows = [{"n": n, "noise": content(f"{n}", 500)} for n in range(1000)]
        with opened(place, {"a.parquet": parquet(rows, 100)}, "parquet") as records:
            fetched = records.stats().fill.fetched_bytes
            assert fetched <= 4 * SMALL_PACKS.stripe
            assert records[550] == rows[550]
            assert records.stats().fill.fetched_bytes <= fetched + 7 * SMALL_PACKS.stripe, "a buffer more, not all"

    def test_tfrecord(self, place, tmp_path, no_leaks):
        payloads = [content(f"{n}", n * 13 % 700) for n in range(500)]
        data = {"a.tfrecord": tfrecord(tmp_path, payloads[:400]), "b.tfrecord": tfrecord(tmp_path, payloads[400:])}
        with opened(place, data, "tfrecord") as records:
            assert list(records) == payloads
            assert records[450] == payloads[450]

    def test_tfrecord_of_examples(self, place, tmp_path, no_leaks):
        tf = pytest.importorskip("tensorflow", reason="platform: no TensorFlow for this Python")

        def example(n: int) -> bytes:
            feature = {
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[n])),
                "dense": tf.train.Feature(float_list=tf.train.FloatList(value=[n / 2, 1.0])),
                "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"%d" % n])),
            }
            return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

        data = {"a.tfrecord": tfrecord(tmp_path, [example(n) for n in range(20)])}
        with opened(place, data, "tfrecord", example=True) as records:
            got = records[7]
            assert (got["label"].tolist(), got["dense"].tolist(), got["name"]) == ([7], [3.5, 1.0], [b"7"])
        with (
            opened(place, {"a.tfrecord": tfrecord(tmp_path, [b"\xff"])}, "tfrecord", example=True) as records,
            pytest.raises(InvalidInput, match=r"'a\.tfrecord', at byte 0: this is not a tf\.train\.Example"),
        ):
            records[0]

    def test_tar(self, place, no_leaks):
        files = {f"n{n % 3}/{'long-' * 30 if n % 2 else ''}{n}.jpg": content(f"{n}", n * 53 % 9000) for n in range(200)}
        names = list(files)
        data = {"a.tar": tar({name: files[name] for name in names[:150]}),
                "b.tar": tar({name: files[name] for name in names[150:]})}  # fmt: skip
        with opened(place, data, "tar") as records:
            assert list(records) == list(files.items())
            assert records[160] == (names[160], files[names[160]])

    def test_tar_of_samples(self, place, no_leaks):
        files = {f"{n:04}.{kind}": content(f"{n}{kind}", 400) for n in range(300) for kind in ("jpg", "cls")}
        with opened(place, {"a.tar": tar(files)}, "tar", group=True) as records:
            assert len(records) == 300
            assert records[17] == {"__key__": "0017", "jpg": files["0017.jpg"], "cls": files["0017.cls"]}

    @pytest.mark.parametrize("parameters", [SMALL_PACKS, None], ids=["stripes", "large packs"])
    def test_plain_files(self, place, no_leaks, parameters):
        """The layout of views."""
        place.put_many(TEXT)
        with give_up_soon(place.url, parameters=parameters, layout="files") as ds, hotset.records(ds) as records:
            assert list(records) == ALL_LINES
            assert records.read_many([5000, 5]) == [ALL_LINES[5000], ALL_LINES[5]]


class TestOptions:
    def test_that_cannot_be(self, place):
        for said, message in [
            ({"format": "json"}, "no format 'json'; there are lines, csv, parquet, tfrecord, tar"),
            ({"format": "lines", "header": True}, "'header' is no option of the format 'lines'; it has none"),
            ({"format": "tar", "delimiter": ";"}, "its options are group"),
            ({"format": "csv", "delimiter": "ab"}, "one ASCII character"),
            ({"on_damaged": "ignore"}, "'raise' or 'skip'"),
        ]:
            with pytest.raises(InvalidInput, match=message):
                hotset.records("/nowhere", **said)

    def test_newest_bytes_have_other_places(self, place, no_leaks):
        place.put_many(TEXT)
        with pytest.raises(InvalidInput, match="other places"):
            hotset.records(place.url, on_changed="newest")


class TestIndex:
    def test_a_second_process_opens_at_once(self, place, proxy, no_leaks):
        opened(place, TEXT).close()
        [index] = index_files()
        before = index.stat()
        proxy.clear()
        with call(first_and_last, place.url, env=proxy.env()) as other:
            assert other.result() == (ALL_LINES[0], ALL_LINES[-1], len(ALL_LINES))
        assert index.stat() == before
        assert proxy.gets.total() == 0

    def test_few_bytes_a_record(self, place, no_leaks):
        opened(place, TEXT).close()
        [index] = index_files()
        assert index.stat().st_size < 4 * len(ALL_LINES) + 1500

    def test_it_counts_and_goes_with_the_snapshot(self, place, no_leaks):
        with opened(place, TEXT) as records:
            cache = CacheDirectory(Path(os.environ["HOTSET_CACHE"]))
            [name] = cache.names()
            committed = cache.space.committed
            cache.space.recount()
            assert abs(cache.space.committed - committed) < 2**17  # the index of the snapshot was estimated
            old = records.snapshot
        place.put_many({"part-0.txt": b"new\n"})
        with give_up_soon(place.url, parameters=SMALL_PACKS, refresh="always") as ds:
            assert ds.snapshot != old
            assert index_files()
            assert cache.dataset(name).remove_snapshot(old)
            assert not index_files()
            with hotset.records(ds) as records:
                assert records[0] == b"new"

    @pytest.mark.parametrize("damage", ["flipped", "cut off", "empty"])
    def test_a_damaged_one_is_built_anew(self, place, no_leaks, damage):
        opened(place, TEXT).close()
        [index] = index_files()
        data = bytearray(index.read_bytes())
        data[100] ^= 1
        index.write_bytes({"flipped": bytes(data), "cut off": bytes(data[:300]), "empty": b""}[damage])
        with opened(place, None) as records:
            assert list(records) == ALL_LINES

    def test_a_disk_that_gives_back_something_else(self, place, no_leaks, monkeypatch):
        monkeypatch.setattr(side_module, "_whole", lambda *args, **said: False)
        with pytest.raises(Corrupt, match="check the disk"):
            opened(place, TEXT)
        monkeypatch.undo()

    def test_progress(self, place, no_leaks, monkeypatch):
        monkeypatch.setattr("hotset.loaders.records.build._PROGRESS_SECONDS", 0.0)
        told: list[IndexProgress] = []
        opened(place, TEXT, progress=told.append).close()
        total = sum(map(len, TEXT.values()))
        assert told[-1] == IndexProgress(6, 6, total, total, len(ALL_LINES), finished=True)
        assert [state.bytes for state in told] == sorted(state.bytes for state in told)
        assert any(state.objects == 1 and state.bytes > 2 * SMALL_PACKS.stripe for state in told), (
            "within an object, too"
        )
        told.clear()
        opened(place, None, progress=told.append).close()
        assert told == []

    def test_interrupted_it_goes_on_object_by_object(self, place, no_leaks, monkeypatch):
        monkeypatch.setattr("hotset.loaders.records.build._PROGRESS_SECONDS", 0.0)
        monkeypatch.setattr(frames, "_WRITE", 1)

        def interrupt(state: IndexProgress) -> None:
            if state.objects == 4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            opened(place, TEXT, progress=interrupt)
        [draft] = index_files()
        assert draft.name.endswith(".draft")
        told: list[IndexProgress] = []
        with opened(place, None, progress=told.append) as records:
            assert told[0].objects >= 4
            assert list(records) == ALL_LINES

    def test_killed_it_goes_on(self, place, proxy, no_leaks):
        """One process is killed while it waits for an object; what it found before is not looked for again."""
        opened(place, TEXT).close()
        [index] = index_files()
        index.unlink()
        cache = Path(os.environ["HOTSET_CACHE"])
        with Child([sys.executable, "-c", KILLED, place.url], env=proxy.env() | {"HOTSET_CACHE": str(cache)}) as child:
            child.expect("in the middle")
            child.signal(signal.SIGKILL)
            child.wait()
        told: list[IndexProgress] = []
        with opened(place, None, progress=told.append) as records:
            assert list(records) == ALL_LINES
        assert told[-1].objects == 6

    def test_several_at_once_build_it_once(self, place, proxy, no_leaks):
        place.put_many(TEXT)
        with give_up_soon(place.url, parameters=SMALL_PACKS):
            calls = [call(first_and_last, place.url, env=proxy.env()) for _ in range(3)]
            wanted = (ALL_LINES[0], ALL_LINES[-1], len(ALL_LINES))
            assert [each.result() for each in calls] == [wanted] * 3
            for each in calls:
                each.close()
        [index] = index_files()
        assert not index.name.endswith(".draft")


KILLED = """
import sys, hotset
from hotset.loaders.records import build, frames
build._PROGRESS_SECONDS, frames._WRITE = 0.0, 1
def progress(state):
    if state.objects == 4:
        print("in the middle", flush=True)
        sys.stdin.readline()
hotset.records(sys.argv[1], "lines", refresh="never", progress=progress)
"""


def first_and_last(url: str) -> tuple[bytes, bytes, int]:
    with hotset.records(url, "lines", refresh="never") as records:
        return records[0], records[-1], len(records)


class TestShuffling:
    def test_a_shuffle_of_all(self, records):
        order = records.order(seed=3).epoch(1)
        assert sorted(order.tolist()) == list(range(len(records)))
        got = [
            record for first in range(0, len(order), 256) for record in records.read_many(order[first : first + 256])
        ]
        assert got == [ALL_LINES[n] for n in order]
        assert records.order(shuffle=False).epoch(0).tolist() == list(range(len(records)))

    def test_in_windows_few_stripes_are_needed_at_a_time(self, records, proxy):
        """What the window is for: the first batches of a cold epoch need a part of the data only."""
        order = records.order(seed=1, window="64KiB").epoch(0)
        assert sorted(order.tolist()) == list(range(len(records)))
        first = order[:300]
        units = {(records.origin(n).key, records.origin(n).start // SMALL_PACKS.stripe) for n in first.tolist()}
        assert len(units) <= 6
        assert (
            len({(records.origin(n).key, records.origin(n).start // SMALL_PACKS.stripe) for n in range(len(records))})
            > 12
        )

    def test_prefetch_fetches_stripes_in_the_order_of_records(self, place, proxy, no_leaks):
        opened(place, TEXT).close()
        forget_packs()  # the index is there, the data is not
        proxy.clear()
        with opened(place, None) as records:
            order = [len(records) - 1, records.of("part-1.txt").stop - 1, records.of("part-4.txt").start]
            records.prefetch(order)
            wait_until(lambda: proxy.gets.total() == 3, what="three units")
            assert records.read_many(order) == [ALL_LINES[n] for n in order]
            assert proxy.gets == {"part-5.txt": 1, "part-1.txt": 1, "part-4.txt": 1}
            with pytest.raises(IndexError):
                records.prefetch([len(records)])


class TestWorkers:
    @pytest.mark.parametrize("context", ["fork", "spawn"])
    @pytest.mark.parametrize("kind", ["lines", "parquet"])
    def test_a_data_loader(self, place, context, kind):
        rows = [{"n": n} for n in range(2000)]
        data = TEXT if kind == "lines" else {"a.parquet": parquet(rows, 100)}
        wanted = ALL_LINES if kind == "lines" else rows
        with opened(place, data, kind) as records:
            records[0]
            order = records.order(seed=1).epoch(0).tolist()
            loader = torch.utils.data.DataLoader(
                records, batch_size=128, sampler=order, num_workers=2, multiprocessing_context=context, collate_fn=list
            )
            assert [record for batch in loader for record in batch] == [wanted[n] for n in order]
            assert records[-1] == wanted[-1]

    def test_pickled_it_reads_the_same(self, records):
        with pickle.loads(pickle.dumps(records)) as copy:
            assert copy.read_many(range(100)) == ALL_LINES[:100]
            assert copy.dataset is not records.dataset


class TestBadData:
    @pytest.mark.parametrize("kind", ["lines", "csv", "tar", "tfrecord"])
    @pytest.mark.parametrize(
        ("name", "compress"),
        [
            ("gzip", gzip.compress),
            ("bzip2", bz2.compress),
            ("xz", lzma.compress),
            ("zstd", lambda data: b"\x28\xb5\x2f\xfd" + data),
        ],
    )
    def test_compressed(self, place, no_leaks, kind, name, compress):
        with pytest.raises(InvalidInput, match=rf"'a\.z', at byte 0: compressed with {name}.*decompress"):
            opened(place, {"a.z": compress(b"some text\n")}, kind)
        assert index_files() == []

    @pytest.mark.parametrize("kind", ["csv", "parquet", "tar", "tfrecord"])
    def test_of_another_format(self, place, no_leaks, kind):
        data = {"csv": b"\xff\xfe\x00\n", "parquet": b"a,b\n", "tar": b"a,b\n" * 300, "tfrecord": b"a,b\n" * 300}[
            format
        ]
        with pytest.raises(InvalidInput, match=r"'a\.data', at byte 0: "):
            opened(place, {"a.data": data}, kind)

    def test_cut_off_and_damaged(self, place, tmp_path, no_leaks):
        payloads = [b"one", b"two", b"three"]
        good = tfrecord(tmp_path, payloads)
        bad = bytearray(good)
        bad[19 + 12] ^= 1  # in the payload of the second
        data = {"a.tfrecord": good, "b.tfrecord": bytes(bad), "c.tfrecord": good[:-2]}
        with pytest.raises(InvalidInput, match=r"'b\.tfrecord', at byte 19: the checksum"):
            opened(place, data, "tfrecord")
        assert index_files() == []
        with opened(place, None, "tfrecord", on_damaged="skip") as records:
            assert list(records) == [b"one", b"two", b"three", b"one", b"three", b"one", b"two"]
            assert [damage[:2] for damage in records.damage] == [("b.tfrecord", 19), ("c.tfrecord", 38)]
            assert isinstance(records.damage[0], Damage)
        with opened(place, None, "tfrecord", on_damaged="skip") as records:
            assert len(records.damage) == 2

    def test_a_row_that_is_none_is_named_when_it_is_read(self, place, no_leaks):
        with opened(place, {"a.csv": b"x,y\n1,2\n3\n", "b.csv": b"x,y\n5,6\n"}, "csv") as records:
            assert records[2] == {"x": "5", "y": "6"}
            for read in (lambda: records[1], lambda: records.read_many([0, 1, 2])):
                with pytest.raises(InvalidInput, match=r"'a\.csv', at byte 8: a row of 1 fields"):
                    read()

    @pytest.mark.parametrize("objects", [{"a": b""}, {"a": b"x,y\n"}])
    def test_no_records(self, place, no_leaks, objects):
        with pytest.raises(NotFound, match="no records"):
            opened(place, objects, "csv")

    def test_no_objects(self, place):
        with pytest.raises(NotFound, match="no objects"):
            hotset.records(place.url)

    def test_an_object_changed_before_it_was_indexed(self, place, no_leaks):
        place.put_many(TEXT)
        give_up_soon(place.url, parameters=SMALL_PACKS).close()
        place.put_many({"part-4.txt": b"new\n"})
        with pytest.raises(Changed, match=r"part-4\.txt"):
            opened(place, None)
        with hotset.records(place.url, "lines", refresh="always") as records:
            assert b"new" in list(records)

    def test_an_object_changed_after_it_was_indexed(self, place, no_leaks):
        """What is cached is still read; what is not is an error, or left out."""
        opened(place, TEXT).close()
        forget_packs()
        place.put_many({"part-4.txt": b"new\n"})
        with opened(place, None) as records:
            assert records[0] == ALL_LINES[0]
            with pytest.raises(Changed):
                records[records.of("part-4.txt").start]
        with opened(place, None, on_changed="skip") as records:
            got = records.read_many([0, records.of("part-4.txt").start, 1])
            assert got == ALL_LINES[:2]


class TestRoom:
    def test_no_room_on_the_disk_for_the_index(self, place, no_leaks, monkeypatch):
        real = side_module.write_all

        def full(fd, buffers, offset):
            if offset > 1000:
                raise OSError(28, "No space left on device")
            real(fd, buffers, offset)

        monkeypatch.setattr(side_module, "write_all", full)
        with pytest.raises(Full, match=r"cannot write .*No space left on device"):
            opened(place, TEXT)
        assert index_files() == []
        monkeypatch.undo()

    def test_a_dataset_larger_than_the_quota(self, place, no_leaks):
        """Its packs leave room for the index, and lines of stripes without a place are read through."""
        lines = [b"%06d " % n + b"y" * 60 for n in range(280_000)]
        data = {f"{n}.txt": b"\n".join(lines[n * 140_000 : (n + 1) * 140_000]) for n in range(2)}
        with opened(place, data, parameters=None, quota="16MiB") as records:
            assert len(records) == 280_000
            order = records.order(seed=1, window="8MiB").epoch(0)[:60_000]
            for first in range(0, len(order), 1000):
                batch = order[first : first + 1000]
                assert records.read_many(batch) == [lines[n] for n in batch]
            cache = CacheDirectory(Path(os.environ["HOTSET_CACHE"]))
            assert cache.usage() <= 16 * 2**20
