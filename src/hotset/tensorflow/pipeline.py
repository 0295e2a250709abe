"""`dataset`: a `tf.data.Dataset` over a `hotset.Dataset`.

Python is called once for many samples: each call costs as much as reading ten samples, and whatever runs in Python competes
with the training loop for the interpreter. Decoding and batching are TensorFlow's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from hotset.errors import InvalidInput
from hotset.loaders.samples import Epochs, OnBad, Samples, SourceArgument, Target, check_policy
from hotset.tensorflow.calls import call
from hotset.tensorflow.decode import Decode, Decoding, decoder
from hotset.tensorflow.feed import Feed

__all__ = ["dataset"]

#: About so many bytes, and no more samples than this, are read in one call of Python.
_READ_BYTES = 4 * 2**20
_READ_SAMPLES = 1024
#: So many of these wait to be decoded.
_READS_AHEAD = 2
#: Samples that are decoded together where batches are not made here.
_DECODE_SAMPLES = 64

_for_ever: list[Feed] = []


def dataset(
    source: SourceArgument,
    name: str | None = None,
    *,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    decode: Decode = "bytes",
    labels: Target | None = None,
    on_bad: OnBad = "raise",
    shuffle: bool = True,
    seed: int = 0,
    epoch: int | Callable[[], int] = 0,
    shard: tuple[int, int] | tf.distribute.InputContext | None = None,
    num_parallel_calls: int = tf.data.AUTOTUNE,
    lookahead: int | None = None,
    **opening: Any,
) -> tf.data.Dataset:
    """The samples of a dataset, or with ``labels`` pairs of sample and label, as a `tf.data.Dataset` of known length.

    Each iteration is the next epoch: another order, which is a function of (snapshot, seed, epoch) and is told to the
    prefetcher when it begins. The result has two attributes more than others: ``class_names``, as Keras has it, and ``feed``
    (`Feed`), with the dataset behind it and the number of bad samples.

    Parameters
    ----------
    source, name, opening:
        As in `hotset.open`; what is opened here is closed when the result, and all that was made of it, is gone. Or an open
        `hotset.Dataset`, which stays the caller's to close.
    batch_size, drop_remainder:
        Without a size samples come one by one. ``drop_remainder`` drops the incomplete batch at the end, and the samples that
        are too many for all shards to have the same number.
    decode:
        ``"bytes"``: scalar strings; ``"image"``: RGB as uint8, of whatever size it has; or a function of a scalar string
        tensor that makes dense tensors. It runs in ``num_parallel_calls`` threads of TensorFlow.
    labels:
        ``"directory"``: the number of the class, which is the object's first directory; ``"key"``; ``"index"``; or a
        function of the key.
    on_bad:
        What becomes of an object that cannot be decoded: ``"raise"``; ``"skip"`` it (the length is then not known before);
        ``"replace"`` it by the next that can be; or a function of (key, error) that makes what ``decode`` would have made.
    epoch:
        The number of the first iteration, or a function that is asked for the number of each.
    shard:
        (rank, world), or the context that `tf.distribute.Strategy.distribute_datasets_from_function` gives. All ranks get
        the same number of samples: if it does not divide, some come twice, unless ``drop_remainder``.
    lookahead:
        Bytes that are fetched ahead of the reading.
    """
    check_policy(on_bad)
    function = decoder(decode)
    if batch_size is not None and batch_size < 1:
        raise InvalidInput(f"a batch of {batch_size} samples")
    rank, world = _place(shard)
    samples = Samples(source, name, target=labels, **opening)
    try:
        epochs = Epochs(
            samples, shuffle=shuffle, seed=seed, rank=rank, world=world, drop_last=drop_remainder, lookahead=lookahead
        )
        length = _length(len(epochs), batch_size, drop_remainder=drop_remainder)
        all_kept = samples.hot.on_changed != "skip" and (function is None or on_bad != "skip")
        feed = Feed(samples, epochs, epoch, on_bad)
        if batch_size is None:
            made = _samples(feed, function, num_parallel_calls, all_kept=all_kept)
        else:
            reads = _Reads(
                batch_size, drop_remainder=drop_remainder, rows=batch_size if drop_remainder and all_kept else None
            )
            made = _batches(feed, function, reads, num_parallel_calls)
    except BaseException:
        samples.close()
        raise
    if all_kept:
        made = made.apply(tf.data.experimental.assert_cardinality(length))
    if shard is not None:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        made = made.with_options(options)
    made = made.prefetch(tf.data.AUTOTUNE)
    made.class_names = list(feed.classes)
    made.feed = feed
    if tf.inside_function():
        _for_ever.append(feed)  # the graph outlives these objects of Python, and cannot refer to them
    return made


@dataclass(frozen=True)
class _Reads:
    """What is read in one call of Python: so many samples, at the end of an epoch fewer or none. ``rows`` if it is always so
    many, and none of them is left out.
    """

    samples: int
    drop_remainder: bool = False
    rows: int | None = None


def _samples(feed: Feed, decode: Callable[[Any], Any] | None, parallel: int, *, all_kept: bool) -> tf.data.Dataset:
    """One by one."""
    together = max(1, _READ_BYTES * len(feed.hot) // max(1, feed.hot.total_bytes))
    if decode is None:
        return _read(feed, _Reads(min(_READ_SAMPLES, together)), with_index=False).prefetch(_READS_AHEAD).unbatch()
    decoding = Decoding(feed, decode)
    reads = _Reads(min(_DECODE_SAMPLES, together))
    if decoding.one_shape:
        return _decoded(feed, decoding, reads, parallel).unbatch()
    read = _read(feed, reads, with_index=True).prefetch(_READS_AHEAD).unbatch()
    decoded = read.map(decoding.sample, num_parallel_calls=parallel)
    if not all_kept:
        decoded = decoded.filter(lambda kept, *_: kept)
    return decoded.map(lambda _, *sample: sample if len(sample) > 1 else sample[0])


def _batches(feed: Feed, decode: Callable[[Any], Any] | None, reads: _Reads, parallel: int) -> tf.data.Dataset:
    """What is in one batch is read together, and decoded together."""
    if decode is None:
        return _read(feed, reads, with_index=False)
    return _decoded(feed, Decoding(feed, decode), reads, parallel)


def _decoded(feed: Feed, decoding: Decoding, reads: _Reads, parallel: int) -> tf.data.Dataset:
    threads = parallel if parallel > 0 else len(os.sched_getaffinity(0))
    read = _read(feed, reads, with_index=True).prefetch(_READS_AHEAD)
    # Two batches at a time, so that no thread has nothing to do when one of them is nearly ready.
    return read.map(decoding.batch(threads, rows=reads.rows), num_parallel_calls=2)


def _read(feed: Feed, reads: _Reads, *, with_index: bool) -> tf.data.Dataset:
    """Batches of (bytes[, index][, label])."""
    types = [tf.string, tf.int64]
    shapes: list[tuple[int, ...]] = [(), ()]
    if feed.labelled:
        kind, shape = feed.label_kind
        types.append(tf.string if kind.hasobject else tf.as_dtype(kind))
        shapes.append(shape)

    def begin(_: Any) -> Any:
        return tf.ensure_shape(call(feed.begin, [], tf.int64), [None])

    def read(indices: Any) -> Any:
        columns = call(feed.read, [indices], types)
        data, index, *label = (
            tf.ensure_shape(column, [reads.rows, *shape]) for column, shape in zip(columns, shapes, strict=True)
        )
        columns = [data, *([index] if with_index else []), *label]
        return tuple(columns) if len(columns) > 1 else data

    epoch = tf.data.Dataset.from_tensors(0).map(begin)
    return epoch.flat_map(
        lambda order: tf.data.Dataset.from_tensor_slices(order).batch(
            reads.samples, drop_remainder=reads.drop_remainder
        )
    ).map(read)


def _length(samples: int, batch_size: int | None, *, drop_remainder: bool) -> int:
    if batch_size is None:
        return samples
    if not drop_remainder:
        return -(-samples // batch_size)
    if samples < batch_size:
        raise InvalidInput(f"no batch of {batch_size} can be made of {samples} samples: make it smaller")
    return samples // batch_size


def _place(shard: tuple[int, int] | tf.distribute.InputContext | None) -> tuple[int, int]:
    """(rank, world)"""
    if shard is None:
        return 0, 1
    if isinstance(shard, tf.distribute.InputContext):
        return shard.input_pipeline_id, shard.num_input_pipelines
    rank, world = shard
    return rank, world
