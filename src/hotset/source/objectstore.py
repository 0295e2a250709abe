"""A source in a store that speaks HTTP, read from any number of threads.

What makes the bytes right: the whole object is asked for without a range, so that servers that handle ranges badly do
no harm; every GET carries If-Match; and whatever the server made of that, tag, size and length of its answer are
compared with the listing. Where they differ, one HEAD decides between "changed" and "another tag of the same content".
An object known by its SHA-256 is checked against it whenever it is read as a whole. Of an object without a known tag the
first part that is read gives the tag, or the time, that all others must have: two versions are never mixed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence

from hotset.errors import Changed, InvalidInput, Unavailable
from hotset.source.base import Buffer, FingerprintKind, ObjectInfo
from hotset.source.clients import Answer, Lister, StoreClient
from hotset.source.errors import NotPartial
from hotset.source.keys import alias_possible, awkward, same_time, shown, strong_tag

__all__ = ["ObjectStoreSource"]

_MAX_ALIASES = 10_000
_MAX_BEGUN = 10_000

#: The entity tag, else the time in ns, of the first part that was read of an object.
_Version = tuple[str | None, int]
_UNKNOWN: _Version = (None, 0)


class ObjectStoreSource:
    """The objects whose keys begin with ``prefix``, listed by ``lister``.

    ``client`` serves all keys but those that it would take for another key; they, and ranges from servers that answer
    them with 200, go to ``literal``, which sends keys as they are. Without a ``literal`` client they are refused.
    ``where`` is the URI to show in messages. ``tag_of`` may know the entity tag of an object whose fingerprint is none.
    """

    def __init__(
        self,
        client: StoreClient,
        lister: Lister,
        *,
        identity: str,
        prefix: str,
        where: str,
        if_match: bool = True,
        literal: StoreClient | None = None,
        tag_of: Callable[[ObjectInfo], str | None] = lambda _info: None,
    ) -> None:
        self._client = client
        self._lister = lister
        self._identity = identity
        self._prefix = prefix
        self._where = where
        self._if_match = if_match
        self._literal = literal
        self._always_literal = awkward(f"{prefix}x")
        self._ranges_literal = False
        self._tag_of = tag_of
        self._aliases: dict[tuple[str, bytes], str] = {}
        self._lock = threading.Lock()
        self._begun: dict[tuple[str, bytes], _Version] = {}  # of which parts were read without knowing a tag
        if self._always_literal:
            self._literal_client(prefix)

    @property
    def identity(self) -> str:
        return self._identity

    def list(self) -> Iterator[Sequence[ObjectInfo]]:
        with self._lock:
            self._begun.clear()  # a reload is what helps against `Changed`
        return self._lister()

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        if start == end:
            return b""
        part = None if start == 0 and end == expect.size else (start, end)
        tag = known = self._known_tag(key, part, expect)
        if self._aliases and known is not None:
            tag = self._aliases.get((key, expect.fingerprint), known)
        digested = part is None and expect.kind is FingerprintKind.SHA256  # proves more than any tag
        client = self._client
        if self._always_literal or awkward(key) or (part is not None and self._ranges_literal):
            client = self._literal_client(key)
        condition = tag if self._if_match else None
        try:
            answer = client.get(self._prefix + key, part, condition)
        except Changed:
            # The server compared; whether it did so with the tag of its own listing, a HEAD tells.
            if known is None:
                raise
            if not digested:
                return self._second_look(client, key, part, expect, known, None)
            answer = client.get(self._prefix + key, part, None)
        except NotPartial:
            client = self._literal_client(key)
            self._ranges_literal = True
            answer = client.get(self._prefix + key, part, condition)
        if answer.size != expect.size:
            raise self._changed(key, "size")
        if known is None:
            if expect.modified_ns and not same_time(answer.modified_ns, expect.modified_ns):
                raise self._changed(key, "modification time")
        elif not digested and (answer.etag is None or answer.etag.strip('"') != tag):
            return self._second_look(client, key, part, expect, known, answer)
        data = self._complete(key, answer.data, end - start)
        if known is None and part is not None:
            self._compare_with_first(key, expect, answer)
        if digested and hashlib.sha256(data).hexdigest().encode() != expect.fingerprint:
            raise self._changed(key, "content (by its SHA-256)")
        return data

    def _known_tag(self, key: str, part: tuple[int, int] | None, expect: ObjectInfo) -> str | None:
        """The entity tag of the listed version: its fingerprint, or what else tells it."""
        if expect.kind is FingerprintKind.ETAG:
            return expect.fingerprint.decode()
        tag = self._tag_of(expect)
        if tag is None and part is not None:
            tag = strong_tag(self._begun.get((key, expect.fingerprint), _UNKNOWN)[0])
        return tag

    def newest(self, key: str) -> Buffer:
        client = self._literal_client(key) if self._always_literal or awkward(key) else self._client
        answer = client.get(self._prefix + key, None, None)
        return self._complete(key, answer.data, answer.size)

    def _second_look(
        self,
        client: StoreClient,
        key: str,
        part: tuple[int, int] | None,
        expect: ObjectInfo,
        listed: str,
        answer: Answer | None,
    ) -> Buffer:
        """Decide what another tag than the listed one means. ``answer`` is what the server sent, if it sent bytes."""
        now = client.head(self._prefix + key)
        tag = strong_tag(now.etag)
        if tag == listed:
            raise Unavailable(f"{self._name(key)}: the source gives two versions at the same time")
        alias = (
            tag is not None
            and now.size == expect.size
            and same_time(now.modified_ns, expect.modified_ns)
            and alias_possible(listed, tag)
        )
        if tag is None or not alias:
            raise self._changed(key, "entity tag")
        if answer is None:
            answer = client.get(self._prefix + key, part, tag)
        if strong_tag(answer.etag) != tag:
            raise self._changed(key, "entity tag")
        if len(self._aliases) >= _MAX_ALIASES:
            self._aliases.clear()
        self._aliases[key, expect.fingerprint] = tag
        return self._complete(key, answer.data, expect.size if part is None else part[1] - part[0])

    def _compare_with_first(self, key: str, expect: ObjectInfo, answer: Answer) -> None:
        """Parts of an object of which no tag is known belong together if they have the same one, or the same time."""
        version = (strong_tag(answer.etag) or answer.etag, 0 if answer.etag else answer.modified_ns)
        with self._lock:
            first = self._begun.setdefault((key, expect.fingerprint), version)
            if len(self._begun) > _MAX_BEGUN:
                del self._begun[next(iter(self._begun))]
        if first != version:
            raise self._changed(key, "version")

    def _complete(self, key: str, data: Buffer, length: int) -> Buffer:
        if len(data) != length:
            raise Unavailable(f"{self._name(key)}: the body has {len(data)} of {length} bytes")
        return data

    def _literal_client(self, key: str) -> StoreClient:
        if self._literal is None:
            raise InvalidInput(
                f"{self._name(key)}: a key with empty, '.' or '..' parts or control characters "
                "cannot be read from this kind of store; rename the object or exclude it"
            )
        return self._literal

    def close(self) -> None:
        self._client.close()
        if self._literal is not None:
            self._literal.close()

    def _name(self, key: str) -> str:
        return f"{self._where.rstrip('/')}/{shown(key)}"

    def _changed(self, key: str, what: str) -> Changed:
        return Changed(f"{self._name(key)}: another {what} than when it was listed; reload the dataset")
