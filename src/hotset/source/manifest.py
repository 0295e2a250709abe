"""A list of URLs as a source: one JSON object a line, ``{"key", "url", "size", "etag" | "sha256"}``.

URLs may be relative to the manifest's own. Without a size, one HEAD request is made for the object while listing; give
sizes for large datasets. A ``sha256`` is checked whenever the whole object is read.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import quote, urljoin, urlsplit

from hotset.errors import Changed, InvalidInput, NotFound
from hotset.source.base import FingerprintKind, ObjectInfo, Source
from hotset.source.clients import Answer
from hotset.source.errors import explain_status
from hotset.source.keys import make_info, shown, strong_tag
from hotset.source.listing import Pages
from hotset.source.objectstore import ObjectStoreSource
from hotset.source.options import SourceOptions
from hotset.source.s3client import BODY_LIMIT, answer_of, get_headers
from hotset.source.uri import Location
from hotset.source.web import Reply, Web, retry_after_of

__all__ = ["Entry", "open_manifest", "parse_manifest"]

_BATCH = 1000
_HEADS_AT_ONCE = 8  #: gentle to a server that never asked for this
_REDIRECTS = 5
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HINT = "the links of the manifest may have expired; write it anew and reload"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``url`` may be signed, hence is kept out of messages."""

    key: str
    url: str = field(repr=False)
    size: int | None
    etag: str | None
    sha256: str | None


def parse_manifest(text: str, base: str) -> list[Entry]:
    """The lines of a manifest that came from ``base``. Raises `InvalidInput` naming the first wrong line."""
    entries: list[Entry] = []
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        entry = _parse_line(line, number, base)
        if entry.key in seen:
            raise InvalidInput(f"line {number} of the manifest: the key {entry.key!r} is there a second time")
        seen.add(entry.key)
        entries.append(entry)
    return entries


def _parse_line(line: str, number: int, base: str) -> Entry:
    def wrong(what: str) -> InvalidInput:
        return InvalidInput(f"line {number} of the manifest: {what}")

    try:
        fields = json.loads(line)
    except ValueError as error:
        raise wrong('not JSON; expected {"key": ..., "url": ..., "size": ...}') from error
    if not isinstance(fields, dict):
        raise wrong("not a JSON object")
    key, url, size = fields.get("key"), fields.get("url"), fields.get("size")
    etag, sha256 = fields.get("etag"), fields.get("sha256")
    if not isinstance(key, str) or not key:
        raise wrong("the key is missing or no text")
    if not isinstance(url, str) or not url:
        raise wrong("the url is missing or no text")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
        raise wrong("the size is no whole number")
    if etag is not None and not isinstance(etag, str):
        raise wrong("the etag is no text")
    if sha256 is not None and (not isinstance(sha256, str) or not _SHA256.fullmatch(sha256.lower())):
        raise wrong("the sha256 is not 64 hexadecimal digits")
    try:
        absolute = urljoin(base, url)
        parts = urlsplit(absolute)
    except ValueError as error:
        raise wrong("the url is none") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise wrong("the url is neither http nor https")
    if parts.username is not None or parts.password is not None:
        raise wrong("the url holds a user name or password; use signed links instead")
    return Entry(key, absolute, size, etag, sha256.lower() if sha256 else None)


class _Links:
    """A `StoreClient` whose keys are those of a manifest."""

    def __init__(self, web: Web, url: str, where: str) -> None:
        self._web = web
        self._url = url
        self._where = where
        self._lock = threading.Lock()
        self._entries: Mapping[str, Entry] | None = None

    def load(self) -> list[Entry]:
        """Fetch and remember the manifest."""
        reply = self._send("GET", self._url, {}, self._where, "check the manifest's URL and its access rights")
        try:
            text = reply.body.decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{self._where}: the manifest is not UTF-8 text") from error
        entries = parse_manifest(text, self._url)
        self._entries = {entry.key: entry for entry in entries}
        return entries

    def get(self, key: str, part: tuple[int, int] | None, tag: str | None) -> Answer:
        what = f"{self._where}: {shown(key)}"
        reply = self._send("GET", self._entry(key).url, get_headers(part, tag), what, _HINT, part)
        return answer_of(reply, part, what)

    def head(self, key: str) -> Answer:
        what = f"{self._where}: {shown(key)}"
        reply = self._send("HEAD", self._entry(key).url, {}, what, _HINT)
        if "Content-Length" not in reply.headers:
            raise InvalidInput(f"{what}: the server does not tell the size; write it into the manifest")
        return answer_of(reply, None, what)

    def tag_of(self, info: ObjectInfo) -> str | None:
        """What the manifest says beside the digest that ``info`` has. `Changed` if the digest is another one by now."""
        if info.kind is not FingerprintKind.SHA256:
            return None
        entry = self._entry(info.key)
        if entry.sha256 is None or entry.sha256.encode() != info.fingerprint:
            raise Changed(f"{self._where}: {shown(info.key)} is another version by now; reload the dataset")
        return strong_tag(entry.etag)

    def close(self) -> None:
        self._web.close()

    def _entry(self, key: str) -> Entry:
        with self._lock:
            entries = self._entries
            if entries is None:
                entries = {entry.key: entry for entry in self.load()}
        entry = entries.get(key)
        if entry is None:
            raise NotFound(f"{self._where}: {key} is not in the manifest (any more)")
        return entry

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        what: str,
        hint: str,
        part: tuple[int, int] | None = None,
    ) -> Reply:
        """One request, following redirects but never from https to http."""
        for _ in range(_REDIRECTS):
            sent = quote(url, safe=_URL_SAFE)
            reply = self._web.request(method, sent, headers=headers, what=what, limit=BODY_LIMIT, part=part)
            target = reply.headers.get("Location") if reply.status in (301, 302, 303, 307, 308) else None
            if target is None:
                break
            following = urljoin(url, target)
            if url.startswith("https:") and not following.startswith("https:"):
                raise InvalidInput(f"{what}: redirected from https to http; that is not followed")
            url = following
        else:
            raise InvalidInput(f"{what}: more than {_REDIRECTS} redirects")
        if not reply.ok:
            raise explain_status(reply.status, "", what=what, hint=hint, retry_after=retry_after_of(reply.headers))
        return reply


#: Characters that stay as they are when a URL is made fit for the wire: all that have a meaning, and escapes.
_URL_SAFE = ":/?#[]@!$&'()*+,;=%-._~"


def open_manifest(location: Location, options: SourceOptions, env: Mapping[str, str]) -> Source:
    url = f"{location.root}?{location.query}" if location.query else location.root
    links = _Links(Web(options, env), url, location.root)

    def objects() -> Iterator[Sequence[ObjectInfo]]:
        entries: list[Entry] = []

        def fetch(first: int) -> tuple[Sequence[ObjectInfo], int | None]:
            if not entries:
                entries.extend(links.load())
            batch = entries[first : first + _BATCH]
            following = first + _BATCH
            return _infos(links, batch), following if following < len(entries) else None

        return Pages(fetch, 0)

    return ObjectStoreSource(
        links,
        objects,
        identity=location.root,
        prefix="",
        where=location.root,
        if_match=options.if_match,
        literal=links,
        tag_of=links.tag_of,
    )


def _infos(links: _Links, entries: Sequence[Entry]) -> Sequence[ObjectInfo]:
    """The objects of some lines; those without a size are asked for, a few at a time."""
    unknown = [entry.key for entry in entries if entry.size is None]
    with ThreadPoolExecutor(_HEADS_AT_ONCE, thread_name_prefix="hotset-head") as pool:
        answers = dict(zip(unknown, pool.map(links.head, unknown), strict=True))
    infos = []
    for entry in entries:
        answer = answers.get(entry.key)
        size = entry.size if answer is None else answer.size
        assert size is not None, "asked for above"
        if entry.sha256 is not None:
            infos.append(ObjectInfo(entry.key, size, FingerprintKind.SHA256, entry.sha256.encode()))
        elif answer is not None:
            infos.append(make_info(entry.key, size, entry.etag or answer.etag, answer.modified_ns))
        else:
            infos.append(make_info(entry.key, size, entry.etag, 0))
    return infos
