"""Kill -9 at any moment, and a full disk: right bytes, nothing fetched twice that was recorded, nothing lost.

The killed programs are forked, not started anew: a hundred deaths cost seconds. Their source is a dictionary, so nothing
in them minds the fork.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import hotset
from hotset.errors import Full, NotFound
from hotset.fill.service import FillService
from hotset.fill.settings import FillSettings
from hotset.snapshot import PlanParameters, Snapshot
from hotset.source.base import Buffer, ObjectInfo
from hotset.testing.source import MemorySource
from hotset.tier.node import CacheDirectory, DatasetDirectory
from hotset.tier.node.records import Layout
from hotset.tier.node.shelf import open_reader
from tests.support.datasets import content, image_tree
from tests.support.opening import give_up_soon, read_all, use
from tests.support.processes import call, kill_at_random, wait_until
from tests.unit.tier.making import all_units, record_of

pytestmark = pytest.mark.integration

PARAMETERS = PlanParameters(limit=40_000, stripe=15_000)
QUOTA = 64 * 2**20

Unit = tuple[str, int, int]
"""Key, start, end."""


def dataset_of(seed: int, count: int = 60) -> dict[str, bytes]:
    """Small objects, one without bytes, and one of seven stripes. Another seed: three changed objects, and one more."""
    made = {f"dir{n % 4}/{n:03}": content(f"{n}", 500 + 97 * n % 3000) for n in range(count)}
    made |= {"empty": b"", "large": content("large", 100_000)}
    return made | {f"dir{seed}/{n:03}": content(f"changed {n}", 800 + n, seed=seed) for n in range(4 * bool(seed))}


class LoggingSource(MemorySource):
    """Writes down each read before it answers, so that the log survives its process."""

    def __init__(self, objects: dict[str, bytes], log: Path) -> None:
        super().__init__(objects)
        self._log = log

    def read(self, key: str, start: int, end: int, expect: ObjectInfo) -> Buffer:
        data = super().read(key, start, end, expect)
        if end > start:
            with self._log.open("a") as file:
                file.write(json.dumps([key, start, end]) + "\n")
        return data


def reads_in(log: Path) -> list[Unit]:
    if not log.exists():
        return []
    return [(key, start, end) for key, start, end in map(json.loads, log.read_text().splitlines())]


def load(root: Path, layout: Layout, objects: dict[str, bytes], log: Path) -> None:
    """All of a program's life: make the cache and the dataset, list, publish, fetch what is absent."""
    cache = CacheDirectory(root, quota=QUOTA)
    dataset = cache.register("data", record_of(layout=layout))
    settings = FillSettings(str(root), dataset.identifier, (), parameters=PARAMETERS)
    service = FillService(settings, {}, source=LoggingSource(objects, log))
    current = service.refresh(not_before_ns=2**63 - 1)
    engine = service.engine(current.digest)
    engine.load()
    assert engine.wait_loaded(60)
    assert engine.failures() == {}
    service.close()


def recorded(root: Path, objects: dict[str, bytes]) -> set[Unit]:
    """What the cache has now of these objects, compared byte by byte with what it must be."""
    found: set[Unit] = set()
    try:
        dataset = CacheDirectory(root).dataset("data")
        if dataset.current() is None:
            return found
        snapshot, lease = dataset.open()
    except NotFound:
        return found  # killed before there was one
    reader = open_reader(dataset, snapshot)
    for number, unit in all_units(snapshot):
        position, start, end = snapshot.unit_range(number, unit)
        key = snapshot.key(position)
        data = reader.unit(number, unit)
        if data is not None and objects.get(key, b"")[start:end] == data:
            found.add((key, start, end))
        elif data is not None:
            assert dataset_of(0).get(key, b"")[start:end] == data, f"{key}: wrong bytes"
    lease.release()
    return found


#: What changes something on the disk. A process that dies before, in, or after one of these leaves each state that it can.
STEPS = (
    "pwrite",
    "pwritev",
    "link",
    "rename",
    "unlink",
    "mkdir",
    "symlink",
    "truncate",
    "ftruncate",
    "fdatasync",
    "chmod",
    "fchmod",
)


def die_at(step: int, when: str) -> Callable[[], int]:
    """From now on this process dies at its ``step``-th change of the disk; the function says how many there were."""
    lock = threading.Lock()
    count = 0

    def wrapped(name: str, original: Callable[..., object]) -> Callable[..., object]:
        def change(*args: object, **kwargs: object) -> object:
            nonlocal count
            with lock:
                count += 1
                now = count == step
            if now and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            if now and when == "half" and name == "pwritev":
                fd, buffers, offset = args
                whole = b"".join(buffers)  # type: ignore[arg-type]
                half = (
                    len(whole) // 2 // 4 * 4
                )  # the kernel does not split the write of one word; a larger one may end early
                original(fd, [whole[:half]], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*args, **kwargs)
            if now:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return change

    for name in STEPS:
        setattr(os, name, wrapped(name, getattr(os, name)))
    return lambda: count


def load_until(step: int, when: str, root: Path, layout: Layout, objects: dict[str, bytes], log: Path) -> None:
    die_at(step, when)
    load(root, layout, objects, log)


def in_child(function: Callable[[], object]) -> int:
    """Run it in a forked process; 0 if it returned, 1 if it raised (its traceback is printed), -9 if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException:  # noqa: BLE001 -- printed, and a failure of the test that waits for the status
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_steps(function: Callable[[], object]) -> int:
    """How often a whole life changes the disk."""
    readable, writable = os.pipe()

    def counting() -> None:
        steps = die_at(-1, "never")
        function()
        os.write(writable, b"%d" % steps())

    assert in_child(counting) == 0
    os.close(writable)
    with os.fdopen(readable) as pipe:
        return int(pipe.read())


@pytest.fixture(params=["packs", "files"])
def layout(request: pytest.FixtureRequest) -> Layout:
    return request.param


@pytest.mark.soak
def test_killed_at_any_change_of_the_disk(layout: Layout, tmp_path: Path, rounds: int):
    """Each round is one cache: killed again and again at drawn moments, then left to end; then the source changes, and
    the same again on top of it."""
    before, after = dataset_of(0), dataset_of(1)
    steps = count_steps(lambda: load(tmp_path / "counted", layout, before, tmp_path / "counted.log"))
    assert steps > 2 * len(before)
    deaths = 0
    for number in range(rounds):
        rng = random.Random(f"{layout} {number}")
        root, log = tmp_path / f"cache{number}", tmp_path / f"{number}.log"
        for objects in (before, after):
            for _ in range(8):
                here = recorded(root, objects)
                log.unlink(missing_ok=True)
                step, when = rng.randint(1, steps // 5), rng.choice(["before", "half", "after"])
                status = in_child(partial(load_until, step, when, root, layout, objects, log))
                assert status in (0, -signal.SIGKILL)
                deaths += status != 0
                fetched = reads_in(log)
                assert len(fetched) == len(set(fetched)), "fetched twice in one life"
                assert not here & set(fetched), "fetched again although it was recorded"
            log.unlink(missing_ok=True)
            here = recorded(root, objects)
            assert in_child(partial(load, root, layout, objects, log)) == 0
            assert not here & set(reads_in(log))
            assert {key for key, _, _ in recorded(root, objects)} == set(objects)
        check_account(root)
    assert deaths > 5 * rounds


@pytest.mark.soak
def test_two_fillers_one_of_them_killed(layout: Layout, tmp_path: Path, rounds: int):
    """The claims of the dead one end with it, and the other one goes on; together they fetch nothing twice that either
    has stored."""
    objects = dataset_of(0, count=400)
    for number in range(rounds):
        rng = random.Random(f"two {layout} {number}")
        root = tmp_path / f"cache{number}"
        logs = [tmp_path / f"{number}.{side}.log" for side in "ab"]
        survivor = os.fork()
        if survivor == 0:
            os._exit(in_child(partial(load, root, layout, objects, logs[0])))
        killed = partial(load_until, rng.randint(1, 1000), "half", root, layout, objects, logs[1])
        assert in_child(killed) in (0, -signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(survivor, 0)[1]) == 0
        assert {key for key, _, _ in recorded(root, objects)} == set(objects)
        one, two = set(reads_in(logs[0])), reads_in(logs[1])
        assert len(two) == len(set(two))
        assert len(one & set(two)) <= 32 * 8, "at most what the dead one was fetching"
        check_account(root)


def check_account(root: Path) -> None:
    """After a recount the account is what is there, and nobody's leftovers fill the directory without end."""
    cache = CacheDirectory(root)
    assert cache.usage() <= cache.space.recount() <= QUOTA
    for dataset in cache.all():
        left = list(dataset.leftovers())
        assert len(left) < 100, left


@pytest.mark.soak
@pytest.mark.parametrize("layout", ["packs", "files"])
def test_a_training_program_killed_at_random_moments(layout: Layout, bucket, proxy, monkeypatch, rounds: int):
    """The real thing: S3, the filler's process, kill -9 of the program; the filler notices and ends."""
    data = dict(image_tree(300, 6000))
    use(monkeypatch, proxy.env())
    bucket.put_many(data)
    rng = random.Random(11)
    for _ in range(rounds):
        here = cached_keys("data", data)
        proxy.clear()
        with call(load_with_hotset, bucket.url, layout, env=proxy.env()) as child:
            child.expect("open")
            kill_at_random(child, rng, within=0.5)
        with hotset.open(None, "data", refresh="never") as ds:
            fillers_gone(ds)
        assert not here & {key for key, count in proxy.gets.items() if count}
    here = cached_keys("data", data)
    proxy.clear()
    with hotset.open(bucket.url, "data", layout=layout) as ds:
        ds.load()
        assert read_all(ds) == data
    assert not here & {key for key, count in proxy.gets.items() if count}
    assert cached_keys("data", data) == set(data)


def load_with_hotset(uri: str, layout: Layout) -> None:
    with hotset.open(uri, "data", layout=layout) as ds:
        print("open", flush=True)
        ds.load()


def fillers_gone(ds: hotset.Dataset) -> None:
    """Nobody but us has the snapshot open: the filler of the killed program has seen its death, and stored its last."""
    lease = ds._lease
    path = Path(os.readlink(f"/proc/self/fd/{lease._lock.fd}"))
    inode = path.stat().st_ino

    def holders() -> int:
        lines = Path("/proc/locks").read_text().splitlines()
        return sum("FLOCK" in line and line.split()[5].endswith(f":{inode}") for line in lines)

    wait_until(lambda: holders() == 1, what="the end of the killed program's filler")


def cached_keys(name: str, data: dict[str, bytes]) -> set[str]:
    """The keys whose bytes are all in the cache; every byte that is there is compared."""
    try:
        dataset = CacheDirectory(Path(os.environ["HOTSET_CACHE"])).dataset(name)
        snapshot, lease = dataset.open()
    except NotFound:
        return set()
    reader = open_reader(dataset, snapshot)
    here = set()
    for number, unit in all_units(snapshot):
        position, start, end = snapshot.unit_range(number, unit)
        view = reader.unit(number, unit)
        if view is not None:
            assert view == data[snapshot.key(position)][start:end]
            here.add(snapshot.key(position))
    lease.release()
    return here


class TestFullDisk:
    """The quota promises more than the disk has: what does not fit is read through, and said where it must be said."""

    objects = {f"{n:03}": content(f"{n}", 200_000) for n in range(100)}  # noqa: RUF012 -- never changed

    @pytest.fixture
    def disk(self) -> Iterator[Path]:
        """12 MB of memory as a disk, for 20 MB of objects."""
        if os.geteuid() != 0:
            pytest.skip("platform: only root can mount a small disk")
        with tempfile.TemporaryDirectory(prefix="hotset-disk-") as place:
            mounted = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=12m", "hotset-test", place], capture_output=True, check=False
            )
            if mounted.returncode:
                pytest.skip(f"platform: no mounts here: {mounted.stderr.decode().strip()}")
            try:
                yield Path(place)
            finally:
                subprocess.run(["umount", "--lazy", place], check=True)

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        for key, data in self.objects.items():
            (tmp_path / "source").mkdir(exist_ok=True)
            (tmp_path / "source" / key).write_bytes(data)
        return tmp_path / "source"

    def test_packs_read_through_what_the_disk_has_no_room_for(self, disk: Path, source: Path):
        (disk / "cache").mkdir()
        with hotset.open(str(source), "data", cache=disk / "cache", quota="1GiB") as ds:
            ds.prefetch(range(len(ds)))
            assert read_all(ds) == self.objects
            ds.load()
            assert read_all(ds) == self.objects
        assert 0 < stored(disk / "cache", self.objects) < 100

    def test_and_store_it_once_there_is_room(self, disk: Path, source: Path):
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(8 * 2**20))
        (disk / "cache").mkdir()
        with hotset.open(str(source), "data", cache=disk / "cache", quota="1GiB") as ds:
            ds.load()
            before = stored(disk / "cache", self.objects)
            assert before < 40
            ballast.unlink()
            ds.load()
            assert stored(disk / "cache", self.objects) > before
            assert read_all(ds) == self.objects

    def test_files_say_so_and_go_on_once_there_is_room(self, disk: Path, source: Path, tmp_path: Path):
        with give_up_soon(str(source), "data", cache=disk / "cache", quota="1GiB", layout="files") as ds:
            with pytest.raises(Full, match="No space left on device"):
                ds.load()
            here = stored(disk / "cache", self.objects)
            assert here > 20, "what was stored before is not lost"
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            ds.load()
            assert ds.complete
            assert read_all(ds) == self.objects

    def test_a_limit_on_the_size_of_files(self, source: Path, tmp_path: Path):
        """`ulimit -f`, as some batch systems set it: no pack can be made, and all is read through."""
        with call(read_with_small_files, str(source), str(tmp_path / "cache")) as child:
            assert child.result(timeout=60) == len(self.objects)


def read_with_small_files(source: str, cache: str) -> int:
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
    with hotset.open(source, "data", cache=cache) as ds:
        for index, key in enumerate(ds.keys):
            assert ds[index] == TestFullDisk.objects[key]
        return len(ds)


def stored(root: Path, objects: dict[str, bytes]) -> int:
    """How many objects are in the cache, all compared."""
    dataset: DatasetDirectory = CacheDirectory(root).dataset("data")
    snapshot: Snapshot
    snapshot, lease = dataset.open()
    reader = open_reader(dataset, snapshot)
    count = 0
    for number, unit in all_units(snapshot):
        position, start, end = snapshot.unit_range(number, unit)
        data = reader.unit(number, unit)
        if data is not None:
            assert data == objects[snapshot.key(position)][start:end]
            count += 1
    lease.release()
    return count
