"""Frames between reader and filler: what goes in comes out; what is no frame is refused without harm."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hotset.errors
from hotset.errors import Changed, HotsetError, InvalidInput, NotFound, Unavailable
from hotset.fill import wire

PREFIX = struct.Struct("<BIQ")
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@given(st.dictionaries(st.text(max_size=10), values, max_size=6), st.lists(st.binary(max_size=2000), max_size=5))
def test_what_goes_in_comes_out(header, parts):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, header, parts)
        wire.send(ours, {"next": True})
        assert wire.receive(theirs) == (header, b"".join(parts))
        assert wire.receive(theirs) == ({"next": True}, b"")


def test_buffers_of_any_kind_travel(pair):
    ours, theirs = pair
    parts = [b"ab", memoryview(b"cd")[1:], np.array([1, 2], np.uint64).data, bytearray(b"ef")]
    wire.send(ours, {}, parts)
    assert wire.receive(theirs)[1] == b"abd" + struct.pack("<2Q", 1, 2) + b"ef"


def test_more_parts_and_bytes_than_one_system_call_takes(pair):
    ours, theirs = pair
    parts = [bytes([n % 256]) * 5000 for n in range(2000)]
    sender = threading.Thread(target=wire.send, args=(ours, {"op": "x"}, parts))
    sender.start()
    _, payload = wire.receive(theirs)
    sender.join()
    assert payload == b"".join(parts)
    assert payload.readonly


def test_another_version_is_refused(pair):
    ours, theirs = pair
    ours.sendall(PREFIX.pack(wire.VERSION + 1, 2, 0) + b"{}")
    with pytest.raises(InvalidInput, match="version 2"):
        wire.receive(theirs)


@pytest.mark.parametrize(
    ("header", "payload"), [(wire.MAX_HEADER + 1, 0), (2, wire.MAX_PAYLOAD + 1), (2**32 - 1, 2**64 - 1)]
)
def test_a_frame_that_announces_too_much_costs_no_memory(pair, header, payload):
    ours, theirs = pair
    ours.sendall(PREFIX.pack(wire.VERSION, header, payload))
    with pytest.raises(InvalidInput, match="too large"):
        wire.receive(theirs)


@pytest.mark.parametrize(("header", "payload"), [({"x": "y" * wire.MAX_HEADER}, b""), ({}, b"x")])
def test_what_would_be_refused_is_not_even_sent(pair, monkeypatch, header, payload):
    """The other side could only close the connection in the middle, and would be tried again for ever."""
    ours, theirs = pair
    monkeypatch.setattr(wire, "MAX_PAYLOAD", 0)
    with pytest.raises(InvalidInput, match="too large"):
        wire.send(ours, header, [payload])
    wire.send(ours, {"op": "x"})
    assert wire.receive(theirs)[0] == {"op": "x"}


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 40))
def test_an_answer_of_any_length_comes_in_as_many_frames_as_it_takes(parts, largest):
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "MAX_PAYLOAD", largest)
        wire.send_whole(ours, {"lengths": [1]}, parts)
        wire.send_whole(ours, {"next": True}, [])
        assert wire.receive_whole(theirs) == ({"lengths": [1]}, b"".join(parts))
        assert wire.receive_whole(theirs) == ({"next": True}, b"")


@pytest.mark.parametrize("header", [b"[1]", b'"op"', b"null", b"3"])
def test_a_header_must_be_an_object(pair, header):
    ours, theirs = pair
    ours.sendall(PREFIX.pack(wire.VERSION, len(header), 0) + header)
    with pytest.raises(InvalidInput):
        wire.receive(theirs)


@pytest.mark.parametrize("header", [b"{", b"\xff\xfe", b"{'op': 1}", b""])
def test_a_header_that_is_no_json_is_a_value_error(pair, header):
    ours, theirs = pair
    ours.sendall(PREFIX.pack(wire.VERSION, len(header), 0) + header)
    with pytest.raises(ValueError):
        wire.receive(theirs)


@given(st.data())
def test_a_frame_that_ends_early_is_a_lost_connection(data):
    whole = PREFIX.pack(wire.VERSION, 8, 5) + b'{"op":1}' + b"12345"
    cut = data.draw(st.integers(0, len(whole) - 1))
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(whole[:cut])
        with pytest.raises(wire.ConnectionLost):
            wire.receive(theirs)


@given(st.binary(min_size=13, max_size=200))
def test_noise_never_does_more_than_raise(noise):
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(noise)
        with pytest.raises((wire.ConnectionLost, InvalidInput, ValueError)):
            list(iter(partial(wire.receive, theirs), None))


def test_writing_to_one_who_left_is_a_lost_connection(pair):
    ours, theirs = pair
    theirs.close()
    with pytest.raises(wire.ConnectionLost):
        wire.send(ours, {"op": "x"}, [b"x" * 10_000_000])


def test_using_a_closed_connection_is_a_lost_connection(pair):
    ours, _ = pair
    ours.close()
    with pytest.raises(wire.ConnectionLost):
        wire.receive(ours)


KINDS = [getattr(hotset.errors, name) for name in hotset.errors.__all__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_comes_back_as_what_it_was(kind):
    header = json.loads(json.dumps(wire.encode_error(kind("because of é"))))
    with pytest.raises(kind) as caught:
        wire.result_of(header)
    assert type(caught.value) is kind
    assert str(caught.value) == "because of é"


def test_a_throttle_is_still_known_as_one():
    back = wire.error_of(wire.encode_error(Unavailable("slow down", throttled=True)))
    assert isinstance(back, Unavailable)
    assert back.throttled
    assert not wire.error_of(wire.encode_error(Unavailable("no"))).throttled


@pytest.mark.parametrize("name", ["ValueError", "annotations", "__name__", "", 3, None])
def test_an_error_that_we_do_not_know_is_an_error_of_ours(name):
    assert type(wire.error_of({"error": name, "message": "m"})) is HotsetError


def test_an_answer_without_an_error_is_the_result():
    assert wire.result_of({"lengths": [1]}) == {"lengths": [1]}


def test_errors_are_told_apart_by_type():
    assert not isinstance(wire.error_of(wire.encode_error(Changed("x"))), NotFound)
