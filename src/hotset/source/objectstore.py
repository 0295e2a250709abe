"""A source in an object store, read through obstore's synchronous `get` from any number of threads.

What makes the bytes right: the whole object is asked for without a range, so that servers that handle ranges badly do
no harm; every GET carries If-Match; and whatever the server made of that, tag, size and length of its answer are
compared with the listing. Where they differ, one HEAD decides between "changed" and "another tag of the same content".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import obstore

from hotset.errors import Changed, InvalidInput, NotFound, Unavailable
from hotset.source.base import Buffer, FingerprintKind, ObjectInfo
from hotset.source.errors import NotPartial, translate
from hotset.source.keys import alias_possible, awkward, epoch_ns, make_info, same_time, strong_tag

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore

__all__ = ["Exact", "ObjectStoreSource"]

#: What obstore raises on purpose; `ValueError` is its refusal of a path.
_OBSTORE_ERRORS = (obstore.exceptions.BaseError, FileNotFoundError, ValueError)

_LIST_CHUNK = 1000
_MAX_ALIASES = 10_000


class Exact(Protocol):
    """A client that takes keys literally: for what obstore's paths cannot express, and for sloppy servers."""

    def list(self) -> Iterator[Sequence[ObjectInfo]]: ...

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer: ...

    def close(self) -> None: ...


class ObjectStoreSource:
    """Objects below ``prefix`` of one bucket.

    ``where`` is the URI to show in messages, ``hint`` what to set when access is denied. ``exact`` lists, if given, and
    reads the keys that obstore would refuse or silently take for another key.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        identity: str,
        prefix: str,
        where: str,
        hint: str,
        if_match: bool = True,
        exact: Exact | None = None,
    ) -> None:
        if awkward(prefix + "x") and exact is None:
            raise InvalidInput(
                f"{where}: the prefix has empty, '.' or '..' parts, which this kind of store cannot be asked for"
            )
        self._store = store
        self._identity = identity
        self._prefix = prefix
        self._where = where
        self._hint = hint
        self._if_match = if_match
        self._exact = exact
        self._prefix_is_awkward = awkward(prefix + "x")
        self._ranges_by_hand = False
        self._aliases: dict[tuple[str, bytes], str] = {}

    @property
    def identity(self) -> str:
        return self._identity

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        return self._exact.list() if self._exact is not None else self._list()

    def _list(self) -> Iterator[Sequence[ObjectInfo]]:
        """obstore's listing. It drops a leading and a trailing slash of keys without a word, so that a directory marker
        looks like an empty object: those are left out when other keys show that they are directories.
        """
        skip = len(self._prefix)
        try:
            stream = obstore.list(self._store, self._prefix or None, chunk_size=_LIST_CHUNK)
            found = False
            for batch in stream:
                found = True
                yield [
                    make_info(meta["path"][skip:], meta["size"], meta["e_tag"], _modified(meta))
                    for meta in batch
                    if len(meta["path"]) > skip
                ]
        except _OBSTORE_ERRORS as error:
            raise self._ours(error, self._where) from error
        if not found and self._prefix:
            raise NotFound(f"{self._where}: nothing there; check the spelling of the prefix")

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        if start == end:
            return b""
        whole = start == 0 and end == expect.size
        if self._prefix_is_awkward or awkward(key) or (self._ranges_by_hand and not whole):
            return self._read_exactly(key, start, end, expect)
        tag = expect.fingerprint.decode() if expect.kind is FingerprintKind.ETAG else None
        if tag is not None and self._aliases:
            tag = self._aliases.get((key, expect.fingerprint), tag)
        try:
            meta, data = self._get(key, None if whole else (start, end), tag)
        except Changed:
            return self._second_look(key, start, end, expect, None)
        except NotPartial:
            self._ranges_by_hand = True
            return self._read_exactly(key, start, end, expect)
        if meta["size"] != expect.size:
            raise self._changed(key, "size")
        etag = meta["e_tag"]
        if tag is None:
            if not same_time(_modified(meta), expect.modified_ns):
                raise self._changed(key, "modification time")
        elif etag is None or etag.strip('"') != tag:
            return self._second_look(key, start, end, expect, (strong_tag(etag), data))
        if len(data) != end - start:
            raise Unavailable(f"{self._name(key)}: the body ended early")
        return data

    def _get(self, key: str, part: tuple[int, int] | None, tag: str | None) -> tuple[ObjectMeta, memoryview]:
        options: GetOptions = {}
        if part is not None:
            options["range"] = part
        if tag is not None and self._if_match:
            options["if_match"] = f'"{tag}"'
        try:
            result = obstore.get(self._store, self._prefix + key, options=options)
            return result.meta, memoryview(result.bytes())
        except _OBSTORE_ERRORS as error:
            raise self._ours(error, self._name(key)) from error

    def _second_look(
        self, key: str, start: int, end: int, expect: ObjectInfo, got: tuple[str | None, memoryview] | None
    ) -> Buffer:
        """Decide what another tag than the listed one means; ``got`` are tag and bytes, if the server sent some."""
        try:
            meta = obstore.head(self._store, self._prefix + key)
        except _OBSTORE_ERRORS as error:
            raise self._ours(error, self._name(key)) from error
        now = strong_tag(meta["e_tag"])
        listed = expect.fingerprint.decode()
        if now == listed and got is None:
            raise Unavailable(f"{self._name(key)}: the source cannot decide which version it has")
        if (
            now is None
            or meta["size"] != expect.size
            or not same_time(_modified(meta), expect.modified_ns)
            or not alias_possible(listed, now)
        ):
            raise self._changed(key, "entity tag")
        if got is None:
            whole = start == 0 and end == expect.size
            answer, data = self._get(key, None if whole else (start, end), now)
            got = strong_tag(answer["e_tag"]), data
        if got[0] != now:
            raise self._changed(key, "entity tag")
        if len(got[1]) != end - start:
            raise Unavailable(f"{self._name(key)}: the body ended early")
        if len(self._aliases) >= _MAX_ALIASES:
            self._aliases.clear()
        self._aliases[key, expect.fingerprint] = now
        return got[1]

    def _read_exactly(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        if self._exact is None:
            raise InvalidInput(f"{self._name(key)}: this kind of store cannot be asked for such a key or range")
        return self._exact.read(key, start, end, expect)

    def close(self) -> None:
        if self._exact is not None:
            self._exact.close()

    def _name(self, key: str) -> str:
        return f"{self._where.rstrip('/')}/{key}"

    def _changed(self, key: str, what: str) -> Changed:
        return Changed(f"{self._name(key)}: another {what} than when it was listed; reload the dataset")

    def _ours(self, error: Exception, what: str) -> Exception:
        return translate(error, what=what, hint=self._hint)


def _modified(meta: ObjectMeta) -> int:
    return epoch_ns(meta["last_modified"])
