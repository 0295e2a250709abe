"""Where the data comes from: one S3 server for a run, the workloads in it, and what stands in front of it.

The server is versitygw, a gateway over plain files. A second one over the same files that writes an access log counts
requests without slowing down the one that is timed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import urllib.request
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.daemons import listening
from bench.workloads import Workload
from tests.support.processes import free_port
from tests.support.s3 import ACCESS_KEY, SECRET_KEY, Bucket, S3Server
from tests.support.tools import tool

__all__ = ["Stored", "counted", "delayed", "store"]


@dataclass(frozen=True)
class Stored:
    """A workload and the bucket that holds it. ``endpoint`` may be a proxy in front of the bucket's server."""

    workload: Workload
    bucket: Bucket
    endpoint: str

    @property
    def url(self) -> str:
        return self.bucket.url

    def env(self) -> dict[str, str]:
        """The variables with which any S3 client finds the bucket."""
        return {**self.bucket.server.env(), "AWS_ENDPOINT_URL": self.endpoint}

    def through(self, endpoint: str) -> Stored:
        return replace(self, endpoint=endpoint)


def store(server: S3Server, workload: Workload) -> Stored:
    """Put a workload into a new bucket of its name."""
    bucket = server.make_bucket(workload.name)
    bucket.put_many((workload.key(index), workload.body(index)) for index in range(workload.count))
    for index in range(workload.count):
        _add_checksum(bucket.path(workload.key(index)), workload.body(index))
    return Stored(workload, bucket, server.endpoint)


def _add_checksum(path: Path, body: bytes) -> None:
    """Without one, versitygw lists an empty ChecksumAlgorithm, and the CRT client of s3torchconnector gives up."""
    checksum = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    os.setxattr(
        path, "user.checksums", json.dumps({"Algorithm": "CRC32", "Type": "FULL_OBJECT", "CRC32": checksum}).encode()
    )


class Counts:
    """Requests that a counted server has answered since the last `reset`."""

    def __init__(self, endpoint: str, log: Path) -> None:
        self.endpoint = endpoint
        self._log = log
        self._offset = 0

    def reset(self) -> None:
        self._offset = self._log.stat().st_size

    def gets(self) -> int:
        """GETs of objects, whatever the answer was."""
        return sum(self.objects().values())

    def lists(self) -> int:
        """Listings begun; the pages that continue one are not counted."""
        return sum(words[7] == "s3_ListObjectsV2" and "continuation-token=" not in words[9] for words in self._lines())

    def objects(self) -> Counter[str]:
        """GETs of each object."""
        return Counter(words[8] for words in self._lines() if words[7] == "s3_GetObject")

    def _lines(self) -> Iterator[list[str]]:
        with self._log.open() as file:
            file.seek(self._offset)
            yield from (line.split() for line in file if " s3_" in line)


@contextlib.contextmanager
def counted(server: S3Server, log: Path) -> Iterator[Counts]:
    """A second server over the same files, which writes down what it is asked."""
    log.touch()
    command = [str(tool("versitygw")), "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--quiet", "--keep-alive"]
    address = f"127.0.0.1:{free_port()}"
    with listening([*command, "--port", address, "--access-log", str(log), "posix", str(server.root)], address):
        yield Counts(f"http://{address}", log)


@contextlib.contextmanager
def delayed(endpoint: str, milliseconds: int) -> Iterator[str]:
    """An endpoint in front of ``endpoint`` that delays every answer, as a store some way off does."""
    control = f"127.0.0.1:{free_port()}"
    listen = f"127.0.0.1:{free_port()}"
    upstream = endpoint.removeprefix("http://")
    with listening([str(tool("toxiproxy-server")), "-host", "127.0.0.1", "-port", control.partition(":")[2]], control):
        _post(f"http://{control}/proxies", {"name": "s3", "listen": listen, "upstream": upstream, "enabled": True})
        delay = {"latency": milliseconds, "jitter": 0}
        toxic = {"name": "delay", "type": "latency", "stream": "downstream", "toxicity": 1.0, "attributes": delay}
        _post(f"http://{control}/proxies/s3/toxics", toxic)
        yield f"http://{listen}"


def _post(url: str, body: object) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10):
        pass
