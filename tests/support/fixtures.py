"""The servers as pytest fixtures: started once a session, a fresh bucket for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support import s3
from tests.support.proxy import FaultProxy
from tests.support.tools import require

_numbers = itertools.count()


@pytest.fixture(scope="session")
def good_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    """versitygw: S3 as it should be."""
    require("versitygw")
    with s3.versitygw(tmp_path_factory.mktemp("versitygw") / "root") as server:
        yield server


@pytest.fixture(scope="session")
def sloppy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    """rclone: ignores conditions, answers ranges with status 200. Comes with the test dependencies."""
    with s3.rclone_s3(tmp_path_factory.mktemp("rclone") / "root") as server:
        yield server


@pytest.fixture
def bucket(good_server: s3.S3Server) -> Iterator[s3.Bucket]:
    """An empty bucket of the good server, gone after the test."""
    yield from _fresh_bucket(good_server)


@pytest.fixture
def sloppy_bucket(sloppy_server: s3.S3Server) -> Iterator[s3.Bucket]:
    """An empty bucket of the sloppy server, gone after the test."""
    yield from _fresh_bucket(sloppy_server)


@pytest.fixture(params=["good", "sloppy"])
def any_bucket(request: pytest.FixtureRequest) -> Iterator[s3.Bucket]:
    """An empty bucket; the test runs once with each server."""
    yield from _fresh_bucket(request.getfixturevalue(f"{request.param}_server"))


def _fresh_bucket(server: s3.S3Server) -> Iterator[s3.Bucket]:
    bucket = server.make_bucket(f"bucket-{next(_numbers)}")
    yield bucket
    bucket.remove()


@pytest.fixture(scope="session")
def _good_proxy(good_server: s3.S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(good_server) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def _sloppy_proxy(sloppy_server: s3.S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(sloppy_server) as proxy:
        yield proxy


@pytest.fixture
def proxy(_good_proxy: FaultProxy) -> Iterator[FaultProxy]:
    """A proxy in front of the good server, without faults and with nothing counted."""
    _good_proxy.clear()
    yield _good_proxy
    _good_proxy.clear()


@pytest.fixture
def sloppy_proxy(_sloppy_proxy: FaultProxy) -> Iterator[FaultProxy]:
    """A proxy in front of the sloppy server, without faults and with nothing counted."""
    _sloppy_proxy.clear()
    yield _sloppy_proxy
    _sloppy_proxy.clear()
