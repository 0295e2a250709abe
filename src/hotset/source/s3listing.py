"""One page of an S3 listing as text -> objects. Pure.

A million keys are a thousand pages, so the usual page is taken apart by regular expressions, three times as fast as an
XML parser; a page where they do not find the same number of each field goes to the parser.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote, unquote_plus

from hotset.errors import InvalidInput, Unavailable
from hotset.source.base import ObjectInfo
from hotset.source.keys import epoch_ns, make_info

__all__ = ["ListPage", "Undecodable", "parse_page", "token_of"]

_FIELDS = [re.compile(rf"<{name}>([^<]*)</{name}>") for name in ("Key", "Size", "ETag", "LastModified")]
_CONTENTS = re.compile(r"<Contents>")
_ENCODING = re.compile(r"<EncodingType>\s*url\s*</EncodingType>", re.IGNORECASE)
_TRUNCATED = re.compile(r"<IsTruncated>\s*true\s*</IsTruncated>", re.IGNORECASE)
_TOKEN = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_ESCAPE = re.compile(r"&(?:#x([0-9A-Fa-f]{1,6})|#([0-9]{1,7})|(amp|lt|gt|quot|apos));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}

#: Key, size, entity tag, modification time: as they stand in the text.
_Row = tuple[str, str, str, str]


class Undecodable(Exception):
    """Keys of this page cannot be told from plain XML; ask again with ``encoding-type=url``."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """What one answer lists."""

    objects: Sequence[ObjectInfo]  #: without directory markers
    count: int  #: of all keys on the page
    token: str | None  #: for the next page


def parse_page(text: str, *, prefix: str, where: str, asked_for_url_encoding: bool = False) -> ListPage:
    """The page, with keys relative to ``prefix``.

    A key that ends in a slash is a directory marker if it is empty, else an object. Raises `Undecodable` where the
    server may have replaced a character that XML cannot hold, unless it was asked for another encoding and has none.
    """
    if "<ListBucketResult" not in text:
        raise InvalidInput(f"{where}: the answer to a listing is not S3's; check the endpoint")
    encoded = _ENCODING.search(text) is not None
    if not encoded and not asked_for_url_encoding and "\ufffd" in text:
        raise Undecodable
    rows = _fast_rows(text)
    if rows is None:
        try:
            rows = _slow_rows(text)
        except ET.ParseError as error:
            if asked_for_url_encoding:
                raise InvalidInput(f"{where}: the server's listing is not XML; check the endpoint") from error
            raise Undecodable from error
    try:
        objects = _objects(rows, prefix, where, _decoder(text) if encoded else None)
    except ValueError as error:
        raise InvalidInput(f"{where}: the server lists sizes or times that are none; check the endpoint") from error
    token = token_of(text)
    if token is None and _TRUNCATED.search(text):
        raise Unavailable(f"{where}: the server breaks off the listing without saying how to go on")
    return ListPage(objects, len(rows), token)


def token_of(text: str) -> str | None:
    """Where the listing goes on after this page; None if it ends here (or does not say)."""
    found = _TOKEN.search(text) if _TRUNCATED.search(text) else None
    return _unescape(found[1]) if found is not None else None


def _objects(
    rows: Sequence[_Row], prefix: str, where: str, decode: Callable[[str], str] | None
) -> Sequence[ObjectInfo]:
    objects: list[ObjectInfo] = []
    skip = len(prefix)
    for raw, size_text, etag, modified in rows:
        key = _unescape(raw) if "&" in raw else raw
        if decode is not None:
            key = decode(key)
        size = int(size_text)
        if (size == 0 and key.endswith("/")) or len(key) <= skip:
            continue
        if not key.startswith(prefix):
            raise Unavailable(f"{where}: the server lists {key!a}, which is outside of the prefix that was asked for")
        tag = _unescape(etag) if "&" in etag else etag
        objects.append(make_info(key[skip:], size, tag, epoch_ns(datetime.fromisoformat(modified)) if modified else 0))
    return objects


def _unescape(text: str) -> str:
    """XML's escapes, exactly. (`html.unescape` follows browsers and drops control characters.)"""
    plain = text.replace("&quot;", '"')  # of each entity tag; what it leaves behind is no new escape
    return _ESCAPE.sub(_character, plain) if "&" in plain else plain


def _character(match: re.Match[str]) -> str:
    hexadecimal, decimal, name = match.groups()
    if name:
        return _NAMED[name]
    return chr(int(hexadecimal, 16) if hexadecimal else int(decimal))


def _fast_rows(text: str) -> list[_Row] | None:
    columns = [pattern.findall(text) for pattern in _FIELDS]
    count = len(_CONTENTS.findall(text))
    if any(len(column) != count for column in columns):
        return None
    return list(zip(*columns, strict=True))


def _slow_rows(text: str) -> list[_Row]:
    root = ET.fromstring(text)  # noqa: S314 -- expat limits the growth of entities and loads no external ones
    rows = []
    for element in root.iter():
        if _local(element.tag) != "Contents":
            continue
        fields = {_local(child.tag): child.text or "" for child in element}
        key = fields.get("Key", "").replace("&", "&amp;")  # as raw as what the fast way finds
        rows.append((key, fields.get("Size") or "0", fields.get("ETag", ""), fields.get("LastModified", "")))
    return rows


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _decoder(text: str) -> Callable[[str], str]:
    """Amazon writes a space as ``+``, others as ``%20`` and leave ``+`` alone; a page shows which it is."""
    return unquote if "%20" in text else unquote_plus
