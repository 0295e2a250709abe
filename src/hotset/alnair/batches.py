"""What travels between the loader and its workers: batches of indices one way, samples and failures the other.

A batch need not end with a window: its first samples may come from one window and the rest from the next. Such a *part* is
loaded by the workers like any batch, but is put together only when it is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Batch", "Collate", "Failure", "OnError", "Result", "Samples", "plan"]

OnError = str | Callable[[int, Exception], Any]
"""``"raise"``, ``"skip"``, or a function that is given the index and the error and returns a sample in its place."""


class Batch(list[int]):
    """Indices of samples. A type of its own: the dataset then returns failures instead of raising the first."""

    part: bool = False


class Samples(list[Any]):
    """The samples of a `Batch`, among them instances of `Failure`."""

    part: bool = False


@dataclass(frozen=True)
class Failure:
    """A sample that could not be made."""

    index: int
    error: Exception


class Result(NamedTuple):
    """What becomes of a batch. A tuple, so that torch pins the memory of what is in it."""

    data: Any  #: the collated batch; of a part the list of its samples
    empty: bool  #: all samples were skipped: there are no data
    skipped: int
    part: bool = False


class Collate:
    """Makes a `Result` of the samples of a batch, in the worker."""

    def __init__(self, function: Callable[[Any], Any], on_error: OnError) -> None:
        self.function = function
        self.on_error = on_error

    def __call__(self, samples: Any) -> Result:
        if not isinstance(samples, Samples):  # a single one, or a dataset that has its own way to make batches
            return Result(self.function(samples), empty=False, skipped=0)
        good = [sample for sample in map(self._replaced, samples) if not isinstance(sample, Failure)]
        data = good if samples.part or not good else self.function(good)
        return Result(data, empty=not good, skipped=len(samples) - len(good), part=samples.part)

    def _replaced(self, sample: Any) -> Any:
        if not isinstance(sample, Failure) or self.on_error == "skip":
            return sample
        if callable(self.on_error):
            return self.on_error(sample.index, sample.error)
        raise sample.error


def plan(indices: Sequence[int], size: int, *, carried: int, last: bool, drop_last: bool) -> list[Batch]:
    """The batches of one window, in order, ``size`` indices each.

    ``carried`` samples of the windows before wait for theirs: the first batch is the part that completes them. What is
    left at the end is a part for the next window, and in the ``last`` one a short batch or dropped.
    """
    head = Batch(indices[: size - carried] if carried else [])
    head.part = True
    batches = [head] if head else []
    for start in range(len(head), len(indices), size):
        batch = Batch(indices[start : start + size])
        batch.part = len(batch) < size and not last
        if len(batch) == size or not (last and drop_last):
            batches.append(batch)
    return batches
