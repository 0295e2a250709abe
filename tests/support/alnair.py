"""What an Alnair pod mounts into its job, in directories of a test; and datasets of objects that say their own number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hotset.alnair import AlnairJobDataset
from tests.support.s3 import S3Server
from tests.support.signature import REGION

QOS = {"UseCache": True, "MaxMemory": 0, "DurabilityInDisk": 1440, "LazyLoading": True}


class Pod:
    """The directories /jobs, /share and /secret of a pod, and the environment of its job."""

    def __init__(self, root: Path, name: str = "job") -> None:
        self.name = name
        self.jobs, self.share, self.secret = (root / part for part in ("jobs", "share", "secret"))
        self.jobs.mkdir(parents=True)
        self.secret.mkdir()

    @property
    def env(self) -> dict[str, str]:
        return {
            "JOBNAME": self.name,
            "HOTSET_ALNAIR_JOBS": str(self.jobs),
            "HOTSET_ALNAIR_SHARE": str(self.share),
            "HOTSET_ALNAIR_SECRET": str(self.secret),
        }

    def declare(
        self, bucket: str, keys: Sequence[str] | None = None, qos: Mapping[str, Any] | None = None, **changes: Any
    ) -> None:
        """The job's file, as the operator makes it: ``keys`` are left out when there are none."""
        source = {"name": "ImageNet-Mini", "bucket": bucket, **({"keys": list(keys)} if keys else {})}
        given = {**QOS, **changes} if qos is None else dict(qos)
        text = json.dumps({"datasource": source, "name": self.name, "qos": given}, separators=(",", ":"))
        (self.jobs / f"{self.name}.json").write_text(text)

    def tell(self, text: str | None = None) -> None:
        """What the client container writes."""
        self.share.mkdir(exist_ok=True)
        access = {"cluster": [], "host": "redis-cluster", "port": 6379, "username": "default", "password": "PASSWORD"}
        info = {
            "jinfo": {"jobId": "me/ImageNet-Mini", "token": "T", "ccauth": access},
            "policy": {"chunkSize": 512 * 2**20, "snapshot": ["{me/ImageNet-Mini}imagenet-mini/val"]},
        }
        (self.share / f"{self.name}.json").write_text(json.dumps(info) if text is None else text)

    def sign(self, server: S3Server, **more: str) -> None:
        """The file with the keys of the object store."""
        keys = {
            "aws_access_key_id": server.access_key,
            "aws_secret_access_key": server.secret_key,
            "region_name": REGION,
            "endpoint_url": server.endpoint,
            **more,
        }
        lines = ["[aws_s3]", *(f"{name}={value}" for name, value in keys.items()), "[alnair_manager]", "password=x%y"]
        (self.secret / "client.conf").write_text("\n".join(lines))


def numbered(root: Path, sizes: Sequence[int], *, directory: str = "set") -> None:
    """Files of these sizes; each holds its number, as text, and then blanks."""
    place = root / directory
    place.mkdir(parents=True, exist_ok=True)
    for number, size in enumerate(sizes):
        (place / f"{number:04}").write_bytes(str(number).encode().ljust(size))


class Numbers(AlnairJobDataset):
    """Samples are the numbers in the objects."""

    def __convert__(self):
        return [self.data[key] for key in self.keys], [int(key[-4:]) for key in self.keys]

    def __getitem__(self, index):
        return int(self.get_data(index)), self.get_target(index)


def numbers_of(loader: Any) -> list[int]:
    """All samples of an epoch, in order; each must have its own target."""
    seen: list[int] = []
    for data, targets in loader:
        assert data.tolist() == targets.tolist()
        seen += data.tolist()
    return seen


MB = 2**20
#: With a limit of 1 MB: windows of 2, 3, 1 (too large), 3 and 1 objects.
SIZES = [400_000, 500_000, 300_000, 300_000, 300_000, 3 * MB, 300_000, 300_000, 300_000, 300_000]
COUNT = len(SIZES)


def opened(root: Path, kind: type[AlnairJobDataset] = Numbers, **qos: Any) -> Any:
    """The dataset over files that `numbered` made, straight from the directory."""
    return kind(["set"], uri=str(root), qos={"usecache": False, **qos})
