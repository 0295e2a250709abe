"""Decoding in TensorFlow's own threads, and in Python what could not be decoded there.

A graph knows no try and no except. What it has is a dataset that leaves out elements with errors. So a batch is decoded by a
dataset of its own, whose one element is the decoded batch; if that is missing, Python is called: it decodes the batch once more,
sample by sample, to learn which are bad and why, and does what the policy says. Such a dataset costs a tenth of a millisecond:
nothing for a batch, but as much as decoding a small image where samples are wanted one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from hotset.errors import InvalidInput
from hotset.tensorflow.calls import call
from hotset.tensorflow.feed import Array, Feed

__all__ = ["Decode", "Decoding", "decoder"]

Decode = Literal["bytes", "image"] | Callable[[Any], Any]


def decoder(decode: Decode) -> Callable[[Any], Any] | None:
    """The function of a scalar string tensor, or None if the bytes are what is wanted."""
    if callable(decode):
        return decode
    if decode == "bytes":
        return None
    if decode == "image":
        return _image
    raise InvalidInput(f"decode is 'bytes', 'image' or a function of a string tensor, not {decode!r}")


def _image(data: Any) -> Any:
    return tf.io.decode_image(data, channels=3, expand_animations=False)


class Decoding:
    """Functions for `map`, out of a function of a scalar string tensor."""

    def __init__(self, feed: Feed, decode: Callable[[Any], Any]) -> None:
        self._feed = feed
        self._decode = decode
        self._spec = tf.data.Dataset.from_tensors(b"").map(decode).element_spec
        self._parts = tf.nest.flatten(self._spec)
        if not all(isinstance(part, tf.TensorSpec) for part in self._parts):
            raise InvalidInput(f"decode must make dense tensors, not {self._spec}")

    @property
    def one_shape(self) -> bool:
        """Whether all samples have the same shape, which is known."""
        return all(part.shape.is_fully_defined() for part in self._parts)

    def batch(self, parallel: int, *, rows: int | None) -> Callable[..., Any]:
        """(bytes, indices[, labels]) of a batch -> (decoded[, labels]), shorter if bad samples are left out; of so many
        ``rows``, if that is known. ``parallel`` threads work on one batch.
        """

        def run(data: Any, indices: Any, *labels: Any) -> Any:
            each = tf.data.Dataset.from_tensor_slices(data).map(self._flat, num_parallel_calls=parallel)
            done, *parts = self._attempt(each.batch(tf.size(data, tf.int64)), rank=1)
            types = [part.dtype for part in (*self._parts, *labels)]
            columns = tf.cond(
                done,
                lambda: [*parts, *labels],
                lambda: call(self._batch_again, [data, indices, *labels], types),
            )
            return self._shaped(columns, [rows], labels)

        return run

    def sample(self, data: Any, index: Any, *label: Any) -> Any:
        """(bytes, index[, label]) -> (whether it is not to be left out, decoded[, label])"""
        done, *parts = self._attempt(tf.data.Dataset.from_tensors(data).map(self._flat), rank=0)
        types = [tf.bool, *(part.dtype for part in (*self._parts, *label))]
        kept, *columns = tf.cond(
            done,
            lambda: [done, *parts, *label],
            lambda: call(self._sample_again, [data, index, *label], types),
        )
        sample = self._shaped(columns, [], label)
        return (kept, *sample) if label else (kept, sample)

    def _flat(self, data: Any) -> Any:
        return tuple(tf.nest.flatten(self._decode(data)))

    def _attempt(self, trial: tf.data.Dataset, *, rank: int) -> Any:
        """(True, the element of ``trial`` ...), or (False, nothing ...)"""
        nothing = (False, *(tf.zeros([0] * ((part.shape.rank or 0) + rank), part.dtype) for part in self._parts))
        whole = trial.map(lambda *parts: (True, *parts)).ignore_errors()
        return whole.concatenate(tf.data.Dataset.from_tensors(nothing)).take(1).get_single_element()

    def _shaped(self, columns: Any, outer: list[int | None], labels: Any) -> Any:
        """decoded[, label], with all that is known about shapes."""
        shapes = [*([*outer, *part.shape] if part.shape.rank is not None else None for part in self._parts)]
        shapes += [label.shape for label in labels]
        known = [tf.ensure_shape(column, shape) for column, shape in zip(columns, shapes, strict=True)]
        sample = tf.nest.pack_sequence_as(self._spec, known[: len(self._parts)])
        return (sample, *known[len(self._parts) :]) if labels else sample

    # -- in Python, where errors can be caught ---------------------------------------------------------------------------

    def _batch_again(self, data: Array, indices: Array, *labels: Array) -> list[Array]:
        rows = self._again(data.tolist(), indices.tolist())
        if not rows:
            raise InvalidInput("nothing of a batch could be decoded: are these the right objects for this decoder?")
        decoded = [np.stack(column) for column in zip(*(parts for _, parts in rows), strict=True)]
        return [*decoded, *(self._feed.labels([index for index, _ in rows]) for _ in labels)]

    def _sample_again(self, data: bytes, index: Any, *label: Any) -> list[Any]:
        for taken, parts in self._again([data], [int(index)]):
            return [True, *parts, *(self._feed.labels([taken])[0] for _ in label)]
        nothing = (np.zeros([size or 0 for size in part.shape], part.dtype.as_numpy_dtype) for part in self._parts)
        return [False, *nothing, *label]

    def _again(self, data: list[bytes], indices: list[int]) -> list[tuple[int, list[Array]]]:
        """(index, decoded) of each; who takes the place of a bad one comes under an index of its own, for its label."""
        rows = []
        for one, index in zip(data, indices, strict=True):
            try:
                row: tuple[int, Any] | None = (index, self._eager(one))
            except Exception as error:  # noqa: BLE001  decoders raise what they like
                row = self._feed.in_place_of(index, error, self._eager)
            if row is not None:
                rows.append((row[0], self._arrays(row[1])))
        return rows

    def _eager(self, data: bytes) -> Any:
        return self._decode(tf.constant(data))

    def _arrays(self, value: Any) -> list[Array]:
        try:
            tf.nest.assert_same_structure(self._spec, value)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"on_bad made {value!r}, where decode makes {self._spec}") from error
        parts = tf.nest.flatten(value)
        return [np.asarray(part, spec.dtype.as_numpy_dtype) for part, spec in zip(parts, self._parts, strict=True)]
