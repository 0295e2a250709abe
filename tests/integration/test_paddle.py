"""`hotset.paddle`, with the real one: in a process of its own, since the frameworks do not go well together in one."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import hotset
from hotset.errors import InvalidInput, NotFound
from hotset.read.order import SampleOrder
from tests.support.documents import python_in, with_changes
from tests.support.images import NO_IMAGE, class_tree, colour
from tests.support.opening import use
from tests.support.processes import (
    DEADLINE,
    ChildFailed,
    Interpreter,
    call,
    descendants,
    wait_until,
    wait_until_gone,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

COUNT = 50
TREE = class_tree(COUNT)
KEYS = list(TREE)
CLASSES = [["cat", "dog", "eel"].index(key[:3]) for key in KEYS]
BAD = (3, 17, 18)


@pytest.fixture(scope="module")
def paddle():
    with Interpreter() as interpreter:
        yield interpreter


@pytest.fixture
def tree(tmp_path):
    return write(tmp_path / "data", TREE)


@pytest.fixture
def damaged(tmp_path):
    return write(tmp_path / "data", class_tree(COUNT, bad=BAD))


def write(directory: Path, objects: dict[str, bytes]) -> str:
    for key, data in objects.items():
        path = directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(directory)


def order_of(uri: str, epoch: int, *, seed: int = 0, **share) -> list[int]:
    with hotset.open(uri) as ds:
        return SampleOrder(ds.snapshot, len(ds), seed).share(epoch, **share).tolist()


def to_colour(data: bytes) -> np.ndarray:
    import io

    from PIL import Image

    return np.array(Image.open(io.BytesIO(data)).convert("RGB"))[0, 0]


class TestSamples:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_bytes_and_their_index_by_default(self, paddle, tree, workers):
        found = paddle(read, tree, workers=workers)
        assert found == [(TREE[key], index) for index, key in enumerate(KEYS)]

    @pytest.mark.parametrize("workers", [0, 2])
    def test_images_and_the_classes_of_their_directories(self, paddle, tree, workers):
        for decode in ("image", to_colour):
            found = paddle(read, tree, workers=workers, decode=decode, target="directory")
            pixels = [np.array(picture).reshape(-1, 3)[0].tolist() for picture, _ in found]
            assert pixels == [list(colour(number)) for number in range(COUNT)]
            assert [label for _, label in found] == CLASSES

    def test_the_transforms_of_paddle(self, paddle, tree):
        found = paddle(read_transformed, tree)
        assert np.allclose(found, [np.array(colour(number)) / 255 for number in range(COUNT)])

    def test_one_by_one(self, paddle, tree):
        assert paddle(look_at_samples, tree)

    def test_classes_as_of_paddles_own_folders(self, paddle, tree):
        ours, theirs = paddle(compare_with_folder, tree)
        assert ours == theirs

    def test_what_is_wrong_is_said_at_once(self, paddle, tree):
        for how, message in [
            ({"decode": "jpeg"}, "decode is one of 'bytes', 'image', 'pil' or a function"),
            ({"target": "class"}, "targets are 'directory', 'key', 'index' or a function"),
            ({"on_bad": "ignore"}, "on_bad is 'raise', 'skip', 'replace' or a function"),
        ]:
            with pytest.raises(ChildFailed, match=f"InvalidInput: {message}"):
                paddle(read, tree, **how)

    def test_an_error_of_the_transform_names_the_key(self, paddle, tree):
        with pytest.raises(ChildFailed, match=f"while the sample of '{KEYS[0]}' was made"):
            paddle(read, tree, transform=np.linalg.inv)


def loader_of(dataset, **how):
    from paddle.io import DataLoader

    return DataLoader(dataset, num_workers=how.pop("workers", 0), batch_size=how.pop("batch_size", 8), **how)


def read(uri: str, *, workers: int = 0, collate: bool = False, **how) -> list:
    """(sample, target) of all, in order."""
    from hotset import paddle as hot

    with hot.HotDataset(uri, **how) as dataset:
        more = {"collate_fn": hot.collate} if collate else {}
        found = []
        for samples, targets in loader_of(dataset, workers=workers, **more):
            kept = samples if isinstance(samples, list) else samples.numpy().tolist()
            found += zip(kept, targets.numpy().tolist(), strict=True)
        return found


def read_transformed(uri: str) -> list:
    from paddle.vision import transforms

    from hotset.paddle import HotDataset

    with HotDataset(uri, decode="pil", transform=transforms.ToTensor(), target="directory") as dataset:
        return np.concatenate([images.numpy()[:, :, 0, 0] for images, _ in loader_of(dataset)]).tolist()


def look_at_samples(uri: str) -> bool:
    from hotset.paddle import HotDataset

    with HotDataset(uri, target="key") as by_key, HotDataset(uri, target=None) as alone:
        assert by_key[3] == (TREE[KEYS[3]], KEYS[3])
        assert by_key[-1] == by_key[np.int64(COUNT - 1)] == (TREE[KEYS[-1]], KEYS[-1])
        assert alone[3] == TREE[KEYS[3]]
        assert alone.key(3) == KEYS[3]
        assert alone.hot.total_bytes == sum(map(len, TREE.values()))
        with pytest.raises(IndexError, match="sample 50 of 50"):
            alone[COUNT]
    with hotset.open(uri) as ds:
        with HotDataset(ds) as dataset:
            pass
        return ds[0] == dataset[0][0]  # not ours to close


def compare_with_folder(uri: str):
    from paddle.vision.datasets import DatasetFolder

    from hotset.paddle import HotDataset

    theirs = DatasetFolder(uri)
    with HotDataset(uri, target="directory") as ours:
        pairs = [(ours.key(index), ours[index][1]) for index in range(len(ours))]
        return (list(ours.classes), pairs), (
            theirs.classes,
            [(os.path.relpath(path, uri), n) for path, n in theirs.samples],
        )


class TestSampler:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_each_iteration_is_the_next_epoch(self, paddle, tree, workers):
        epochs, batches = paddle(read_epochs, tree, [None, None, 7, None], workers=workers, shuffle=True, seed=5)
        assert epochs == [order_of(tree, epoch, seed=5) for epoch in (0, 1, 7, 8)]
        assert batches == 7

    def test_without_a_shuffle_keys_come_in_order(self, paddle, tree):
        epochs, _ = paddle(read_epochs, tree, [None, None])
        assert epochs == [list(range(COUNT))] * 2

    def test_ranks_share_the_order(self, paddle, tree):
        parts = [paddle(read_epochs, tree, [3], num_replicas=3, rank=rank, shuffle=True)[0][0] for rank in range(3)]
        assert [len(part) for part in parts] == [17, 17, 17]
        assert parts[1] == order_of(tree, 3, rank=1, world=3)
        assert {index for part in parts for index in part} == set(range(COUNT))

    def test_the_rank_is_that_of_paddle(self, paddle, tree):
        """In a process of its own: paddle looks at the environment when it is imported."""
        env = {"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "2"}
        with call(read_epochs, tree, [0], shuffle=True, env=env) as child:
            epochs, _ = child.result(timeout=4 * DEADLINE)
        assert epochs == [order_of(tree, 0, rank=1, world=2)]

    def test_the_incomplete_batch_is_dropped(self, paddle, tree):
        epochs, batches = paddle(read_epochs, tree, [0], shuffle=True, drop_last=True)
        assert epochs == [order_of(tree, 0)[:48]]
        assert batches == 6

    def test_it_is_paddles_own_for_those_who_ask(self, paddle, tree):
        assert paddle(is_distributed_sampler, tree)

    def test_objects_are_fetched_once_and_in_the_order_of_the_reads(self, paddle, bucket, proxy, monkeypatch):
        bucket.put_many(TREE)
        env = {**proxy.env(), "HOTSET_MAX_REQUESTS": "1"}
        use(monkeypatch, env)
        paddle(read_epochs, bucket.url, [0, 1], shuffle=True, batch_size=1, env=env)
        fetched = [request.key for request in proxy.requests() if request.kind == "GET"]
        assert fetched == [KEYS[index] for index in order_of(bucket.url, 0)]

    def test_what_cannot_be(self, paddle, tree):
        for how, message in [
            ({"batch_size": 0}, "a batch of 0 samples"),
            ({"batch_size": 51, "drop_last": True}, "no batch of 51 can be made of 50 samples"),
            ({"rank": 2, "num_replicas": 2}, "rank 2 of a world of 2"),
        ]:
            with pytest.raises(ChildFailed, match=f"InvalidInput: {message}"):
                paddle(read_epochs, tree, [0], **how)
        with pytest.raises(ChildFailed, match="InvalidInput: a sampler of a HotDataset, not of a list"):
            paddle(sample_a_list)

    def test_a_batch_larger_than_the_dataset(self, paddle, tree):
        epochs, batches = paddle(read_epochs, tree, [0], batch_size=1000)
        assert epochs == [list(range(COUNT))]
        assert batches == 1


def read_epochs(uri: str, epochs: list[int | None], *, workers: int = 0, batch_size: int = 8, **how):
    """The indices of all samples, epoch by epoch; None: no epoch is said."""
    from paddle.io import DataLoader

    from hotset.paddle import HotBatchSampler, HotDataset

    with HotDataset(uri) as dataset:
        batches = HotBatchSampler(dataset, batch_size, **how)
        loader = DataLoader(dataset, batch_sampler=batches, num_workers=workers)
        found = []
        for epoch in epochs:
            if epoch is not None:
                batches.set_epoch(epoch)
            found.append(np.concatenate([indices.numpy() for _, indices in loader]).tolist())
        return found, len(loader)


def is_distributed_sampler(uri: str) -> bool:
    from paddle.io import DistributedBatchSampler

    from hotset.paddle import HotBatchSampler, HotDataset

    with HotDataset(uri) as dataset:
        return isinstance(HotBatchSampler(dataset, 4), DistributedBatchSampler)


def sample_a_list():
    from hotset.paddle import HotBatchSampler

    HotBatchSampler([1, 2, 3], 1)


class TestWorkers:
    """Forked, while the process has threads: the filler's supervisor, and those of paddle."""

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_each_object_is_fetched_once(self, paddle, bucket, proxy, shuffle):
        bucket.put_many(TREE)
        epochs, _ = paddle(read_epochs, bucket.url, [0, 1], workers=3, shuffle=shuffle, env=proxy.env())
        assert [sorted(epoch) for epoch in epochs] == [list(range(COUNT))] * 2
        assert proxy.gets == dict.fromkeys(KEYS, 1)

    def test_after_other_threads_have_started(self, paddle, tree):
        assert paddle(read_beside_threads, tree) == list(range(COUNT))

    def test_ctrl_c_ends_an_epoch(self, tree):
        with call(read_for_ever, tree) as child:
            filler = int(child.expect("filler", timeout=4 * DEADLINE).split()[1])
            processes = descendants(child.pid)
            assert len(processes) >= 3
            child.signal(signal.SIGINT)
            with pytest.raises(ChildFailed, match="KeyboardInterrupt"):
                child.result()
            for pid in {filler, *processes}:
                wait_until_gone(pid)

    def test_a_worker_that_is_killed_is_an_error(self, bucket, proxy):
        """As by the system for want of memory; paddle's error, and no hang."""
        bucket.put_many(TREE)
        rule = proxy.hang(key=f"*{KEYS[30]}")
        with call(read_with_a_worker, bucket.url, env=proxy.env()) as child:
            worker = int(child.expect("worker", timeout=4 * DEADLINE).split()[1])
            wait_until(lambda: rule.hits, what="a read that hangs")
            os.kill(worker, signal.SIGKILL)
            with pytest.raises(ChildFailed, match=r"(?i)worker"):
                child.result(timeout=2 * DEADLINE)
        proxy.release()


def read_beside_threads(uri: str) -> list[int]:
    from hotset.paddle import HotDataset

    stop = threading.Event()
    with HotDataset(uri) as dataset:
        dataset[0]
        threads = [threading.Thread(target=read_until, args=(dataset, stop)) for _ in range(4)]
        for thread in threads:
            thread.start()
        found = [indices.numpy() for _, indices in loader_of(dataset, workers=2)]
        stop.set()
        for thread in threads:
            thread.join()
    return np.concatenate(found).tolist()


def read_until(dataset, stop: threading.Event) -> None:
    index = 0
    while not stop.is_set():
        dataset[index % len(dataset)]
        index += 1


def read_for_ever(uri: str) -> None:
    from hotset.paddle import HotDataset

    dataset = HotDataset(uri)
    dataset.hot._fill.start()
    while True:
        for step, _ in enumerate(loader_of(dataset, workers=2)):
            if step == 3:
                print("filler", dataset.hot._fill.pid, flush=True)


def read_with_a_worker(uri: str) -> None:
    from hotset.paddle import HotDataset

    with HotDataset(uri) as dataset:
        batches = iter(loader_of(dataset, workers=1, batch_size=2))
        next(batches)
        [worker] = set(descendants(os.getpid())) - {dataset.hot._fill.pid}
        print("worker", worker, flush=True)
        list(batches)


class TestBadInput:
    @pytest.mark.parametrize("workers", [0, 2])
    class TestPolicies:
        def test_raise_names_the_key(self, paddle, damaged, workers):
            with pytest.raises(
                ChildFailed, match=f"InvalidInput: .*'{KEYS[3]}' cannot be decoded: UnidentifiedImageError"
            ):
                paddle(read, damaged, workers=workers, decode=to_colour)

        def test_skip_leaves_out_and_counts(self, paddle, damaged, workers):
            left, bad = paddle(read_bad, damaged, workers, "skip", collate=True)
            assert left == [number for number in range(COUNT) if number not in BAD]
            assert bad == 3

        def test_replace_takes_the_next_that_is_good(self, paddle, damaged, workers):
            left, bad = paddle(read_bad, damaged, workers, "replace")
            assert left == [{3: 4, 17: 19, 18: 19}.get(number, number) for number in range(COUNT)]
            assert bad == 3

        def test_a_function_makes_something_else(self, paddle, damaged, workers):
            left, bad = paddle(read_bad, damaged, workers, black)
            assert left == list(range(COUNT))
            assert bad == 3

        def test_an_object_that_is_not_what_it_was(self, paddle, tree, workers):
            with pytest.raises(ChildFailed, match=f"Changed: .*{KEYS[20]}"):
                paddle(read_after_a_change, tree, workers, "raise")
            left = paddle(read_after_a_change, tree, workers, "skip")
            assert left == [number for number in range(COUNT) if number != 20]

    def test_a_batch_without_any_good_one(self, paddle, tmp_path):
        uri = write(tmp_path / "data", {f"{number}": NO_IMAGE for number in range(8)})
        with pytest.raises(ChildFailed, match="nothing of a batch could be decoded"):
            paddle(read_bad, uri, 0, "skip", collate=True)

    def test_nothing_at_all(self, paddle, tmp_path):
        (tmp_path / "empty").mkdir()
        with pytest.raises(ChildFailed, match=f"{NotFound.__name__}: no objects at"):
            paddle(read, str(tmp_path / "empty"))

    def test_a_dataset_that_is_open_is_open_already(self, paddle, tree):
        with pytest.raises(ChildFailed, match=f"{InvalidInput.__name__}: the dataset is open already"):
            paddle(open_twice, tree)


def black(key: str, error: Exception) -> np.ndarray:
    assert KEYS.index(key) in BAD
    return np.zeros(3, np.uint8)


def read_bad(uri: str, workers: int, on_bad, *, collate: bool = False) -> tuple[list[int], int]:
    from hotset import paddle as hot

    with hot.HotDataset(uri, decode=to_colour, on_bad=on_bad) as dataset:
        more = {"collate_fn": hot.collate} if collate else {}
        found = [indices.numpy() for _, indices in loader_of(dataset, workers=workers, **more)]
        return np.concatenate(found).tolist(), dataset.bad


def read_after_a_change(uri: str, workers: int, on_changed: str) -> list[int]:
    from hotset import paddle as hot

    path = Path(uri) / KEYS[20]
    before = path.read_bytes()
    with hot.HotDataset(uri, on_changed=on_changed, refresh="always") as dataset:
        path.write_bytes(b"something else")
        try:
            loader = loader_of(dataset, workers=workers, collate_fn=hot.collate)
            return np.concatenate([indices.numpy() for _, indices in loader]).tolist()
        finally:
            path.write_bytes(before)


def open_twice(uri: str):
    from hotset.paddle import HotDataset

    with hotset.open(uri) as ds:
        HotDataset(ds, refresh="always")


class TestDocumentation:
    def test_the_page_about_paddle(self, paddle, tree):
        changes = {
            "bos://bucket/train": tree,
            "batch_size=96": "batch_size=8",
            "range(90)": "range(2)",
            "num_workers=8": "num_workers=2",
        }
        assert paddle(run_code, with_changes(python_in("paddle.md"), changes)) == ([8, 3, 224, 224], 2)


def run_code(code: str) -> tuple[list[int], int]:
    names: dict = {}
    exec(code, names)
    return names["images"].shape, names["epoch"] + 1
