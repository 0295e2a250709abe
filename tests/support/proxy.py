"""`FaultProxy`: a reverse proxy in front of an S3 server that counts requests and does wrong on demand.

It runs in a process of its own (`proxy_process`), so that it neither competes for the test's interpreter lock nor stops
when the test waits. Every call here takes effect, or tells the truth, before it returns: a request is counted before it
is answered, so what a client has an answer to is in the counts.
"""

from __future__ import annotations

import itertools
import pickle
import queue
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import urlsplit

from tests.support.faults import Counts, Fault, Request, Rule
from tests.support.processes import DEADLINE, REPOSITORY, clean_environment, dying_with_parent, wait_until
from tests.support.s3 import S3Server


class Where(TypedDict, total=False):
    """Which requests a fault is for. All of it may be left out: then it is for every GET of an object."""

    kind: str
    """GET (of an object), HEAD, LIST, PUT, DELETE, POST, or * for all."""
    key: str
    """Glob over the whole key; * matches slashes, too."""
    skip: int
    """Let so many matching requests pass first (default: 0)."""
    every: int
    """Then hit only each so-manieth (default: 1)."""
    times: int | None
    """Hit so many, then none (default: no limit)."""


class ActiveRule:
    """A fault at work."""

    def __init__(self, proxy: FaultProxy, number: int) -> None:
        self._proxy = proxy
        self._number = number

    @property
    def hits(self) -> int:
        """How many requests it has hit. Unknown after `FaultProxy.clear`."""
        hits: int = self._proxy._ask("hits", self._number)
        return hits

    def end(self) -> None:
        """Hit no more."""
        self._proxy._ask("end_rule", self._number)


class FaultProxy:
    """A context manager; usable from any thread of the process that made it, not from forked children of it.

    Faults that match the same request are combined; where they disagree, the younger one wins.
    """

    def __init__(self, server: S3Server) -> None:
        self._server = server
        upstream = urlsplit(server.endpoint)
        self._control, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tests.support.proxy_process", str(theirs.fileno())]
            self._process = subprocess.Popen(
                dying_with_parent([*command, str(upstream.hostname), str(upstream.port)]),
                env=clean_environment(),
                cwd=REPOSITORY,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._one_question = threading.Lock()
        self._sending = threading.Lock()
        self._replies: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._callbacks: dict[int, Callable[[Request], object]] = {}
        self._callback_numbers = itertools.count()
        self._callback_errors: list[BaseException] = []
        self._reader = threading.Thread(target=self._read, name="fault proxy", daemon=True)
        self._reader.start()
        self.endpoint = f"http://127.0.0.1:{self._reply()}"

    def env(self) -> dict[str, str]:
        """The variables with which any S3 client goes through this proxy."""
        return {**self._server.env(), "AWS_ENDPOINT_URL": self.endpoint}

    # What came in.

    def counts(self) -> Counts:
        """All counters at one moment."""
        counts: Counts = self._ask("all_counts")
        return counts

    def count(self, kind: str, key: str | None = None) -> int:
        """Requests of a kind, for one key or for all."""
        count: int = self._ask("count", kind, key)
        return count

    @property
    def gets(self) -> Counter[str]:
        """How often each key was asked for by GET, in whole or in part."""
        return self.counts().keys.get("GET", Counter())

    @property
    def lists(self) -> int:
        """Pages of listings."""
        return self.count("LIST")

    def requests(self) -> list[Request]:
        """All requests in the order in which they arrived."""
        requests: list[Request] = self._ask("requests")
        return requests

    def wait_for(self, kind: str, count: int, *, key: str | None = None, timeout: float = DEADLINE) -> None:
        """Until so many requests have arrived."""
        what = f"{count} x {kind} {key or ''}"
        wait_until(lambda: self.count(kind, key) >= count, what=what, timeout=timeout)

    def forget_counts(self) -> None:
        """Count from zero; faults stay."""
        self._ask("forget_counts")

    def clear(self) -> None:
        """As new: no faults, nothing counted, nobody hanging. Raises what a callback raised meanwhile."""
        self._ask("clear")
        self._callbacks.clear()
        if self._callback_errors:
            raise self._callback_errors.pop()

    # Instead of asking the server.

    def status(
        self,
        status: int,
        *,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
        **where: Unpack[Where],
    ) -> ActiveRule:
        """Answer with this status and an S3 error document."""
        said = dict(headers or {})
        if retry_after is not None:
            said["retry-after"] = f"{retry_after:g}"
        return self._add(Fault(status=status, headers=tuple(said.items())), where)

    # Before the server is asked.

    def latency(self, seconds: float, **where: Unpack[Where]) -> ActiveRule:
        """Hold each request up, without holding up others. For requests of all kinds, if none is given."""
        return self._add(Fault(latency=seconds), {"kind": "*", **where})

    def hang(self, **where: Unpack[Where]) -> ActiveRule:
        """Say nothing until `release`."""
        return self._add(Fault(hang=True), where)

    def release(self) -> None:
        """Let all go on that hang or stall, and end the rules that made them."""
        self._ask("release")

    def on_request(self, callback: Callable[[Request], object], **where: Unpack[Where]) -> ActiveRule:
        """Call back, in a thread of this process, before the server is asked: to change an object under a reader.

        If the callback raises, the client gets status 500 and `clear` raises the error.
        """
        number = next(self._callback_numbers)
        self._callbacks[number] = callback
        return self._add(Fault(callback=number), where)

    def drop_if_match(self, **where: Unpack[Where]) -> ActiveRule:
        """Be a server that ignores this condition."""
        return self._add(Fault(drop_if_match=True), where)

    # With the server's answer.

    def reset(self, after: int | None = None, **where: Unpack[Where]) -> ActiveRule:
        """Reset the connection after so many bytes of the body; None: before the first byte of the answer."""
        return self._add(Fault(breaks="reset", break_after=after), where)

    def truncate(self, after: int, **where: Unpack[Where]) -> ActiveRule:
        """Close the connection politely after so many bytes of the body, fewer than declared."""
        return self._add(Fault(breaks="close", break_after=after), where)

    def shorten(self, length: int, **where: Unpack[Where]) -> ActiveRule:
        """The lying variant: declare and send a body of only this length."""
        return self._add(Fault(length=length), where)

    def stall(self, after: int, **where: Unpack[Where]) -> ActiveRule:
        """Send so many bytes of the body, and the rest after `release`."""
        return self._add(Fault(breaks="stall", break_after=after), where)

    def slow(self, bytes_per_second: float, **where: Unpack[Where]) -> ActiveRule:
        """Send the body at this rate."""
        return self._add(Fault(rate=bytes_per_second), where)

    def corrupt(self, at: int = 0, **where: Unpack[Where]) -> ActiveRule:
        """Flip the bits of the byte at this place of the body (modulo its length)."""
        return self._add(Fault(corrupt_at=at), where)

    def replace_etag(self, etag: str | None, **where: Unpack[Where]) -> ActiveRule:
        """Send another ETag, or none; in a LIST for all objects of the page."""
        return self._add(Fault(etag=etag), where)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _add(self, fault: Fault, where: Where) -> ActiveRule:
        rule = Rule(
            fault,
            kind=where.get("kind", "GET"),
            key=where.get("key", "*"),
            times=where.get("times"),
            skip=where.get("skip", 0),
            every=where.get("every", 1),
        )
        return ActiveRule(self, self._ask("add_rule", rule))

    def _ask(self, name: str, *args: Any) -> Any:
        with self._one_question:
            self._send(name, args)
            return self._reply()

    def _send(self, name: str, args: tuple[Any, ...]) -> None:
        data = pickle.dumps((name, args))
        with self._sending:
            self._control.sendall(struct.pack("!I", len(data)) + data)

    def _reply(self) -> Any:
        try:
            kind, value = self._replies.get(timeout=DEADLINE)
        except queue.Empty:
            raise TimeoutError("the proxy does not answer") from None
        if kind == "gone":
            raise ConnectionError("the proxy's process has ended; its standard error says why")
        return value

    def _read(self) -> None:
        with self._control.makefile("rb") as messages:
            while header := messages.read(4):
                kind, value = pickle.loads(messages.read(*struct.unpack("!I", header)))
                if kind == "reply":
                    self._replies.put((kind, value))
                else:
                    # A thread each, since a callback may take its time and may ask the proxy things.
                    threading.Thread(target=self._call_back, args=value, daemon=True).start()
        self._replies.put(("gone", None))

    def _call_back(self, number: int, token: int, request: Request) -> None:
        try:
            self._callbacks[number](request)
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the test sees it in `clear`
            self._callback_errors.append(error)
            self._send("called_back", (token, False))
        else:
            self._send("called_back", (token, True))
