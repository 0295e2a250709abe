"""`HotDataset` and its kin: what torchvision gives for the same tree, and what becomes of what cannot be decoded."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

import hotset
from hotset.errors import Changed, InvalidInput, NotFound
from hotset.torch import HotDataset, ImageFolder, KeyedBytes
from tests.support.opening import use

pytestmark = pytest.mark.integration


def jpeg(shade: int, size: int = 16) -> bytes:
    noise = np.random.default_rng(shade).integers(0, 255, (size, size, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Three classes, one of them with a directory below it, in an order that sorts differently with a slash behind."""
    root = tmp_path / "tree"
    for number, name in enumerate(["cat/1.jpg", "cat/2.JPEG", "cat-b/3.jpg", "dog/4.jpg", "dog/deep/5.jpg"]):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    (root / "cat" / "notes.txt").write_text("not an image")
    (root / "README").write_text("in no class")
    return root


class TestImageFolder:
    def test_the_same_as_torchvisions(self, tree):
        theirs = torchvision.datasets.ImageFolder(str(tree))
        with ImageFolder(str(tree)) as ours:
            assert len(ours) == len(theirs) == 5
            assert (ours.classes, ours.class_to_idx) == (theirs.classes, theirs.class_to_idx)
            found = {(str(tree / key), index) for key, index in ours.samples}
            assert found == set(theirs.samples)
            assert sorted(ours.targets) == sorted(theirs.targets)
            for index, (key, number) in enumerate(ours.samples):
                image, label = ours[index]
                there = theirs.samples.index((str(tree / key), number))
                assert (np.asarray(image) == np.asarray(theirs[there][0])).all()
                assert label == theirs[there][1]

    def test_transforms(self, tree):
        to_tensor = torchvision.transforms.ToTensor()
        with ImageFolder(str(tree), to_tensor, lambda index: -index) as folder:
            image, label = folder[0]
            assert image.shape == (3, 16, 16)
            assert label == -folder.samples[0][1]

    def test_a_class_without_images(self, tree):
        (tree / "empty").mkdir()
        (tree / "empty" / "list.csv").write_text("1")
        with pytest.raises(InvalidInput, match=r"no images in empty; exclude"):
            ImageFolder(str(tree))
        with ImageFolder(str(tree), exclude="empty/**") as folder:
            assert len(folder) == 5


class TestDecode:
    def test_bytes_by_default(self, tree):
        with HotDataset(str(tree)) as samples:
            assert samples[0] == (tree / samples.key(0)).read_bytes()

    @pytest.mark.parametrize("load", [False, True])
    def test_a_tensor_is_a_view_of_the_cache(self, tree, load):
        with HotDataset(str(tree), decode="tensor") as samples:
            if load:
                samples.hot.load()
            for sample, key in zip(samples.__getitems__(range(5)), samples.hot.keys, strict=False):
                assert sample.dtype == torch.uint8
                assert bytes(sample.numpy()) == (tree / key).read_bytes()
            if load:
                address = np.frombuffer(samples.hot.slice(2), np.uint8).ctypes.data
                assert samples[2].data_ptr() == address

    @pytest.mark.filterwarnings("ignore:The image decoding")  # of theirs
    def test_an_image_is_what_torchvision_reads(self, tree):
        with HotDataset(str(tree), decode="image", include=["**/*.jpg", "**/*.JPEG"]) as samples:
            for index in range(len(samples)):
                theirs = torchvision.io.read_image(str(tree / samples.key(index)), torchvision.io.ImageReadMode.RGB)
                assert torch.equal(samples[index], theirs)

    def test_a_function_and_a_transform(self, tree):
        with HotDataset(str(tree), decode=len, transform=lambda size: size + 1) as samples:
            assert samples[0] == (tree / samples.key(0)).stat().st_size + 1

    def test_an_error_of_the_transform_says_where(self, tree):
        with HotDataset(str(tree), transform=lambda data: 1 / 0) as samples, pytest.raises(ZeroDivisionError) as caught:
            samples[1]
        assert caught.value.__notes__ == [f"while the sample of {samples.key(1)!r} was made"]

    @pytest.mark.parametrize("wrong", [{"decode": "jpeg"}, {"target": "class"}, {"on_bad": "ignore"}, {"target": [1]}])
    def test_what_there_is_not(self, tree, wrong):
        with pytest.raises(InvalidInput):
            HotDataset(str(tree), **wrong)


class TestTargets:
    def test_all_kinds(self, tree):
        with hotset.open(str(tree)) as hot:
            keys = list(hot.keys)
            assert HotDataset(hot, target="key").targets == keys
            assert HotDataset(hot, target=len).targets == [len(key) for key in keys]
            assert HotDataset(hot, target=np.arange(7) * 2).targets == [0, 2, 4, 6, 8, 10, 12]
            directories = HotDataset(hot, target="directory")
            assert len(directories) == 6, "what lies in no directory has no class"
            assert directories.classes == ["cat", "cat-b", "dog"]

    def test_none(self, tree):
        with HotDataset(str(tree)) as samples, pytest.raises(InvalidInput, match="no targets"):
            samples.targets  # noqa: B018

    def test_keyed_bytes(self, tree):
        with KeyedBytes(str(tree)) as samples:
            assert samples["cat/1.jpg"] == ("cat/1.jpg", (tree / "cat/1.jpg").read_bytes())
            assert samples[0] == (samples.key(0), (tree / samples.key(0)).read_bytes())
            with pytest.raises(NotFound):
                samples["cow"]


class TestBad:
    """notes.txt and README are no images."""

    def open(self, tree, **how):
        return HotDataset(str(tree), decode="image", target="key", **how)

    def test_raise_names_the_key(self, tree):
        with self.open(tree) as samples, pytest.raises(InvalidInput, match=r"'README' cannot be decoded: RuntimeError"):
            samples.__getitems__(range(7))

    def test_skip_makes_the_batch_shorter(self, tree):
        with self.open(tree, on_bad="skip") as samples:
            assert [key for _, key in samples.__getitems__(range(7))] == [
                key for key in samples.hot.keys if key not in ("README", "cat/notes.txt")
            ]
            with pytest.raises(InvalidInput, match="'README' is left out"):
                samples[list(samples.hot.keys).index("README")]

    def test_replace_takes_the_next(self, tree):
        with self.open(tree, on_bad="replace") as samples:
            keys = list(samples.hot.keys)
            assert [key for _, key in samples.__getitems__(range(7))] == [
                {"README": "cat-b/3.jpg", "cat/notes.txt": "dog/4.jpg"}.get(key, key) for key in keys
            ]

    def test_replace_where_nothing_can_be_decoded(self, tmp_path):
        (tmp_path / "junk").mkdir()
        for name in "abc":
            (tmp_path / "junk" / name).write_text(name)
        with (
            self.open(tmp_path / "junk", on_bad="replace") as samples,
            pytest.raises(InvalidInput, match="nor those after"),
        ):
            samples[0]

    def test_a_function(self, tree):
        with self.open(tree, on_bad=lambda key, error: (None, f"{key}!")) as samples:
            assert [key for image, key in samples.__getitems__(range(7)) if image is None] == [
                "README!",
                "cat/notes.txt!",
            ]


class TestChanged:
    """An object that is replaced or removed at the source in the middle of an epoch."""

    def test_the_error_names_it(self, tree):
        with HotDataset(str(tree)) as samples:
            (tree / "dog" / "4.jpg").unlink()
            (tree / "cat" / "1.jpg").write_bytes(b"another version")
            with pytest.raises(Changed, match=r"cat/1\.jpg.*reload"):
                samples.__getitems__(range(7))
            with pytest.raises(Changed, match=r"dog/4\.jpg.*removed"):
                samples[list(samples.hot.keys).index("dog/4.jpg")]

    def test_left_out_if_so_asked(self, tree):
        with HotDataset(str(tree), on_changed="skip", target="key") as samples:
            (tree / "dog" / "4.jpg").unlink()
            batch = samples.__getitems__(range(7))
            assert [key for _, key in batch] == [key for key in samples.hot.keys if key != "dog/4.jpg"]
            assert all(data == (tree / key).read_bytes() for data, key in batch), "no sample has another's target"


def test_an_empty_dataset(tmp_path):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(NotFound, match="no objects"):
        HotDataset(str(tmp_path / "nothing"))


def test_what_was_open_stays_open(tree):
    with hotset.open(str(tree)) as hot:
        HotDataset(hot).close()
        assert hot[0]
        with pytest.raises(InvalidInput, match="open already"):
            HotDataset(hot, cache="/elsewhere")


@pytest.mark.parametrize("target", ["directory", "key", [0, 1, 2, 3, 4, 5, 6], np.arange(7)], ids=str)
def test_pickled_for_spawned_workers(tree, target):
    with HotDataset(str(tree), target=target) as samples:
        copy = pickle.loads(pickle.dumps(samples))
        assert copy.__getitems__(range(6)) == samples.__getitems__(range(6))
        copy.hot.close()


def test_over_a_bucket(bucket, proxy, monkeypatch):
    use(monkeypatch, proxy.env())
    objects = {f"{name}/{n}.jpg": jpeg(n) for name in ("a", "b") for n in range(10)}
    bucket.put_many(objects)
    with ImageFolder(bucket.url, decode="image") as folder:
        batch = folder.__getitems__(range(20))
        assert [label for _, label in batch] == [0] * 10 + [1] * 10
    assert proxy.gets == dict.fromkeys(objects, 1)
