"""Puts a dataset together: from what a user wrote to an open `Dataset`."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hotset.base.sizes import parse_size
from hotset.config.settings import Settings, environment, runtime_directory
from hotset.errors import Corrupt, HotsetError, InvalidInput, NotFound, Unavailable
from hotset.fill.client import FillClient
from hotset.fill.settings import FillSettings, SourceSettings
from hotset.source import SourceOptions, display_uri, identify
from hotset.tier.node import CacheDirectory, DatasetDirectory, DatasetRecord, SourceRecord
from hotset.tier.node.records import Layout

if TYPE_CHECKING:
    from hotset.fill.service import FillService
    from hotset.read.dataset import Dataset, OnChanged

__all__ = ["Build", "Refresh", "SourceArgument", "default_name", "open_dataset"]

Refresh = Literal["auto", "always", "never"]
SourceArgument = str | Mapping[str, str] | Sequence[tuple[str, str]]
"""One URI, or several: mount path -> URI."""

_SECRETS = ("access_key", "secret_key", "session_token", "proxy", "extra")


class Build:
    """The parts of one dataset, as far as they are known before anything is listed: cache, record, fill settings."""

    def __init__(
        self,
        sources: SourceArgument | None,
        name: str | None = None,
        *,
        cache: str | Path | None = None,
        quota: int | str | None = None,
        layout: Layout | None = None,
        include: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        options: SourceOptions | None = None,
        max_rate: int | str | None = None,
    ) -> None:
        self.env = environment()
        self.settings = Settings.of(self.env)
        wanted_quota = parse_size(quota) if quota is not None else self.settings.quota
        root = Path(cache).expanduser().absolute() if cache is not None else self.settings.cache
        self.cache = CacheDirectory(root, quota=wanted_quota)
        rate = parse_size(max_rate) if max_rate is not None else self.settings.max_rate
        self._options = options or SourceOptions()
        self._made = False
        if sources is None:
            if name is None:
                raise InvalidInput("say which dataset: a URI, or the name of one that is in the cache")
            self.directory: DatasetDirectory = self.cache.dataset(name)
            self.name = name
            record = self.directory.record()
            if layout is not None:
                self.directory.check_layout(layout)
            _check_patterns(name, "include", _patterns(include), record.include)
            _check_patterns(name, "exclude", _patterns(exclude), record.exclude)
            entries = tuple(
                SourceSettings(source.uri, source.path, self._with_recorded(source.options))
                for source in record.sources
            )
        else:
            record, entries = self._describe(sources, layout, _patterns(include), _patterns(exclude))
            self.name = name or default_name(record)
            self._made = not self.cache.by_id(record.identifier).path.exists()
            self.directory = self.cache.register(self.name, self._adopted(record, layout))
        self.fill_settings = FillSettings(
            cache=str(root),
            dataset=self.directory.identifier,
            sources=entries,
            include=record.include,
            exclude=record.exclude,
            max_rate=float(rate) if rate else None,
            max_requests=self.settings.max_requests,
            staging=self.settings.staging,
        )

    def service(self) -> FillService:
        """A filler in this process. Only for programs that never fork."""
        from hotset.fill.service import FillService

        return FillService(self.fill_settings, self.env)

    def client(self) -> FillClient:
        """A filler in a process of its own, not started yet."""
        return FillClient(self.fill_settings, environment, runtime_directory(self.settings))

    def give_up(self) -> None:
        """After a failure: if nothing was ever listed, nothing is left behind, and the name is free for another source."""
        if not self._made:
            return
        with suppress(HotsetError, FileNotFoundError):  # the failure that led here says more than one of tidying up
            lock = self.directory.listing_lock()
            if lock.try_acquire():  # else somebody lists it at this moment
                try:
                    if self.directory.current() is None and self.cache.forget(self.name):
                        self.directory.drop()
                finally:
                    lock.release()

    def fresh_since_ns(self, refresh: Refresh) -> int | None:
        """A listing made after this moment is good enough; None: any is."""
        if refresh == "never":
            return None
        return time.time_ns() - (int(self.settings.fresh_for * 1e9) if refresh == "auto" else 0)

    def _describe(
        self, sources: SourceArgument, layout: Layout | None, include: tuple[str, ...], exclude: tuple[str, ...]
    ) -> tuple[DatasetRecord, tuple[SourceSettings, ...]]:
        mounts = [("", sources)] if isinstance(sources, str) else list(dict(sources).items())
        if not mounts:
            raise InvalidInput("a dataset needs at least one source")
        entries = tuple(SourceSettings(_absolute(uri), path.strip("/"), self._options) for path, uri in mounts)
        records = []
        for entry in entries:
            identity = identify(entry.uri, options=entry.options, env=self.env)
            records.append(SourceRecord(display_uri(entry.uri), identity, entry.path, _recordable(entry.options)))
        record = DatasetRecord(tuple(records), include, exclude, layout or "packs", self.settings.trust_domain)
        return record, entries

    def _adopted(self, record: DatasetRecord, layout: Layout | None) -> DatasetRecord:
        """Opening adopts the layout that the dataset has in this cache, unless another one is asked for."""
        if layout is None:
            try:
                return replace(record, layout=self.cache.by_id(record.identifier).record().layout)
            except NotFound:
                pass
        return record

    def _with_recorded(self, recorded: Mapping[str, str]) -> SourceOptions:
        kinds = {field.name: field for field in fields(SourceOptions)}
        known = {name: _typed(kinds[name].type, value) for name, value in recorded.items() if name in kinds}
        given = {
            field.name: getattr(self._options, field.name)
            for field in fields(SourceOptions)
            if getattr(self._options, field.name) != getattr(SourceOptions(), field.name)
        }
        return replace(SourceOptions(), **{**known, **given})


def open_dataset(
    *,
    refresh: Refresh,
    snapshot: str | None,
    on_changed: OnChanged,
    make: Callable[[], Build],
) -> Dataset:
    """Choose the snapshot, listing the source if that is necessary, and open it. One that is damaged is listed again, and the
    user told, unless just that one was asked for.
    """
    if refresh not in ("auto", "always", "never"):
        raise InvalidInput(f"refresh is 'auto', 'always' or 'never', not {refresh!r}")
    if on_changed not in ("raise", "skip", "newest"):
        raise InvalidInput(f"on_changed is 'raise', 'skip' or 'newest', not {on_changed!r}")
    build = make()
    fill = build.client()
    try:
        try:
            if snapshot is None:
                _refresh_if_stale(build, fill, refresh)
            opened, lease = build.directory.open(snapshot)
        except Corrupt as error:
            if snapshot is not None or refresh == "never":
                raise
            warnings.warn(f"{build.name} is listed again: {error}", stacklevel=3)
            fill.refresh(not_before_ns=time.time_ns())
            opened, lease = build.directory.open()
        from hotset.read.dataset import Dataset, ReadOptions

        options = ReadOptions(on_changed, build.settings.lookahead)
        dataset = Dataset(build.name, build.directory, opened, lease, fill, options)
        if dataset.complete:
            fill.stop()  # it was needed for the listing only
        else:
            fill.start()  # its imports take as long as the caller's first steps; forked workers find it running
    except BaseException:
        fill.close()
        build.give_up()
        raise
    return dataset


def _refresh_if_stale(build: Build, fill: FillClient, refresh: Refresh) -> None:
    current = build.directory.checked_current()
    since = build.fresh_since_ns(refresh)
    if current is not None and (since is None or current.listed_ns >= since):
        return
    if since is None:
        raise NotFound(f"{build.name!r} has no snapshot in the cache yet; open it with refresh='auto', or load it")
    try:
        fill.start()
        import hotset.read.dataset  # what reading needs comes while the filler starts  # noqa: F401

        fill.refresh(not_before_ns=since)
    except Unavailable as error:
        if current is None or refresh == "always":
            raise
        warnings.warn(f"{build.name}: the source cannot be listed now ({error}); using the last snapshot", stacklevel=4)


def default_name(record: DatasetRecord) -> str:
    """A readable part of the URI and six digits of the dataset's identity."""
    path = re.sub(r"^[a-z0-9+]+://", "", record.sources[0].uri).rstrip("/")
    slug = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")[-40:].strip("-") or "dataset"
    return f"{slug}-{record.identifier[:6]}"


def _patterns(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_patterns(name: str, what: str, given: tuple[str, ...], recorded: tuple[str, ...]) -> None:
    """`InvalidInput` if other patterns are asked for than the dataset of that name was made with."""
    if given and given != recorded:
        made = f"{what} {', '.join(map(repr, recorded))}" if recorded else f"no {what}"
        raise InvalidInput(
            f"{name!r} was made with {made}, and what is chosen is part of what a dataset is: leave {what} out, or give the "
            "URI as well, and another name"
        )


def _absolute(uri: str) -> str:
    """A plain path is meant from the working directory of now, not of a later process."""
    return uri if "://" in uri or not uri.strip() else str(Path(uri).expanduser().absolute())


def _recordable(options: SourceOptions) -> dict[str, str]:
    """What may be written down of the options: that which differs from the default and is no secret."""
    default = SourceOptions()
    return {
        field.name: str(getattr(options, field.name))
        for field in fields(options)
        if field.name not in _SECRETS and getattr(options, field.name) != getattr(default, field.name)
    }


def _typed(kind: object, text: str) -> object:
    if "bool" in str(kind):
        return text == "True"
    return float(text) if "float" in str(kind) else int(text) if str(kind) == "int" else text
