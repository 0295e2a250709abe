"""What a peer is: a name, a reason why it cannot run here, and any of three abilities.

`Copies` brings a bucket here, `Reads` gives single samples in any order, `Streams` gives them in its own order. A
scenario asks with ``isinstance`` which ones a peer has; adding a peer is one file and one line in the package.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from bench.servers import Stored

__all__ = ["Copies", "Peer", "Reader", "Reads", "Streams", "package_version", "without_package"]

#: Sample ``i``, as bytes or as what the peer wraps them in.
Reader = Callable[[int], object]


class Peer(Protocol):
    @property
    def name(self) -> str: ...

    def version(self) -> str:
        """The version that is measured; asked only if nothing is missing."""

    def missing(self) -> str | None:
        """Why this peer cannot run on this machine, or None. May build what can be built."""


@runtime_checkable
class Copies(Protocol):
    def copy(self, data: Stored, into: Path) -> float:
        """Bring every object of the bucket here, once; the seconds that took.

        A program counts from its start to its end. A library counts from after its import. ``into`` is an empty
        directory on tmpfs; a peer that only hands out bytes leaves it empty.
        """


@runtime_checkable
class Reads(Protocol):
    def reader(self, data: Stored, scratch: Path) -> AbstractContextManager[Reader]:
        """A warm reader: preparing and warming are done when the context is entered, undone when it is left."""


@runtime_checkable
class Streams(Protocol):
    def stream(self, data: Stored, scratch: Path) -> AbstractContextManager[Callable[[], Iterable[object]]]:
        """A function that begins a warm pass over all samples in the peer's own order."""


def without_package(module: str, distribution: str) -> str | None:
    """The reason for `Peer.missing` if a Python package is not installed."""
    if importlib.util.find_spec(module) is None:
        return f"the package {distribution} is not installed"
    return None


def package_version(distribution: str) -> str:
    return importlib.metadata.version(distribution)
