"""Errors of HTTP and of obstore become ours, in words that help and without what must not be shown."""

from __future__ import annotations

import pytest

from hotset.errors import Changed, Denied, InvalidInput, NotFound, Unavailable
from hotset.source.errors import NotPartial, explain_status, translate
from hotset.source.s3client import answer_of, http_time
from hotset.source.web import Reply, retry_after_of


def named(name: str, text: str = "") -> Exception:
    """An exception of obstore's, of which only name and text count."""
    return type(name, (Exception,), {})(text)


HTTP = "Generic S3 error: Error performing GET https://h/k?X-Amz-Signature=s3cr3t in 1ms - HTTP error: {}"
STATUS = "Error performing GET http://h/k?sig=s3cr3t in 1ms - Server returned non-2xx status code: {}: <Code>{}</Code>"


@pytest.mark.parametrize(
    ("error", "expected", "says"),
    [
        (named("GenericError", STATUS.format("503 Slow Down", "SlowDown")), Unavailable, "fewer requests"),
        (named("GenericError", STATUS.format("400 Bad Request", "ExpiredToken")), Denied, "expired.*set KEYS"),
        (named("GenericError", STATUS.format("307 Temporary", "x")), InvalidInput, "redirects"),
        (named("GenericError", "source: BareRedirect"), InvalidInput, "region"),
        (named("PreconditionError"), Changed, "reload"),
        (named("PermissionDeniedError"), Denied, "set KEYS"),
        (named("UnauthenticatedError"), Denied, "set KEYS"),
        (named("InvalidPathError"), InvalidInput, "key"),
        (FileNotFoundError("x"), NotFound, "not found"),
        (ValueError("Could not parse path"), InvalidInput, "key"),
        (named("GenericError", "source: NotPartial"), NotPartial, "thing"),
        (named("GenericError", "UnexpectedRange { expected: 1..3"), Unavailable, "does not fit"),
        (named("GenericError", HTTP.format("HttpError { kind: Timeout")), Unavailable, "timed out"),
        (
            named("GenericError", HTTP.format('HttpError { kind: Connect, message: "Connection refused"')),
            Unavailable,
            r"cannot connect \(Connection refused\)",
        ),
        (named("GenericError", HTTP.format('HttpError { kind: Connect, "dns error"')), Unavailable, "resolved"),
        (named("GenericError", HTTP.format("HttpError { kind: Interrupted, IncompleteBody")), Unavailable, "early"),
        (named("GenericError", HTTP.format("InvalidCertificate(UnknownIssuer)")), Denied, "AWS_CA_BUNDLE"),
        (named("GenericError", "something new"), Unavailable, "the request failed"),
    ],
)
def test_translate(error, expected, says):
    ours = translate(error, what="thing", hint="set KEYS")
    assert isinstance(ours, expected)
    assert "thing" in str(ours)
    with pytest.raises(expected, match=says):
        raise ours
    assert "s3cr3t" not in str(ours)


@pytest.mark.parametrize(("kind", "throttled"), [("Timeout", True), ("Connect", False), ("Interrupted", False)])
def test_a_server_that_takes_too_long_has_too_much_to_do(kind, throttled):
    ours = translate(named("GenericError", HTTP.format(f"HttpError {{ kind: {kind}")), what="thing", hint="")
    assert isinstance(ours, Unavailable)
    assert ours.throttled == throttled


def test_a_machine_without_a_role_is_denied():
    text = STATUS.format("403 Forbidden", "x").replace("http://h/", "http://169.254.169.254/")
    assert isinstance(translate(named("GenericError", text), what="w", hint="h"), Denied)


@pytest.mark.parametrize("status", range(300, 600))
def test_every_status_has_an_error(status):
    error = explain_status(status, "", what="thing", hint="set KEYS", retry_after=5)
    assert "thing" in str(error)
    if isinstance(error, Unavailable):
        assert error.retry_after == 5


class TestAnswers:
    """Ranges, as different servers answer them."""

    def answer(self, status, headers, body=b"0123456789", part=(2, 5), cut_from=None):
        return answer_of(Reply(status, headers, body, cut_from), part, "thing")

    def test_as_it_should_be(self):
        answer = self.answer(206, {"Content-Range": "bytes 2-4/10", "Content-Length": "3"}, b"234")
        assert (answer.size, bytes(answer.data)) == (10, b"234")

    def test_the_range_with_status_200(self):
        answer = self.answer(200, {"Content-Range": "bytes 2-4/10", "Content-Length": "3"}, b"234")
        assert (answer.size, bytes(answer.data)) == (10, b"234")

    def test_everything_with_status_200(self):
        answer = self.answer(200, {}, b"234", cut_from=10)
        assert (answer.size, bytes(answer.data)) == (10, b"234")

    @pytest.mark.parametrize("headers", [{"Content-Range": "bytes 3-5/10"}, {}, {"Content-Range": "lines 2-4/10"}])
    def test_another_range_is_refused(self, headers):
        with pytest.raises(Unavailable, match="range"):
            self.answer(206, headers, b"234")

    def test_the_whole(self):
        answer = self.answer(200, {"ETag": '"x"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, part=None)
        assert answer == (10, '"x"', 1_704_067_200_000_000_000, b"0123456789")


@pytest.mark.parametrize("text", [None, "", "yesterday"])
def test_no_time_is_zero(text):
    assert http_time(text) == 0


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("", None), ("-1", None), ("Mon, 01 Jan 2024", None)])
def test_retry_after(text, seconds):
    assert retry_after_of({"Retry-After": text}) == seconds
