"""TFRecord files and Examples, as TensorFlow writes them."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotset.loaders.records.example import parse_example
from hotset.loaders.records.format import Malformed
from hotset.loaders.records.tfrecord import TFRecord, _examples, _payloads
from tests.unit.loaders.scanning import read, scan

PAYLOADS = st.lists(st.binary(max_size=40), min_size=1, max_size=8)
CUTS = st.lists(st.integers(1, 300), max_size=6)


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow", reason="platform: no TensorFlow for this Python")


@pytest.fixture(scope="module")
def write(tf, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("tfrecord") / "file")

    def written(payloads) -> bytes:
        with tf.io.TFRecordWriter(path) as writer:
            for payload in payloads:
                writer.write(payload)
        with open(path, "rb") as file:
            return file.read()

    return written


def payloads_of(data: bytes, cuts=(), *, skip_damaged: bool = False) -> list[bytes]:
    _, found = scan(TFRecord(), data, cuts, skip_damaged=skip_damaged)
    return read(_payloads, data, found.spans, head=12, tail=4)


@given(payloads=PAYLOADS, cuts=CUTS)
def test_what_tensorflow_writes_is_read(write, payloads, cuts):
    assert payloads_of(write(payloads), cuts) == payloads


@given(payloads=PAYLOADS, data=st.data())
@settings(max_examples=200)
def test_a_flipped_bit_is_found_and_only_its_record_lost(write, payloads, data):
    whole = bytearray(write(payloads))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Malformed) as caught:
        payloads_of(bytes(whole))
    ends = np.cumsum([16 + len(payload) for payload in payloads])
    hit = int(np.searchsorted(ends, place, side="right"))
    start = int(ends[hit]) - 16 - len(payloads[hit])
    assert caught.value.at == start
    got = payloads_of(bytes(whole), skip_damaged=True)
    if place < start + 12:  # the length: what comes behind cannot be found
        assert got == payloads[:hit]
    else:
        assert got == payloads[:hit] + payloads[hit + 1 :]


@given(payloads=PAYLOADS, data=st.data())
def test_a_file_that_is_cut_off_is_named_with_the_record(write, payloads, data):
    whole = write(payloads)
    ends = [0, *np.cumsum([16 + len(payload) for payload in payloads]).tolist()]
    cut = data.draw(st.integers(1, len(whole) - 1).filter(lambda place: place not in ends))
    with pytest.raises(Malformed, match="cut off") as caught:
        payloads_of(whole[:cut])
    assert caught.value.at == max(end for end in ends if end <= cut)


def test_another_file():
    with pytest.raises(Malformed, match="not a TFRecord file") as caught:
        payloads_of(b"label,feature\n1,2\n")
    assert caught.value.at == 0


FEATURES = st.dictionaries(
    st.text(max_size=5),
    st.one_of(
        st.lists(st.binary(max_size=5), max_size=3),
        st.lists(st.floats(width=32, allow_nan=False), max_size=3),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    ),
    max_size=4,
)


@given(features=FEATURES)
def test_examples(tf, features):
    def feature(values):
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    example = tf.train.Example(
        features=tf.train.Features(feature={name: feature(values) for name, values in features.items()})
    )
    parsed = parse_example(memoryview(example.SerializeToString()))
    assert {name: list(values) for name, values in parsed.items()} == features
    for name, values in parsed.items():
        if features[name] and isinstance(features[name][0], float):
            assert values.dtype == np.float32
        elif features[name] and isinstance(features[name][0], int):
            assert values.dtype == np.int64


def test_examples_of_other_writers():
    """Numbers that are not packed, fields that nobody knows, lists in several parts."""
    floats = b"".join(b"\x0d" + struct.pack("<f", value) for value in (1.5, -2.0))
    feature = b"\x12" + bytes([len(floats)]) + floats
    entry = b"\x0a\x01f\x12" + bytes([len(feature)]) + feature + b"\x18\x07"
    features = b"\x0a" + bytes([len(entry)]) + entry
    example = b"\x0a" + bytes([len(features)]) + features + b"\x11" + bytes(8) + b"\x1d" + bytes(4)
    assert parse_example(memoryview(example))["f"].tolist() == [1.5, -2.0]
    numbers = b"\x08\x05\x0a\x02\x06\x07"
    feature = b"\x1a" + bytes([len(numbers)]) + numbers
    entry = b"\x0a\x01i\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    assert parse_example(memoryview(b"\x0a" + bytes([len(features)]) + features))["i"].tolist() == [5, 6, 7]
    assert parse_example(memoryview(b"")) == {}


@given(data=st.binary(max_size=60))
def test_what_is_no_example_is_an_error_and_nothing_worse(data):
    with suppress(Malformed):
        [parsed] = _examples([memoryview(data)])
        assert all(isinstance(name, str) and len(values) >= 0 for name, values in parsed.items())
