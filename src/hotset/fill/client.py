"""The reader's end: starts the filler's process when it is needed, keeps it alive, and talks to it from any process.

The client that was made when the dataset was opened owns the filler and starts it again if it is killed. Its copies, forked
or pickled, connect to the same socket; only if the owner is gone does a copy start a filler of its own. Connections belong
to one process and one thread; after a fork new ones are made.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotset.errors import Closed, HotsetError, InvalidInput, Unavailable
from hotset.fill import wire
from hotset.fill.progress import Failures, FillStats, Progress
from hotset.fill.settings import FillSettings, SourceSettings, encode_settings
from hotset.source import SourceOptions, display_uri
from hotset.tier.node.records import Current

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hotset.fill.agenda import Unit

__all__ = ["FillClient"]

#: A filler that ends this often in a row, each time within seconds, is not started any more.
MAX_RESTARTS = 5
#: Seconds that a starting filler may take (its imports may come from a slow disk).
START_PATIENCE = 60.0
#: How long a worker waits for its owner to start the filler again before it starts one of its own.
OWNER_PATIENCE = 5.0

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from hotset.fill.process import main; sys.exit(main())"


class FillClient:
    """A filler in a process of its own. Picklable: the copy connects to the same filler and carries no secret."""

    def __init__(self, settings: FillSettings, environment: Callable[[], Mapping[str, str]], runtime: Path) -> None:
        """Starts nothing yet. ``runtime`` is a directory that only this user can enter; ``environment``, a function that can
        be pickled, gives the variables with the clouds' settings in whichever process starts the filler.
        """
        self._settings = settings
        self._environment = environment
        self._runtime = runtime
        self._socket = _socket_in(runtime)
        self._closed = False
        self._reset(owner=True)

    def _reset(self, *, owner: bool) -> None:
        """The state of one process: made anew after a fork, where locks, threads and connections mean nothing."""
        self._pid = os.getpid()
        self._owner = owner
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._supervisor: threading.Thread | None = None
        self._orders: dict[str, tuple[wire.Header, bytes]] = {}  # by kind: what a filler that is started again is told

    def __getstate__(self) -> dict[str, Any]:
        sources = tuple(
            SourceSettings(display_uri(source.uri), source.path, SourceOptions()) for source in self._settings.sources
        )
        return {
            "_settings": replace(self._settings, sources=sources),
            "_environment": self._environment,
            "_runtime": self._runtime,
            "_socket": self._socket,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._closed = False
        self._reset(owner=False)

    # -- requests ------------------------------------------------------------------------------------------------------

    def refresh(self, *, not_before_ns: int) -> Current:
        answer, _ = self._request({"op": "refresh", "not_before_ns": not_before_ns})
        return Current(answer["digest"], answer["listed_ns"])

    def want(self, digest: str, units: Sequence[Unit]) -> list[memoryview | HotsetError | None]:
        """Wait for all: the bytes of each, or None if it is in the cache now, or why it cannot be had."""
        answer, payload = self._request({"op": "want", "digest": digest, "units": list(units)})
        errors = iter(answer["errors"])
        outcomes: list[memoryview | HotsetError | None] = []
        at = 0
        for length in answer["lengths"]:
            if length >= 0:
                outcomes.append(payload[at : at + length])
                at += length
            else:
                outcomes.append(None if length == wire.PRESENT else wire.error_of(next(errors)))
        return outcomes

    def newest(self, digest: str, position: int) -> memoryview:
        """An object as the source has it now, whatever the snapshot says."""
        return self._request({"op": "newest", "digest": digest, "position": position})[1]

    def follow(self, digest: str, order: npt.NDArray[np.uint64], ahead: int) -> None:
        if order.nbytes > wire.MAX_PAYLOAD:
            most = wire.MAX_PAYLOAD // order.itemsize
            raise InvalidInput(f"an order of {len(order)} objects is too long; give it in parts of at most {most}")
        self._order({"op": "follow", "digest": digest, "ahead": ahead}, order.tobytes())

    def advance(self, digest: str, positions: Iterable[int]) -> None:
        """Tell what was read. Nothing is waited for, and a lost message does no harm."""
        data = array("Q", positions).tobytes()
        with suppress(wire.ConnectionLost, OSError):
            wire.send(self._connection(), {"op": "read", "digest": digest, "silent": True}, [data])

    def load(self, digest: str) -> None:
        self._order({"op": "load", "digest": digest})

    def cancel(self, digest: str) -> None:
        """Forget the order and the load; what somebody waits for is still fetched."""
        self._orders.clear()
        if self.running:
            self._request({"op": "cancel", "digest": digest, "given": time.monotonic_ns()})

    def _order(self, header: wire.Header, payload: bytes = b"") -> None:
        """A request that outlives the filler. The clock is that of the machine: it tells which of two orders is newer, though
        they come from two processes.
        """
        self._after_fork()
        header["given"] = time.monotonic_ns()
        self._orders[header["op"]] = (header, payload)
        self._request(header, payload)

    def progress(self, digest: str, *, wait: float = 0.0) -> Progress:
        """The state of the load; waits up to ``wait`` seconds for it to finish.

        Says that there is one: a filler that was started just now may be asked before the supervisor has told it.
        """
        header: wire.Header = {"op": "progress", "digest": digest, "wait": wait}
        if (load := self._orders.get("load")) is not None:
            header["load"] = load[0]["given"]
        return Progress(**self._request(header)[0])

    def stats(self, digest: str) -> FillStats:
        """Counters of the filler; zeros if none runs."""
        return FillStats(**self._request({"op": "stats", "digest": digest})[0]) if self.running else FillStats()

    def failures(self, digest: str) -> Failures:
        answer, _ = self._request({"op": "failures", "digest": digest})
        return Failures(answer["objects"], answer["changed"], [wire.error_of(error) for error in answer["first"]])

    # -- life ----------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether there is a filler to talk to."""
        if self._pid == os.getpid() and self._process is not None:
            return self._process.poll() is None
        return os.path.exists(self._socket)

    @property
    def pid(self) -> int | None:
        """Of the filler's process, in the process that started it."""
        return self._process.pid if self._pid == os.getpid() and self._process is not None else None

    @property
    def owner(self) -> bool:
        """Whether the filler is this one's to start and to end; no copy's, forked or pickled, unless it is on its own."""
        return self._owner and self._pid == os.getpid()

    def start(self) -> None:
        """Start the filler unless it runs or is the business of another. Does not wait until it is ready."""
        self._after_fork()
        with self._lock:
            if self._closed:
                raise Closed("the dataset was closed")
            if not self._owner:
                return  # one more at the owner's socket would take it away from the owner's
            if self._process is None:
                self._process = self._spawn()
                supervisor = threading.Thread(
                    target=self._supervise, args=(self._process,), name="hotset-supervisor", daemon=True
                )
                supervisor.start()
                self._supervisor = supervisor  # last: others take one that does not live for one that gave up

    def close(self, *, wait: bool = True) -> None:
        """`stop`, for good. Idempotent."""
        self._after_fork()
        with self._lock:
            self._closed = True
        self.stop(wait=wait)

    def stop(self, *, wait: bool = True) -> None:
        """End the filler, if this process started it, with its orders and all connections to it. The next request, or
        `start`, starts another one.

        With ``wait=False`` it may be called at any moment, by the garbage collector too, and the filler ends a little later.
        """
        self._after_fork()
        with self._lock:
            process, supervisor = self._process, self._supervisor
            self._process = self._supervisor = None
            self._orders.clear()
            for connection in self._connections.values():
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
                connection.close()
            self._connections.clear()
        if process is not None:
            process.terminate()  # safe at any moment; closing the pipe is not enough where workers inherited it
            if supervisor is not None and wait:
                supervisor.join()  # it takes the ended process off the system's list
            with suppress(FileNotFoundError):
                os.unlink(self._socket)

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            for connection in self._connections.values():
                connection.close()  # the parent's goes on
            self._reset(owner=False)

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        process = subprocess.Popen(
            # -P: a file of the user's working directory must not shadow a module of ours.
            [sys.executable, "-P", "-c", _PROGRAM, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the training process
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it ended at once; whoever connects finds out
            process.stdin.write(encode_settings(self._settings, self._environment(), self._socket, os.getpid()) + b"\n")
            process.stdin.flush()
        return process

    def _supervise(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the filler's end; start it again if it ended without being told to, and give it its orders again."""
        restarts = 0
        while True:
            if self._closed:
                process.terminate()  # the garbage collector may close in this thread, while it starts this very process
            started = time.monotonic()
            process.wait()
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
            restarts = restarts + 1 if time.monotonic() - started < 10 else 1
            with self._lock:
                if self._closed or self._process is not process or restarts > MAX_RESTARTS:
                    return  # told to end; or hopeless
                process = self._process = self._spawn()
            for header, payload in list(self._orders.values()):
                with suppress(HotsetError):  # whoever reads gets this error and the reason
                    self._request(header, payload)
            self._disconnect()

    # -- connections ---------------------------------------------------------------------------------------------------

    def _request(self, header: wire.Header, payload: bytes = b"") -> tuple[wire.Header, memoryview]:
        """Send and wait for the answer. All requests may be repeated, so a filler that dies in between is only a delay."""
        while True:
            connection = self._connection()
            try:
                wire.send(connection, header, [payload])
                answer, data = wire.receive_whole(connection)
            except wire.ConnectionLost:
                self._disconnect()
                continue
            except BaseException:
                self._disconnect()  # interrupted in the middle of an answer: this connection is of no use any more
                raise
            return wire.result_of(answer), data

    def _connection(self) -> socket.socket:
        """This thread's connection, made if necessary; the owner starts the filler."""
        self._after_fork()
        if (existing := self._connections.get(threading.current_thread())) is not None:
            return existing
        ours = self._owner
        deadline = time.monotonic() + (START_PATIENCE if ours else OWNER_PATIENCE)
        pause = 0.002
        while True:
            self.start()  # in each round: another thread may have stopped it
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(self._socket)
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
            else:
                return self._keep(connection)
            if self._closed:
                raise Closed("the dataset was closed")
            if self._supervisor is threading.current_thread() and not self.running:
                raise Unavailable("the filler ended while it started")  # and nobody else would start it again
            if self._supervisor is not None and not self._supervisor.is_alive():
                raise Unavailable(f"the filler ended {MAX_RESTARTS} times in a row; see its messages above")
            if time.monotonic() > deadline:
                if ours:
                    raise Unavailable("the filler did not start; see its messages above, or run `hotset doctor`")
                self._become_owner()
                ours, deadline = True, time.monotonic() + START_PATIENCE
            time.sleep(pause)  # noqa: TID251  (a socket that does not exist yet cannot be waited for)
            pause = min(0.05, pause * 1.5)

    def _become_owner(self) -> None:
        """A copy whose owner does not start the filler (again) helps itself."""
        with self._lock:
            if not self._owner:
                self._owner, self._socket = True, _socket_in(self._runtime)
            self.start()

    def _keep(self, connection: socket.socket) -> socket.socket:
        with self._lock:
            if self._closed:
                connection.close()
                raise Closed("the dataset was closed")
            for thread in [thread for thread in self._connections if not thread.is_alive()]:
                self._connections.pop(thread).close()
            self._connections[threading.current_thread()] = connection
        return connection

    def _disconnect(self) -> None:
        with self._lock:
            connection = self._connections.pop(threading.current_thread(), None)
        if connection is not None:
            connection.close()


def _socket_in(runtime: Path) -> str:
    return str(runtime / f"{uuid.uuid4().hex[:16]}.sock")
