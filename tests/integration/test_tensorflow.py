"""`hotset.tensorflow`, with the real one: in a process of its own, since the frameworks do not go well together in one."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest

import hotset
from hotset.errors import AlreadyExists, InvalidInput, NotFound
from hotset.read.order import SampleOrder
from tests.support.documents import python_in, with_changes
from tests.support.images import NO_IMAGE, class_tree, colour
from tests.support.opening import use
from tests.support.processes import DEADLINE, ChildFailed, Interpreter, alive, call, wait_until, wait_until_gone

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

COUNT = 50
TREE = class_tree(COUNT)
KEYS = list(TREE)
CLASSES = [["cat", "dog", "eel"].index(key[:3]) for key in KEYS]


@pytest.fixture(scope="module")
def tensorflow():
    with Interpreter() as interpreter:
        yield interpreter


@pytest.fixture
def tree(tmp_path):
    return write(tmp_path / "data", TREE)


def write(directory: Path, objects: dict[str, bytes]) -> str:
    for key, data in objects.items():
        path = directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(directory)


def order_of(uri: str, epoch: int, *, seed: int = 0, shuffle: bool = True, **share) -> list[int]:
    with hotset.open(uri) as ds:
        return SampleOrder(ds.snapshot, len(ds), seed, shuffle).share(epoch, **share).tolist()


def numbers(elements) -> list[int]:
    """What one iteration gives, of integers in batches or one by one."""
    return np.concatenate([np.atleast_1d(element.numpy()) for element in elements]).tolist()


def to_colour(data):
    """Decodes to the colour of the image alone: one shape, whatever the size."""
    import tensorflow as tf

    return tf.io.decode_png(data, channels=3)[0, 0]


class TestOrder:
    def test_each_iteration_is_the_next_epoch(self, tensorflow, tree):
        epochs, cardinality = tensorflow(read_epochs, tree, batch_size=16, seed=5)
        assert epochs == [order_of(tree, epoch, seed=5) for epoch in range(3)]
        assert cardinality == 4
        assert sorted(epochs[0]) == list(range(COUNT))

    @pytest.mark.parametrize("batch_size", [None, 7])
    def test_without_a_shuffle_keys_come_in_order(self, tensorflow, tree, batch_size):
        epochs, cardinality = tensorflow(read_epochs, tree, batch_size=batch_size, shuffle=False)
        assert epochs == [list(range(COUNT))] * 3
        assert cardinality == (COUNT if batch_size is None else 8)

    def test_a_job_that_goes_on_begins_with_its_epoch(self, tensorflow, tree):
        epochs, _ = tensorflow(read_epochs, tree, epoch=7)
        assert epochs == [order_of(tree, epoch) for epoch in (7, 8, 9)]

    def test_the_epoch_may_be_asked_for(self, tensorflow, tree):
        assert tensorflow(read_asked_epochs, tree) == [order_of(tree, epoch) for epoch in (4, 4, 2)]

    def test_a_repeated_dataset_goes_through_the_epochs(self, tensorflow, tree):
        assert tensorflow(read_repeated, tree) == (order_of(tree, 0) + order_of(tree, 1), 2 * COUNT)

    def test_objects_are_fetched_once_and_in_the_order_of_the_reads(self, tensorflow, bucket, proxy, monkeypatch):
        bucket.put_many(TREE)
        use(monkeypatch, {**proxy.env(), "HOTSET_MAX_REQUESTS": "1"})
        epochs, _ = tensorflow(read_epochs, bucket.url, batch_size=1, env={**proxy.env(), "HOTSET_MAX_REQUESTS": "1"})
        fetched = [request.key for request in proxy.requests() if request.kind == "GET"]
        assert fetched == [KEYS[index] for index in order_of(bucket.url, 0)]
        assert epochs[0] == order_of(bucket.url, 0)


def read_epochs(uri: str, **how) -> tuple[list[list[int]], int]:
    from hotset.tensorflow import dataset

    data = dataset(uri, labels="index", **how)
    return [numbers(index for _, index in data) for _ in range(3)], int(data.cardinality())


def read_asked_epochs(uri: str) -> list[list[int]]:
    from hotset.tensorflow import dataset

    asked = iter([4, 4, 2])
    data = dataset(uri, labels="index", epoch=lambda: next(asked))
    return [numbers(index for _, index in data) for _ in range(3)]


def read_repeated(uri: str) -> tuple[list[int], int]:
    from hotset.tensorflow import dataset

    data = dataset(uri, labels="index").map(lambda _, index: index).repeat(2)
    return numbers(data), int(data.cardinality())


class TestShards:
    @pytest.mark.parametrize("batch_size", [None, 4])
    def test_shards_are_a_partition(self, tensorflow, tree, batch_size):
        shards = [tensorflow(read_epochs, tree, shard=(rank, 2), batch_size=batch_size) for rank in range(2)]
        for epoch in range(3):
            parts = [epochs[epoch] for epochs, _ in shards]
            assert sorted(parts[0] + parts[1]) == list(range(COUNT))
            assert parts[1] == order_of(tree, epoch, rank=1, world=2)

    def test_a_world_that_does_not_divide(self, tensorflow, tree):
        filled = [tensorflow(read_epochs, tree, shard=(rank, 3))[0][0] for rank in range(3)]
        assert [len(part) for part in filled] == [17, 17, 17]
        assert {index for part in filled for index in part} == set(range(COUNT))
        cut = [tensorflow(read_epochs, tree, shard=(rank, 3), drop_remainder=True)[0][0] for rank in range(3)]
        assert [len(part) for part in cut] == [16, 16, 16]
        assert len({index for part in cut for index in part}) == 48

    def test_a_strategy_gives_the_shard(self, tensorflow, tree):
        assert sorted(tensorflow(read_distributed, tree)) == list(range(COUNT))

    def test_no_such_rank(self, tensorflow, tree):
        with pytest.raises(ChildFailed, match="InvalidInput: rank 2 of a world of 2"):
            tensorflow(read_epochs, tree, shard=(2, 2))


def read_distributed(uri: str) -> list[int]:
    import tensorflow as tf

    from hotset.tensorflow import dataset

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    made = strategy.distribute_datasets_from_function(
        lambda context: dataset(uri, labels="index", shard=context, batch_size=8).map(lambda _, index: index)
    )
    return numbers(made)


class TestSamples:
    def test_bytes_arrive_as_they_are(self, tensorflow, tmp_path):
        """Zeros at the end and nothing at all are what arrays of strings lose."""
        objects = {"a": b"", "b": b"x\0\0", "c": b"\0", "d": bytes(range(256)) * 40_000, "e": b"x"}
        uri = write(tmp_path / "data", objects)
        for batch_size in (None, 2):
            assert tensorflow(read_bytes, uri, batch_size=batch_size, shuffle=False) == list(objects.values())

    @pytest.mark.parametrize("batch_size", [None, 16])
    @pytest.mark.parametrize("decode", ["image", to_colour])
    def test_images_and_the_classes_of_their_directories(self, tensorflow, tree, batch_size, decode):
        found, shape, names = tensorflow(read_images, tree, decode, batch_size=batch_size, labels="directory")
        assert sorted(found) == sorted((colour(number), CLASSES[number]) for number in range(COUNT))
        outer = () if batch_size is None else (None,)
        assert shape == (*outer, *((None, None, 3) if decode == "image" else (3,)))
        assert names == ["cat", "dog", "eel"]

    def test_labels_by_a_function_of_the_key(self, tensorflow, tree):
        expected = sorted(int(Path(key).stem) for key in KEYS)
        assert sorted(tensorflow(read_labels, tree, number_in)) == expected
        assert sorted(tensorflow(read_labels, tree, "key")) == [key.encode() for key in KEYS]
        assert sorted(tensorflow(read_labels, tree, one_hot)) == sorted(np.eye(3)[CLASSES].tolist())

    def test_files_beside_the_classes_are_no_samples(self, tensorflow, tmp_path):
        uri = write(tmp_path / "data", {**TREE, "README": b"about", "zzz.txt": b"list"})
        found, _, _ = tensorflow(read_images, uri, to_colour, batch_size=16, labels="directory")
        assert len(found) == COUNT

    def test_a_structure_of_tensors(self, tensorflow, tree):
        assert tensorflow(read_structures, tree) == [sum(colour(number)) for number in range(COUNT)]

    def test_a_dataset_that_is_open_stays_open(self, tensorflow, tree):
        assert tensorflow(read_from_open, tree) == (COUNT, COUNT)

    def test_what_is_wrong_is_said_at_once(self, tensorflow, tree, tmp_path):
        for how, message in [
            ({"decode": "jpeg"}, "decode is 'bytes', 'image' or a function"),
            ({"labels": "class"}, "targets are 'directory', 'key', 'index' or a function"),
            ({"on_bad": "ignore"}, "on_bad is 'raise', 'skip', 'replace' or a function"),
            ({"batch_size": 0}, "a batch of 0 samples"),
            ({"decode": ragged}, "decode must make dense tensors"),
        ]:
            with pytest.raises(ChildFailed, match=f"InvalidInput: {message}"):
                tensorflow(read_epochs_of, tree, **how)
        flat = write(tmp_path / "flat", {"a": b"1"})
        with pytest.raises(ChildFailed, match=r"InvalidInput: no object of .* lies in a directory"):
            tensorflow(read_epochs_of, flat, labels="directory")


def read_bytes(uri: str, **how) -> list[bytes]:
    from hotset.tensorflow import dataset

    found: list[bytes] = []
    for element in dataset(uri, **how):
        data = element.numpy()
        found.extend([data] if isinstance(data, bytes) else data.tolist())
    return found


def read_images(uri: str, decode, *, batch_size, **how):
    from hotset.tensorflow import dataset

    data = dataset(uri, decode=decode, batch_size=batch_size, **how)
    flat = data if batch_size is None else data.unbatch()
    found = []
    for picture, label in flat:
        pixels = picture.numpy()
        assert pixels.shape in {(8, 8, 3), (3,)}
        found.append((tuple(np.atleast_2d(pixels.reshape(-1, 3))[0].tolist()), int(label)))
    return found, tuple(data.element_spec[0].shape), data.class_names


def read_labels(uri: str, labels) -> list:
    from hotset.tensorflow import dataset

    return np.concatenate([label.numpy() for _, label in dataset(uri, labels=labels, batch_size=16)]).tolist()


def number_in(key: str) -> int:
    return int(Path(key).stem)


def one_hot(key: str) -> list[float]:
    return [float(key.startswith(name)) for name in ("cat", "dog", "eel")]


def ragged(data):
    import tensorflow as tf

    return tf.strings.split([data])


def read_structures(uri: str) -> list[int]:
    import tensorflow as tf

    from hotset.tensorflow import dataset

    def decode(data):
        pixel = tf.cast(to_colour(data), tf.int32)
        return {"red": pixel[0], "rest": (pixel[1], pixel[2])}

    batches = dataset(uri, decode=decode, batch_size=16, shuffle=False)
    return np.concatenate([(x["red"] + x["rest"][0] + x["rest"][1]).numpy() for x in batches]).tolist()


def read_from_open(uri: str) -> tuple[int, int]:
    from hotset.tensorflow import dataset

    with hotset.open(uri) as ds:
        count = len(list(dataset(ds)))
        return count, len([ds[index] for index in range(len(ds))])


def read_epochs_of(uri: str, **how):
    from hotset.tensorflow import dataset

    return list(dataset(uri, **how))


class TestBadSamples:
    BAD = (3, 17, 18)

    @pytest.fixture
    def damaged(self, tmp_path):
        return write(tmp_path / "data", class_tree(COUNT, bad=self.BAD))

    @pytest.mark.parametrize("batch_size", [None, 16])
    @pytest.mark.parametrize("decode", ["image", to_colour])
    class TestPolicies:
        def test_raise_names_the_key(self, tensorflow, damaged, batch_size, decode):
            with pytest.raises(
                ChildFailed, match=rf"InvalidInput: '{KEYS[3]}' cannot be decoded: InvalidArgumentError"
            ) as it:
                tensorflow(read_images, damaged, decode, batch_size=batch_size, labels="index", shuffle=False)
            assert "InvalidArgumentError" in str(it.value)

        def test_skip_leaves_out_and_counts(self, tensorflow, damaged, batch_size, decode):
            left, bad, cardinality = tensorflow(read_labels_and_bad, damaged, decode, batch_size, "skip")
            assert left == [number for number in range(COUNT) if number not in TestBadSamples.BAD]
            assert bad == 3
            assert cardinality == -2  # unknown

        def test_replace_takes_the_next_that_is_good(self, tensorflow, damaged, batch_size, decode):
            left, bad, cardinality = tensorflow(read_labels_and_bad, damaged, decode, batch_size, "replace")
            assert left == [{3: 4, 17: 19, 18: 19}.get(number, number) for number in range(COUNT)]
            assert bad == 3
            assert cardinality == (COUNT if batch_size is None else 4)

        def test_a_function_makes_something_else(self, tensorflow, damaged, batch_size, decode):
            made = grey if decode == "image" else grey_pixel
            found, _, _ = tensorflow(
                read_images, damaged, decode, batch_size=batch_size, labels="index", shuffle=False, on_bad=made
            )
            expected = [(3, 3, 3) if number in TestBadSamples.BAD else colour(number) for number in range(COUNT)]
            assert found == list(zip(expected, range(COUNT), strict=True))

    def test_a_function_makes_the_wrong_kind_of_thing(self, tensorflow, damaged):
        with pytest.raises(ChildFailed, match=r"InvalidInput: on_bad made \[3, 3, 3\], where decode makes TensorSpec"):
            tensorflow(read_labels_and_bad, damaged, to_colour, 16, wrong_kind)

    def test_a_batch_without_any_good_one(self, tensorflow, tmp_path):
        uri = write(tmp_path / "data", {f"{number}": NO_IMAGE for number in range(8)})
        for policy, message in (
            ("skip", "nothing of a batch could be decoded"),
            ("replace", "neither '0' nor those after"),
        ):
            with pytest.raises(ChildFailed, match=message):
                tensorflow(read_labels_and_bad, uri, to_colour, 4, policy)


def grey(key: str, error: Exception):
    assert key in KEYS
    assert "image" in str(error)
    return np.full((8, 8, 3), 3, np.uint8)


def grey_pixel(key: str, error: Exception):
    return np.array([3, 3, 3])


def wrong_kind(key: str, error: Exception):
    return [3, 3, 3]


def read_labels_and_bad(uri: str, decode, batch_size, on_bad):
    from hotset.tensorflow import dataset

    data = dataset(uri, decode=decode, batch_size=batch_size, on_bad=on_bad, labels="index", shuffle=False)
    return numbers(index for _, index in data), data.feed.bad, int(data.cardinality())


class TestBadInput:
    def test_nothing_at_all(self, tensorflow, tmp_path):
        (tmp_path / "empty").mkdir()
        with pytest.raises(ChildFailed, match=f"{NotFound.__name__}: no objects at"):
            tensorflow(read_epochs, str(tmp_path / "empty"))

    def test_a_batch_larger_than_the_dataset(self, tensorflow, tree):
        epochs, cardinality = tensorflow(read_epochs, tree, batch_size=1000)
        assert sorted(epochs[0]) == list(range(COUNT))
        assert cardinality == 1
        with pytest.raises(ChildFailed, match="InvalidInput: no batch of 1000 can be made of 50 samples"):
            tensorflow(read_epochs, tree, batch_size=1000, drop_remainder=True)

    def test_the_incomplete_batch_is_dropped(self, tensorflow, tree):
        for decode in ("bytes", "image"):
            epochs, cardinality = tensorflow(read_epochs, tree, batch_size=16, drop_remainder=True, decode=decode)
            assert epochs == [order_of(tree, epoch)[:48] for epoch in range(3)]
            assert cardinality == 3
        found, shape, _ = tensorflow(read_images, tree, to_colour, batch_size=16, drop_remainder=True, labels="index")
        assert len(found) == 48
        assert shape == (16, 3)

    @pytest.mark.parametrize("gone", ["changed", "deleted"])
    @pytest.mark.parametrize("batch_size", [None, 8])
    def test_an_object_that_is_not_what_it_was(self, tensorflow, tree, batch_size, gone):
        """The error names the key; the others are read with "skip"."""
        with pytest.raises(ChildFailed, match=rf"hotset.errors.(Changed|NotFound): .*{KEYS[20]}"):
            tensorflow(read_after, tree, gone, batch_size=batch_size, on_changed="raise")

    @pytest.mark.parametrize("batch_size", [None, 8])
    @pytest.mark.parametrize("decode", ["bytes", "image"])
    def test_a_changed_object_is_skipped(self, tensorflow, tree, batch_size, decode):
        left = tensorflow(read_after, tree, "changed", batch_size=batch_size, decode=decode, on_changed="skip")
        assert left == [number for number in range(COUNT) if number != 20]


def read_after(uri: str, what: str, **how) -> list[int]:
    from hotset.tensorflow import dataset

    data = dataset(uri, labels="index", shuffle=False, lookahead=0, **how)
    path = Path(uri) / KEYS[20]
    if what == "deleted":
        path.unlink()
    else:
        path.write_bytes(b"something else")
    return numbers(index for _, index in data)


class TestLife:
    def test_what_is_dropped_is_closed(self, tensorflow, tree):
        """When the last thing that was made of it is gone."""
        assert tensorflow(drop_step_by_step, tree) == [True, True, False]

    def test_a_dataset_made_within_a_function_of_another(self, tensorflow, tree):
        assert tensorflow(read_nested, tree) == [0, 1, 2] * 2

    def test_one_thread_is_enough(self, tree):
        """Waiting for Python, and for decoding, must not take the threads that would end the wait."""
        with call(read_with_one_thread, tree) as child:
            assert child.result(timeout=4 * DEADLINE) == COUNT

    def test_a_forked_child_reads_the_dataset_behind_it(self, tensorflow, tree):
        """TensorFlow's threads are not in the child, and it must not be used there; hotset may be."""
        assert tensorflow(read_while_a_child_reads, tree)

    def test_keras_trains(self, tensorflow, tree):
        assert tensorflow(train, tree) == 2

    def test_ctrl_c_ends_an_epoch(self, tree):
        with call(read_for_ever, tree) as child:
            filler = int(child.expect("filler", timeout=4 * DEADLINE).split()[1])
            child.signal(signal.SIGINT)
            with pytest.raises(ChildFailed, match="KeyboardInterrupt"):
                child.result()
        wait_until_gone(filler)

    def test_a_process_ends_although_a_read_hangs(self, bucket, proxy):
        bucket.put_many(TREE)
        rule = proxy.hang(key=f"*{KEYS[30]}")
        with call(leave_while_reading, bucket.url, env=proxy.env()) as child:
            filler = int(child.expect("filler", timeout=4 * DEADLINE).split()[1])
            wait_until(lambda: rule.hits, what="a read that hangs")
            child.tell("leave")
            assert child.wait() == 0
        wait_until_gone(filler)
        proxy.release()


def drop_step_by_step(uri: str) -> list[bool]:
    import gc

    from hotset.tensorflow import dataset

    data = dataset(uri, labels="index", decode=to_colour, batch_size=4, lookahead=0)
    data.feed.hot._fill.start()
    filler = data.feed.hot._fill.pid
    iterator = iter(data.map(lambda picture, index: (index, picture)).take(10))
    next(iterator)
    states = [alive(filler)]
    del data
    gc.collect()
    assert len(list(iterator)) == 9
    states.append(alive(filler))
    del iterator
    gc.collect()
    wait_until_gone(filler)
    return [*states, alive(filler)]


def read_nested(uri: str) -> list[int]:
    import tensorflow as tf

    from hotset.tensorflow import dataset

    outer = tf.data.Dataset.range(2).flat_map(lambda _: dataset(uri, labels="index", shuffle=False).take(3))
    return numbers(index for _, index in outer)


def read_with_one_thread(uri: str) -> int:
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    from hotset.tensorflow import dataset

    for decode in ("image", to_colour):
        for batch_size in (None, 8):
            count = len(
                numbers(index for _, index in dataset(uri, labels="index", decode=decode, batch_size=batch_size))
            )
    return count


def train(uri: str) -> int:
    import tensorflow as tf

    from hotset.tensorflow import dataset

    data = dataset(uri, labels="directory", decode=lambda data: to_colour(data) / 255, batch_size=16)
    model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(3)])
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return len(model.fit(data, epochs=2, verbose=0).history["loss"])


def read_for_ever(uri: str) -> None:
    from hotset.tensorflow import dataset

    data = dataset(uri, decode=to_colour, batch_size=4)
    data.feed.hot._fill.start()
    for step, _ in enumerate(data.repeat()):
        if step == 3:
            print("filler", data.feed.hot._fill.pid, flush=True)


def leave_while_reading(uri: str) -> None:
    from hotset.tensorflow import dataset

    data = dataset(uri, shuffle=False, batch_size=4)
    steps = iter(data)
    next(steps)
    print("filler", data.feed.hot._fill.pid, flush=True)
    input()


def read_while_a_child_reads(uri: str) -> bool:
    import multiprocessing

    from hotset.tensorflow import dataset

    data = dataset(uri, decode="image", lookahead=0)
    next(iter(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads: that it works is what is tested
        child = multiprocessing.get_context("fork").Process(target=check_all, args=(data.feed.hot,))
        child.start()
    check_all(data.feed.hot)
    child.join(DEADLINE)
    return child.exitcode == 0


def check_all(hot: hotset.Dataset) -> None:
    assert hot.read_many(range(COUNT)) == list(TREE.values())


class TestDocumentation:
    def test_the_page_about_tensorflow(self, tensorflow, tree, tmp_path):
        changes = {"s3://bucket/train": tree, "data/train": str(tmp_path / "view"), "epochs=90": "epochs=1"}
        assert tensorflow(run_code, with_changes(python_in("tensorflow.md"), changes)) == ["cat", "dog", "eel"]


def run_code(code: str) -> list[str]:
    import tensorflow as tf

    layers = [tf.keras.Input([224, 224, 3]), tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential(layers)
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    names = {"model": model}
    exec(code, names)
    return names["train"].class_names


class TestFiles:
    def test_keras_reads_the_directory(self, tensorflow, tree, tmp_path):
        names, labels = tensorflow(read_directory, tree, str(tmp_path / "view"))
        assert names == ["cat", "dog", "eel"]
        assert sorted(labels) == sorted(CLASSES)
        assert {str(path.relative_to(tmp_path / "view")) for path in (tmp_path / "view").rglob("*.png")} == set(KEYS)

    def test_a_view_does_not_take_the_place_of_something_else(self, tensorflow, tree, tmp_path):
        (tmp_path / "mine").mkdir()
        with pytest.raises(ChildFailed, match=AlreadyExists.__name__):
            tensorflow(read_directory, tree, str(tmp_path / "mine"))

    def test_packs_have_no_files(self, tensorflow, tree, tmp_path):
        with pytest.raises(ChildFailed, match=f"{InvalidInput.__name__}: .* keeps its objects in packs"):
            tensorflow(show_packs, tree, str(tmp_path / "view"))


def read_directory(uri: str, view: str):
    import tensorflow as tf

    from hotset.tensorflow import files

    path = files(uri, view)
    assert str(path) == view
    first = tf.io.gfile.glob(f"{path}/*/*.png")[0]
    with tf.io.gfile.GFile(first, "rb") as file:
        assert file.read() == TREE[os.path.relpath(first, view)]
    data = tf.keras.utils.image_dataset_from_directory(path, image_size=(8, 8), batch_size=16, verbose=False)
    assert files(uri, view) == path  # once more: the same
    return data.class_names, numbers(label for _, label in data)


def show_packs(uri: str, view: str):
    from hotset.tensorflow import files

    with hotset.open(uri) as ds:
        return files(ds, view)
