"""`AlnairJobDataset`: the base class of the datasets of Alnair's jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
from torch.utils.data import Dataset

from hotset.alnair.batches import Batch, Failure, Samples
from hotset.alnair.dots import dotdict
from hotset.alnair.job import find_job
from hotset.alnair.names import Positions, Reference, Window, cut, select
from hotset.alnair.objects import open_objects
from hotset.config.alnair import AlnairSettings
from hotset.config.settings import environment
from hotset.errors import HotsetError, InvalidInput, NotFound

__all__ = ["AlnairJobDataset"]

#: What a subclass may call its conversion, the newest name first.
_HOOKS = ("__convert__", "__preprocess__", "preprocess")


class AlnairJobDataset(Dataset[Any]):
    """The objects of a job as a dataset for torch. Subclass it as for Alnair::

        class Images(AlnairJobDataset):
            def __convert__(self):
                samples = [self.data[key] for key in self.keys]
                targets = [key.split("/")[2] for key in self.keys]
                return samples, targets

            def __getitem__(self, index):
                return decode(self.get_data(index)), self.get_target(index)

        dataset = Images(["imagenet-mini/train"])

    **keys** are prefixes of the names of objects. By default all that the job declares; without a declaration, all.

    **Where the data come from**: the job of the pod (``JOBNAME`` and its file in ``/jobs``), else ``HOTSET_ALNAIR_URI``, or
    ``uri``: a directory or a URI that stands for the bucket, so that names are those of the cluster.

    **How they are read** is what the AlnairPod's configurations say; ``qos`` overrides them, by the same names:
    ``usecache`` keeps what is read in the cache of this machine, otherwise each read goes to the source;
    ``lazyloading`` makes ``self.data`` cheap references that `get_data` reads, otherwise ``self.data`` are bytes;
    ``maxmemory`` (MB, 0: no limit) bounds how many bytes that is at a time: the objects are cut into windows, one of which
    is in memory, and `AlnairJobDataLoader` goes through all of them in each epoch.

    ``__convert__`` (or, older, ``__preprocess__`` or ``preprocess``) is called once for each window that is loaded, the
    first time by this constructor: what it needs must be set before ``super().__init__()``. ``__len__`` is by default the
    length of what it returned as data.

    May be used by forked and by spawned workers. `close`, or a ``with`` block, ends all that it started; it ends
    with the process in any case. Raises `NotFound` if a prefix has no object, and the source's errors.
    """

    def __init__(
        self, keys: Iterable[str] | None = None, *, uri: str | None = None, qos: Mapping[str, object] | None = None
    ) -> None:
        wanted = _prefixes(keys)
        job = find_job(AlnairSettings.of(environment()), uri=uri, qos=qos)
        self.jobname = job.name
        self.qos = job.qos
        self.jobinfo = dotdict(job.info)
        self.bucket_name = job.bucket
        self.chunks: Sequence[Window] = []
        self.__meta = job.meta
        self.__prefixes = wanted or list(job.place.prefixes)
        self.__lazy = bool(job.qos["LazyLoading"])
        self.__limit = 0 if self.__lazy else int(job.qos["MaxMemory"]) * 2**20
        self.__window: int | None = None
        self.__data: Any = None
        self.__targets: Any = None
        self.__keys: list[str] = []
        self.__in_order = False
        self.__batch: dict[int, bytes] = {}
        self.__objects = open_objects(job.place.holding(wanted), cached=bool(job.qos["UseCache"]))
        try:
            self.__cut()
            self.load_data(0)
        except BaseException:
            self.close()
            raise

    # -- what subclasses write -----------------------------------------------------------------------------------------

    def __convert__(self) -> tuple[Any, Any]:
        """Make samples and targets of the window that was just loaded: ``self.data``, by name, and ``self.keys``.

        Anything that takes an index will do. Lazily loaded data are references for `get_data`; keep them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no __convert__")

    def __getitem__(self, index: int) -> Any:
        """One sample."""
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __len__(self) -> int:
        """The number of samples of the window that is loaded; of the dataset, if there is one window."""
        return len(self.__data)

    # -- what they use -------------------------------------------------------------------------------------------------

    @property
    def data(self) -> Any:
        """While ``__convert__`` runs, bytes (or references) by name; afterwards what it returned as data."""
        return self.__data

    @property
    def targets(self) -> Any:
        """What ``__convert__`` returned as targets."""
        return self.__targets

    @property
    def keys(self) -> list[str]:
        """The names of the objects of this window: in the order of the prefixes that were asked for, sorted within each."""
        return self.__keys

    def get_data(self, index: int) -> Any:
        """``self.data[index]``; of lazily loaded data, the bytes that it refers to."""
        found = self.__data[index]
        return self.load(found) if self.__lazy and isinstance(found, str) else found

    def get_target(self, index: int) -> Any:
        """``self.targets[index]``."""
        return self.__targets[index]

    def load(self, key: str) -> bytes:
        """The bytes of an object, by its name or by a reference to it."""
        position = key.position if isinstance(key, Reference) else self.__position(key)
        found = self.__batch.get(position)
        return self.__objects.read(position) if found is None else found

    def mload(self, chunks: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
        """The bytes of several objects, by name, read together; ``chunks`` are records such as those of ``self.chunks``."""
        names = [str(record["name"]) for record in chunks]
        return dict(zip(names, self.__objects.read_many([self.__position(name) for name in names]), strict=True))

    def load_data(self, index: int) -> None:
        """Load a window, an index of ``self.chunks``, in place of the one before, and convert it."""
        if not 0 <= index < len(self.chunks):
            raise InvalidInput(f"there is no window {index}: the dataset has {len(self.chunks)}")
        window = self.chunks[index]
        self.__window = None
        self.__targets = self.__data = None  # never two windows in memory
        if self.__lazy:
            references = window.references()
            self.__keys = list(references)
            raw: dict[str, Any] = dict(zip(references, references, strict=True))
        else:
            self.__keys = window.names()
            self.__objects.stage(window.positions)
            contents = self.__objects.read_many(window.positions.tolist())
            raw = dict(zip(self.__keys, contents, strict=True))
        self.__data = raw
        self.__data, self.__targets = self.__converted()
        self.__in_order = _are(self.__data, raw.values())
        self.__window = index

    def load_metainfo(self) -> dict[str, Any]:
        """The job's file."""
        return dict(self.__meta)

    def load_jobinfo(self) -> dotdict:
        """What the client container told the job, else the job's file."""
        return self.jobinfo

    def load_all_s3_keys(self) -> None:
        """Cut the objects into windows again; ``self.chunks`` is the result. Nothing is listed again."""
        self.__cut()

    load_all_redis_keys = load_all_s3_keys

    def close(self) -> None:
        """End what was started for this dataset. Bytes that are in memory stay. Idempotent."""
        self.__objects.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what loaders use ----------------------------------------------------------------------------------------------

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples of a batch; objects that are not near are read together first, not one after the other."""
        tolerant = isinstance(indices, Batch)
        samples = Samples()
        samples.part = tolerant and indices.part  # type: ignore[attr-defined]  # mypy does not follow the line above
        self.__batch = self.__read_batch(indices)
        try:
            for index in indices:
                try:
                    samples.append(self[index])
                except Exception as error:
                    error.add_note(f"This was sample {self._describe(index)} of {type(self).__name__}.")
                    if not tolerant:
                        raise
                    samples.append(Failure(index, error))
        finally:
            self.__batch = {}
        return samples

    @property
    def _window(self) -> int | None:
        """Which window is loaded; None after a failure to load one."""
        return self.__window

    def _follow(self, indices: Sequence[int]) -> None:
        """These samples are going to be made, in this order."""
        if self.__lazy and not self.__objects.near:
            positions = self.__positions_of(indices)
            self.__objects.follow(self.chunks[0].positions if positions is None else positions)

    def _stage(self, index: int) -> None:
        """This window is going to be loaded."""
        if not self.__lazy:
            self.__objects.stage(self.chunks[index].positions)

    # -- within --------------------------------------------------------------------------------------------------------

    def __cut(self) -> None:
        objects = self.__objects
        positions = select(objects.names, self.__prefixes, where=self.bucket_name or "the source")
        sizes = [objects.size(position) for position in positions.tolist()]
        runs = [slice(run.start, run.stop) for run in cut(sizes, self.__limit)]
        self.chunks = [Window(objects, positions[run], sizes[run]) for run in runs]

    def __converted(self) -> tuple[Any, Any]:
        for name in _HOOKS:
            hook = getattr(type(self), name, None)
            if hook is not None and hook is not AlnairJobDataset.__convert__:
                break
        else:
            raise NotImplementedError(f"{type(self).__name__} has no __convert__")
        try:
            both = hook(self)
        except AttributeError as error:
            if error.obj is self:
                error.add_note(
                    f"{name} is first called by the constructor: set {error.name!r} before super().__init__()."
                )
            raise
        if not isinstance(both, tuple | list) or len(both) != 2:
            raise InvalidInput(
                f"{type(self).__name__}.{name} returns a pair (data, targets), not {type(both).__name__}"
            )
        return both[0], both[1]

    def __position(self, name: str) -> int:
        try:
            return self.__objects.names.index(str(name))
        except ValueError:
            raise NotFound(f"the dataset has no object {str(name)!r}") from None

    def __read_batch(self, indices: Sequence[int]) -> dict[int, bytes]:
        if not self.__lazy or self.__objects.near or (positions := self.__positions_of(indices)) is None:
            return {}
        wanted = positions.tolist()
        with suppress(HotsetError):  # it comes again, with the sample that it belongs to
            return dict(zip(wanted, self.__objects.read_many(wanted), strict=True))
        return {}

    def __positions_of(self, indices: Sequence[int]) -> Positions | None:
        """Where the objects of lazy samples are; None if the samples are not simply references to objects."""
        positions = []
        for index in indices:
            try:
                found = self.__data[index]
            except (LookupError, TypeError):
                return None
            if isinstance(found, Reference):
                positions.append(found.position)
            elif isinstance(found, str):  # a copy made by numpy, for example
                try:
                    positions.append(self.__position(found))
                except NotFound:
                    return None
            else:
                return None
        return np.array(positions, np.int64)

    def _describe(self, index: int) -> str:
        """A sample as it may be named in a message: by its object, as far as that is known."""
        if self.__in_order and -len(self.__keys) <= index < len(self.__keys):
            return f"{index} ({self.__keys[index]})"
        with suppress(Exception):
            if isinstance(self.__data[index], Reference):
                return f"{index} ({self.__data[index]})"
        return f"{index} of window {self.__window}" if len(self.chunks) > 1 else str(index)


def _prefixes(keys: Iterable[str] | None) -> list[str]:
    """Nothing, and an empty list, mean everything."""
    if keys is None:
        return []
    given = [keys] if isinstance(keys, str) else list(keys)
    for key in given:
        if not isinstance(key, str):
            raise InvalidInput(f"keys are prefixes of names, not {type(key).__name__}: {key!r}")
    return list(dict.fromkeys(given))


def _are(data: Any, objects: Iterable[Any]) -> bool:
    """Whether ``data`` is a plain list of these very objects, so that the n-th sample is the n-th object."""
    objects = list(objects)
    return (
        isinstance(data, list) and len(data) == len(objects) and all(a is b for a, b in zip(data, objects, strict=True))
    )
