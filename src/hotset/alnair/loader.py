"""`AlnairJobDataLoader`: batches of an `AlnairJobDataset`, window by window."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Self

import torch
from torch.utils.data import BatchSampler, DataLoader, default_collate, default_convert

from hotset.alnair.batches import Batch, Collate, OnError, Result, plan
from hotset.alnair.dataset import AlnairJobDataset
from hotset.alnair.samplers import Planned, Tolerant, check, fit, is_sized
from hotset.errors import InvalidInput, Unavailable

__all__ = ["AlnairJobDataLoader"]


class AlnairJobDataLoader:
    """Iterates over a dataset as torch's DataLoader does, with the same parameters. An object of its own, no DataLoader.

    One epoch goes through all windows of the dataset, each sample once; the next window is fetched while this one is
    consumed. ``shuffle`` mixes the samples of a window. Batches go on from one window to the next, so that only the last
    batch of an epoch may be short (``drop_last``). A ``sampler`` or ``batch_sampler`` is asked anew for each window and must
    know the dataset (as torch's RandomSampler or DistributedSampler do) if there are several.

    ``for batch in loader`` begins an epoch, as often as you like. ``next(loader)`` goes on with the epoch, raises
    StopIteration at its end, and then begins the next.

    ``on_error`` says what becomes of a sample whose ``__getitem__`` fails: ``"raise"`` names the object; ``"skip"`` leaves it
    out of its batch and counts it in ``skipped``; a function of ``(index, error)`` returns a sample in its place.

    `close`, or a ``with`` block, ends its workers; so does the end, or the interruption, of an epoch.
    """

    def __init__(
        self,
        dataset: AlnairJobDataset,
        batch_size: int | None = 1,
        shuffle: bool = False,  # noqa: FBT001, FBT002  (by position, as in torch)
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,  # noqa: FBT001, FBT002
        drop_last: bool = False,  # noqa: FBT001, FBT002
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = 2,
        persistent_workers: bool = False,
        on_error: OnError = "raise",
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.collate_fn = collate_fn
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.on_error = on_error
        self.skipped = 0  #: samples left out so far
        self.index = 1  #: the window that comes next
        self.loader: Iterator[Any] | None = None  #: torch's iterator over the window that is being read
        self._check()
        #: Samples of a batch; 0 where batches are none of ours.
        self._size = (batch_size or 0) if batch_sampler is None else 0
        collates = self._size or batch_sampler is not None
        self._collate = Collate(collate_fn or (default_collate if collates else default_convert), on_error)
        self._planned = Planned()
        self._torch: DataLoader[Any] | None = self._make()  # also says what is wrong with the parameters
        self._epoch: Generator[Any, None, None] | None = None
        self._counts: dict[int, int] = {}  # window -> samples that were planned for it

    def init_loader(self) -> None:
        """End what runs; the next batch is the first of an epoch."""
        self.close()

    def __iter__(self) -> Iterator[Any]:
        self._end_epoch()
        self._epoch = self._run()
        return self._epoch

    def __next__(self) -> Any:
        if self._epoch is None:
            iter(self)
        assert self._epoch is not None
        return next(self._epoch)

    def __len__(self) -> int:
        """The number of batches in an epoch.

        Exact if there is one window, if each object is one sample, and after the first epoch; else an estimate by the
        windows seen so far.
        """
        total, size = self._samples(), self._size or 1
        return total // size if self.drop_last else -(-total // size)

    @property
    def num_batches(self) -> int:
        """``len(loader)``."""
        return len(self)

    def close(self) -> None:
        """End the epoch and all workers. The dataset stays open; another epoch may be begun. Idempotent."""
        self._end_epoch()
        self._stop_workers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- an epoch ------------------------------------------------------------------------------------------------------

    def _run(self) -> Generator[Any, None, None]:
        """The batches of one epoch."""
        carried: list[Any] = []  # samples of a batch that goes on in the next window
        last = len(self.dataset.chunks) - 1
        try:
            for window in range(last + 1):
                if self.dataset._window != window:
                    self.dataset.load_data(window)
                self.index = window + 1
                for result in self._results(window, len(carried), last=window == last):
                    self.skipped += result.skipped
                    if result.part:
                        carried += result.data
                        if len(carried) >= self._size:
                            yield self._collate.function(carried[: self._size])
                            del carried[: self._size]
                    elif not result.empty:
                        yield result.data
            if carried and not self.drop_last:
                yield self._collate.function(carried)
        finally:
            self.index = 1
            self._epoch = None

    def _results(self, window: int, carried: int, *, last: bool) -> Generator[Result, None, None]:
        """What the workers make of the window that is loaded."""
        if len(self.dataset) == 0:
            self._counts[window] = 0
            return
        self._planned.batches = self._plan(window, carried, last=last)
        if self._torch is None:
            self._torch = self._make()
        keep = self._torch.persistent_workers
        try:
            self.loader = iter(self._torch)
            if (following := 0 if last else window + 1) != window:
                self.dataset._stage(
                    following
                )  # after the workers were forked: forks and threads do not go well together
            for result in self.loader:
                yield result
                self._check_window(window)
        except GeneratorExit:  # somebody had enough of this epoch
            if not keep:
                self._stop_workers()
            raise
        except BaseException as error:
            killed = self._killed_worker() if isinstance(error, RuntimeError | OSError | EOFError) else None
            self._stop_workers()
            if killed is not None:
                raise Unavailable(
                    f"a worker of the loader was killed ({killed}); for its memory? dmesg tells"
                ) from error
            raise
        if not keep:
            self.loader = None

    def _plan(self, window: int, carried: int, *, last: bool) -> Iterable[Any]:
        """The batches (or samples) to come. The dataset is told, so that it can fetch in this order."""
        chosen = self.sampler if self.batch_sampler is None else self.batch_sampler
        if chosen is None:
            indices = self._default_order()
        else:
            fit(chosen, len(self.dataset))
            if not is_sized(chosen):
                return self._endless()
            indices = list(chosen)
        self._counts[window] = len(indices)
        if self.batch_sampler is not None:
            self.dataset._follow(list(chain.from_iterable(indices)))
            return list(map(Batch, indices))
        self.dataset._follow(indices)
        if not self._size:
            return indices
        return plan(indices, self._size, carried=carried, last=last, drop_last=self.drop_last)

    def _default_order(self) -> list[Any]:
        count = len(self.dataset)
        return torch.randperm(count, generator=self.generator).tolist() if self.shuffle else list(range(count))

    def _endless(self) -> Iterable[Any]:
        if self.batch_sampler is not None:
            return Tolerant(self.batch_sampler)
        return Tolerant(BatchSampler(self.sampler, self._size, self.drop_last)) if self._size else self.sampler

    def _samples(self) -> int:
        """How many samples, or batches of a ``batch_sampler``, an epoch has."""
        windows = self.dataset.chunks
        known = dict(self._counts)
        loaded = self.dataset._window
        if loaded is not None:
            chosen = self.sampler if self.batch_sampler is None else self.batch_sampler
            known.setdefault(loaded, len(self.dataset if chosen is None else chosen))
        objects = sum(len(windows[window]) for window in known)
        seen = sum(known.values())
        unseen = sum(map(len, windows)) - objects
        return seen + round(seen * unseen / objects) if objects else 0

    # -- torch's loader ------------------------------------------------------------------------------------------------

    def _make(self) -> DataLoader[Any]:
        # Workers of torch that persist would keep the window that they were made with.
        persistent = self.persistent_workers and len(self.dataset.chunks) == 1
        how: dict[str, Any] = {
            "num_workers": self.num_workers,
            "collate_fn": self._collate,
            "pin_memory": self.pin_memory,
            "timeout": self.timeout,
            "worker_init_fn": self.worker_init_fn,
            "multiprocessing_context": self.multiprocessing_context,
            "generator": self.generator,
            "prefetch_factor": self.prefetch_factor if self.num_workers else None,
            "persistent_workers": persistent,
        }
        if self._size or self.batch_sampler is not None:
            return DataLoader(self.dataset, batch_sampler=self._planned, **how)
        return DataLoader(self.dataset, batch_size=None, sampler=self._planned, **how)

    def _end_epoch(self) -> None:
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.close()

    def _killed_worker(self) -> str | None:
        """By which signal a worker of the iterator was killed, if one was."""
        workers = getattr(self.loader, "_workers", ())
        if not workers:
            return None
        wait([worker.sentinel for worker in workers], timeout=1)  # its connections end a moment before itself
        codes = [worker.exitcode for worker in workers]
        return next((signal.Signals(-code).name for code in codes if code is not None and code < 0), None)

    def _stop_workers(self) -> None:
        iterator, self.loader = self.loader, None
        # torch has no other way to end them at a certain moment; it does the same when the iterator is collected.
        stop = getattr(iterator, "_shutdown_workers", None)
        if stop is not None:
            stop()
        self._torch = None

    def _check_window(self, window: int) -> None:
        if self.dataset._window != window:
            raise InvalidInput("another loop has loaded another window of the dataset: give each a dataset of its own")

    def _check(self) -> None:
        """As torch checks its parameters, and what windows and policies add."""
        if not isinstance(self.dataset, AlnairJobDataset):
            raise InvalidInput(
                f"the dataset is a {type(self.dataset).__name__}, not an AlnairJobDataset; use torch's DataLoader"
            )
        if self.batch_sampler is not None and (
            self.batch_size != 1 or self.shuffle or self.sampler is not None or self.drop_last
        ):
            raise InvalidInput("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if self.sampler is not None and self.shuffle:
            raise InvalidInput("sampler excludes shuffle")
        if self.batch_size is None and (self.drop_last or self.on_error != "raise"):
            raise InvalidInput("without batches (batch_size=None) there is no drop_last and no on_error")
        if self.batch_size is not None and (isinstance(self.batch_size, bool) or self.batch_size < 1):
            raise InvalidInput(f"batch_size is {self.batch_size!r}, but a number from 1 on is expected")
        if not callable(self.on_error) and self.on_error not in {"raise", "skip"}:
            raise InvalidInput(f"on_error is 'raise', 'skip' or a function of (index, error), not {self.on_error!r}")
        if len(self.dataset.chunks) > 1:
            for sampler in (self.sampler, self.batch_sampler):
                if sampler is not None:
                    check(sampler, self.dataset)
        elif len(self.dataset) == 0:
            raise InvalidInput(f"{type(self.dataset).__name__} is empty: its __convert__ returned no samples")
