"""S3 requests of our own: listings, and whatever obstore's paths cannot express.

The listing is ours because obstore's drops slashes at the ends of keys, fails as a whole on one odd key, and reads
percent-encoded listings as if they were not; it also costs less this way. Reading whole objects stays with obstore.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.parse import urlsplit

from hotset.errors import InvalidInput, NotFound, Unavailable
from hotset.source.base import ObjectInfo
from hotset.source.clients import Answer
from hotset.source.errors import explain_status
from hotset.source.globs import EVERYTHING
from hotset.source.keys import epoch_ns, shown
from hotset.source.listing import Pages, in_background
from hotset.source.s3listing import ListPage, Undecodable, parse_page, token_of
from hotset.source.signing import Provider
from hotset.source.sigv4 import canonical_query, encode_key, signed_headers
from hotset.source.web import Reply, Web, retry_after_of

__all__ = ["BODY_LIMIT", "S3Client", "answer_of", "get_headers", "http_time"]

#: Of a listing: which of the beginnings, and the server's token for the page.
_Position = tuple[int, str]

_CODE = re.compile(rb"<Code>([A-Za-z0-9_.]{1,60})</Code>")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_PAGE_LIMIT = 64 << 20
#: Of an object that is held in memory at once.
BODY_LIMIT = 4 << 30


class S3Client:
    """Requests to one bucket, signed with ``provider`` (None: unsigned). ``bucket`` is its URI, for messages."""

    def __init__(
        self,
        web: Web,
        *,
        bucket_url: str,
        region: str,
        provider: Provider | None,
        requester_pays: bool,
        bucket: str,
        hint: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._web = web
        self._url = urlsplit(bucket_url)
        self._region = region
        self._provider = provider
        self._payer = {"x-amz-request-payer": "requester"} if requester_pays else {}
        self._bucket = bucket
        self._hint = hint
        self._now = now

    def list(self, prefix: str, beginnings: tuple[str, ...] = EVERYTHING) -> Pages[_Position]:
        """Everything below ``prefix`` that begins with one of ``beginnings`` there, page by page.

        The next page is asked for before this one is taken apart, so that the server and we work at the same time.
        """
        encode = False
        asked: set[_Position] = set()
        under_way: dict[_Position, Future[str]] = {}

        def page_of(number: int, token: str) -> ListPage:
            wanted = prefix + beginnings[number]
            begun = under_way.pop((number, token), None)
            text = self._page(wanted, token, encode=encode) if begun is None else begun.result()
            if (following := token_of(text)) is not None:
                under_way[number, following] = in_background(partial(self._page, wanted, following, encode=encode))
            return parse_page(text, prefix=prefix, where=f"{self._bucket}/{wanted}", asked_for_url_encoding=encode)

        def fetch(position: _Position) -> tuple[Sequence[ObjectInfo], _Position | None]:
            nonlocal encode
            number, token = position
            try:
                page = page_of(number, token)
            except Undecodable:
                encode = True
                under_way.clear()
                page = page_of(number, token)
            whole = beginnings == EVERYTHING
            if whole and not token and page.count == 0 and page.token is None and prefix:
                raise NotFound(f"{self._bucket}/{prefix}: nothing there; check the spelling of the prefix")
            asked.add(position)
            if page.token is None:
                return page.objects, (number + 1, "") if number + 1 < len(beginnings) else None
            if (number, page.token) in asked:
                # Followed, such a listing would never end. A gateway may have sent an old answer: asking again may help.
                raise Unavailable(f"{self._bucket}/{prefix}: the server's listing goes in a circle")
            return page.objects, (number, page.token)

        return Pages(fetch, (0, "") if beginnings else None)

    def _page(self, prefix: str, token: str, *, encode: bool) -> str:
        query = {"list-type": "2", "max-keys": "1000"}
        if prefix:
            query["prefix"] = prefix
        if token:
            query["continuation-token"] = token
        if encode:
            query["encoding-type"] = "url"
        reply = self._send("GET", "", query, {}, what=f"{self._bucket}/{prefix}", limit=_PAGE_LIMIT)
        return reply.body.decode(errors="replace")

    def get(self, key: str, part: tuple[int, int] | None, tag: str | None) -> Answer:
        what = self._name(key)
        reply = self._send("GET", key, {}, get_headers(part, tag), what=what, limit=BODY_LIMIT, part=part)
        return answer_of(reply, part, what)

    def head(self, key: str) -> Answer:
        what = self._name(key)
        return answer_of(self._send("HEAD", key, {}, {}, what=what, limit=0), None, what)

    def close(self) -> None:
        self._web.close()

    def _send(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        what: str,
        limit: int,
        part: tuple[int, int] | None = None,
    ) -> Reply:
        """One signed request; a status other than 2xx becomes our error."""
        path = f"{self._url.path}/{encode_key(key)}" if key else self._url.path or "/"
        encoded = canonical_query(query)
        ready = {**headers, **self._payer}
        if self._provider is not None:
            ready = signed_headers(
                method,
                host=self._url.netloc,
                path=path,
                query=encoded,
                headers=ready,
                credentials=self._provider(),
                region=self._region,
                now=self._now(),
            )
        url = f"{self._url.scheme}://{self._url.netloc}{path}" + (f"?{encoded}" if encoded else "")
        reply = self._web.request(method, url, headers=ready, what=what, limit=limit, part=part)
        if reply.ok:
            return reply
        region = reply.headers.get("x-amz-bucket-region", "")
        if region and region != self._region:
            raise InvalidInput(f"{what}: the bucket is in the region {region}; set AWS_REGION={region}")
        found = _CODE.search(reply.body[:4096])
        raise explain_status(
            reply.status,
            found[1].decode() if found else "",
            what=what,
            hint=self._hint,
            retry_after=retry_after_of(reply.headers),
        )

    def _name(self, key: str) -> str:
        return f"{self._bucket}/{shown(key)}"


def http_time(text: str | None) -> int:
    """A Last-Modified header in ns since 1970; 0 if it is absent or no date."""
    try:
        return epoch_ns(parsedate_to_datetime(text)) if text else 0
    except (ValueError, TypeError):
        return 0


def get_headers(part: tuple[int, int] | None, tag: str | None) -> dict[str, str]:
    """To ask for a part of an object, in the version with this entity tag."""
    headers = {}
    if part is not None:
        headers["Range"] = f"bytes={part[0]}-{part[1] - 1}"
    if tag is not None:
        headers["If-Match"] = f'"{tag}"'
    return headers


def answer_of(reply: Reply, part: tuple[int, int] | None, what: str) -> Answer:
    """What a good reply says. A range may be answered with 206, with 200 and the range, or with 200 and everything."""
    headers = reply.headers
    if reply.cut_from is not None:
        size = reply.cut_from
    elif part is None:
        size = int(headers.get("Content-Length") or len(reply.body))
    else:
        stated = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
        if stated is None:
            raise Unavailable(f"{what}: the server does not say which range it answered with")
        first, last, size = (int(number) for number in stated.groups())
        if (first, last + 1) != part:
            raise Unavailable(f"{what}: the server answered with another range than was asked for")
    return Answer(size, headers.get("ETag"), http_time(headers.get("Last-Modified")), reply.body)
