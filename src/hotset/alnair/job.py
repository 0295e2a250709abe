"""What a job is told by the files of its pod, or what it is without a pod: where its data are and how to read them.

``/jobs/<JOBNAME>.json`` is made by Alnair's operator of what the user wrote, ``/share/<JOBNAME>.json`` by the client
container beside the job, ``/secret/client.conf`` holds the keys of the object store. Credentials are read when they are
used: nothing here carries one.
"""

from __future__ import annotations

import configparser
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hotset.alnair.qos import LOCAL_QOS, POD_QOS, QoS, normal_qos
from hotset.config.alnair import AlnairSettings
from hotset.errors import Denied, HotsetError, InvalidInput, NotFound, Unavailable
from hotset.source import SourceOptions

__all__ = ["Job", "Place", "find_job"]

#: Between two looks for the file that the client container writes.
_LOOK_EVERY = 0.1

_OPTIONS = {
    "aws_access_key_id": "access_key",
    "aws_secret_access_key": "secret_key",
    "aws_session_token": "session_token",
    "region_name": "region",
    "endpoint_url": "endpoint",
}


@dataclass(frozen=True)
class Place:
    """Where objects are: all of ``uri`` whose names begin with one of ``prefixes``; without prefixes, all."""

    uri: str = field(repr=False)  #: a signed URL is a secret
    prefixes: tuple[str, ...] = ()
    secret: Path | None = None  #: the file with credentials; None: they come from the environment

    def holding(self, keys: Sequence[str]) -> Place:
        """The place in which to look for ``keys``: this one if the job declares them, so that all its datasets are one."""
        if not keys or (self.prefixes and all(key.startswith(self.prefixes) for key in keys)):
            return self
        return replace(self, prefixes=normal_prefixes(keys))

    def options(self) -> SourceOptions | None:
        """Credentials and the like, read anew at each call."""
        return None if self.secret is None else _read_secret(self.secret)


def normal_prefixes(keys: Sequence[str]) -> tuple[str, ...]:
    """The same prefixes in one order; none if one of them is empty, which is what all names begin with."""
    return () if "" in keys else tuple(sorted(set(keys)))


@dataclass(frozen=True)
class Job:
    """``meta`` is the job's file, ``info`` what the client container told, else the same as ``meta``."""

    name: str | None
    place: Place
    bucket: str | None
    qos: QoS
    meta: Mapping[str, Any]
    info: Mapping[str, Any] = field(repr=False)  #: holds the password of the cache cluster


def find_job(settings: AlnairSettings, *, uri: str | None = None, qos: Mapping[str, object] | None = None) -> Job:
    """The job of this process: what ``uri`` says, else its file, else HOTSET_ALNAIR_URI. ``qos`` overrides either.

    Raises `NotFound` if there is none of them, `InvalidInput` for files that cannot be right, and `Unavailable` if the
    client container does not tell in time how to connect.
    """
    name = settings.jobname
    chosen = normal_qos(qos or {}, where="qos")
    file = None
    if name is not None:
        if "/" in name:
            raise InvalidInput(f"JOBNAME is {name!r}, but the name of a job has no slash")
        file = settings.jobs / f"{name}.json"
        if uri is None and file.exists():
            return _job_of_pod(settings, name, file, chosen)
    uri = uri or settings.uri
    if uri is None:
        missing = "JOBNAME is not set" if file is None else f"there is no {file}"
        raise NotFound(
            f"no job, and no data to read without one: {missing}. To try a script on this machine, set HOTSET_ALNAIR_URI "
            "to a directory or a URI such as s3://bucket that stands for the job's bucket"
        )
    if "://" not in uri:
        uri = str(Path(uri).expanduser().absolute())  # meant from the working directory of now
    settled = {**LOCAL_QOS, **normal_qos(settings.qos, where="HOTSET_ALNAIR_QOS"), **chosen}
    meta: dict[str, Any] = {"name": name, "datasource": {"name": name, "bucket": None, "keys": []}, "qos": settled}
    return Job(name, Place(uri), None, settled, meta, meta)


def _job_of_pod(settings: AlnairSettings, name: str, file: Path, chosen: QoS) -> Job:
    meta = _read_object(file)
    source = meta.get("datasource")
    bucket = source.get("bucket") if isinstance(source, dict) else None
    keys = (source.get("keys") if isinstance(source, dict) else None) or []
    if not isinstance(bucket, str) or not bucket:
        raise InvalidInput(f"{file}: the job has no datasource with a bucket")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise InvalidInput(f"{file}: the keys of the datasource are a list of prefixes, not {keys!r}")
    qos = {**POD_QOS, **normal_qos(meta.get("qos") or {}, where=str(file), strangers=True), **chosen}
    uri = bucket if "://" in bucket else f"s3://{bucket}"
    place = Place(uri, normal_prefixes(keys), settings.secret / "client.conf")
    told = _wait_for_client(settings, name) if qos["UseCache"] and settings.share.is_dir() else None
    return Job(name, place, bucket, qos, meta, meta if told is None else told)


def _wait_for_client(settings: AlnairSettings, name: str) -> dict[str, Any]:
    """What the client container wrote; it writes in place, so half a file is one that is not there yet."""
    file = settings.share / f"{name}.json"
    deadline = time.monotonic() + settings.wait
    while True:
        try:
            return _read_object(file)
        except NotFound:
            state = "is not there"
        except InvalidInput:
            state = "is not complete"
        if time.monotonic() >= deadline:
            raise Unavailable(
                f"{file} {state} after {settings.wait:g} seconds: does the client container of the pod run, and has it "
                "registered the job (kubectl logs POD -c client)? HOTSET_ALNAIR_WAIT says how long to wait"
            )
        threading.Event().wait(_LOOK_EVERY)


def _read_object(file: Path) -> dict[str, Any]:
    """A JSON object. No message repeats what is in the file: it may be a secret."""
    try:
        found = json.loads(_read(file))
    except ValueError:
        raise InvalidInput(f"{file}: not JSON") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"{file}: not a JSON object")
    return found


def _read_secret(file: Path) -> SourceOptions | None:
    parser = configparser.RawConfigParser(strict=False)  # raw: a key may hold a per cent sign
    try:
        parser.read_string(_read(file).decode())
    except NotFound:
        return None
    except (configparser.Error, UnicodeDecodeError):
        raise InvalidInput(f"{file}: not of the form [aws_s3], then name=value on each line") from None
    if not parser.has_section("aws_s3"):
        return None
    given = {ours: value for theirs, ours in _OPTIONS.items() if (value := parser.get("aws_s3", theirs, fallback=""))}
    return SourceOptions(**given)  # type: ignore[arg-type]  # all of these are text


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"{file}: no such file") from error
    except PermissionError as error:
        raise Denied(f"{file}: this user may not read it") from error
    except OSError as error:
        raise HotsetError(f"{file}: {error.strerror}") from error
