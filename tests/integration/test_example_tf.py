"""The example runs, learns, and says what it promises."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.images import NO_IMAGE, image
from tests.support.processes import REPOSITORY, clean_environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EXAMPLE = REPOSITORY / "examples" / "tf_mnist.py"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_learns_and_says_how_long_it_waited():
    output = run("--count", "1500", "--epochs", "2", "--batch-size", "32")
    assert "1,500 objects, classes 0, 1, 2, 3, 4, 5, 6, 7, 8, 9" in output
    epochs = re.findall(r"epoch (\d): loss ([\d.]+), ([\d,]+) samples/s, data stall ([\d.]+) %", output)
    assert [epoch for epoch, *_ in epochs] == ["0", "1"]
    assert float(epochs[-1][1]) < float(epochs[0][1]) < 2.5
    assert all(0 <= float(stall) <= 100 for *_, stall in epochs)
    assert "3000 reads" in output
    assert "0 bad samples" in output


def test_data_of_the_user(tmp_path):
    for digit in range(2):
        for number in range(20):
            path = tmp_path / "data" / str(digit) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image(number, size=28))
    (tmp_path / "data" / "1" / "broken.png").write_bytes(NO_IMAGE)
    output = run("--uri", str(tmp_path / "data"), "--epochs", "1", "--batch-size", "20")
    assert "41 objects, classes 0, 1" in output
    assert "epoch 0: " in output
    assert "1 bad samples" in output
