"""A listing that survives a failed request: it knows where it stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from hotset.source.base import ObjectInfo

__all__ = ["Pages", "in_background"]

Position = TypeVar("Position")
T = TypeVar("T")


class Pages(Iterator[Sequence[ObjectInfo]], Generic[Position]):
    """Batches from ``fetch(position) -> (batch, next position or None)``.

    Unlike a generator it can be asked again after an exception: it then fetches the same page again, so that a listing
    of a thousand requests does not begin anew because one of them failed.
    """

    def __init__(
        self, fetch: Callable[[Position], tuple[Sequence[ObjectInfo], Position | None]], start: Position | None
    ) -> None:
        self._fetch = fetch
        self._position = start

    def __next__(self) -> Sequence[ObjectInfo]:
        if self._position is None:
            raise StopIteration
        batch, self._position = self._fetch(self._position)
        return batch


def in_background(work: Callable[[], T]) -> Future[T]:
    """The future result of ``work``, begun at once in a thread that ends with it. Nobody needs to wait for it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  for whoever asks for the result
            future.set_exception(error)

    threading.Thread(target=run, name="hotset-list", daemon=True).start()
    return future
