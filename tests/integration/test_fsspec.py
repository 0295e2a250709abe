"""``hotset://name/key``: pandas, pyarrow, h5py and fsspec itself read through the cache."""

from __future__ import annotations

import errno
import gc
import io
import json
import multiprocessing
import pickle

import datasets
import fsspec
import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import torch

import hotset
from hotset.loaders.fsspec import HotsetFileSystem
from tests.support.opening import use
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration

TABLE = pd.DataFrame({"id": range(5000), "label": [f"label-{n % 7}" for n in range(5000)]})


def parquet(table: pd.DataFrame) -> bytes:
    sink = io.BytesIO()
    table.to_parquet(sink)
    return sink.getvalue()


def hdf5(array: np.ndarray) -> bytes:
    sink = io.BytesIO()
    with h5py.File(sink, "w") as file:
        file.create_dataset("x", data=array, chunks=(10, 10))
    return sink.getvalue()


def checkpoint(array: np.ndarray) -> bytes:
    sink = io.BytesIO()
    torch.save({"weight": torch.from_numpy(array)}, sink)
    return sink.getvalue()


ARRAY = np.arange(10_000.0).reshape(100, 100)
DATA = {
    "readme.txt": b"hello\nworld\n",
    "tables/a.parquet": parquet(TABLE[:3000]),
    "tables/b.parquet": parquet(TABLE[3000:]),
    "tables/more/c.csv": TABLE.to_csv(index=False).encode(),
    "lines.jsonl": b"".join(json.dumps({"n": n}).encode() + b"\n" for n in range(100)),
    "array.h5": hdf5(ARRAY),
    "model.pt": checkpoint(ARRAY),
    "tables-old/x": b"x",
    "empty": b"",
}


@pytest.fixture
def named(bucket, proxy, monkeypatch):
    """A dataset by the name of "data" that was opened before, and of which nothing is cached."""
    use(monkeypatch, proxy.env())
    bucket.put_many(DATA)
    hotset.open(bucket.url, "data").close()


@pytest.fixture
def fs(named, no_leaks):
    opened = HotsetFileSystem(skip_instance_cache=True)
    yield opened
    opened.close()
    gc.collect()


def test_fsspec_finds_it_by_its_protocol():
    assert fsspec.get_filesystem_class("hotset") is HotsetFileSystem


class TestNames:
    def test_ls(self, fs):
        assert fs.ls("", detail=False) == ["data"]
        assert fs.ls("hotset://data", detail=False) == [
            "data/array.h5", "data/empty", "data/lines.jsonl", "data/model.pt", "data/readme.txt",
            "data/tables-old", "data/tables",
        ]  # fmt: skip
        assert fs.ls("data/tables/", detail=False) == [
            "data/tables/a.parquet", "data/tables/b.parquet", "data/tables/more",
        ]  # fmt: skip
        assert fs.ls("data/readme.txt") == [{"name": "data/readme.txt", "size": 12, "type": "file"}]
        for missing in ("data/table", "data/none/x", "other", "other/x"):
            with pytest.raises(FileNotFoundError):
                fs.ls(missing)

    def test_info_and_what_follows_from_it(self, fs):
        assert fs.info("data/tables") == {"name": "data/tables", "size": 0, "type": "directory"}
        assert fs.info("hotset://data/empty") == {"name": "data/empty", "size": 0, "type": "file"}
        assert (fs.isdir("data"), fs.isdir("data/tables"), fs.isdir("data/readme.txt")) == (True, True, False)
        assert (fs.isfile("data/readme.txt"), fs.isfile("data/tables")) == (True, False)
        assert (fs.exists("data/tables/more/c.csv"), fs.exists("data/tabl"), fs.exists("nobody")) == (
            True,
            False,
            False,
        )
        assert fs.size("data/readme.txt") == 12
        with pytest.raises(FileNotFoundError):
            fs.info("data/none")

    def test_find_glob_walk_and_du(self, fs):
        everything = sorted(f"data/{key}" for key in DATA)
        assert sorted(fs.find("data")) == everything
        assert fs.find("data/tables") == [f"data/tables/{name}" for name in ("a.parquet", "b.parquet", "more/c.csv")]
        assert fs.find("data/readme.txt") == ["data/readme.txt"]
        assert fs.find("data/none") == []
        assert fs.find("data", maxdepth=1) == [name for name in everything if name.count("/") == 1]
        assert "data/tables/more" in fs.find("data", withdirs=True)
        assert fs.find("data", detail=True)["data/empty"]["size"] == 0
        assert fs.glob("data/**/*.parquet") == ["data/tables/a.parquet", "data/tables/b.parquet"]
        assert fs.glob("hotset://data/tables/?.parquet") == fs.glob("data/tables/*.parquet")
        assert [root for root, _, _ in fs.walk("data")] == [
            "data",
            "data/tables-old",
            "data/tables",
            "data/tables/more",
        ]
        assert fs.du("data") == sum(map(len, DATA.values()))

    def test_a_key_that_is_also_a_directory(self, bucket, proxy, monkeypatch, no_leaks):
        from tests.support.opening import read_all

        use(monkeypatch, proxy.env())
        objects = {"a/b": b"below", "a.b": b"beside", "a0": b"behind"}
        bucket.put_many(objects)
        with hotset.open(bucket.url, "odd") as ds:
            assert read_all(ds) == objects
        fs = HotsetFileSystem(skip_instance_cache=True)
        assert fs.ls("odd", detail=False) == ["odd/a.b", "odd/a", "odd/a0"]
        fs.close()

    def test_the_key_of_a_result_changes_with_the_content(self, fs):
        assert fs.ukey("data/readme.txt") == fs.ukey("hotset://data/readme.txt")
        assert fs.ukey("data/readme.txt") != fs.ukey("data/empty")


class TestBytes:
    def test_whole_and_in_ranges(self, fs, proxy):
        assert fs.cat_file("data/readme.txt") == fs.cat("hotset://data/readme.txt") == b"hello\nworld\n"
        assert fs.cat_file("data/readme.txt", 6) == b"world\n"
        assert fs.cat_file("data/readme.txt", -6, -1) == b"world"
        assert fs.cat_ranges(["data/readme.txt", "data/lines.jsonl"], [0, 1], [5, 4]) == [b"hello", b'"n"']
        [good, bad] = fs.cat_ranges(["data/readme.txt", "data/none"], 0, 5, on_error="return")
        assert good == b"hello"
        assert isinstance(bad, FileNotFoundError)
        assert fs.head("data/readme.txt", 3) == b"hel"
        assert fs.tail("data/readme.txt", 3) == b"ld\n"
        assert max(proxy.gets.values()) == 1

    def test_many_at_once(self, fs, proxy):
        assert fs.cat("data/tables", recursive=True) == {
            f"data/{key}": DATA[key] for key in DATA if key.startswith("tables/")
        }
        assert set(fs.cat([f"data/{key}" for key in DATA])) == {f"data/{key}" for key in DATA}
        assert max(proxy.gets.values()) == 1

    def test_files(self, fs, tmp_path):
        with fs.open("data/readme.txt") as file:
            assert file.readlines() == [b"hello\n", b"world\n"]
        with fs.open("data/readme.txt", "rt") as file:
            assert file.read() == "hello\nworld\n"
        fs.get("data/tables/more/c.csv", str(tmp_path / "c.csv"))
        assert (tmp_path / "c.csv").read_bytes() == DATA["tables/more/c.csv"]
        for missing in ("data/none", "nobody/x"):
            with pytest.raises(FileNotFoundError):
                fs.open(missing)
            with pytest.raises(FileNotFoundError):
                fs.cat_file(missing)

    @pytest.mark.parametrize(
        "write",
        [
            lambda fs: fs.open("data/new", "wb"),
            lambda fs: fs.open("data/readme.txt", "ab"),
            lambda fs: fs.pipe("data/new", b"x"),
            lambda fs: fs.touch("data/new"),
            lambda fs: fs.rm("data/readme.txt"),
            lambda fs: fs.rm_file("data/readme.txt"),
            lambda fs: fs.mkdir("data/new"),
            lambda fs: fs.makedirs("data/new", exist_ok=True),
            lambda fs: fs.rmdir("data/tables"),
            lambda fs: fs.mv("data/readme.txt", "data/moved"),
            lambda fs: fs.cp_file("data/readme.txt", "data/copy"),
            lambda fs: fs.put_file("/etc/hostname", "data/new"),
        ],
    )
    def test_whatever_would_write_is_refused(self, fs, write):
        with pytest.raises(OSError) as caught:
            write(fs)
        assert caught.value.errno == errno.EROFS
        assert fs.cat_file("data/readme.txt") == DATA["readme.txt"]


class TestLibraries:
    """By URL, as their users write it. The instance that fsspec keeps is closed at the end."""

    @pytest.fixture(autouse=True)
    def _closed(self, named):
        HotsetFileSystem.clear_instance_cache()
        yield
        HotsetFileSystem.current().close()
        HotsetFileSystem.clear_instance_cache()

    def test_pandas(self):
        assert pd.read_csv("hotset://data/tables/more/c.csv").equals(TABLE)
        assert pd.read_parquet("hotset://data/tables/a.parquet").equals(TABLE[:3000])
        assert pd.read_json("hotset://data/lines.jsonl", lines=True)["n"].sum() == 4950

    def test_pandas_reads_one_column_and_not_the_rest(self):
        got = pd.read_parquet("hotset://data/tables/b.parquet", columns=["id"])
        assert got["id"].tolist() == list(range(3000, 5000))

    def test_pyarrow_datasets(self):
        fs = fsspec.filesystem("hotset")
        whole = pyarrow.dataset.dataset("data/tables", filesystem=fs, format="parquet", exclude_invalid_files=True)
        assert whole.count_rows() == 5000
        some = whole.to_table(filter=pa.compute.field("id") >= 4990)
        assert sorted(some["id"].to_pylist()) == list(range(4990, 5000))
        assert pyarrow.parquet.read_metadata("data/tables/a.parquet", filesystem=fs).num_rows == 3000

    def test_h5py(self):
        with fsspec.open("hotset://data/array.h5") as file, h5py.File(file) as opened:
            assert np.array_equal(opened["x"][40:50, 10:30], ARRAY[40:50, 10:30])
            assert np.array_equal(opened["x"], ARRAY)

    def test_hugging_face_datasets(self, tmp_path):
        files = ["hotset://data/tables/a.parquet", "hotset://data/tables/b.parquet"]
        loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path))
        assert loaded["id"][:] == list(range(5000))
        streamed = datasets.load_dataset("json", data_files="hotset://data/lines.jsonl", split="train", streaming=True)
        assert [row["n"] for row in streamed] == list(range(100))

    def test_torch_load(self):
        with fsspec.open("hotset://data/model.pt") as file:
            assert torch.equal(torch.load(file)["weight"], torch.from_numpy(ARRAY))

    def test_json_lines_as_text(self):
        with fsspec.open("hotset://data/lines.jsonl", "rt") as lines:
            assert [json.loads(line)["n"] for line in lines] == list(range(100))


class TestLife:
    def test_one_that_is_dropped_closes_its_datasets_when_its_files_are_dropped_too(self, named, no_leaks):
        file = HotsetFileSystem(skip_instance_cache=True).open("data/readme.txt")
        gc.collect()
        assert hotset.datasets()[0].in_use
        assert file.read() == DATA["readme.txt"]
        del file
        wait_until(lambda: not hotset.datasets()[0].in_use, what="the end of the lease")

    def test_a_copy_works_in_another_process(self, fs):
        assert fs.cat_file("data/readme.txt") == DATA["readme.txt"]
        copy = pickle.loads(pickle.dumps(fs))
        assert copy.cat_file("data/readme.txt") == DATA["readme.txt"]
        copy.close()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(_cat_and_close, (fs, "data/lines.jsonl")) == DATA["lines.jsonl"]
            pool.close()
            pool.join()

    def test_a_dataset_is_opened_once_and_again_after_a_close(self, fs):
        first = fs.dataset("data")
        assert fs.dataset("data") is first
        fs.close()
        assert fs.dataset("data") is not first
        assert fs.cat_file("data/readme.txt") == DATA["readme.txt"]

    def test_how_to_open_can_be_said(self, named, proxy, no_leaks):
        lists = proxy.lists
        for refresh, more in (("never", 0), ("always", 1)):
            fs = HotsetFileSystem(refresh=refresh, skip_instance_cache=True)
            assert fs.exists("data/readme.txt")
            fs.close()
            assert proxy.lists - lists == more


def _cat_and_close(fs: HotsetFileSystem, path: str) -> bytes:
    data = fs.cat_file(path)
    fs.close()
    return data
