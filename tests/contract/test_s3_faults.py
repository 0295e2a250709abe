"""What a source makes of a server that fails, lies or changes under it."""

from __future__ import annotations

import base64
import os
import threading
from urllib.parse import parse_qs, urlsplit

import pytest

from hotset.base.retry import RetryPolicy
from hotset.errors import Changed, Denied, InvalidInput, NotFound, Unavailable
from hotset.source import Retrying, SourceOptions, check, open_source
from hotset.testing.source import listed
from tests.contract.standins import Shelf

pytestmark = pytest.mark.integration

CONTENT = bytes(range(256)) * 400
ODD = "odd\nkey"  # read by the literal client
SECRET = "secret12345"


def open_through(proxy, bucket, **options):
    return open_source(bucket.url, env=proxy.env(), options=SourceOptions(**options))


@pytest.fixture(params=["obstore", "literal"])
def key(request):
    """One key for each of the two clients that fetch."""
    return "plain" if request.param == "obstore" else ODD


@pytest.fixture
def source(bucket, proxy, key):
    bucket.put_many({key: CONTENT})
    source = open_through(proxy, bucket, read_timeout=1.0)
    yield source
    source.close()


@pytest.fixture
def info(source, key):
    return listed(source)[key]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidInput),
        (401, Denied),
        (403, Denied),
        (404, NotFound),
        (408, Unavailable),
        (409, Unavailable),
        (416, Unavailable),  # although a HEAD says that it is the version that was listed
        (429, Unavailable),
        (500, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
    ],
)
def test_every_status_is_one_of_our_errors(source, info, proxy, status, error):
    proxy.status(status)
    with pytest.raises(error) as caught:
        source.read(info.key, 0, info.size, info)
    if error is Unavailable:
        assert caught.value.throttled == (status in (429, 503))
    assert "Signature" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("status", [403, 503])
def test_a_failed_listing_names_the_source(source, proxy, bucket, status):
    proxy.status(status, kind="LIST", retry_after=3)
    with pytest.raises((Denied, Unavailable), match=bucket.url) as caught:
        check(source)
    if status == 403:
        assert "AWS_ACCESS_KEY_ID" in str(caught.value)
    else:
        assert (caught.value.throttled, caught.value.retry_after) == (True, 3.0)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("fault", ["truncate", "reset", "reset_at_once", "stall", "hang"])
def test_a_body_that_breaks_off_is_unavailable(source, info, proxy, fault, whole):
    {
        "truncate": lambda: proxy.truncate(1000),
        "reset": lambda: proxy.reset(1000),
        "reset_at_once": proxy.reset,
        "stall": lambda: proxy.stall(1000),
        "hang": proxy.hang,
    }[fault]()
    start, end = (0, info.size) if whole else (100, 50_000)
    with pytest.raises(Unavailable) as caught:
        source.read(info.key, start, end, info)
    assert caught.value.throttled == (fault in {"stall", "hang"})  # a server that has too much to do
    proxy.release()
    proxy.clear()
    assert bytes(source.read(info.key, start, end, info)) == CONTENT[start:end]


@pytest.mark.parametrize("whole", [True, False])
def test_a_body_that_trickles_is_not_waited_for(bucket, proxy, key, whole):
    """Each byte comes in time, and yet the thread would be held for ever."""
    bucket.put_many({key: CONTENT})
    source = open_through(proxy, bucket, read_timeout=30.0, request_timeout=0.5)
    info = listed(source)[key]
    proxy.slow(len(CONTENT) / 600)
    with pytest.raises(Unavailable, match="timed out") as caught:
        source.read(key, 0, info.size if whole else 50_000, info)
    assert caught.value.throttled
    proxy.clear()
    assert bytes(source.read(key, 0, info.size, info)) == CONTENT
    source.close()


def test_a_shorter_body_than_listed_is_never_taken(source, info, proxy):
    proxy.shorten(1000)
    with pytest.raises((Changed, Unavailable)):
        source.read(info.key, 0, info.size, info)
    with pytest.raises((Changed, Unavailable)):
        source.read(info.key, 10, 5000, info)


def test_every_get_is_conditional(source, info, proxy):
    source.read(info.key, 0, info.size, info)
    source.read(info.key, 10, 20, info)
    gets = [request for request in proxy.requests() if request.kind == "GET"]
    assert [request.if_match for request in gets] == [f'"{info.fingerprint.decode()}"'] * 2
    assert [request.range for request in gets] == [None, "bytes=10-19"]
    assert proxy.count("HEAD") == 0


def test_conditions_can_be_left_out(bucket, proxy):
    bucket.put_many({"a": CONTENT})
    source = open_through(proxy, bucket, if_match=False)
    info = listed(source)["a"]
    source.read("a", 0, info.size, info)
    assert [request.if_match for request in proxy.requests() if request.kind == "GET"] == [None]


@pytest.mark.parametrize("compares", [True, False])
def test_a_change_is_found_whether_or_not_the_server_compares(source, info, bucket, proxy, compares):
    bucket.put_many({info.key: CONTENT[::-1]})
    if not compares:
        proxy.drop_if_match()
    with pytest.raises(Changed, match="reload"):
        source.read(info.key, 0, info.size, info)
    assert (proxy.count("GET"), proxy.count("HEAD")) == (1, 1)


def test_a_change_between_two_parts_is_found(source, info, bucket):
    assert bytes(source.read(info.key, 0, 100, info)) == CONTENT[:100]
    bucket.put_many({info.key: CONTENT[::-1]})
    with pytest.raises(Changed):
        source.read(info.key, 100, 200, info)


class TestAliases:
    """A server whose listing gives other tags than its answers to GET, of another kind."""

    LISTED = '"00000000000000000000000000000000-2"'

    @pytest.fixture
    def info(self, source, proxy, key):
        rule = proxy.replace_etag(self.LISTED, kind="LIST")
        info = listed(source)[key]
        rule.end()
        proxy.forget_counts()
        return info

    @pytest.mark.parametrize("compares", [True, False])
    def test_one_head_decides_and_is_remembered(self, source, info, proxy, compares):
        if not compares:
            proxy.drop_if_match()
        assert bytes(source.read(info.key, 0, info.size, info)) == CONTENT
        assert bytes(source.read(info.key, 5, 10, info)) == CONTENT[5:10]
        assert proxy.count("HEAD") == 1
        assert proxy.count("GET") == (3 if compares else 2)

    def test_another_time_is_a_change(self, source, info, bucket):
        path = bucket.path(info.key)
        bucket.put_many({info.key: CONTENT[::-1]})
        os.utime(path, ns=(0, info.modified_ns + 5_000_000_000))
        with pytest.raises(Changed):
            source.read(info.key, 0, info.size, info)

    def test_a_server_without_tags_in_its_answers_is_not_trusted(self, source, info, proxy):
        proxy.drop_if_match()
        proxy.replace_etag(None)
        proxy.replace_etag(None, kind="HEAD")
        with pytest.raises(Changed):
            source.read(info.key, 0, info.size, info)


def test_a_listing_without_tags_is_known_by_time(source, bucket, proxy, key):
    proxy.replace_etag(None, kind="LIST")
    info = listed(source)[key]
    assert info.fingerprint == b"%d" % info.modified_ns
    assert bytes(source.read(key, 0, info.size, info)) == CONTENT
    os.utime(bucket.path(key), ns=(0, info.modified_ns + 2_000_000_000))
    with pytest.raises(Changed, match="time"):
        source.read(key, 0, info.size, info)


def test_an_interrupted_listing_goes_on_where_it_stopped(bucket, proxy):
    bucket.put_many({f"{n:04}": b"" for n in range(2500)})
    proxy.status(503, kind="LIST", skip=1, times=2)
    told = threading.Event()
    source = Retrying(open_through(proxy, bucket), RetryPolicy(first=0.001), on_retry=lambda _error, _pause: told.set())
    assert len(listed(source)) == 2500
    assert proxy.lists == 3 + 2
    assert told.is_set()


def test_an_empty_prefix_is_not_found_but_an_empty_bucket_is_empty(bucket):
    env = bucket.server.env()
    with pytest.raises(NotFound, match="check the spelling"):
        listed(open_source(f"{bucket.url}/nothing", env=env))
    assert listed(open_source(bucket.url, env=env)) == {}


def test_a_missing_bucket_is_named(good_server):
    with pytest.raises(NotFound, match="no-such-bucket"):
        listed(open_source("s3://no-such-bucket", env=good_server.env()))


def test_a_wrong_secret_is_denied_and_not_shown(bucket):
    env = {**bucket.server.env(), "AWS_SECRET_ACCESS_KEY": SECRET}
    bucket.put_many({"a": b"a"})
    info = listed(open_source(bucket.url, env=bucket.server.env()))["a"]
    source = open_source(bucket.url, env=env)
    for action in (lambda: listed(source), lambda: source.read("a", 0, 1, info)):
        with pytest.raises(Denied, match="check AWS_ACCESS_KEY_ID") as caught:
            action()
        assert SECRET not in str(caught.value)


def test_a_public_bucket_needs_no_credentials(bucket):
    bucket.put_many({"a": b"content"})
    bucket.allow_anonymous_reads()
    source = open_source(bucket.url, env={}, options=SourceOptions(endpoint=bucket.server.endpoint, anonymous=True))
    info = listed(source)["a"]
    assert bytes(source.read("a", 0, 7, info)) == b"content"


def test_directory_markers_are_not_listed(bucket):
    bucket.put("dir/", b"")
    bucket.put("dir/a", b"a")
    assert list(listed(open_source(bucket.url, env=bucket.server.env()))) == ["dir/a"]


def test_nobody_listening_is_unavailable():
    env = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    with pytest.raises(Unavailable, match="cannot connect") as caught:
        listed(open_source("s3://bucket", env=env))
    assert not caught.value.throttled


def test_the_environment_of_the_process_has_no_say(bucket, monkeypatch):
    """Whatever AWS_* and proxies this process has, only the ``env`` that is handed over counts."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-somebody-else")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    bucket.put_many({"a": b"content"})
    keys = {"BOS_ACCESS_KEY_ID": bucket.server.access_key, "BOS_SECRET_ACCESS_KEY": bucket.server.secret_key}
    source = open_source(f"bos://{bucket.name}", env={**keys, "BOS_ENDPOINT": bucket.server.endpoint})
    info = listed(source)["a"]
    assert bytes(source.read("a", 0, 7, info)) == b"content"


class TestRequests:
    """What is sent, as seen by a server that takes anything."""

    @pytest.fixture
    def shelf(self):
        with Shelf(bucket="some-bucket") as shelf:
            shelf.objects["a"] = b"content"
            shelf.objects[ODD] = b"content"
            yield shelf

    def read_all(self, source):
        infos = listed(source)
        return {key: bytes(source.read(key, 0, info.size, info)) for key, info in infos.items()}

    def test_requester_pays(self, shelf):
        options = SourceOptions(endpoint=shelf.endpoint, access_key="a", secret_key="b", requester_pays=True)
        assert len(self.read_all(open_source("s3://some-bucket", env={}, options=options))) == 2
        assert [headers.get("x-amz-request-payer") for _, _, headers in shelf.seen] == ["requester"] * len(shelf.seen)

    def test_a_proxy_of_the_environment_is_used_by_both_clients(self, shelf):
        env = {"HTTP_PROXY": shelf.endpoint, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        options = SourceOptions(endpoint="http://storage.invalid")
        assert len(self.read_all(open_source("s3://some-bucket", env=env, options=options))) == 2
        assert {headers["host"] for _, _, headers in shelf.seen} == {"storage.invalid"}

    def test_the_password_of_a_proxy_is_given_by_both_clients(self, shelf):
        """As bytes: percent-encoded where a URL could not hold them."""
        proxy = shelf.endpoint.replace("//", "//na%40me:p%C3%A4ss%3A@")
        env = {"HTTP_PROXY": proxy, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        source = open_source("s3://some-bucket", env=env, options=SourceOptions(endpoint="http://storage.invalid"))
        assert len(self.read_all(source)) == 2
        login = "Basic " + base64.b64encode("na@me:päss:".encode()).decode()
        assert [headers.get("proxy-authorization") for _, _, headers in shelf.seen] == [login] * 3

    def test_no_proxy_is_respected(self, shelf):
        env = {"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.0/8"}
        options = SourceOptions(endpoint=shelf.endpoint, access_key="a", secret_key="b")
        assert len(self.read_all(open_source("s3://some-bucket", env=env, options=options))) == 2

    def test_a_bucket_in_the_host_name(self):
        with Shelf() as shelf:
            shelf.objects["a"] = b"content"
            options = SourceOptions(endpoint="http://oss.invalid", access_key="a", secret_key="b", proxy=shelf.endpoint)
            source = open_source("oss://some-bucket", env={}, options=options)
            with pytest.raises(NotFound):  # this stand-in lists only below the bucket's path
                listed(source)
            assert shelf.seen[0][2]["host"] == "some-bucket.oss.invalid"

    @pytest.mark.parametrize("following", [{"": "a", "a": "a"}, {"": "a", "a": "b", "b": "a"}, {"": "a", "a": ""}])
    def test_a_listing_that_goes_in_a_circle_ends(self, shelf, following):
        page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>"

        def circle(_method, target):
            [token] = parse_qs(urlsplit(target).query).get("continuation-token", [""])
            return 200, {}, f"{page.format(following[token])}</ListBucketResult>".encode()

        shelf.override = circle
        options = SourceOptions(endpoint=shelf.endpoint, access_key="a", secret_key="b")
        source = Retrying(
            open_source("s3://some-bucket", env={}, options=options), RetryPolicy(attempts=3, first=0.001)
        )
        with pytest.raises(Unavailable, match=r"circle.*3 attempts"):
            listed(source)

    def test_another_region_is_named(self, shelf):
        shelf.override = lambda _method, _path: (301, {"x-amz-bucket-region": "eu-west-1"}, b"")
        options = SourceOptions(endpoint=shelf.endpoint, access_key="a", secret_key="b")
        with pytest.raises(InvalidInput, match="AWS_REGION=eu-west-1"):
            listed(open_source("s3://some-bucket", env={}, options=options))

    @pytest.mark.parametrize(
        ("code", "status", "error", "says"),
        [
            ("ExpiredToken", 400, Denied, "expired"),
            ("SlowDown", 400, Unavailable, "fewer requests"),
            ("InvalidObjectState", 403, Denied, "archive"),
            ("NoSuchBucket", 404, NotFound, "bucket does not exist"),
            ("RequestTimeTooSkewed", 403, Denied, "clock"),
        ],
    )
    def test_error_codes_of_services(self, shelf, code, status, error, says):
        options = SourceOptions(endpoint=shelf.endpoint, access_key="a", secret_key="b")
        source = open_source("s3://some-bucket", env={}, options=options)
        infos = listed(source)
        body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()
        shelf.override = lambda _method, _path: (status, {}, body)
        for key in ("a", ODD):
            with pytest.raises(error, match=says) as caught:
                source.read(key, 0, 7, infos[key])
            assert SECRET not in str(caught.value)
