"""Every kind of source passes the same contract, against a real server where there is one."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from hotset.base.retry import RetryPolicy
from hotset.source import CombinedSource, Retrying, Source, SourceOptions, filtered, open_source
from hotset.testing.source import MemorySource, SourceContract
from tests.contract.azurite import Container, azurite, make_container
from tests.contract.standins import Shelf, etag
from tests.support.s3 import Bucket

_ODD = ("/leading", "double//slash", "up/../down", "dot/./dot", "control\x01", "new\nline", "trailing/", "a?b#c&d<e>")


class MemoryPlace:
    def __init__(self) -> None:
        self.memory = MemorySource()
        self.put = self.memory.put
        self.delete = self.memory.delete

    def source(self) -> Source:
        return self.memory


class TestMemory(SourceContract):
    unusual_keys = (*SourceContract.unusual_keys, *_ODD)

    @pytest.fixture
    def place(self) -> MemoryPlace:
        return MemoryPlace()


class WrappedPlace(MemoryPlace):
    """All wrappers at once; they must not change what the source within does."""

    def source(self) -> Source:
        inner = Retrying(self.memory, RetryPolicy())
        return filtered(CombinedSource([("", inner)]), include=["**"], exclude=["*.never"])


class TestWrapped(SourceContract):
    @pytest.fixture
    def place(self) -> WrappedPlace:
        return WrappedPlace()


class LocalPlace:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.times = itertools.count(1_700_000_000_000_000_000)

    def source(self) -> Source:
        return open_source(str(self.root), env={})

    def put(self, key: str, content: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        time = next(self.times)  # one ns apart: the file system's own clock may stand still between two writes
        os.utime(path, ns=(time, time))

    def delete(self, key: str) -> None:
        (self.root / key).unlink()


class TestLocal(SourceContract):
    unusual_keys = (*SourceContract.unusual_keys, "control\x01", "new\nline", "back\\slash", "a?b#c&d<e>")

    @pytest.fixture
    def place(self, tmp_path: Path) -> LocalPlace:
        root = tmp_path / "dataset"
        root.mkdir()
        return LocalPlace(root)


class BucketPlace:
    """Below a prefix, beside objects of others. Written past the server: rclone may take seconds for a PUT."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        bucket.put_many({"dataset-of-somebody-else/object": b"not ours"})

    def source(self) -> Source:
        return open_source(f"{self.bucket.url}/dataset", env=self.bucket.server.env())

    def put(self, key: str, content: bytes) -> None:
        self.bucket.put_many({f"dataset/{key}": content})

    def delete(self, key: str) -> None:
        self.bucket.path(f"dataset/{key}").unlink()


@pytest.mark.integration
class TestS3(SourceContract):
    unusual_keys = (*SourceContract.unusual_keys, "new\nline", "back\\slash", "a?b#c&d<e>")

    @pytest.fixture
    def place(self, bucket: Bucket) -> BucketPlace:
        return BucketPlace(bucket)


@pytest.mark.integration
class TestS3OnASloppyServer(SourceContract):
    """Ignores If-Match, answers ranges with 200, percent-encodes listings without being asked."""

    @pytest.fixture
    def place(self, sloppy_bucket: Bucket) -> BucketPlace:
        return BucketPlace(sloppy_bucket)


class ShelfPlace:
    def __init__(self, shelf: Shelf, uri: str, options: SourceOptions) -> None:
        self.shelf = shelf
        self.uri = uri
        self.options = options

    def source(self) -> Source:
        return open_source(self.uri, options=self.options, env={})

    def put(self, key: str, content: bytes) -> None:
        self.shelf.objects[f"dataset/{key}"] = content

    def delete(self, key: str) -> None:
        del self.shelf.objects[f"dataset/{key}"]


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    with Shelf(bucket="some-bucket") as shelf:
        yield shelf


class TestS3WithOddKeys(SourceContract):
    """Keys that no server at hand can hold, but Amazon's can."""

    unusual_keys = (*SourceContract.unusual_keys, *_ODD)

    @pytest.fixture
    def place(self, shelf: Shelf) -> ShelfPlace:
        options = SourceOptions(endpoint=shelf.endpoint, access_key="key", secret_key="secret")
        return ShelfPlace(shelf, "s3://some-bucket/dataset", options)


class TestGoogle(SourceContract):
    @pytest.fixture
    def place(self, shelf: Shelf) -> ShelfPlace:
        return ShelfPlace(shelf, "gs://some-bucket/dataset", SourceOptions(endpoint=shelf.endpoint, anonymous=True))


class ManifestPlace:
    def __init__(self, shelf: Shelf, fields: tuple[str, ...]) -> None:
        self.shelf = shelf
        self.fields = fields
        self.content: dict[str, bytes] = {}
        self._write()

    def source(self) -> Source:
        return open_source(f"{self.shelf.endpoint}/sets/train.jsonl?signature=abc", env={})

    def put(self, key: str, content: bytes) -> None:
        self.content[key] = content
        self.shelf.objects[f"data/{key}"] = content
        self._write()

    def delete(self, key: str) -> None:
        del self.content[key], self.shelf.objects[f"data/{key}"]
        self._write()

    def _write(self) -> None:
        lines = []
        for key, content in self.content.items():
            known = {"size": len(content), "etag": etag(content), "sha256": hashlib.sha256(content).hexdigest()}
            chosen = {name: known[name] for name in self.fields}
            lines.append(json.dumps({"key": key, "url": f"../data/{quote(key)}?signature=abc", **chosen}))
        self.shelf.objects["sets/train.jsonl"] = "\n".join(lines).encode()


class TestManifest(SourceContract):
    @pytest.fixture(params=["sized", "digests", "bare"])
    def place(self, request: pytest.FixtureRequest) -> Iterator[ManifestPlace]:
        fields = {"sized": ("size", "etag"), "digests": ("size", "sha256"), "bare": ()}[request.param]
        with Shelf() as shelf:
            yield ManifestPlace(shelf, fields)


class AzurePlace:
    def __init__(self, container: Container) -> None:
        self.container = container
        container.put("dataset-of-somebody-else/object", b"not ours")

    def source(self) -> Source:
        return open_source(f"az://{self.container.name}/dataset", env=self.container.env())

    def put(self, key: str, content: bytes) -> None:
        self.container.put(f"dataset/{key}", content)

    def delete(self, key: str) -> None:
        self.container.delete(f"dataset/{key}")


@pytest.fixture(scope="session")
def azurite_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with azurite(tmp_path_factory.mktemp("azurite")) as endpoint:
        yield endpoint


@pytest.mark.integration
class TestAzure(SourceContract):
    @pytest.fixture
    def place(self, azurite_endpoint: str, request: pytest.FixtureRequest) -> AzurePlace:
        name = hashlib.sha256(request.node.name.encode()).hexdigest()[:20]
        return AzurePlace(make_container(azurite_endpoint, name))
