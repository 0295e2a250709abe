"""The filler's own process: ``python -m hotset.fill.process``, started by `FillClient` with settings on its standard input.

It never forks (obstore's runtime hangs in forked children), listens on a Unix socket in a private directory, answers only
processes of the same user, and ends as soon as its parent does: the parent is watched by a pidfd, since workers that the
parent forked hold the other end of the pipe as well.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict

import numpy as np

from hotset.errors import Changed, Denied, HotsetError, InvalidInput
from hotset.fill import wire
from hotset.fill.engine import Engine, Outcome
from hotset.fill.service import FillService
from hotset.fill.settings import decode_settings
from hotset.source import Buffer

__all__ = ["main"]

#: Seconds to wait when no connection can be taken for want of descriptors, threads or memory.
ACCEPT_PAUSE = 0.1


class Server:
    """One thread a connection; requests of one connection are answered in turn."""

    def __init__(self, make_service: Callable[[], FillService], path: str) -> None:
        """``make_service`` is called at the first request, so that its errors reach the one who asks."""
        self._make_service = make_service
        self._making = threading.Lock()
        self._service: FillService | None = None
        self._ordering = threading.Lock()
        self._obeyed: dict[tuple[str, str], int] = {}  # (snapshot, kind of order) -> when the newest one was given
        self._closed = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with suppress(FileNotFoundError):
            os.unlink(path)  # left by a filler that was killed
        self._listener.bind(path)
        self._listener.listen(128)
        self._path = path

    def serve(self) -> None:
        """Take connections until closed. One that cannot be taken now must not end this: the socket stays where it is, and
        whoever connects to it waits.
        """
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._closed.wait(ACCEPT_PAUSE)
                continue
            thread = threading.Thread(target=self._converse, args=(connection,), name="hotset-peer", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads
                connection.close()  # whose other end connects again
                self._closed.wait(ACCEPT_PAUSE)

    def close(self) -> None:
        self._closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _converse(self, connection: socket.socket) -> None:
        with connection:
            try:
                check_peer(connection)
                while True:
                    try:
                        header, payload = wire.receive(connection)
                    except (HotsetError, ValueError) as error:  # not our language: say so once, then no more
                        wire.send(
                            connection, wire.encode_error(InvalidInput(f"the filler does not understand: {error}"))
                        )
                        return
                    try:
                        answer, parts = self._answer(header, payload)
                    except HotsetError as error:
                        answer, parts = wire.encode_error(error), []
                    except Exception as error:  # noqa: BLE001  a defect here must not look like a dead filler to the reader
                        answer, parts = wire.encode_error(HotsetError(f"{type(error).__name__}: {error}")), []
                    if not header.get("silent"):
                        _reply(connection, answer, parts)
            except (wire.ConnectionLost, HotsetError):
                return  # the reader left, or must not ask

    def _running_service(self) -> FillService:
        with self._making:
            if self._service is None:
                self._service = self._make_service()
            return self._service

    def _answer(self, header: wire.Header, payload: memoryview) -> tuple[wire.Header, list[Buffer]]:
        op = header.get("op")
        if op == "refresh":
            current = self._running_service().refresh(not_before_ns=int(header["not_before_ns"]))
            return asdict(current), []
        digest = str(header.get("digest", ""))
        engine = self._running_service().engine(digest)
        if op == "want":
            futures = engine.want([(int(number), int(unit)) for number, unit in header["units"]])
            return _delivered(futures)
        if op == "newest":
            return {}, [engine.newest(int(header["position"]))]
        if op == "follow":
            order, ahead = np.frombuffer(payload, dtype=np.uint64), int(header["ahead"])
            self._obey(digest, "follow", header["given"], lambda: engine.follow(order, ahead))
        elif op == "read":
            engine.advance(np.frombuffer(payload, dtype=np.uint64).tolist())
        elif op == "load":
            self._obey(digest, "load", header["given"], engine.load)
        elif op == "cancel":
            for kind in ("follow", "load"):
                self._obey(digest, kind, header["given"], engine.cancel)
        elif op == "progress":
            if header.get("load") is not None:
                self._obey(digest, "load", header["load"], engine.load)
            engine.wait_loaded(min(5.0, float(header.get("wait", 0))))
            return asdict(engine.progress()), []
        elif op == "stats":
            return engine.stats().encoded(), []
        elif op == "failures":
            return _failures(engine), []
        else:
            raise InvalidInput(f"unknown request {op!r}")
        return {}, []

    def _obey(self, digest: str, kind: str, given: int, order: Callable[[], None]) -> None:
        """Carry out an order, unless this one or a newer one was (a cancellation is one): after the end of a filler it is
        given again by the supervisor and by whoever waits for it, and may be late.
        """
        with self._ordering:
            if given > self._obeyed.get((digest, kind), 0):
                order()
                self._obeyed[digest, kind] = given


def _reply(connection: socket.socket, answer: wire.Header, parts: Sequence[Buffer]) -> None:
    try:
        wire.send_whole(connection, answer, parts)
    except InvalidInput as error:  # thousands of long messages; to close without a word would be asked again for ever
        wire.send(connection, wire.encode_error(error))


def _failures(engine: Engine) -> wire.Header:
    """How many objects could not be fetched, how many of them because they changed, and the first few reasons. Those that
    changed come last: a reader may have been told to put up with them, and must still hear of the others.
    """
    objects: dict[int, HotsetError] = {}  # of a striped object, many units may have failed
    for unit, error in sorted(engine.failures().items(), key=lambda failed: isinstance(failed[1], Changed)):
        objects.setdefault(engine.snapshot.unit_range(*unit)[0], error)
    errors = list(objects.values())
    changed = sum(isinstance(error, Changed) for error in errors)
    return {"objects": len(errors), "changed": changed, "first": [wire.encode_error(error) for error in errors[:10]]}


def _delivered(futures: Sequence[Future[Outcome]]) -> tuple[wire.Header, list[Buffer]]:
    """Wait for all, so that one that fails takes no bytes of the others with it."""
    lengths: list[int] = []
    errors: list[wire.Header] = []
    parts: list[Buffer] = []
    for future in futures:
        error = future.exception()
        if error is not None:
            lengths.append(wire.FAILED)
            errors.append(wire.encode_error(error))
        elif (outcome := future.result()) is None:
            lengths.append(wire.PRESENT)
        else:
            lengths.append(len(outcome))
            parts.append(outcome)
    return {"lengths": lengths, "errors": errors}, parts


def check_peer(connection: socket.socket) -> None:
    """`Denied` unless the other end runs as the same user (or root)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    if uid not in (os.geteuid(), 0):
        raise Denied(f"user {uid} may not talk to this filler")


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which tells us by leaving
    try:
        message = json.loads(sys.stdin.buffer.readline())
        parent = os.pidfd_open(message["parent"])
    except (ValueError, KeyError, OSError):
        return 2  # the parent is gone already, or somebody started this by hand
    settings, env = decode_settings(message["settings"]), message["env"]
    server = Server(lambda: FillService(settings, env), message["socket"])
    threading.Thread(target=server.serve, name="hotset-accept", daemon=True).start()
    wait_for_parent(parent)
    server.close()
    # Requests under way are abandoned: everything that was fetched is recorded, and nobody is left to wait for the rest.
    os._exit(0)


def wait_for_parent(pidfd: int) -> None:
    """Come back when the parent has closed its end of the pipe or has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(sys.stdin.fileno(), select.POLLIN | select.POLLHUP)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == pidfd or not os.read(descriptor, 4096):
                return


if __name__ == "__main__":
    raise SystemExit(main())
