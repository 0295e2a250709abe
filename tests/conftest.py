"""What holds for every test: its own environment, the same examples in every CI run, no skip that hides something."""

from __future__ import annotations

import gc
import multiprocessing.resource_tracker
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import hypothesis
import pytest

from tests.support.tools import CI

pytest_plugins = ["tests.support.fixtures"]

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("person", deadline=None)
hypothesis.settings.load_profile("ci" if CI else "person")

#: A skip whose reason begins so is about the machine, not about something that is missing; CI accepts it.
PLATFORM = "platform: "

_LEAKY_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "HOTSET_", "BOS_", "OSS_", "COS_", "OBS_", "HADOOP_", "XDG_")
_LEAKY_NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=5, help="how often a crash or race test repeats itself (default: 5)")


@pytest.fixture(scope="session")
def rounds(request: pytest.FixtureRequest) -> int:
    """How often a test marked `soak` repeats; seed the round's randomness with its number."""
    return request.config.getoption("--rounds")


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing of the person who runs the tests gets in, nothing of the tests gets into her cache or home."""
    for name in os.environ:
        if name.startswith(_LEAKY_PREFIXES) or name.lower() in _LEAKY_NAMES:
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HOTSET_CACHE", str(tmp_path / "cache"))
    # Not below tmp_path: the address of a Unix socket has at most 107 bytes.
    runtime = tempfile.mkdtemp(prefix="hotset-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    # A machine without credentials must not ask the cloud's metadata service for some.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture
def no_leaks():
    """Fails if threads, descriptors or child processes that did not exist before are still there afterwards.

    Name it after the fixtures that start servers: their processes are then part of what existed before.
    """
    multiprocessing.resource_tracker.ensure_running()  # one a process, for life; better now than in the middle
    before = _held()
    yield
    deadline = time.monotonic() + 5
    while leaked := _held() - before:
        if time.monotonic() > deadline:
            pytest.fail("left behind: " + ", ".join(f"{count} x {what}" for what, count in sorted(leaked.items())))
        gc.collect()  # an object in a cycle may hold a descriptor; and a thread that was told to end needs a moment
        time.sleep(0.01)


def _held() -> Counter[str]:
    held = Counter(f"thread {thread.name}" for thread in threading.enumerate())
    for fd in os.listdir("/proc/self/fd"):
        try:
            held[f"descriptor {os.readlink(f'/proc/self/fd/{fd}')}"] += 1
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    for task in os.listdir("/proc/self/task"):
        try:
            children = Path(f"/proc/self/task/{task}/children").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has just ended
        held.update(f"process {pid}" for pid in children.split())
    return held


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI everything can be installed: a skip means that something was not tested, so it is a failure."""
    if not CI or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = (
        report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
    )
    if not reason.startswith(PLATFORM):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may be missing: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    report = yield
    _refuse_skip(report)
    return report
