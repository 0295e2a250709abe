"""The filler's end of the socket, in this process and over an engine that only notes what it is told."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hotset.errors import Changed, Denied, HotsetError, InvalidInput, Unavailable
from hotset.fill import process, wire
from hotset.fill.process import Server, check_peer
from hotset.fill.progress import Progress

NOBODY = 65534


class NotingEngine:
    """Does nothing, and remembers in which order it was told to."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.failed: dict[tuple[int, int], HotsetError] = {}
        self.object = b""
        # Pack n holds object n, in as many units as one likes.
        self.snapshot = SimpleNamespace(unit_range=lambda number, unit: (number, unit, unit + 1))

    def load(self) -> None:
        self.told.append("load")

    def follow(self, order: np.ndarray, ahead: int) -> None:
        self.told.append(f"follow {order.tolist()}")

    def cancel(self) -> None:
        self.told.append("cancel")

    def wait_loaded(self, timeout: float) -> bool:
        return True

    def progress(self) -> Progress:
        return Progress(0, 1, 0, 1, finished="load" not in self.told)

    def failures(self) -> dict[tuple[int, int], HotsetError]:
        return self.failed

    def newest(self, position: int) -> bytes:
        return self.object


@pytest.fixture
def engine() -> NotingEngine:
    return NotingEngine()


@pytest.fixture
def serve(engine: NotingEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Server]]:
    """Starts a server (which has taken no connection when the test gets it) at a short path."""
    monkeypatch.setattr(process, "ACCEPT_PAUSE", 0.001)
    running: list[tuple[Server, threading.Thread]] = []
    path = os.path.join(os.environ["XDG_RUNTIME_DIR"], "s")

    def start(change: Callable[[Server], None] = lambda _: None) -> Server:
        server = Server(lambda: SimpleNamespace(engine=lambda _: engine), path)
        change(server)
        thread = threading.Thread(target=server.serve)
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.close()
        thread.join()


def ask(server: Server, header: wire.Header, payload: bytes = b"") -> tuple[wire.Header, bytes]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(server._path)
        wire.send(connection, {"digest": "d", **header}, [payload])
        answer, data = wire.receive_whole(connection)
        return wire.result_of(answer), bytes(data)


class FailingListener:
    """Cannot take a connection for want of descriptors the first few times."""

    def __init__(self, listener: socket.socket, times: int) -> None:
        self._listener = listener
        self._times = times

    def accept(self):
        if self._times:
            self._times -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._listener.accept()

    def __getattr__(self, name):
        return getattr(self._listener, name)


class TestAccepting:
    def test_a_want_of_descriptors_passes(self, serve):
        def fail(server):
            server._listener = FailingListener(server._listener, times=3)

        assert ask(serve(fail), {"op": "progress"})[0]["finished"]

    def test_a_want_of_threads_costs_a_connection_and_not_the_server(self, serve, monkeypatch):
        start, refused = threading.Thread.start, []

        def start_another_time(thread):
            if thread.name == "hotset-peer" and len(refused) < 3:
                refused.append(thread)
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_another_time)
        server = serve()
        for _ in range(3):
            with pytest.raises(wire.ConnectionLost):
                ask(server, {"op": "progress"})
        assert ask(server, {"op": "progress"})[0]["finished"]

    def test_closing_ends_it(self, serve, no_leaks):
        server = serve()
        server.close()
        assert not os.path.exists(server._path)


class Forged:
    """A connection of which the kernel says that this user is at the other end."""

    def __init__(self, uid: int) -> None:
        self._uid = uid

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
        return struct.pack("3i", 1, self._uid, 0)[:size]


class TestPeers:
    def test_the_same_user_and_root_may_talk(self, monkeypatch):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            check_peer(ours)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        check_peer(Forged(1000))
        check_peer(Forged(0))

    @pytest.mark.parametrize("uid", [1001, NOBODY, -1])
    @pytest.mark.parametrize("ours", [0, 1000])
    def test_another_may_not(self, monkeypatch, ours, uid):
        monkeypatch.setattr(os, "geteuid", lambda: ours)
        with pytest.raises(Denied, match=f"user {uid}"):
            check_peer(Forged(uid))

    @pytest.mark.skipif(os.geteuid() != 0, reason="platform: only root can become another user")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_another_is_not_heard(self, serve, engine):
        """Whoever gets past the directory and the mode of the socket, which both keep others out."""
        server = serve()
        Path(server._path).chmod(0o777)
        Path(server._path).parent.chmod(0o777)
        pid = os.fork()
        if not pid:
            os.setuid(NOBODY)
            try:
                ask(server, {"op": "load", "given": 1})
            except wire.ConnectionLost:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert engine.told == []
        ask(server, {"op": "load", "given": 1})
        assert engine.told == ["load"]


class TestOrders:
    """An order outlives its filler: whoever gave it and whoever waits for it gives it to the next one."""

    def test_a_load_that_is_only_waited_for_is_begun(self, serve, engine):
        answer, _ = ask(serve(), {"op": "progress", "load": 5})
        assert not answer["finished"]
        assert engine.told == ["load"]

    def test_a_load_is_begun_once_however_often_it_is_named(self, serve, engine):
        server = serve()
        for header in ({"op": "progress", "load": 5}, {"op": "load", "given": 5}, {"op": "progress", "load": 5}):
            ask(server, header)
        assert engine.told == ["load"]
        ask(server, {"op": "load", "given": 6})
        assert engine.told == ["load"] * 2

    def test_one_who_only_asks_begins_nothing(self, serve, engine):
        assert ask(serve(), {"op": "progress"})[0]["finished"]
        assert engine.told == []

    def test_what_was_cancelled_is_not_begun_by_one_who_is_late(self, serve, engine):
        server = serve()
        ask(server, {"op": "load", "given": 1})
        ask(server, {"op": "cancel", "given": 4})
        engine.told.clear()
        ask(server, {"op": "load", "given": 2})
        ask(server, {"op": "progress", "load": 1})
        ask(server, {"op": "follow", "given": 3, "ahead": 1}, np.array([1], np.uint64).tobytes())
        assert engine.told == []
        ask(server, {"op": "load", "given": 5})
        assert engine.told == ["load"]

    def test_the_newer_of_two_orders_holds(self, serve, engine):
        server = serve()
        for given in (2, 1, 3):
            ask(server, {"op": "follow", "given": given, "ahead": 1}, np.array([given], np.uint64).tobytes())
        assert engine.told == ["follow [2]", "follow [3]"]

    def test_one_that_was_refused_may_be_given_again(self, serve, engine, monkeypatch):
        server = serve()
        with monkeypatch.context() as broken:
            broken.setattr(engine, "load", lambda: {}["a defect"])
            with pytest.raises(HotsetError, match="defect"):
                ask(server, {"op": "load", "given": 1})
        ask(server, {"op": "load", "given": 1})
        assert engine.told == ["load"]


class TestFailures:
    def test_what_changed_comes_last_though_it_came_first(self, serve, engine):
        engine.failed = {(n, 0): Changed(f"object {n}") for n in range(20)}
        engine.failed |= {(20, 0): Denied("no key"), (21, 0): Unavailable("down")}
        answer, _ = ask(serve(), {"op": "failures"})
        assert (answer["objects"], answer["changed"]) == (22, 20)
        assert [error["error"] for error in answer["first"][:3]] == ["Denied", "Unavailable", "Changed"]
        assert len(answer["first"]) == 10

    def test_a_striped_object_is_one_and_did_not_only_change(self, serve, engine):
        engine.failed = {(7, n): Changed("another version") for n in range(5)}
        engine.failed |= {(7, 9): Denied("no key"), (8, 0): Changed("x"), (8, 1): Changed("x")}
        answer, _ = ask(serve(), {"op": "failures"})
        assert (answer["objects"], answer["changed"]) == (2, 1)

    def test_none(self, serve):
        assert ask(serve(), {"op": "failures"})[0] == {"objects": 0, "changed": 0, "first": []}


class TestSizes:
    @pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 5000, 5001])
    def test_an_object_may_be_larger_than_a_frame(self, serve, engine, monkeypatch, size):
        monkeypatch.setattr(wire, "MAX_PAYLOAD", 1000)
        engine.object = os.urandom(size)
        assert ask(serve(), {"op": "newest", "position": 0})[1] == engine.object

    def test_an_answer_that_no_frame_can_hold_is_an_error_and_the_conversation_goes_on(
        self, serve, engine, monkeypatch
    ):
        monkeypatch.setattr(wire, "MAX_HEADER", 200)
        engine.failed = {(n, 0): Denied("x" * 100) for n in range(9)}
        server = serve()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(server._path)
            wire.send(connection, {"op": "failures"})
            with pytest.raises(InvalidInput, match="too large"):
                wire.result_of(wire.receive_whole(connection)[0])
            engine.failed = {}
            wire.send(connection, {"op": "failures"})
            assert wire.receive_whole(connection)[0]["objects"] == 0
