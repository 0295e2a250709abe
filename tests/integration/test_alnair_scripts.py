"""Scripts that were written for Alnair run as they are: under every import name, in a pod and on a laptop."""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.alnair import Pod
from tests.support.alnair_scripts import IMAGES, IMPORTS, PICKLES
from tests.support.processes import Child, clean_environment, descendants, wait_until_gone

pytestmark = pytest.mark.integration


def jpeg(color: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 16), (color, 255 - color, 99)).save(out, "JPEG")
    return out.getvalue()


def images() -> dict[str, bytes]:
    """Twenty images to train with and twelve to validate, of four classes."""
    return {
        f"imagenet-mini/{part}/n{label}/{number}.JPEG": jpeg(60 * label + number)
        for part, count in (("train", 5), ("val", 3))
        for label in range(4)
        for number in range(count)
    }


def batches() -> dict[str, bytes]:
    """Three objects of six samples each, about 18 KB; the first value of a sample is its label."""
    found = {}
    for number in range(1, 4):
        labels = [number * 10 + sample for sample in range(6)]
        data = np.repeat(np.array(labels, np.uint8), 3072).reshape(6, 3072)
        found[f"data_batch_{number}"] = pickle.dumps({"data": data, "labels": labels})
    return {**found, "data_batch_4": b"not asked for", "test_batch": b"nor this"}


@pytest.fixture(scope="module")
def compat():
    """The directory for PYTHONPATH, as users learn of it."""
    done = subprocess.run([sys.executable, "-m", "hotset.alnair"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def start(tmp_path, compat):
    """Make the script and the command for it; the working directory is the script's."""
    app = tmp_path / "app"
    app.mkdir()

    def start(text: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        (app / "main.py").write_text(text)
        environment = clean_environment(env)
        environment["PYTHONPATH"] = f"{compat}{os.pathsep}{environment['PYTHONPATH']}"
        done = subprocess.run(
            [sys.executable, "main.py", *arguments],
            cwd=app,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    start.app = app
    return start


@pytest.fixture
def laptop(tmp_path):
    """A directory that stands for the bucket."""
    for key, data in {**images(), **batches()}.items():
        path = tmp_path / "data" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return {"HOTSET_ALNAIR_URI": str(tmp_path / "data")}


@pytest.fixture
def pod(bucket, tmp_path):
    bucket.put_many({**images(), **batches()})
    pod = Pod(tmp_path / "pod")
    pod.sign(bucket.server)
    pod.tell()
    return pod


def trained(done: subprocess.CompletedProcess[str]) -> None:
    """What the script for images prints when it saw each image once in each of its two epochs."""
    for epoch in range(2):
        for batch in range(3):
            assert f"Epoch {epoch} batch {batch + 1} of 3\n" in done.stdout
    assert done.stdout.count("trained on 20\n") == 2
    assert done.stdout.count("validated on 12\n") == 2


@pytest.mark.parametrize("names", IMPORTS.values(), ids=IMPORTS.keys())
def test_under_every_name(start, laptop, names):
    trained(start(names + IMAGES, "0", HOTSET_ALNAIR_QOS="usecache=false", **laptop))


def test_beside_a_library_of_the_script(start, laptop):
    """Its directory has the same name and comes first on the path."""
    (start.app / "lib").mkdir()
    (start.app / "lib/helpers.py").write_text("BATCHES = 3\n")
    check = "\nfrom lib.helpers import BATCHES\nassert BATCHES == 3\n"
    trained(start(IMPORTS["lib"] + check + IMAGES, "0", HOTSET_ALNAIR_QOS="usecache=false", **laptop))


def test_the_names_that_come_along(start, laptop):
    """Of a star import people also used what Alnair's modules had imported."""
    start(f"{IMPORTS['lib-star']}\nprint(os.getpid(), json, pickle, List[int], Dataset, DataLoader, dotdict(a=1).a)")


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("cache", [True, False])
def test_images_in_a_pod(start, pod, bucket, lazy, cache):
    pod.declare(bucket.name, ["imagenet-mini/train", "imagenet-mini/val"], UseCache=cache, LazyLoading=lazy)
    trained(start(IMPORTS["package"] + IMAGES, "2", **pod.env))


def test_pickles_in_a_pod(start, pod, bucket):
    """The hook is converted eagerly: it takes bytes out of ``self.data``."""
    pod.declare(
        bucket.name, ["data_batch_1", "data_batch_2", "data_batch_3", "test_batch"], LazyLoading=False, MaxMemory=50
    )
    done = start(IMPORTS["lib"] + PICKLES, **pod.env)
    assert done.stdout == "epoch 0 saw 18 18\nepoch 1 saw 18 18\n"


def test_an_interrupt_leaves_nothing(tmp_path, compat, laptop):
    """Ctrl-C at a terminal reaches all processes of the job."""
    script = tmp_path / "main.py"
    slow = IMAGES.replace("optimizer.step()", "optimizer.step(); __import__('time').sleep(60 * i)")
    script.write_text(IMPORTS["lib"] + slow)
    path = f"{compat}{os.pathsep}{clean_environment()['PYTHONPATH']}"
    command = [sys.executable, str(script), "2"]
    with Child(command, env={**laptop, "HOTSET_ALNAIR_QOS": "lazyloading=true", "PYTHONPATH": path}) as child:
        child.expect("Epoch 0 batch 1", timeout=90)
        started = descendants(child.pid)
        assert len(started) >= 3, "two workers and a filler"
        for pid in (child.pid, *started):
            os.kill(pid, signal.SIGINT)
        assert child.wait() in {1, -signal.SIGINT}
        assert "KeyboardInterrupt" in child.errors()
    for pid in started:
        wait_until_gone(pid)
    assert list(Path(os.environ["XDG_RUNTIME_DIR"]).glob("**/*.sock")) == []


def test_the_path_is_printed_without_torch(compat):
    assert sorted(path.name for path in Path(compat).iterdir() if path.name != "__pycache__") == [
        "AlnairJob.py",
        "AlnairJobDataLoader.py",
        "AlnairJobDataset.py",
        "lib",
    ]
    check = (
        "import runpy, sys; runpy.run_module('hotset.alnair', run_name='__main__'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", check], check=True, capture_output=True)


def test_without_torch_it_says_what_to_install():
    check = "import sys; sys.modules['torch.utils'] = None; from hotset.alnair import AlnairJobDataset"
    done = subprocess.run([sys.executable, "-c", check], check=False, capture_output=True, text=True)
    assert "AlnairJobDataset needs torch: pip install 'hotset[torch]'" in done.stderr
