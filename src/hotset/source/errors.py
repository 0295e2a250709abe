"""The one place where errors of stores and of HTTP become ours.

obstore reports most failures as one `GenericError` whose only content is text, so the text is read here, and only here:
a status code, an error code of the service, the kind of a transport error. The text itself never reaches the user: it
may hold a signed URL. The original exception stays chained for ``--debug``.
"""

from __future__ import annotations

import re

from hotset.errors import Changed, Denied, HotsetError, InvalidInput, NotFound, Unavailable

__all__ = ["NotPartial", "explain_status", "timed_out", "translate", "untrusted"]

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9_.]{1,60})</Code>")
_KIND = re.compile(r"HttpError \{\s*kind: (\w+)")
_OS_MESSAGE = re.compile(r'message: "([^"\\]{1,80})"')

#: Error codes by which services ask for fewer requests; some come with a status other than 503.
_THROTTLING = frozenset(
    {"SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "RequestLimitExceeded", "ServerBusy",
     "ServiceUnavailable", "QpsLimitExceeded", "BandwidthLimitExceeded", "RequestThrottled"}
)  # fmt: skip
_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired", "RequestExpired", "InvalidToken", "InvalidSecurityToken"})
#: Answers of a server that may be right a moment later although the status is not 5xx.
_TRANSIENT_CODES = frozenset({"RequestTimeout", "InternalError", "OperationAborted"})


class NotPartial(Exception):
    """The server answered a range request with 200: only a client that looks at the headers can use the body."""


def explain_status(status: int, code: str, *, what: str, hint: str, retry_after: float | None = None) -> HotsetError:
    """Our error for an HTTP status. ``what`` names the object or place, ``hint`` says how to give credentials."""
    named = f"HTTP {status}" + (f" {code}" if code else "")
    if status == 404:
        if code == "NoSuchBucket":
            return NotFound(f"{what}: the bucket does not exist ({named})")
        return NotFound(f"{what}: not found at the source ({named})")
    if status == 412:
        return Changed(f"{what}: changed at the source since it was listed; reload the dataset")
    if status in {429, 503} or code in _THROTTLING:
        return Unavailable(
            f"{what}: the source asks for fewer requests ({named})", throttled=True, retry_after=retry_after
        )
    if code == "InvalidObjectState":
        return Denied(f"{what}: lies in an archive tier ({named}); restore it first, or exclude it")
    if code == "RequestTimeTooSkewed":
        return Denied(f"{what}: the clock of this machine is wrong ({named}); set it")
    if code in _EXPIRED:
        return Denied(f"{what}: the credentials have expired ({named}); {hint}")
    if status == 407:
        return Denied(
            f"{what}: the proxy wants a name and a password ({named}); set HTTPS_PROXY=http://name:password@host"
        )
    if status in (401, 403) and code not in _TRANSIENT_CODES:
        return Denied(f"{what}: access denied ({named}); {hint}")
    if status in (408, 409, 425) or status >= 500 or code in _TRANSIENT_CODES:
        return Unavailable(f"{what}: the source failed ({named})", retry_after=retry_after)
    if status == 416:
        return Changed(f"{what}: shorter at the source than when it was listed; reload the dataset")
    if 300 <= status < 400:
        return InvalidInput(
            f"{what}: the source redirects elsewhere ({named}): set the region or endpoint of the bucket"
        )
    return InvalidInput(f"{what}: the source refuses the request ({named}); check endpoint, region and bucket name")


def untrusted(what: str) -> Denied:
    """A certificate that does not verify; trying again would not help."""
    return Denied(f"{what}: the server's certificate is not trusted; set AWS_CA_BUNDLE or ca_file")


def timed_out(what: str) -> Unavailable:
    """No answer in time. A server with too much to do asks in this way, too, for fewer requests."""
    return Unavailable(f"{what}: timed out", throttled=True)


def translate(error: Exception, *, what: str, hint: str) -> Exception:
    """Our error for one that obstore raised; to be raised ``from`` it."""
    text = str(error)
    if "source: NotPartial" in text:
        return NotPartial(what)
    status = _STATUS.search(text)
    code = _CODE.search(text)
    if status is not None:
        if "169.254." in text.partition("non-2xx")[0]:
            return Denied(f"{what}: this machine hands out no credentials; {hint}")
        return explain_status(int(status[1]), code[1] if code else "", what=what, hint=hint)
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{what}: not found at the source")
    kind = type(error).__name__
    if kind == "PreconditionError":
        return Changed(f"{what}: changed at the source since it was listed; reload the dataset")
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return Denied(f"{what}: access denied; {hint}")
    if kind == "InvalidPathError" or isinstance(error, ValueError):
        return InvalidInput(f"{what}: this store's client cannot address a key with empty, '.' or '..' parts")
    if "BareRedirect" in text:
        return InvalidInput(f"{what}: the source redirects without saying where: set the right region for the bucket")
    if "InvalidCertificate" in text:
        return untrusted(what)
    if (failure := _KIND.search(text)) and failure[1] == "Timeout":
        return timed_out(what)
    return Unavailable(f"{what}: {_transport_failure(text)}")


def _transport_failure(text: str) -> str:
    """A few words for a failure below HTTP."""
    if "dns error" in text:
        return "the name of the source's host cannot be resolved"
    if "IncompleteBody" in text or "UnexpectedEof" in text:
        return "the body ended early"
    if "UnexpectedRange" in text or "MissingContentLength" in text:
        return "the server's answer does not fit the request"
    kind = _KIND.search(text)
    reason = _OS_MESSAGE.search(text)
    words = {"Connect": "cannot connect", "Interrupted": "the connection broke"}
    failure = words.get(kind[1], "the request failed") if kind else "the request failed"
    return f"{failure} ({reason[1]})" if reason else failure
