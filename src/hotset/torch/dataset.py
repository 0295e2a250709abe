"""Map-style datasets over a `hotset.Dataset`: an index in, a sample out; whole batches at once where torch asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch.utils.data

import hotset
from hotset.errors import InvalidInput
from hotset.read.labels import classes_of
from hotset.torch.decode import Buffer, Decode, decoder
from hotset.torch.stats import Tally

__all__ = ["HotDataset", "ImageFolder", "KeyedBytes", "OnBad", "SourceArgument"]

SourceArgument: TypeAlias = "hotset.Dataset | str | Mapping[str, str] | Sequence[tuple[str, str]]"
OnBad = Literal["raise", "skip", "replace"] | Callable[[str, Exception], Any]
Target = Literal["directory", "key"] | Callable[[str], Any] | Sequence[Any]

#: Samples that "replace" tries before it gives up.
_REPLACEMENTS = 100
#: What torchvision's ImageFolder takes for images.
_IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class HotDataset(torch.utils.data.Dataset[Any]):
    """Samples out of the cache: ``transform(decode(bytes))``, or with ``target`` a pair of that and the target.

    Parameters
    ----------
    source:
        A URI, as `hotset.open` takes it together with ``opening`` (``cache=``, ``quota=``, ``include=`` ...), or an open
        `hotset.Dataset`, which stays the caller's to close.
    decode:
        ``"bytes"``; ``"tensor"``: uint8, a view of the cache and not to be written to; ``"image"``: RGB as a uint8 tensor,
        decoded by torchvision without a copy of the bytes; ``"pil"``; or a function of the bytes.
    target:
        ``"directory"``: the number of the class, which is the object's first directory (as in ImageFolder); ``"key"``; a
        function of the key; or a sequence with the target of each object, in the order of keys.
    on_bad:
        What becomes of an object that cannot be decoded: ``"raise"`` `InvalidInput` with its key; ``"skip"`` it, so that its
        batch is shorter; ``"replace"`` it by the next that can be; or a function of (key, error) that gives the sample.
        The loader counts them.
    """

    def __init__(
        self,
        source: SourceArgument,
        name: str | None = None,
        *,
        decode: Decode = "bytes",
        transform: Callable[[Any], Any] | None = None,
        target: Target | None = None,
        on_bad: OnBad = "raise",
        **opening: Any,
    ) -> None:
        if isinstance(source, hotset.Dataset) and (name or opening):
            raise InvalidInput("the dataset is open already: say how when it is opened")
        if not callable(on_bad) and on_bad not in ("raise", "skip", "replace"):
            raise InvalidInput(f"on_bad is 'raise', 'skip', 'replace' or a function of key and error, not {on_bad!r}")
        self._decode, self._views = decoder(decode)
        self._transform = transform
        self._on_bad = on_bad
        self._owned = not isinstance(source, hotset.Dataset)
        #: The open dataset behind this one.
        self.hot: hotset.Dataset = (
            source if isinstance(source, hotset.Dataset) else hotset.open(source, name, **opening)
        )
        self._positions: npt.NDArray[np.int64] | None = None  # of the samples, if not all objects are some
        self.classes: list[str] = []
        self._target: Callable[[int], Any] | None = None
        self._tally: Tally | None = None
        try:
            self._choose(target)
        except BaseException:
            self.close()
            raise

    def _choose(self, target: Target | None) -> None:
        if isinstance(target, str) and target == "directory":
            classes = classes_of(self.hot.keys)
            self.classes = list(classes.names)
            self._indices = classes.indices
            self._select(classes.members)
            self._target = self._class_of
        elif isinstance(target, str) and target == "key":
            self._target = self._key_at
        elif callable(target):
            self._of_key = target
            self._target = self._target_of_key
        elif isinstance(target, str):
            raise InvalidInput(f"target is 'directory', 'key', a function of the key or a sequence, not {target!r}")
        elif target is not None:
            if len(target) != len(self.hot):
                raise InvalidInput(f"{len(target)} targets for {len(self.hot)} objects")
            self._given = target
            self._target = self._given_target

    # Methods, not closures: workers may be spawned, and get a pickled copy.

    def _class_of(self, position: int) -> Any:
        return int(self._indices[position])

    def _key_at(self, position: int) -> str:
        return self.hot.keys[position]

    def _given_target(self, position: int) -> Any:
        return self._given[position]

    def _target_of_key(self, position: int) -> Any:
        return self._of_key(self.hot.keys[position])

    def _select(self, positions: npt.NDArray[np.int64]) -> None:
        """Only the objects at these positions are samples."""
        self._positions = None if len(positions) == len(self.hot) else positions

    # -- samples ---------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.hot) if self._positions is None else len(self._positions)

    def __getitem__(self, index: int) -> Any:
        samples = self.__getitems__([index])
        if not samples:
            key = self.key(index)
            raise InvalidInput(f"{key!r} is left out, and nothing takes its place where samples are read one by one")
        return samples[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch, read at once: what is absent is fetched in parallel."""
        positions = self._positions_of(indices)
        samples = []
        for position, data in zip(positions, self._read(positions), strict=True):
            if data is not None:
                try:
                    decoded = self._decode(data)
                except Exception as error:  # noqa: BLE001  decoders raise what they like
                    made = self._bad(position, error)
                    if made is not None:
                        samples.append(made[0])
                    continue
                samples.append(self._finish(position, decoded))
        if self._tally is not None:
            self._tally.note(self.hot, left_out=len(positions) - len(samples))
        return samples

    def key(self, index: int) -> str:
        """The key of a sample."""
        return self.hot.keys[self._positions_of([index])[0]]

    @property
    def targets(self) -> list[Any]:
        """The target of each sample."""
        if self._target is None:
            raise InvalidInput("this dataset has no targets; open it with target=...")
        return [self._target(position) for position in self._positions_of(range(len(self)))]

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.classes)}

    def _positions_of(self, indices: Sequence[int]) -> Sequence[int]:
        if self._positions is None:
            return indices
        chosen: list[int] = self._positions[indices].tolist()
        return chosen

    def _read(self, positions: Sequence[int]) -> Sequence[Buffer | None]:
        """The bytes of each; None where there are none to be had (``on_changed="skip"``)."""
        hot = self.hot
        if self._views and hot.complete:
            return [hot.slice(position) for position in positions]
        found = hot.read_many(positions)
        if len(found) == len(positions):
            return found
        return [next(iter(hot.read_many([position])), None) for position in positions]

    def _finish(self, position: int, decoded: Any) -> Any:
        try:
            sample = decoded if self._transform is None else self._transform(decoded)
            return sample if self._target is None else (sample, self._target(position))
        except Exception as error:
            error.add_note(f"while the sample of {self.hot.keys[position]!r} was made")
            raise

    def _bad(self, position: int, error: Exception) -> tuple[Any] | None:
        """What takes the place of an object that cannot be decoded, if anything does."""
        key = self.hot.keys[position]
        if self._on_bad == "raise":
            raise InvalidInput(f"{key!r} cannot be decoded: {type(error).__name__}: {error}") from error
        if self._tally is not None:
            self._tally.bad_sample()
        if self._on_bad == "skip":
            return None
        if callable(self._on_bad):
            return (self._on_bad(key, error),)
        place = position if self._positions is None else int(np.searchsorted(self._positions, position))
        for other in range(place + 1, place + 1 + min(_REPLACEMENTS, len(self) - 1)):
            [following] = self._positions_of([other % len(self)])
            [data] = self._read([following])
            try:
                return (self._finish(following, self._decode(data)),) if data is not None else None
            except Exception:  # noqa: BLE001, S112  the one after it, then
                continue
        raise InvalidInput(f"neither {key!r} nor those after it can be decoded: {error}") from error

    # -- the loader's side -----------------------------------------------------------------------------------------------

    def prefetch(self, order: Iterable[int], *, lookahead: int | None = None) -> None:
        """Tell which samples will be read, in this order."""
        indices = order if isinstance(order, np.ndarray) else np.fromiter(order, np.int64)
        self.hot.prefetch(indices if self._positions is None else self._positions[indices], lookahead=lookahead)

    @property
    def snapshot(self) -> str:
        return self.hot.snapshot

    @property
    def complete(self) -> bool:
        return self.hot.complete

    def tally_in(self, tally: Tally) -> None:
        """Count into ``tally``, which workers share with whoever started them."""
        self._tally = tally

    def close(self) -> None:
        """Close what this dataset opened."""
        if self._owned:
            self.hot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ImageFolder(HotDataset):
    """Takes the place of torchvision's ImageFolder: the same samples, classes and numbers, from wherever the images are."""

    def __init__(
        self,
        source: SourceArgument,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        *,
        decode: Decode = "pil",
        **more: Any,
    ) -> None:
        self._target_transform = target_transform
        super().__init__(source, decode=decode, transform=transform, target="directory", **more)
        try:
            self._select(self._images())
        except BaseException:
            self.close()
            raise

    def _images(self) -> npt.NDArray[np.int64]:
        keys = self.hot.keys
        members = classes_of(keys).members
        images = members[[keys[position].lower().endswith(_IMAGES) for position in members.tolist()]]
        without = set(range(len(self.classes))) - set(self._indices[images].tolist())
        if without:
            named = ", ".join(self.classes[index] for index in sorted(without)[:5])
            raise InvalidInput(
                f"no images in {named}; exclude such directories, e.g. exclude='{named.split(', ')[0]}/**'"
            )
        return images

    def _class_of(self, position: int) -> Any:
        index = super()._class_of(position)
        return index if self._target_transform is None else self._target_transform(index)

    @property
    def samples(self) -> list[tuple[str, int]]:
        """(key, class) of each, as `imgs` of torchvision."""
        return [
            (self.hot.keys[position], int(self._indices[position])) for position in self._positions_of(range(len(self)))
        ]


class KeyedBytes(HotDataset):
    """Pairs of (key, bytes), by index or by key."""

    def __init__(self, source: SourceArgument, name: str | None = None, **opening: Any) -> None:
        super().__init__(source, name, **opening)

    def _finish(self, position: int, decoded: Any) -> Any:
        return self.hot.keys[position], decoded

    def __getitem__(self, index: int | str) -> Any:
        if isinstance(index, str):
            return index, self.hot.read(index)
        return super().__getitem__(index)
