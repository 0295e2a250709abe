"""Ranks of a process group: one snapshot for all, each sample once, whether they share a cache or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.datasets import many_small
from tests.support.opening import use

# Each rank imports torch in a process of its own.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

COUNT = 41
DATA = dict(many_small(COUNT, 300))

RANK = """
import json, sys
import torch.distributed as dist
from hotset.errors import HotsetError
from hotset.torch import loader

rank, world, place, meeting, seeds_state = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
try:
    with loader(place, batch_size=3, target="key", seed=4) as batches:
        if seeds_state:
            batches.load_state_dict(json.loads(seeds_state))
        keys = []
        for number, (_, names) in enumerate(batches):
            keys += names
            if not seeds_state and number == 3:
                break
        print(json.dumps({"keys": keys, "snapshot": batches.snapshot, "state": batches.state_dict()}))
except HotsetError as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
dist.destroy_process_group()
"""


@pytest.fixture
def place(bucket, proxy, monkeypatch):
    use(monkeypatch, proxy.env())
    bucket.put_many(DATA)
    return bucket.url


def ranks(tmp_path: Path, places: list[str], *, state: object = None, caches: list[Path] | None = None) -> list[dict]:
    meeting = tmp_path / f"meeting-{len(os.listdir(tmp_path))}"
    children = []
    for rank, place in enumerate(places):
        env = dict(os.environ)
        if caches is not None:
            env["HOTSET_CACHE"] = str(caches[rank])
        words = [str(rank), str(len(places)), place, str(meeting), json.dumps(state) if state else ""]
        children.append(
            subprocess.Popen(
                [sys.executable, "-c", RANK, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    found = []
    for child in children:
        out, errors = child.communicate(timeout=250)
        assert child.returncode == 0, errors[-2000:]
        found.append(json.loads(out))
    return found


@pytest.mark.parametrize("shared", [True, False], ids=["one machine", "two machines"])
def test_interrupted_on_two_ranks_and_finished_on_three(place, tmp_path, shared):
    caches = None if shared else [tmp_path / f"cache{rank}" for rank in range(3)]
    first = ranks(tmp_path, [place] * 2, caches=caches)
    assert first[0]["snapshot"] == first[1]["snapshot"]
    assert first[0]["state"] == first[1]["state"]
    assert first[0]["state"]["consumed"] == 2 * 4 * 3
    second = ranks(tmp_path, [place] * 3, state=first[0]["state"], caches=caches)
    seen = [key for one in (*first, *second) for key in one["keys"]]
    assert set(seen) == set(DATA)
    assert len(seen) - COUNT == 1  # 17 left for three ranks: one is padding


def test_if_rank_0_cannot_open_nobody_hangs(place, tmp_path):
    [first, second] = ranks(tmp_path, ["s3://there-is-no-such-bucket", place])
    assert first["error"].startswith("NotFound")
    assert second["error"].startswith("Unavailable: rank 0 could not open the dataset: NotFound")
