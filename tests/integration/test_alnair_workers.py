"""The loader's workers, forked and spawned, and what they do with samples that fail. Over local directories."""

from __future__ import annotations

import os
import signal
import threading
import warnings

import pytest
import torch
from torch.utils.data import DataLoader

from hotset.alnair import AlnairJobDataLoader
from hotset.errors import Unavailable
from tests.support.alnair import COUNT, SIZES, Numbers, numbered, numbers_of, opened
from tests.support.processes import descendants, wait_until_gone

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _forks():
    with warnings.catch_warnings():
        # From Python 3.12 on a fork beside threads is warned of; torch forks all the same.
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.fixture
def root(tmp_path):
    numbered(tmp_path / "data", SIZES)
    return tmp_path / "data"


@pytest.fixture
def windows(root, no_leaks):
    """Five windows."""
    with opened(root, maxmemory=1) as dataset:
        assert [len(window) for window in dataset.chunks] == [2, 3, 1, 3, 1]
        yield dataset


@pytest.fixture
def one(root, no_leaks):
    with opened(root) as dataset:
        assert len(dataset.chunks) == 1
        yield dataset


class TestWorkers:
    @pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "eager"])
    @pytest.mark.parametrize("persistent", [True, False])
    def test_forked(self, root, no_leaks, lazy, persistent):
        with (
            opened(root, maxmemory=1, lazyloading=lazy) as dataset,
            AlnairJobDataLoader(dataset, 3, num_workers=2, persistent_workers=persistent) as loader,
        ):
            for _ in range(2):
                assert numbers_of(loader) == list(range(COUNT))
            assert len(loader) == 4

    def test_spawned(self, root, no_leaks):
        with (
            opened(root, lazyloading=True) as dataset,
            AlnairJobDataLoader(dataset, 3, num_workers=1, multiprocessing_context="spawn") as loader,
        ):
            assert numbers_of(loader) == list(range(COUNT))

    def test_of_a_parent_that_has_read(self, root, no_leaks):
        """Connections, threads and locks of the parent are of no use to a child, and do it no harm."""
        with opened(root, lazyloading=True) as dataset:
            assert dataset.get_data(0)[:1] == b"0"
            dataset.mload(dataset.chunks[0])
            with AlnairJobDataLoader(dataset, 3, num_workers=2) as loader:
                assert numbers_of(loader) == list(range(COUNT))
            assert dataset.get_data(1)[:1] == b"1"

    def test_end_when_the_epoch_is_broken_off(self, windows):
        before = descendants(os.getpid())
        loader = AlnairJobDataLoader(windows, num_workers=2)
        for _ in loader:
            break
        loader.close()
        for pid in set(descendants(os.getpid())) - set(before):
            wait_until_gone(pid)

    def test_one_that_is_killed_is_an_error_and_no_hang(self, root, no_leaks):
        with opened(root, Fatal, lazyloading=True) as dataset:
            loader = AlnairJobDataLoader(dataset, num_workers=1)
            with pytest.raises(Unavailable, match=r"killed \(SIGKILL\)"):
                list(loader)
            loader.close()

    def test_an_interrupt_ends_them(self, one):
        loader = AlnairJobDataLoader(one, batch_size=1, num_workers=1, persistent_workers=True)
        interrupts = (signal.raise_signal(signal.SIGINT) for _ in loader)
        with pytest.raises(KeyboardInterrupt):
            next(interrupts)
        loader.close()
        assert numbers_of(loader) == list(range(COUNT))
        loader.close()

    def test_they_see_the_dataset_itself(self, one):
        loader = AlnairJobDataLoader(one, batch_size=5, num_workers=1, worker_init_fn=check_dataset)
        assert numbers_of(loader) == list(range(COUNT))


class Fatal(Numbers):
    def __getitem__(self, index):
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def check_dataset(_number: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert isinstance(info.dataset, Numbers)

    @pytest.mark.parametrize("persistent", [True, False])
    def test_after_an_epoch_that_was_broken_off(self, one, persistent):
        with AlnairJobDataLoader(one, 2, num_workers=2, persistent_workers=persistent) as loader:
            for _ in range(3):
                next(iter(loader))
            assert numbers_of(loader) == list(range(COUNT))


class Broken(Numbers):
    """The third and the fourth object cannot be decoded."""

    def __getitem__(self, index):
        number, target = super().__getitem__(index)
        if number in {2, 3}:
            raise ValueError("cannot decode")
        return number, target


class TestSamplesThatFail:
    @pytest.mark.parametrize("workers", [0, 1])
    @pytest.mark.parametrize("lazy", [True, False])
    def test_the_error_names_the_object(self, root, workers, lazy):
        with (
            opened(root, Broken, lazyloading=lazy) as dataset,
            AlnairJobDataLoader(dataset, 4, num_workers=workers) as loader,
            pytest.raises(ValueError, match="cannot decode") as caught,
        ):
            list(loader)
        said = f"{caught.value} {getattr(caught.value, '__notes__', '')}"
        assert "sample 2 (set/0002) of Broken" in said

    @pytest.mark.parametrize("workers", [0, 1])
    def test_they_are_left_out_and_counted(self, root, workers):
        with opened(root, Broken, maxmemory=1) as dataset:
            loader = AlnairJobDataLoader(dataset, 2, num_workers=workers, on_error="skip")
            assert numbers_of(loader) == [0, 1, 4, 5, 6, 7, 8, 9]
            assert loader.skipped == 2

    def test_they_are_replaced(self, root):
        with opened(root, Broken) as dataset:
            loader = AlnairJobDataLoader(dataset, 4, on_error=lambda index, error: (100 + index, 100 + index))
            assert numbers_of(loader) == [0, 1, 102, 103, 4, 5, 6, 7, 8, 9]
            assert loader.skipped == 0

    def test_torchs_own_loader_gets_the_error(self, root):
        with opened(root, Broken) as dataset, pytest.raises(ValueError, match="cannot decode"):
            list(DataLoader(dataset, batch_size=4))


def test_a_loop_in_a_thread(one):
    """Training loops of notebooks live there."""
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.extend(numbers_of(AlnairJobDataLoader(one, 4, num_workers=1))))
    thread.start()
    thread.join()
    assert seen == list(range(COUNT))
