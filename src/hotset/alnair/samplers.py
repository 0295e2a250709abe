"""Samplers of the user, whose numbers mean samples of one window."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DistributedSampler, Sampler

from hotset.alnair.batches import Batch
from hotset.errors import InvalidInput

__all__ = ["Planned", "Tolerant", "check", "fit", "is_sized"]


class Planned(Sampler[Any]):
    """What torch is to hand out to its workers for the window that is being read; set anew for each window."""

    def __init__(self) -> None:
        self.batches: Any = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


class Tolerant:
    """The batches of a sampler that cannot be asked for all of them at once, as `Batch`."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return map(Batch, self._batches)


def is_sized(sampler: Any) -> bool:
    """Whether the sampler says how much it gives; one that does not may go on for ever."""
    try:
        len(sampler)
    except TypeError:
        return False
    return True


def check(sampler: Any, dataset: Any) -> None:
    """`InvalidInput` unless the sampler goes by the dataset, and so by whichever window is loaded.

    One that was made of numbers would leave out samples of a larger window, and ask a smaller one for some it lacks.
    """
    if not _goes_by(sampler, dataset):
        raise InvalidInput(
            f"{type(sampler).__name__} does not go by the dataset, whose samples come in {len(dataset.chunks)} windows of "
            "different length: use shuffle=True, or a sampler with the dataset as its data_source, or have one window "
            "(lazyloading, or maxmemory 0)"
        )


def _goes_by(sampler: Any, dataset: Any) -> bool:
    if any(getattr(sampler, name, None) is dataset for name in ("data_source", "dataset")):
        return True
    inner = getattr(sampler, "sampler", None)  # of a BatchSampler
    return inner is not None and _goes_by(inner, dataset)


def fit(sampler: Any, samples: int) -> None:
    """Tell a `DistributedSampler`, which counts once and for all, how many samples this window has."""
    if isinstance(sampler, DistributedSampler):
        ranks = sampler.num_replicas
        each = samples / ranks
        sampler.num_samples = math.floor(each) if sampler.drop_last else math.ceil(each)
        sampler.total_size = sampler.num_samples * ranks
    elif getattr(sampler, "sampler", None) is not None:
        fit(sampler.sampler, samples)
