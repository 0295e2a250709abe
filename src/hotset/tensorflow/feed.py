"""The Python end of a pipeline: TensorFlow's threads call it once an epoch, once a batch of reads, and for each bad sample."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import hotset
from hotset.errors import InvalidInput
from hotset.loaders.samples import Epochs, OnBad, Samples, in_place_of

__all__ = ["Array", "Feed"]

Array = npt.NDArray[Any]


class Feed:
    """Where the samples of a pipeline come from. Lives as long as anything that is made of the pipeline."""

    def __init__(self, samples: Samples, epochs: Epochs, epoch: int | Callable[[], int], on_bad: OnBad) -> None:
        self._samples = samples
        self._epochs = epochs
        self._epoch = epoch
        self._on_bad = on_bad
        self._lock = threading.Lock()
        self._label_kind: tuple[np.dtype[Any], tuple[int, ...]] | None = None
        #: How often a sample could not be decoded so far, and was left out or replaced.
        self.bad = 0

    @property
    def hot(self) -> hotset.Dataset:
        """The dataset behind it."""
        return self._samples.hot

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, if the labels are directories."""
        return self._samples.classes

    @property
    def labelled(self) -> bool:
        return self._samples.has_targets

    def begin(self) -> Array:
        """An iteration begins: the samples of its epoch, in their order."""
        with self._lock:
            if callable(self._epoch):
                epoch = int(self._epoch())
            else:
                epoch = self._epoch
                self._epoch += 1
        return self._epochs.begin(epoch)

    def read(self, indices: Array) -> list[Array]:
        """(bytes, indices, labels if there are some), without those that changed at the source and are to be skipped."""
        numbers: list[int] = indices.tolist()
        found = self._samples.read(numbers)
        if None in found:
            numbers = [number for number, data in zip(numbers, found, strict=True) if data is not None]
            found = [data for data in found if data is not None]
        data = np.empty(len(found), object)  # an array of numpy's own bytes would lose zeros at their ends
        data[:] = found
        columns = [data, np.array(numbers, np.int64)]
        return [*columns, self.labels(numbers)] if self.labelled else columns

    def labels(self, numbers: list[int]) -> Array:
        """The labels of these samples, of the type and shape of the first sample's."""
        labels = self._samples.targets(numbers)
        dtype, shape = self.label_kind
        try:
            return np.array(labels, dtype).reshape(len(numbers), *shape)
        except ValueError as error:
            raise InvalidInput(f"the labels of a dataset must be of one shape, {shape}: {error}") from error

    @property
    def label_kind(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Type and shape of a label; texts are objects."""
        if self._label_kind is None:
            first = self._samples.targets([0])[0]
            label = np.asarray(first)
            if label.dtype.kind not in "biufUS":
                raise InvalidInput(f"a label is a number, a text or an array of such, not {type(first).__name__}")
            self._label_kind = np.dtype(object) if label.dtype.kind in "US" else label.dtype, label.shape
        return self._label_kind

    def in_place_of(self, index: int, error: Exception, decode: Callable[[bytes], Any]) -> tuple[int, Any] | None:
        """(index, what it was decoded to) of what takes the place of a sample that cannot be decoded; None: nothing does."""
        outcome = in_place_of(self._samples, index, error, decode, self._on_bad)
        with self._lock:
            self.bad += 1
        return outcome
