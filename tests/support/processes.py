"""Processes for tests: started clean, waited for with deadlines, killed for sure, looked at through /proc.

Nothing here sleeps for a fixed time: a wait ends with the event it waits for, or with a `TimeoutError` that names it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self, TypeVar

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE = 30.0
"""Seconds until a wait gives up: generous, because a machine under load must not fail a test."""

# Arranges, before exec, that the kernel kills the program with its parent; exec keeps that. A tiny program instead of
# `preexec_fn`, which is unsafe in a process with threads. The second check catches a parent that died meanwhile. SIGINT
# is as in a terminal: a shell starts what it runs in the background with SIGINT ignored, and children inherit that.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""

_RUN_FUNCTION = """
import pickle, sys, traceback
with open(int(sys.argv[1]), "rb") as calls, open(int(sys.argv[2]), "wb") as results:
    sys.path[:] = pickle.load(calls)
    try:
        function, args, kwargs = pickle.load(calls)
        outcome = (function(*args, **kwargs), None)
    except Exception:
        outcome = (None, traceback.format_exc())
    pickle.dump(outcome, results)
sys.exit(outcome[1] is not None)
"""

_RUN_FUNCTIONS = """
import os, pickle, sys, traceback
with open(int(sys.argv[1]), "rb") as calls, open(int(sys.argv[2]), "wb") as results:
    sys.path[:] = pickle.load(calls)
    while True:
        try:
            environment, call = pickle.load(calls)
        except EOFError:
            break
        os.environ.clear()
        os.environ.update(environment)
        try:
            function, args, kwargs = pickle.loads(call)
            outcome = (function(*args, **kwargs), None)
        except Exception:
            outcome = (None, traceback.format_exc())
        pickle.dump(outcome, results)
        results.flush()
"""


class ChildFailed(Exception):
    """A function run in another process raised, or its process ended without an answer. Carries what it wrote."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago; who binds it must be ready to lose the race and ask again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], T], *, what: str, timeout: float = DEADLINE) -> T:
    """The first true value of `condition()`, asked ever less often (1 ms at first, 50 ms at last)."""
    deadline = time.monotonic() + timeout
    pause = 0.001
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s in vain for: {what}")
        threading.Event().wait(pause)
        pause = min(pause * 1.5, 0.05)
    return value


def dying_with_parent(argv: Sequence[str | os.PathLike[str]]) -> list[str]:
    """`argv`, to be run so that the kernel kills it when the calling *thread* ends, even by kill -9 of the process.

    Call it and start it from a thread that outlives the program: usually the main thread.
    """
    return [sys.executable, "-ISc", _DIE_WITH_PARENT, str(os.getpid()), *(os.fspath(word) for word in argv)]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Only what a program needs to start, so that no credential or setting of the developer leaks into a test.

    The places that tests give themselves (see conftest) are kept: the child shares them.
    """
    places = {"HOME", "TMPDIR", "HOTSET_CACHE", "XDG_RUNTIME_DIR", "AWS_EC2_METADATA_DISABLED"}
    keep = {name: value for name, value in os.environ.items() if name in places or name.startswith("COVERAGE_")}
    paths = f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"
    fixed = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "PYTHONPATH": paths}
    return {**keep, **fixed, "PYTHONFAULTHANDLER": "1", **(extra or {})}


class Child:
    """A program in a process of its own. A context manager: leaving it kills the program.

    Its lines on standard output are events for the test (`expect`); what it says on standard error goes into failures.
    """

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by close()
        self.popen = subprocess.Popen(
            dying_with_parent(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=clean_environment(env),
            cwd=cwd,
            pass_fds=pass_fds,
        )
        self.pid = self.popen.pid
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # A thread reads, so that a child that prints much is never held up by a test that does not look.
        self._reader = threading.Thread(target=self._read, name=f"output of {self.pid}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as output:
            for line in output:
                self._lines.put(line.decode(errors="replace").rstrip("\n"))
        self._lines.put(None)

    def expect(self, text: str, *, timeout: float = DEADLINE) -> str:
        """The next line of output that contains `text`; lines before it are dropped."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"process {self.pid} did not print {text!r} within {timeout:g} s") from None
            if line is None:
                raise ChildFailed(f"process {self.pid} ended before it printed {text!r}\n{self.errors()}")
            if text in line:
                return line

    def tell(self, line: str) -> None:
        """One line to the child's standard input."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def errors(self) -> str:
        """All it wrote to standard error so far."""
        descriptor = self._errors.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def wait(self, *, timeout: float = DEADLINE) -> int:
        """Its exit status (negative: the signal that killed it)."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {self.pid} did not end within {timeout:g} s\n{self.errors()}") from None

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self.popen.kill()
        self.popen.wait()

    def close(self) -> None:
        self.kill()
        # Grandchildren may hold the pipe open; the reader is a daemon and is not waited for in vain.
        self._reader.join(timeout=1)
        if self.popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.popen.stdin.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Call(Child):
    """A function that runs in a new interpreter: see `call`."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        env: Mapping[str, str] | None,
        cwd: str | os.PathLike[str] | None,
    ) -> None:
        self._results: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by close()
        with tempfile.TemporaryFile() as calls:
            # The child finds modules as we do, so that functions of test modules can be called.
            pickle.dump(sys.path, calls)
            pickle.dump((function, args, kwargs), calls)
            calls.seek(0)
            fds = (calls.fileno(), self._results.fileno())
            super().__init__([sys.executable, "-c", _RUN_FUNCTION, *map(str, fds)], env=env, cwd=cwd, pass_fds=fds)

    def result(self, *, timeout: float = DEADLINE) -> Any:
        """What the function returned. Raises ChildFailed with the child's traceback if it raised."""
        status = self.wait(timeout=timeout)
        self._results.seek(0)
        try:
            value, failure = pickle.load(self._results)
        except EOFError:
            raise ChildFailed(f"process {self.pid} ended with status {status}, no answer\n{self.errors()}") from None
        if failure is not None:
            raise ChildFailed(f"{failure}\n{self.errors()}")
        return value

    def close(self) -> None:
        super().close()
        self._results.close()


def call(
    function: Callable[..., Any],
    *args: Any,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> Call:
    """Run an importable function in a new interpreter with a clean environment plus `env`."""
    return Call(function, args, kwargs, env=env, cwd=cwd)


class Interpreter:
    """An interpreter that runs one function after the other, each with a clean environment: for libraries that take long to
    import, or do not go well together in one process. A context manager.
    """

    def __init__(self) -> None:
        self._runner: _Runner | None = None

    def __call__(
        self,
        function: Callable[..., Any],
        *args: Any,
        env: Mapping[str, str] | None = None,
        timeout: float = 3 * DEADLINE,
        **kwargs: Any,
    ) -> Any:
        """What the function returns. Raises ChildFailed with all that the child wrote if it raises, or ends the process: then
        the next call begins with a new one.
        """
        if self._runner is None:
            self._runner = _Runner()
        try:
            value, failure = self._runner.run(function, args, kwargs, clean_environment(env), timeout)
        except BaseException:
            self.close()
            raise
        written = self._runner.errors()[-5000:]
        if failure is not None:
            raise ChildFailed(f"{failure}\n{written}")
        return value

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Runner(Child):
    """The process of an `Interpreter`."""

    def __init__(self) -> None:
        calls, self._calls = os.pipe()
        self._outcomes, results = os.pipe()
        super().__init__([sys.executable, "-c", _RUN_FUNCTIONS, str(calls), str(results)], pass_fds=(calls, results))
        os.close(calls)
        os.close(results)
        self._send(pickle.dumps(sys.path))

    def run(
        self, function: Callable[..., Any], args: Any, kwargs: Any, env: dict[str, str], timeout: float
    ) -> tuple[Any, str | None]:
        """(value, traceback)"""
        self._send(pickle.dumps((env, pickle.dumps((function, args, kwargs)))))
        data = bytearray()
        deadline = time.monotonic() + timeout
        while select.select([self._outcomes], [], [], max(0.0, deadline - time.monotonic()))[0]:
            received = os.read(self._outcomes, 2**20)
            if not received:
                raise ChildFailed(f"the process of {function.__name__} ended: status {self.wait()}\n{self.errors()}")
            data += received
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                outcome: tuple[Any, str | None] = pickle.loads(data)
                return outcome
        raise TimeoutError(f"{function.__name__} did not return within {timeout:g} s\n{self.errors()}")

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # who waits for the answer learns why
            while data:
                data = data[os.write(self._calls, data) :]

    def close(self) -> None:
        super().close()
        os.close(self._calls)
        os.close(self._outcomes)


def kill_at_random(child: Child, rng: random.Random, *, within: float) -> bool:
    """Kill -9 at a moment drawn from [0, within] seconds; False if the child had ended by itself before."""
    try:
        child.popen.wait(rng.uniform(0, within))
    except subprocess.TimeoutExpired:
        child.kill()
        return True
    return False


def alive(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    return _parent_if_alive(pid) is not None


def wait_until_gone(pid: int, *, timeout: float = DEADLINE) -> None:
    wait_until(lambda: not alive(pid), what=f"the end of process {pid}", timeout=timeout)


def descendants(pid: int) -> list[int]:
    """The living children of `pid`, their children and so on; not those whose parent has died (init adopts them)."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (parent := _parent_if_alive(int(entry))) is not None:
            children.setdefault(parent, []).append(int(entry))
    found = list(children.get(pid, ()))
    for child in found:  # grows while it is walked: breadth first
        found.extend(children.get(child, ()))
    return found


def open_fds(pid: int | None = None) -> dict[int, str]:
    """Open descriptors of a process (default: this one) and what they refer to."""
    directory = f"/proc/{'self' if pid is None else pid}/fd"
    return dict(_links(directory))


def _links(directory: str) -> Iterator[tuple[int, str]]:
    for name in os.listdir(directory):
        # Closed meanwhile, as the descriptor of this very listing is.
        with contextlib.suppress(FileNotFoundError):
            yield int(name), os.readlink(f"{directory}/{name}")


def _parent_if_alive(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]  # the name before it may contain blanks and brackets
    return None if state in "ZX" else int(parent)
