"""The example of the documentation, run as a user would."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Each run imports torch in three processes.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, timeout=280, cwd=EXAMPLES.parent
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def epochs(printed: str) -> list[tuple[str, str]]:
    line = r"rank (\d), epoch (\d): 24 samples, [\d,]+ samples/s, data stall [\d.]+ %, hit rate"
    return sorted(re.findall(line, printed))


def test_two_ranks_train_and_go_on(tmp_path: Path):
    state = str(tmp_path / "state.pt")
    made = tmp_path / "images"
    subprocess.run(
        [sys.executable, "-c", f"from examples.pytorch_resnet import *; make_images(Path({str(made)!r}))"],
        check=True,
        cwd=EXAMPLES.parent,
    )
    common = ("examples/pytorch_resnet.py", "--data", str(made), "--state", state)
    assert epochs(run(*common, "--epochs", "1")) == [("0", "0"), ("1", "0")]
    assert epochs(run(*common, "--epochs", "2", "--resume")) == [("0", "1"), ("1", "1")]
