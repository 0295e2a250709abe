"""What all training frameworks need and none of them is: samples with targets, their order epoch by epoch, what to do with
bad ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

import hotset
from hotset.errors import InvalidInput
from hotset.read.labels import classes_of
from hotset.read.order import Positions, SampleOrder

__all__ = ["Epochs", "OnBad", "Samples", "SourceArgument", "Target", "check_policy", "in_place_of"]

SourceArgument: TypeAlias = "hotset.Dataset | str | Mapping[str, str] | Sequence[tuple[str, str]]"
Target = Literal["directory", "key", "index"] | Callable[[str], Any]
OnBad = Literal["raise", "skip", "replace"] | Callable[[str, Exception], Any]

#: Samples that "replace" tries before it gives up.
_REPLACEMENTS = 100


class Samples:
    """The samples of a dataset, numbered in key order. With the target "directory" only objects in some directory are samples,
    else every object is. May be pickled.
    """

    def __init__(
        self, source: SourceArgument, name: str | None = None, *, target: Target | None = None, **opening: Any
    ) -> None:
        """Opens ``source`` as `hotset.open` does with ``opening``, and closes it when it is dropped, at the latest. What is open
        already stays the caller's to close.
        """
        if isinstance(source, hotset.Dataset) and (name or opening):
            raise InvalidInput("the dataset is open already: say how when it is opened")
        if target is not None and not callable(target) and target not in ("directory", "key", "index"):
            raise InvalidInput(f"targets are 'directory', 'key', 'index' or a function of the key, not {target!r}")
        self.owned = not isinstance(source, hotset.Dataset)
        self.hot: hotset.Dataset = (
            source if isinstance(source, hotset.Dataset) else hotset.open(source, name, **opening)
        )
        if self.owned:
            self.hot.may_be_dropped()
        self.classes: tuple[str, ...] = ()
        self.has_targets = target is not None
        self._target = target
        self._positions: Positions | None = None  # of the samples, if not every object is one
        if target == "directory":
            found = classes_of(self.hot.keys)
            self.classes = found.names
            self._class_of = found.indices
            if len(found.members) < len(self.hot):
                self._positions = found.members
        if not len(self):
            whole = repr(self.hot)
            self.close()
            raise InvalidInput(
                f"no object of {whole} lies in a directory, which would be its class: give the targets otherwise"
            )

    def __len__(self) -> int:
        return len(self.hot) if self._positions is None else len(self._positions)

    def positions(self, indices: Sequence[int]) -> Sequence[int]:
        """The places of these samples in the dataset."""
        if self._positions is None:
            return indices
        places: list[int] = self._positions[indices].tolist()
        return places

    def key(self, index: int) -> str:
        return self.hot.keys[self.positions([index])[0]]

    def targets(self, indices: Sequence[int]) -> list[Any]:
        """What these samples are to be recognized as."""
        if self._target == "index":
            return list(indices)
        positions = self.positions(indices)
        if self._target == "directory":
            classes: list[int] = self._class_of[positions].tolist()
            return classes
        keys = [self.hot.keys[position] for position in positions]
        return [self._target(key) for key in keys] if callable(self._target) else keys

    def read(self, indices: Sequence[int]) -> Sequence[bytes | None]:
        """The bytes of each; None for an object that changed at the source, where such are to be skipped."""
        positions = self.positions(indices)
        found = self.hot.read_many(positions)
        if len(found) == len(positions):
            return found
        return [next(iter(self.hot.read_many([position])), None) for position in positions]

    def prefetch(self, order: Positions, *, lookahead: int | None = None) -> None:
        """Tell which samples will be read, in this order."""
        self.hot.prefetch(order if self._positions is None else self._positions[order], lookahead=lookahead)

    def close(self) -> None:
        """Close the dataset if it was opened here."""
        if self.owned:
            self.hot.close()


class Epochs:
    """What one rank reads in each epoch; told to the prefetcher when the epoch begins, together with the one after it."""

    def __init__(
        self,
        samples: Samples,
        *,
        shuffle: bool,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
        lookahead: int | None = None,
    ) -> None:
        if not 0 <= rank < world:
            raise InvalidInput(f"rank {rank} of a world of {world}")
        if drop_last and len(samples) < world:
            raise InvalidInput(f"{len(samples)} samples are not one for each of {world} ranks, so that none is left")
        self._samples = samples
        self._order = SampleOrder(samples.hot.snapshot, len(samples), seed, shuffle)
        self._rank, self._world, self._drop_last = rank, world, drop_last
        self._lookahead = lookahead

    def __len__(self) -> int:
        """The number of samples in each epoch."""
        return self._order.share_length(world=self._world, drop_last=self._drop_last)

    def begin(self, epoch: int) -> Positions:
        """The samples of that epoch in their order."""
        indices = self._share(epoch)
        if not self._samples.hot.complete:
            order = np.concatenate((indices, self._share(epoch + 1)))
            self._samples.prefetch(order, lookahead=self._lookahead)
        return indices

    def _share(self, epoch: int) -> Positions:
        return self._order.share(epoch, rank=self._rank, world=self._world, drop_last=self._drop_last)


def check_policy(on_bad: OnBad) -> None:
    if not callable(on_bad) and on_bad not in ("raise", "skip", "replace"):
        raise InvalidInput(f"on_bad is 'raise', 'skip', 'replace' or a function of key and error, not {on_bad!r}")


def in_place_of(
    samples: Samples, index: int, error: Exception, decode: Callable[[bytes], Any], on_bad: OnBad
) -> tuple[int, Any] | None:
    """What takes the place of a sample that cannot be decoded: (its index, what it was decoded to), or None: it is left out.

    `InvalidInput` with the key if nothing is to take its place, or nothing can.
    """
    key = samples.key(index)
    if on_bad == "skip":
        return None
    if callable(on_bad):
        return index, on_bad(key, error)
    if on_bad == "raise":
        raise InvalidInput(f"{key!r} cannot be decoded: {type(error).__name__}: {error}") from error
    for other in _following(index, len(samples)):
        [data] = samples.read([other])
        if data is not None:
            try:
                return other, decode(data)
            except Exception:  # noqa: BLE001, S112  the one after it, then
                continue
    raise InvalidInput(f"neither {key!r} nor those after it can be decoded: {error}") from error


def _following(index: int, count: int) -> Iterable[int]:
    return (other % count for other in range(index + 1, index + 1 + min(_REPLACEMENTS, count - 1)))
