"""Microsoft's emulator of Azure Blob Storage, from its npm package: installed once into the user's cache directory."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.store import AzureStore

from tests.support.processes import clean_environment, dying_with_parent, free_port, wait_until
from tests.support.tools import CI

VERSION = "3.35.0"
#: The emulator's only account; both are published with it.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotset" / "tools"


def program() -> Path:
    """The emulator; skips the test with the reason if it cannot be had, fails it in CI."""
    home = _CACHE / f"azurite-{VERSION}"
    found = home / "node_modules" / ".bin" / "azurite-blob"
    if found.exists():
        return found
    npm = shutil.which("npm")
    if npm is None:
        _missing("azurite is an npm package, and there is no `npm` on the PATH")
    home.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "azurite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            command = [str(npm), "install", "--silent", "--no-audit", "--no-fund", f"azurite@{VERSION}"]
            done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                _missing(f"azurite cannot be installed: {done.stderr[-500:]}")
    return found


def _missing(reason: str) -> None:
    if CI:
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass(frozen=True)
class Container:
    """An empty container, and how to fill it past hotset."""

    endpoint: str
    name: str
    store: AzureStore

    def env(self) -> Mapping[str, str]:
        return {
            "AZURE_STORAGE_CONNECTION_STRING": (
                f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.endpoint};"
            )
        }

    def put(self, key: str, content: bytes) -> None:
        obstore.put(self.store, key, content)

    def delete(self, key: str) -> None:
        obstore.delete(self.store, key)


@contextlib.contextmanager
def azurite(directory: Path) -> Iterator[str]:
    """Its endpoint."""
    port = free_port()
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(directory)]
    command = [str(program()), *options, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    process = subprocess.Popen(dying_with_parent(command), env=clean_environment(), start_new_session=True)
    try:
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        wait_until(lambda: _answers(port), what="azurite to answer", timeout=60)
        yield endpoint
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def make_container(endpoint: str, name: str) -> Container:
    """A new container."""
    store = AzureStore(
        name,
        account_name=ACCOUNT,
        account_key=KEY,
        endpoint=endpoint,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    _create(endpoint, name)
    return Container(endpoint, name, store)


def _create(endpoint: str, name: str) -> None:
    """obstore cannot create containers: one request, signed as Azure's shared key scheme wants it."""
    date = formatdate(usegmt=True)
    canonical = f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:2021-08-06\n"
    canonical += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), canonical.encode(), hashlib.sha256)).decode()
    headers = {
        "x-ms-date": date,
        "x-ms-version": "2021-08-06",
        "Authorization": f"SharedKey {ACCOUNT}:{signature}",
        "Content-Length": "0",
    }
    with contextlib.closing(http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=30)) as connection:
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
