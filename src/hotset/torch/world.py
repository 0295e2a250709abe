"""The ranks of a job: which one this is, and how all of them come to see one snapshot."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch.distributed

import hotset
from hotset.config.settings import environment
from hotset.config.world import launched_as
from hotset.errors import Changed, InvalidInput, NotFound, Unavailable

__all__ = ["open_agreed", "place_in_world"]


def place_in_world(rank: int | None, world: int | None) -> tuple[int, int]:
    """(rank, size): as given, else as torch.distributed says, else as torchrun or SLURM say in the environment."""
    if rank is not None and world is not None:
        if not 0 <= rank < world:
            raise InvalidInput(f"rank {rank} of a world of {world}")
        return rank, world
    if rank is not None or world is not None:
        raise InvalidInput("give both rank and world, or neither")
    if _initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return launched_as(environment())


def open_agreed(source: Any, name: str | None, opening: dict[str, Any]) -> hotset.Dataset:
    """As `hotset.open`, but all ranks of an initialized process group get the snapshot that rank 0 opens.

    A collective call: if rank 0 fails, all do.
    """
    if not _initialized() or torch.distributed.get_world_size() == 1 or opening.get("snapshot"):
        return hotset.open(source, name, **opening)
    if torch.distributed.get_rank() == 0:
        try:
            first = hotset.open(source, name, **opening)
        except BaseException as error:
            _told(("", f"{type(error).__name__}: {error}"))
            raise
        _told((first.snapshot, ""))
        return first
    digest, failure = _told(None)
    if failure:
        raise Unavailable(f"rank 0 could not open the dataset: {failure}")
    return _open_same(source, name, digest, opening)


def _told(what: tuple[str, str] | None) -> tuple[str, str]:
    message = [what]
    torch.distributed.broadcast_object_list(message, src=0)
    [heard] = message
    assert heard is not None, "rank 0 says something"
    return heard


def _open_same(source: Any, name: str | None, digest: str, opening: dict[str, Any]) -> hotset.Dataset:
    """The snapshot of that digest: from this machine's cache, or made here by listing the source."""
    with suppress(NotFound):
        return hotset.open(source, name, **{**opening, "snapshot": digest})
    dataset = hotset.open(source, name, **{**opening, "refresh": "always"})
    if dataset.snapshot != digest:
        dataset.close()
        raise Changed(
            "the source changed while the ranks opened it, so that they would see different samples; start again"
        )
    return dataset


def _initialized() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
