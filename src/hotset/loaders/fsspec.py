"""``hotset://name/key``: datasets of the cache as a file system, for pandas, pyarrow, Hugging Face datasets, h5py ...

    import pandas

    table = pandas.read_parquet("hotset://images/labels.parquet")

The first part of a path is the name of a dataset that was opened or loaded before (`hotset load URI --name images`), the
rest is a key. Directories are what keys have in common up to a slash; there are no empty ones. Read-only.
"""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from fsspec.spec import AbstractFileSystem

import hotset
from hotset.errors import NotFound
from hotset.read.dataset import Dataset

__all__ = ["HotsetFileSystem"]

Info = dict[str, Any]


class HotsetFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The datasets of one cache. Opens each one at its first use and keeps it open until `close`.

    Safe to use from threads, to fork and to pickle: a copy opens its datasets itself.
    """

    protocol = "hotset"
    root_marker = ""

    def __init__(
        self, *, refresh: str = "auto", cache: str | None = None, on_changed: str = "raise", **kwargs: Any
    ) -> None:
        """``refresh``, ``cache`` and ``on_changed`` as in `hotset.open`."""
        super().__init__(**kwargs)
        self._how: dict[str, Any] = {"refresh": refresh, "cache": cache, "on_changed": on_changed}
        self._opening = threading.Lock()
        self._datasets: dict[str, Dataset] = {}

    def dataset(self, name: str) -> Dataset:
        """The open dataset of that name; FileNotFoundError if the cache has none."""
        found = self._datasets.get(name)
        if found is None:
            with self._opening, _as_file_errors():
                found = self._datasets.get(name)
                if found is None:
                    found = self._datasets[name] = hotset.open(name=name, **self._how)
                    found.may_be_dropped()  # libraries do not close file systems
        return found

    def close(self) -> None:
        """Close all datasets. Whatever is used afterwards is opened again."""
        with self._opening:
            datasets, self._datasets = self._datasets, {}
        for dataset in datasets.values():
            dataset.close()

    # -- names ---------------------------------------------------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:  # noqa: FBT001, FBT002  (as fsspec has it)
        name, key = self._parts(path)
        if not name:
            entries = [_directory(info.name) for info in hotset.datasets(cache=self._how["cache"])]
        else:
            entries = list(self._children(name, key))
            if not entries:
                entries = [self.info(path)]  # a file; FileNotFoundError if there is nothing
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **kwargs: Any) -> Info:
        name, key = self._parts(path)
        if not name:
            return _directory("")
        dataset = self.dataset(name)
        if not key:
            return _directory(name)
        if key in dataset.keys:
            return _file(name, dataset, dataset.keys.index(key))
        if dataset.keys.prefix(f"{key}/"):
            return _directory(f"{name}/{key}")
        raise _missing(path)

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,  # noqa: FBT001, FBT002  (as fsspec has it)
        detail: bool = False,  # noqa: FBT001, FBT002
        **kwargs: Any,
    ) -> list[str] | dict[str, Info]:
        """All files below ``path``, from the sorted keys and without walking."""
        name, key = self._parts(path)
        if not name or withdirs or maxdepth is not None:
            walked: list[str] | dict[str, Info] = super().find(path, maxdepth, withdirs, detail, **kwargs)
            return walked
        dataset = self.dataset(name)
        places = [*([dataset.keys.index(key)] if key in dataset.keys else []), *self._below(dataset, key)]
        files = [_file(name, dataset, place) for place in places]
        return {entry["name"]: entry for entry in files} if detail else [entry["name"] for entry in files]

    def ukey(self, path: str) -> str:
        """The same for as long as the content is: what others may cache results by."""
        name, key = self._parts(path)
        return f"{self.dataset(name).snapshot}/{key}"

    def _parts(self, path: str) -> tuple[str, str]:
        name, _, key = str(self._strip_protocol(path)).lstrip("/").partition("/")
        return name, key

    def _below(self, dataset: Dataset, key: str) -> range:
        return dataset.keys.prefix(f"{key}/" if key else "")

    def _children(self, name: str, key: str) -> Iterator[Info]:
        """Files and directories right below ``key``; what lies deeper is skipped in one step a directory."""
        dataset = self.dataset(name)
        inside = self._below(dataset, key)
        length = len(key) + 1 if key else 0
        place = inside.start
        while place < inside.stop:
            child, slash, _ = dataset.keys[place][length:].partition("/")
            if slash:
                directory = dataset.keys[place][:length] + child
                yield _directory(f"{name}/{directory}")
                place = dataset.keys.prefix(f"{directory}/").stop
            else:
                yield _file(name, dataset, place)
                place += 1

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> io.BufferedReader:
        if mode != "rb":
            _read_only(path)
        name, key = self._parts(path)
        with _as_file_errors():
            return self.dataset(name).open(key)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        name, key = self._parts(path)
        with _as_file_errors():
            return self.dataset(name).read(key, start, end)

    def cat(self, path: str | list[str], recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:  # noqa: FBT001, FBT002
        """Several files are fetched together where they are absent."""
        paths: list[str] = self.expand_path(path, recursive=recursive)
        if recursive:
            path = paths = [found for found in paths if self.isfile(found)]
        if len(paths) > 1 and not kwargs:
            self._fetch(paths)
        return super().cat(path, on_error=on_error, **kwargs)

    def _fetch(self, paths: Sequence[str]) -> None:
        """Have the filler fetch what is absent of these files, in parallel, in the order in which they are read."""
        wanted: dict[str, list[int]] = {}
        for name, key in map(self._parts, paths):
            if name and key in self.dataset(name).keys:
                wanted.setdefault(name, []).append(self.dataset(name).keys.index(key))
        for name, places in wanted.items():
            self.dataset(name).prefetch(places)

    # -- what a read-only file system refuses --------------------------------------------------------------------------

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> NoReturn:  # noqa: FBT001, FBT002
        _read_only(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> NoReturn:  # noqa: FBT001, FBT002
        _read_only(path)

    def rmdir(self, path: str) -> NoReturn:
        _read_only(path)

    def rm_file(self, path: str) -> NoReturn:
        _read_only(path)

    def _rm(self, path: str) -> NoReturn:
        _read_only(path)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> NoReturn:
        _read_only(path2)

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> NoReturn:
        _read_only(rpath)

    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> NoReturn:
        _read_only(path)

    def touch(self, path: str, **kwargs: Any) -> NoReturn:
        _read_only(path)


def _file(name: str, dataset: Dataset, place: int) -> Info:
    return {"name": f"{name}/{dataset.keys[place]}", "size": dataset.size(place), "type": "file"}


def _directory(name: str) -> Info:
    return {"name": name, "size": 0, "type": "directory"}


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _read_only(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "datasets are read-only", path)


@contextmanager
def _as_file_errors() -> Iterator[None]:
    """What is not there is FileNotFoundError to those who use files; all other errors say more as they are."""
    try:
        yield
    except NotFound as error:
        raise FileNotFoundError(errno.ENOENT, str(error)) from error
