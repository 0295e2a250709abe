"""The example for Alnair's API runs as its description says, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY, clean_environment

pytestmark = pytest.mark.integration

EPOCH = re.compile(
    r"epoch (\d): 60 samples in 8 batches, (\d+) samples/s, data stall (\d+\.\d) %, (\d+) % right\n", re.ASCII
)


@pytest.mark.parametrize(
    "options",
    [["--workers", "2"], ["--workers", "0", "--eager"], ["--workers", "1", "--eager", "--no-cache"]],
    ids=["lazy", "eager", "direct"],
)
def test_it_runs(tmp_path, options):
    environment = clean_environment({"TMPDIR": str(tmp_path / "temporary")})
    del environment["HOTSET_CACHE"]  # the example makes one for itself
    (tmp_path / "temporary").mkdir()
    done = subprocess.run(
        [sys.executable, REPOSITORY / "examples/alnair_imagenet.py", "--images", "60", "--batch-size", "8", *options],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    epochs = EPOCH.findall(done.stdout)
    assert [number for number, *_ in epochs] == ["1", "2", "3"]
    assert all(int(rate) > 0 and 0 <= float(stall) <= 100 for _, rate, stall, _ in epochs)
    assert re.search(r"^validation: 15 samples in 2 batches", done.stdout, re.MULTILINE)
    assert list((tmp_path / "temporary").glob("alnair-*")) == []
    assert list(Path(os.environ["XDG_RUNTIME_DIR"]).glob("**/*.sock")) == []
