"""The example runs, learns, and says what it promises."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.processes import REPOSITORY, clean_environment

pytestmark = pytest.mark.integration

EXAMPLE = REPOSITORY / "examples" / "wide_and_deep_criteo.py"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        env=clean_environment({"OMP_NUM_THREADS": "1"}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "more", [["--workers", "0"], ["--workers", "2", "--window", "64KiB"]], ids=["alone", "workers"]
)
def test_it_learns_and_says_how_long_it_waited(more):
    output = run("--rows", "6000", "--epochs", "3", "--batch-size", "128", *more)
    assert "6,000 rows in 3 files" in output
    epochs = re.findall(r"epoch (\d): loss ([\d.]+), ([\d,]+) samples/s, data stall ([\d.]+) %", output)
    assert [epoch for epoch, *_ in epochs] == ["0", "1", "2"]
    assert float(epochs[-1][1]) < float(epochs[0][1]) < 0.7
    assert all(0 <= float(stall) <= 100 for *_, stall in epochs)


def test_data_of_the_user(tmp_path):
    row = "1\t" + "\t".join(["5"] * 13 + ["68fd1e64"] * 26)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "day_0.tsv").write_text(f"{row}\n" * 300)
    output = run(
        "--uri", str(tmp_path / "data"), "--epochs", "1", "--steps", "2", "--workers", "0", "--batch-size", "100"
    )
    assert "300 rows in 1 files" in output
    assert "epoch 0: " in output
