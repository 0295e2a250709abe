"""A map-style dataset over a `hotset.Dataset`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import paddle.io
from paddle.io.dataloader.collate import default_collate_fn

import hotset
from hotset.errors import HotsetError
from hotset.loaders.samples import OnBad, Samples, SourceArgument, Target, check_policy, in_place_of
from hotset.paddle.decode import Decode, decoder
from hotset.paddle.reader import errors_end_the_reading

__all__ = ["HotDataset", "collate"]


class HotDataset(paddle.io.Dataset):  # type: ignore[misc]  # paddle has no types that mypy finds
    """Samples out of the cache, for `paddle.io.DataLoader` with any number of workers: ``(transform(decode(bytes)), target)``.

    Parameters
    ----------
    source, name, opening:
        As in `hotset.open`. Or an open `hotset.Dataset`, which stays the caller's to close.
    decode:
        ``"bytes"``; ``"image"``: RGB as an array of uint8, height by width by 3; ``"pil"``: RGB as a Pillow image, which the
        transforms of `paddle.vision` take; or a function of the bytes.
    target:
        ``"directory"``: the number of the class, which is the object's first directory; ``"key"``; ``"index"``: of the sample,
        whose `key` is then known; a function of the key; or None: the sample alone. A batch needs a number: one of nothing
        but bytes or texts is the end of the data to paddle's DataLoader.
    on_bad:
        What becomes of an object that cannot be decoded: ``"raise"`` `InvalidInput` with its key; ``"skip"`` it: the sample is
        None, which `collate` (``collate_fn=hotset.paddle.collate``) leaves out of its batch; ``"replace"`` it by the next that
        can be; or a function of (key, error) that makes what ``decode`` would have made.
    """

    def __init__(
        self,
        source: SourceArgument,
        name: str | None = None,
        *,
        decode: Decode = "bytes",
        transform: Callable[[Any], Any] | None = None,
        target: Target | None = "index",
        on_bad: OnBad = "raise",
        **opening: Any,
    ) -> None:
        super().__init__()
        check_policy(on_bad)
        self._decode = decoder(decode)
        self._transform = transform
        self._on_bad = on_bad
        self._bad = multiprocessing.Value("q", 0)
        #: Which objects are samples.
        self.samples = Samples(source, name, target=target, **opening)

    @property
    def hot(self) -> hotset.Dataset:
        """The dataset behind it."""
        return self.samples.hot

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, if the targets are directories."""
        return self.samples.classes

    @property
    def bad(self) -> int:
        """How often a sample could not be decoded so far, and was left out or replaced; by all workers together."""
        return int(self._bad.value)

    def key(self, index: int) -> str:
        return self.samples.key(index)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        with errors_end_the_reading():
            return self._sample(index)

    def _sample(self, index: int) -> Any:
        count = len(self.samples)
        if not -count <= index < count:
            raise IndexError(f"sample {index} of {count}")
        index = int(index) % count
        [data] = self.samples.read([index])
        if data is None:
            return None
        try:
            value = self._decode(data)
        except Exception as error:  # noqa: BLE001  decoders raise what they like
            instead = in_place_of(self.samples, index, error, self._decode, self._on_bad)
            with self._bad.get_lock():
                self._bad.value += 1
            if instead is None:
                return None
            index, value = instead
        if self._transform is not None:
            try:
                value = self._transform(value)
            except Exception as error:
                error.add_note(f"while the sample of {self.key(index)!r} was made")
                raise
        return (value, self.samples.targets([index])[0]) if self.samples.has_targets else value

    def close(self) -> None:
        """Close what was opened here; at the latest this happens when the dataset is dropped."""
        self.samples.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def collate(samples: Sequence[Any]) -> Any:
    """Paddle's own way to make a batch, of the samples that are not left out."""
    with errors_end_the_reading():
        kept = [sample for sample in samples if sample is not None]
        if not kept:
            raise HotsetError("nothing of a batch could be decoded: are these the right objects for this decoder?")
        return default_collate_fn(kept)
