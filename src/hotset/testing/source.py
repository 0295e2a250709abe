"""For authors of sources and for tests of whatever uses one: a contract to pass, and sources that misbehave on demand.

A new source is tested by a subclass::

    class TestMySource(SourceContract):
        @pytest.fixture
        def place(self) -> Place: ...
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from hotset.errors import Changed, NotFound
from hotset.source.base import Buffer, FingerprintKind, ObjectInfo, Source

__all__ = ["FaultySource", "MemorySource", "Place", "SlowSource", "SourceContract"]


class MemorySource:
    """Objects in a dictionary: the reference implementation of the contract. ``batch`` objects are listed at a time."""

    def __init__(self, objects: Mapping[str, bytes] | None = None, *, name: str = "memory", batch: int = 1000) -> None:
        self._name = name
        self._batch = batch
        self._lock = threading.Lock()
        self._objects = dict(objects or {})

    @property
    def identity(self) -> str:
        return f"memory://{self._name}/"

    def put(self, key: str, content: bytes) -> None:
        with self._lock:
            self._objects[key] = content

    def delete(self, key: str) -> None:
        with self._lock:
            del self._objects[key]

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        with self._lock:
            infos = [_info(key, content) for key, content in self._objects.items()]
        for first in range(0, len(infos), self._batch):
            yield infos[first : first + self._batch]

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        if start == end:
            return b""
        with self._lock:
            content = self._objects.get(key)
        if content is None:
            raise NotFound(f"{self.identity}{key}: not there")
        if _info(key, content)[1:] != expect[1:]:
            raise Changed(f"{self.identity}{key}: another version than when it was listed")
        return memoryview(content)[start:end]

    def newest(self, key: str) -> Buffer:
        with self._lock:
            content = self._objects.get(key)
        if content is None:
            raise NotFound(f"{self.identity}{key}: not there")
        return content

    def close(self) -> None:
        """Nothing to release."""


def _info(key: str, content: bytes) -> ObjectInfo:
    tag = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return ObjectInfo(key, len(content), FingerprintKind.ETAG, tag.encode())


class FaultySource:
    """Raises what ``fault(key, n)`` returns for the n-th read (from 0) of a key, instead of reading; None: reads.

    ``reads`` counts the reads of each key. ``list_faults`` are raised by the next listings, one each.
    """

    def __init__(
        self,
        source: Source,
        fault: Callable[[str, int], Exception | None] = lambda _key, _n: None,
        *,
        list_faults: Sequence[Exception] = (),
    ) -> None:
        self._source = source
        self._fault = fault
        self._list_faults = list(list_faults)
        self._lock = threading.Lock()
        self.reads: Counter[str] = Counter()

    @property
    def identity(self) -> str:
        return self._source.identity

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        if self._list_faults:
            raise self._list_faults.pop(0)
        return self._source.list()

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        with self._lock:
            number = self.reads[key]
            self.reads[key] += 1
        error = self._fault(key, number)
        if error is not None:
            raise error
        return self._source.read(key, start, end, expect)

    def newest(self, key: str) -> Buffer:
        return self._source.newest(key)

    def close(self) -> None:
        self._source.close()


class SlowSource:
    """Every read, and every batch of a listing, waits for ``gate``: an event that a test sets, or a bounded wait."""

    def __init__(self, source: Source, gate: Callable[[], object]) -> None:
        self._source = source
        self._gate = gate

    @property
    def identity(self) -> str:
        return self._source.identity

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        for batch in self._source.list():
            self._gate()
            yield batch

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        self._gate()
        return self._source.read(key, start, end, expect)

    def newest(self, key: str) -> Buffer:
        return self._source.newest(key)

    def close(self) -> None:
        self._source.close()


class Place(Protocol):
    """Where a source reads from, by a second route, so that the source cannot pass by being wrong twice."""

    def source(self) -> Source:
        """A new source of this place."""

    def put(self, key: str, content: bytes) -> None: ...

    def delete(self, key: str) -> None: ...


class SourceContract:
    """What every source must do. Override `place` with an empty place to run it."""

    #: Keys besides plain ones that this kind of place can hold.
    unusual_keys: Sequence[str] = ("with space", "plus+sign", "per%20cent", "ünïcödé", "deep/er/than/that")

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError("override this fixture with an empty place")

    @pytest.fixture
    def source(self, place: Place) -> Iterator[Source]:
        source = place.source()
        yield source
        source.close()

    def test_lists_every_object_once_with_its_size(self, place: Place, source: Source) -> None:
        content = {f"dir{n % 3}/{n:02}": b"x" * n for n in range(30)}
        for key, data in content.items():
            place.put(key, data)
        infos = [info for batch in source.list() for info in batch]
        assert sorted(info.key for info in infos) == sorted(content)
        assert all(info.size == len(content[info.key]) for info in infos)

    def test_lists_again_what_changed(self, place: Place, source: Source) -> None:
        place.put("kept", b"kept")
        place.put("gone", b"gone")
        before = listed(source)
        place.delete("gone")
        place.put("new", b"new")
        after = listed(source)
        assert sorted(after) == ["kept", "new"]
        assert after["kept"] == before["kept"]

    def test_reads_the_whole_and_every_part(self, place: Place, source: Source) -> None:
        content = bytes(range(256)) * 40
        place.put("a", content)
        info = listed(source)["a"]
        for start, end in ((0, len(content)), (0, 1), (1, 100), (5000, len(content)), (len(content) - 1, len(content))):
            data = memoryview(source.read("a", start, end, info))
            assert data.nbytes == end - start
            assert bytes(data) == content[start:end]

    def test_an_empty_range_is_empty(self, place: Place, source: Source) -> None:
        place.put("a", b"something")
        place.put("nothing", b"")
        infos = listed(source)
        assert bytes(source.read("a", 3, 3, infos["a"])) == b""
        assert bytes(source.read("nothing", 0, 0, infos["nothing"])) == b""

    def test_unusual_keys_are_listed_and_read(self, place: Place, source: Source) -> None:
        for key in self.unusual_keys:
            place.put(key, key.encode())
        infos = listed(source)
        assert sorted(infos) == sorted(self.unusual_keys)
        for key, info in infos.items():
            assert bytes(source.read(key, 0, info.size, info)) == key.encode()

    def test_another_size_is_changed(self, place: Place, source: Source) -> None:
        place.put("a", b"before")
        info = listed(source)["a"]
        place.put("a", b"afterwards")
        with pytest.raises(Changed):
            source.read("a", 0, info.size, info)
        with pytest.raises(Changed):
            source.read("a", 1, 3, info)

    def test_another_content_of_the_same_size_is_changed(self, place: Place, source: Source) -> None:
        place.put("a", b"before")
        info = listed(source)["a"]
        place.put("a", b"behind")
        with pytest.raises(Changed):
            source.read("a", 0, info.size, info)
        again = listed(source)["a"]
        assert again != info
        assert bytes(source.read("a", 0, again.size, again)) == b"behind"

    def test_a_vanished_object_is_not_found(self, place: Place, source: Source) -> None:
        place.put("a", b"a")
        place.put("b", b"b")
        info = listed(source)["a"]
        place.delete("a")
        with pytest.raises(NotFound, match="a"):
            source.read("a", 0, 1, info)

    def test_newest_gives_whatever_is_there_now(self, place: Place, source: Source) -> None:
        place.put("a", b"first")
        listed(source)
        place.put("a", b"another version")
        assert bytes(source.newest("a")) == b"another version"
        place.delete("a")
        with pytest.raises(NotFound):
            source.newest("a")

    def test_threads_read_at_the_same_time(self, place: Place, source: Source) -> None:
        content = {f"{n:03}": hashlib.sha256(b"%d" % n).digest() * 50 for n in range(40)}
        for key, data in content.items():
            place.put(key, data)
        infos = list(listed(source).values())
        with ThreadPoolExecutor(8) as pool:
            read = dict(pool.map(lambda info: (info.key, bytes(source.read(info.key, 0, info.size, info))), infos * 3))
        assert read == content

    def test_its_identity_is_the_same_for_every_instance(self, place: Place, source: Source) -> None:
        other = place.source()
        try:
            assert source.identity == other.identity
            assert source.identity
        finally:
            other.close()

    def test_closing_twice_is_harmless(self, place: Place) -> None:
        source = place.source()
        source.close()
        source.close()


def listed(source: Source) -> dict[str, ObjectInfo]:
    """The whole listing by key."""
    return {info.key: info for batch in source.list() for info in batch}
