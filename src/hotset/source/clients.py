"""What a store must offer to be a source, and obstore as one such client.

A client fetches and describes; it never decides whether the answer is the version that was wanted. That is the work of
`hotset.source.objectstore`, once for every kind of store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, Protocol

import obstore
import obstore.exceptions

from hotset.errors import NotFound
from hotset.source.base import Buffer, ObjectInfo
from hotset.source.errors import translate
from hotset.source.keys import epoch_ns, make_info, shown
from hotset.source.listing import Pages

if TYPE_CHECKING:
    from obstore import GetOptions, ListStream, ObjectMeta
    from obstore.store import ObjectStore

__all__ = ["Answer", "Lister", "ObstoreClient", "StoreClient"]

#: What obstore raises on purpose; `ValueError` is its refusal of a path.
_OBSTORE_ERRORS = (obstore.exceptions.BaseError, FileNotFoundError, ValueError)

_LIST_CHUNK = 1000


class Answer(NamedTuple):
    """What a store said about an object, with the bytes that were asked for (none for HEAD)."""

    size: int  #: of the whole object
    etag: str | None  #: as the store gives it
    modified_ns: int  #: 0 if the store does not say
    data: Buffer


class StoreClient(Protocol):
    """Fetches by key. Errors are ours; ``tag`` is sent as If-Match."""

    def get(self, key: str, part: tuple[int, int] | None, tag: str | None) -> Answer: ...

    def head(self, key: str) -> Answer: ...

    def close(self) -> None: ...


class Lister(Protocol):
    """Lists what lies below a prefix, with keys relative to it. Called anew for every listing."""

    def __call__(self) -> Iterator[Sequence[ObjectInfo]]: ...


class ObstoreClient:
    """Objects through obstore, whose paths have no empty, ``.`` or ``..`` parts and no control characters.

    It would silently drop a slash at either end of a key: callers must not pass such keys. ``bucket`` is its URI.
    """

    def __init__(self, store: ObjectStore, *, bucket: str, hint: str) -> None:
        self._store = store
        self._bucket = bucket
        self._hint = hint

    def get(self, key: str, part: tuple[int, int] | None, tag: str | None) -> Answer:
        options: GetOptions = {}
        if part is not None:
            options["range"] = part
        if tag is not None:
            options["if_match"] = f'"{tag}"'
        try:
            result = obstore.get(self._store, key, options=options)
            meta = result.meta
            data = memoryview(result.bytes())
        except _OBSTORE_ERRORS as error:
            raise self._ours(error, key) from error
        # With a tag nobody asks for the time, and converting it costs more than all else here.
        modified_ns = epoch_ns(meta["last_modified"]) if tag is None else 0
        return Answer(meta["size"], meta["e_tag"], modified_ns, data)

    def head(self, key: str) -> Answer:
        try:
            meta = obstore.head(self._store, key)
        except _OBSTORE_ERRORS as error:
            raise self._ours(error, key) from error
        return Answer(meta["size"], meta["e_tag"], epoch_ns(meta["last_modified"]), b"")

    def list(self, prefix: str) -> Pages[str]:
        """Everything below ``prefix``, continued after a failure behind the last key that was seen.

        obstore shows a directory marker (``dir/``, empty) as an empty object ``dir``. It is left out if ``dir/...``
        comes next, which is where the store's order puts the rest of the directory.
        """
        where = f"{self._bucket}/{prefix}"
        stream: ListStream[Sequence[ObjectMeta]] | None = None
        held: list[ObjectMeta] = []  # the last object so far, if only the next one tells whether it is a marker
        seen = False

        def fetch(after: str) -> tuple[Sequence[ObjectInfo], str | None]:
            nonlocal stream, seen, held
            try:
                if stream is None:
                    stream = obstore.list(self._store, prefix or None, offset=after or None, chunk_size=_LIST_CHUNK)
                batch = next(stream, None)
            except _OBSTORE_ERRORS as error:
                stream = None
                raise translate(error, what=where, hint=self._hint) from error
            if batch is None:
                if not seen and prefix:
                    raise NotFound(f"{where}: nothing there; check the spelling of the prefix")
                return [_info(meta, len(prefix)) for meta in held], None
            seen = True
            metas = [*held, *batch]
            held = [metas.pop()] if metas and metas[-1]["size"] == 0 else []
            kept = _without_markers(metas, held)
            infos = [_info(meta, len(prefix)) for meta in kept if len(meta["path"]) > len(prefix)]
            return infos, batch[-1]["path"] if batch else after

        return Pages(fetch, "")

    def close(self) -> None:
        """obstore closes its connections with the last reference to the store."""

    def _ours(self, error: Exception, key: str) -> Exception:
        return translate(error, what=f"{self._bucket}/{shown(key)}", hint=self._hint)


def _without_markers(metas: Sequence[ObjectMeta], following: Sequence[ObjectMeta]) -> Iterator[ObjectMeta]:
    """``metas`` but those that are directories of their successors; ``following`` comes after the last one."""
    for meta, successor in zip_longest(metas, [*metas[1:], *following][: len(metas)]):
        if successor is None or meta["size"] or not successor["path"].startswith(f"{meta['path']}/"):
            yield meta


def _info(meta: ObjectMeta, skip: int) -> ObjectInfo:
    return make_info(meta["path"][skip:], meta["size"], meta["e_tag"], epoch_ns(meta["last_modified"]))
