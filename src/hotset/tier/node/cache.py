"""The cache directory as a whole: format, permissions, quota, and the names of its datasets."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hotset.base.files import free_bytes, is_tmpfs, network_filesystem, replace_file, temporary_name, usage_of
from hotset.base.locks import FileLock
from hotset.errors import AlreadyExists, Corrupt, Denied, Full, InvalidInput, NotFound
from hotset.tier.node.dataset import DatasetDirectory
from hotset.tier.node.records import DatasetRecord
from hotset.tier.node.space import Space, told_if_full

__all__ = ["DEFAULT_SHARE", "CacheDirectory", "check_name"]

FORMAT = 1
#: The default quota: this part of what is free on the file system when the directory is made.
DEFAULT_SHARE = 0.8
#: Less than this cannot hold an index and one pack.
SMALLEST_QUOTA = 16 * 2**20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """A dataset's name becomes a file name, a part of URLs and of metrics: letters, digits, dot, dash, underscore."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:100]!r} cannot be a dataset's name: use up to 100 letters, digits, dots, dashes and underscores, "
            "beginning with a letter or digit"
        )
    return name


class CacheDirectory:
    """One cache directory, opened. Holds no lock and no descriptor; any number of processes open the same one."""

    def __init__(self, root: Path, *, quota: int | None = None) -> None:
        """Open ``root``, making it if it does not exist; a ``quota`` given here replaces the stored one.

        Raises `InvalidInput` for a network file system, a newer format or a quota too small for one pack, and `Denied`
        where this user must not write.
        """
        self.root = root
        if quota is not None and quota < SMALLEST_QUOTA:
            raise Full(f"a quota of {quota} bytes cannot hold an index and one pack; give at least {SMALLEST_QUOTA}")
        _prepare_root(root)
        self.durable = not is_tmpfs(root)
        #: Permission bits for files and directories: those of the root decide whether a group shares the cache.
        shared = root.stat().st_mode & stat.S_IWGRP
        self.file_mode = 0o664 if shared else 0o600
        self.directory_mode = 0o2775 if shared else 0o700
        with FileLock(root / "setup.lock", mode=self.file_mode):
            settings = self._read_settings()
            if settings is None or (quota is not None and settings["quota"] != quota):
                settings = {"format": FORMAT, "quota": quota or default_quota(root)}
                self._write(root / "hotset.json", settings)
            for name in ("names", "datasets"):
                self.make_directory(root / name)
        self.quota = int(settings["quota"])
        self.space = Space(root, self.quota, self.file_mode)

    def __repr__(self) -> str:
        return f"CacheDirectory({str(self.root)!r}, quota={self.quota})"

    # -- datasets ------------------------------------------------------------------------------------------------------

    def names(self) -> Iterator[str]:
        """The names of all datasets, sorted."""
        yield from sorted(entry.name for entry in os.scandir(self.root / "names") if not entry.name.startswith("."))

    def dataset(self, name: str) -> DatasetDirectory:
        """The dataset of that name; `NotFound` if there is none."""
        link = self.root / "names" / check_name(name)
        try:
            identifier = Path(os.readlink(link)).name
        except FileNotFoundError as error:
            known = ", ".join(self.names()) or "none"
            raise NotFound(f"no dataset {name!r} in {self.root}; there are: {known}") from error
        return self.by_id(identifier)

    def by_id(self, identifier: str) -> DatasetDirectory:
        return DatasetDirectory(self.root / "datasets" / identifier, self)

    def all(self) -> Iterator[DatasetDirectory]:
        for entry in os.scandir(self.root / "datasets"):
            if not entry.name.startswith("."):
                yield self.by_id(entry.name)

    def names_of(self, identifier: str) -> list[str]:
        links = self.root / "names"
        return [name for name in self.names() if Path(os.readlink(links / name)).name == identifier]

    def register(self, name: str, record: DatasetRecord) -> DatasetDirectory:
        """Make (or adopt) the dataset that ``record`` describes, under ``name``.

        `AlreadyExists` if the name stands for a dataset of other sources, or the dataset has the other layout here.
        """
        check_name(name)
        link = self.root / "names" / name
        dataset = self.by_id(record.identifier)
        with FileLock(self.root / "setup.lock", mode=self.file_mode):
            if link.is_symlink():
                owner = Path(os.readlink(link)).name
                if owner != record.identifier and self.by_id(owner).path.exists():
                    there = ", ".join(source.uri for source in self.by_id(owner).record().sources)
                    raise AlreadyExists(
                        f"the name {name!r} stands for {there}; choose another name, or `hotset drop {name}` first"
                    )
            dataset.create(record)
            if not link.is_symlink() or Path(os.readlink(link)).name != record.identifier:
                temporary = temporary_name(link)
                with told_if_full(self.root):
                    temporary.symlink_to(Path("..") / "datasets" / record.identifier)
                    temporary.rename(link)
        return dataset

    def forget(self, name: str) -> bool:
        """Take the name away; True if it was the dataset's last one."""
        dataset = self.dataset(name)
        with FileLock(self.root / "setup.lock", mode=self.file_mode):
            with suppress(FileNotFoundError):
                (self.root / "names" / name).unlink()
            return not self.names_of(dataset.identifier)

    # -- files ---------------------------------------------------------------------------------------------------------

    def make_directory(self, path: Path) -> None:
        try:
            with told_if_full(self.root):
                path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            return
        path.chmod(self.directory_mode)

    def usage(self) -> int:
        """Bytes that the file system has given to this directory."""
        return usage_of(self.root)

    def _write(self, path: Path, value: object) -> None:
        data = json.dumps(value, indent=1, sort_keys=True).encode()
        with told_if_full(self.root):
            replace_file(path, data, mode=self.file_mode, durable=self.durable)

    def _read_settings(self) -> dict[str, int] | None:
        path = self.root / "hotset.json"
        try:
            settings = json.loads(path.read_bytes())
            found = int(settings["format"])
            int(settings["quota"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{path} is damaged ({error}); remove that file to set it anew") from error
        if found > FORMAT:
            raise InvalidInput(
                f"{self.root} has format {found}, made by a newer hotset; this one writes {FORMAT}: "
                "upgrade hotset, or choose another directory with HOTSET_CACHE"
            )
        return dict(settings)


def default_quota(root: Path) -> int:
    return max(SMALLEST_QUOTA, int((free_bytes(root) + usage_of(root)) * DEFAULT_SHARE))


def _prepare_root(root: Path) -> None:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidInput(f"{root} is not a directory; choose another place with HOTSET_CACHE") from error
    except OSError as error:
        raise Denied(f"cannot make the cache directory {root} ({error.strerror}); set HOTSET_CACHE") from error
    if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        owner = root.stat().st_uid
        raise Denied(
            f"the cache directory {root} belongs to user {owner} and is not writable for you; set HOTSET_CACHE to one of "
            "your own, or share that one through a group (chmod 2775 and chgrp)"
        )
    stat_result = root.stat()
    if stat_result.st_uid not in (os.geteuid(), 0) and not stat_result.st_mode & stat.S_IWGRP and os.geteuid() != 0:
        raise Denied(
            f"the cache directory {root} belongs to user {stat_result.st_uid}; set HOTSET_CACHE to one of your own"
        )
    if (kind := network_filesystem(root)) is not None:
        raise InvalidInput(
            f"{root} lies on {kind}, where locks and memory maps are not safe; set HOTSET_CACHE to a local disk or /dev/shm"
        )
