"""The example runs, learns, and says what it promises."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.images import class_tree
from tests.support.processes import REPOSITORY, clean_environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EXAMPLE = REPOSITORY / "examples" / "paddle_resnet.py"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        env=clean_environment({"OMP_NUM_THREADS": "1"}),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_trains_and_says_how_long_it_waited():
    output = run("--count", "48", "--steps", "2", "--batch-size", "8", "--size", "32")
    assert "48 images of 3 classes" in output
    epochs = re.findall(r"epoch (\d): loss ([\d.]+), ([\d,.]+) samples/s, data stall ([\d.]+) %", output)
    assert [epoch for epoch, *_ in epochs] == ["0", "1"]
    assert all(0 <= float(stall) <= 100 for *_, stall in epochs)


def test_data_of_the_user(tmp_path):
    for key, data in class_tree(12, bad=[5]).items():
        path = tmp_path / "data" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    output = run(
        "--uri", str(tmp_path / "data"), "--epochs", "1", "--batch-size", "4", "--size", "32", "--workers", "0"
    )
    assert "12 images of 3 classes" in output
    assert "epoch 0: " in output
