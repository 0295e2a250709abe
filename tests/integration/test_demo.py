"""The demo: its numbers, its chart, and that it leaves nothing else, however it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import Child, clean_environment, descendants, wait_until, wait_until_gone

pytestmark = pytest.mark.integration

DEMO = [sys.executable, "-m", "hotset", "demo", "--images", "300"]


@pytest.fixture
def temporary(tmp_path):
    """A place for temporary files of the demo's own."""
    place = tmp_path / "temporary"
    place.mkdir()
    return place


def left_in_memory() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").glob("hotset-demo-*")}


def test_the_whole_demo(tmp_path, temporary):
    before = left_in_memory()
    done = subprocess.run(
        [*DEMO, "--out", str(tmp_path / "out"), "--json"],
        env=clean_environment({"TMPDIR": str(temporary)}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    direct, first, later = document["epochs"]
    assert all(epoch["images_per_second"] > 0 and epoch["first_batch_seconds"] > 0 for epoch in document["epochs"])
    assert later["images_per_second"] > max(first["images_per_second"], direct["images_per_second"])
    assert later["v100s_fed"] == pytest.approx(later["images_per_second"] / 383, abs=0.01)
    assert (document["reload"]["modified"], document["reload"]["gets"]) == (1, 1)
    assert json.loads((tmp_path / "out/demo.json").read_text())["epochs"] == document["epochs"]
    assert (tmp_path / "out/demo.png").read_bytes().startswith(b"\x89PNG")
    assert document["chart"] == str(tmp_path / "out/demo.png")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["demo.json", "demo.png"]
    assert list(temporary.iterdir()) == []
    assert left_in_memory() <= before
    assert list(Path(os.environ["XDG_RUNTIME_DIR"]).iterdir()) == []
    assert not Path(os.environ["HOTSET_CACHE"]).exists(), "the user's cache is not the demo's"


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM], ids=lambda end: end.name)
def test_stopped_in_the_middle_it_cleans_up(tmp_path, temporary, end):
    before = left_in_memory()
    out = tmp_path / "out"
    command = [*DEMO, "--out", str(out), "--images", "3000", "--progress", "lines"]
    with Child(command, env={"TMPDIR": str(temporary)}) as child:
        wait_until(lambda: "direct from S3" in child.errors(), what="the first epoch", timeout=100)
        started = descendants(child.pid)
        assert started, "the server"
        child.signal(end)
        assert child.wait() == 130
        assert "Traceback" not in child.errors()
        assert "all temporary files are gone" in child.errors()
    for pid in started:
        wait_until_gone(pid)
    assert list(temporary.iterdir()) == []
    assert left_in_memory() <= before
    assert not out.exists()


@pytest.fixture
def _tidy_memory():
    """A killed process cannot clean up; what it kept in memory is of no use to the next test."""
    before = left_in_memory()
    yield
    for name in left_in_memory() - before:
        shutil.rmtree(f"/dev/shm/{name}")


@pytest.mark.usefixtures("_tidy_memory")
def test_killed_it_takes_its_server_with_it(temporary):
    with Child([*DEMO, "--progress", "lines"], env={"TMPDIR": str(temporary)}, cwd=temporary) as child:
        wait_until(lambda: "direct from S3" in child.errors(), what="the first epoch", timeout=100)
        started = descendants(child.pid)
        child.kill()
    for pid in started:
        wait_until_gone(pid)


def test_without_rclone_it_says_what_to_install(monkeypatch, tmp_path):
    from hotset.demo import server
    from hotset.errors import NotFound

    monkeypatch.setattr(server.sys, "executable", str(tmp_path / "python"))
    with (
        pytest.raises(NotFound, match=r"hotset\[demo\]"),
        server.serve(tmp_path, {"PATH": str(tmp_path)}),
    ):
        pass


def test_what_would_stop_it_at_its_end_is_said_at_once(tmp_path, monkeypatch):
    from hotset.demo import run
    from hotset.errors import Denied, Full

    (tmp_path / "file").touch()
    with pytest.raises(Denied, match="--out"):
        run.run_demo(300, tmp_path / "file" / "out", {}, None)
    monkeypatch.setattr(run, "free_bytes", lambda path: 10**6)
    with pytest.raises(Full, match="TMPDIR"):
        run.run_demo(300, tmp_path / "out", {}, None)


def test_images_follow_from_their_number():
    from hotset.demo.images import Images

    images = Images(1000)
    assert images.content(17) == Images(50).content(17)
    assert images.content(17) != images.content(17, version=1)
    assert len({images.key(index) for index in range(1000)}) == 1000
    assert 25_000 < sum(len(images.content(index)) for index in range(20)) / 20 < 40_000
