"""Requests of our own: what is kept of an answer, how long one is waited for, and what goes through a proxy."""

from __future__ import annotations

import pytest

from hotset.errors import Denied, InvalidInput, Unavailable
from hotset.source import SourceOptions
from hotset.source.web import Web
from tests.contract.standins import Shelf


@pytest.fixture
def shelf():
    with Shelf() as shelf:
        yield shelf


@pytest.fixture
def web():
    web = Web(SourceOptions(), {})
    yield web
    web.close()


def get(web, url, part=None, limit=1 << 30):
    headers = {} if part is None else {"Range": f"bytes={part[0]}-{part[1] - 1}"}
    return web.request("GET", url, headers=headers, what="thing", limit=limit, part=part)


class TestEverythingInsteadOfAPart:
    """Servers that answer a range with status 200 and the whole object."""

    CONTENT = bytes(range(256)) * (1 << 17)  # 32 MiB

    @pytest.fixture
    def url(self, shelf):
        shelf.ranges = False
        shelf.objects["large"] = self.CONTENT
        return f"{shelf.endpoint}/large"

    @pytest.mark.parametrize(
        "part", [(0, 10), (5, 1 << 20), (20_000_001, 20_500_000), (len(CONTENT) - 3, len(CONTENT))]
    )
    def test_only_the_part_is_kept(self, web, url, part):
        reply = get(web, url, part)
        assert (reply.body, reply.cut_from) == (self.CONTENT[slice(*part)], len(self.CONTENT))

    def test_the_rest_is_not_taken_for_the_next_answer(self, web, url, shelf):
        shelf.objects["small"] = b"small"
        for _ in range(3):
            assert get(web, url, (100, 110)).body == self.CONTENT[100:110]
            assert get(web, f"{shelf.endpoint}/small").body == b"small"

    def test_it_may_be_longer_than_what_would_be_kept(self, web, url):
        assert get(web, url, (100, 110), limit=20).body == self.CONTENT[100:110]
        with pytest.raises(Unavailable, match="longer than expected"):
            get(web, url, limit=20)

    def test_without_a_declared_length_the_end_tells_the_size(self, web, shelf):
        body = b"4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n"
        shelf.override = lambda _method, _path: (200, {"transfer-encoding": "chunked"}, body)
        reply = get(web, f"{shelf.endpoint}/x", (2, 5))
        assert (reply.body, reply.cut_from) == (b"234", 10)

    def test_a_part_that_breaks_off_is_unavailable(self, web, shelf):
        shelf.override = lambda _method, _path: (200, {"content-length": "100", "connection": "close"}, b"0123456789")
        with pytest.raises(Unavailable, match="broke"):
            get(web, f"{shelf.endpoint}/x", (2, 50))

    def test_a_shorter_object_gives_what_there_is(self, web, shelf):
        shelf.ranges = False
        shelf.objects["x"] = b"0123456789"
        reply = get(web, f"{shelf.endpoint}/x", (8, 20))
        assert (reply.body, reply.cut_from) == (b"89", 10)

    def test_an_error_is_no_part(self, web, shelf):
        assert get(web, f"{shelf.endpoint}/absent", (2, 5)).cut_from is None


class TestProxy:
    def through(self, proxy):
        return Web(SourceOptions(proxy=proxy), {})

    def test_its_password_is_given(self, shelf):
        shelf.objects["x"] = b"content"
        assert get(self.through(shelf.endpoint.replace("//", "//me:s3cr3t@")), "http://h.invalid/x").body == b"content"
        assert shelf.seen[0][2]["proxy-authorization"] == "Basic bWU6czNjcjN0"

    def test_its_password_is_given_for_a_tunnel(self, shelf):
        shelf.override = lambda _method, _path: (407, {}, b"")
        with pytest.raises(Denied, match="proxy wants a name and a password") as caught:
            get(self.through(shelf.endpoint.replace("//", "//me:s3cr3t@")), "https://h.invalid/x")
        assert "s3cr3t" not in str(caught.value)
        [(method, _, headers)] = shelf.seen
        assert (method, headers["proxy-authorization"]) == ("CONNECT", "Basic bWU6czNjcjN0")

    def test_without_a_password_none_is_given(self, shelf):
        shelf.objects["x"] = b"content"
        assert get(self.through(shelf.endpoint), "http://h.invalid/x").body == b"content"
        assert "proxy-authorization" not in shelf.seen[0][2]

    @pytest.mark.parametrize(
        "proxy", ["me:s3cr3t@h:1", "socks5://me:s3cr3t@h", "http://me:s3cr3t@[h", "http://me:s3cr3t@h:99999"]
    )
    def test_one_that_is_no_url_is_not_shown(self, proxy):
        with pytest.raises(InvalidInput, match="HTTPS_PROXY") as caught:
            get(self.through(proxy), "http://h.invalid/x")
        error = caught.value
        while error is not None:
            assert "s3cr3t" not in str(error)
            error = error.__cause__ or error.__context__
