"""How a fingerprint is written down: a code and a few bytes.

Half of all entity tags are MD5 digests in hex; written as 16 raw bytes they take half of the room. And a weak fingerprint
(a modification time) taken within two seconds of the listing proves nothing, since the next version may carry the same
time: it is stored with the moment of the listing beside it, so that the next listing finds it different and reads again.
"""

from __future__ import annotations

from hotset.source.base import Fingerprint, FingerprintKind

__all__ = ["decode", "encode"]

_HEX = 0x80
_UNSETTLED = 0x40
_KIND = 0x3F
_MOMENT = 8  # bytes of the listing's time behind an unsettled value


def encode(kind: FingerprintKind, value: bytes, unsettled_at_ns: int = 0) -> tuple[int, bytes]:
    """Code and bytes to store. ``unsettled_at_ns`` matters for weak kinds only: when it was listed, if just modified."""
    if kind is FingerprintKind.MODIFIED:
        if unsettled_at_ns:
            return kind | _UNSETTLED, value + unsettled_at_ns.to_bytes(_MOMENT, "big")
        return int(kind), value
    if len(value) % 2 == 0:
        try:
            raw = bytes.fromhex(value.decode("ascii"))
        except ValueError:
            return int(kind), value
        if raw.hex().encode() == value:  # lower case and without spaces, so that decoding gives the same text back
            return kind | _HEX, raw
    return int(kind), value


def decode(code: int, stored: bytes) -> Fingerprint:
    """The fingerprint as the source gave it."""
    if code & _HEX:
        stored = stored.hex().encode()
    elif code & _UNSETTLED:
        stored = stored[:-_MOMENT]
    return Fingerprint(FingerprintKind(code & _KIND), stored)
