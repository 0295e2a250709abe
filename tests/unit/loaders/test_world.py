"""Which rank of how many: as launchers say it."""

from __future__ import annotations

import pytest

from hotset.config.world import launched_as
from hotset.errors import InvalidInput


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (1, 2)),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, (0, 2)),
        ({"SLURM_NTASKS": "4"}, (0, 1)),  # in `salloc`, but not below `srun`
        ({"RANK": "3"}, (0, 1)),
    ],
)
def test_launchers(env: dict[str, str], place: tuple[int, int]):
    assert launched_as(env) == place


@pytest.mark.parametrize("pair", [("2", "2"), ("-1", "2"), ("x", "2"), ("0", "0")])
def test_what_makes_no_sense(pair: tuple[str, str]):
    with pytest.raises(InvalidInput, match=r"RANK='.*' and WORLD_SIZE"):
        launched_as(dict(zip(("RANK", "WORLD_SIZE"), pair, strict=True)))
