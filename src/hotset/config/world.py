"""Which of how many processes of a job this one is, as far as whoever launched it says."""

from __future__ import annotations

from collections.abc import Mapping

from hotset.errors import InvalidInput

__all__ = ["launched_as"]

#: (rank, size) as launchers write it: torchrun and those that follow it, then `srun`.
_PAIRS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


def launched_as(env: Mapping[str, str]) -> tuple[int, int]:
    """(rank, size of the world); (0, 1) if nobody says anything."""
    for rank_name, size_name in _PAIRS:
        if rank_name in env and size_name in env:
            try:
                rank, size = int(env[rank_name]), int(env[size_name])
            except ValueError:
                rank = size = -1
            if not 0 <= rank < size:
                raise InvalidInput(
                    f"{rank_name}={env[rank_name]!r} and {size_name}={env[size_name]!r} are no rank and size of a world"
                )
            return rank, size
    return 0, 1
