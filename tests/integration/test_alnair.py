"""Jobs on a real S3 server: what the files of the pod say is what happens, with the cache and without."""

from __future__ import annotations

import logging
import os
import pickle
import threading
import warnings
from pathlib import Path

import pytest

import hotset
from hotset.alnair import AlnairJobDataLoader, AlnairJobDataset
from hotset.errors import Changed, Denied, NotFound
from tests.support.alnair import Numbers, Pod, numbers_of
from tests.support.datasets import content
from tests.support.opening import use
from tests.support.signature import SECRET_KEY

pytestmark = pytest.mark.integration

MB = 2**20
COUNT = 12
#: With a limit of 1 MB four windows of three objects.
OBJECTS = {f"numbers/{number:04}": str(number).encode().ljust(300_000) for number in range(COUNT)}

#: The configurations of jobs: what is read must not depend on them.
WAYS = {
    "cached-lazy": {"UseCache": True, "LazyLoading": True},
    "cached-windows": {"UseCache": True, "LazyLoading": False, "MaxMemory": 1},
    "direct-lazy": {"UseCache": False, "LazyLoading": True},
    "direct-windows": {"UseCache": False, "LazyLoading": False, "MaxMemory": 1},
}


@pytest.fixture(autouse=True)
def _forks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of forks beside threads
        yield


@pytest.fixture
def pod(bucket, proxy, tmp_path, monkeypatch):
    """A pod whose secret leads to the server through the proxy; there are no credentials in the environment."""
    bucket.put_many(OBJECTS)
    pod = Pod(tmp_path / "pod")
    pod.sign(bucket.server, endpoint_url=proxy.endpoint)
    use(monkeypatch, pod.env)
    return pod


@pytest.fixture(params=WAYS.values(), ids=WAYS.keys())
def way(request):
    return request.param


class Contents(AlnairJobDataset):
    """Samples are the objects themselves."""

    def __convert__(self):
        return [self.data[key] for key in self.keys], list(self.keys)

    def __getitem__(self, index):
        return self.get_target(index), self.get_data(index)

    def everything(self):
        found = {}
        for window in range(len(self.chunks)):
            self.load_data(window)
            found |= dict(self[index] for index in range(len(self)))
        return found


class TestEpochs:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_are_whole_whatever_the_configurations_say(self, pod, bucket, way, workers, no_leaks):
        pod.declare(bucket.name, ["numbers"], **way)
        with Numbers(["numbers"]) as dataset:
            assert len(dataset.chunks) == (4 if "MaxMemory" in way else 1)
            with AlnairJobDataLoader(dataset, 5, num_workers=workers) as loader:
                for _ in range(2):
                    assert numbers_of(loader) == list(range(COUNT))

    @pytest.mark.parametrize("cached", [True, False])
    def test_in_spawned_workers(self, pod, bucket, cached, no_leaks):
        """Without a cache they read the credentials themselves."""
        pod.declare(bucket.name, UseCache=cached, LazyLoading=True)
        with (
            Numbers() as dataset,
            AlnairJobDataLoader(dataset, 5, num_workers=1, multiprocessing_context="spawn") as loader,
        ):
            assert numbers_of(loader) == list(range(COUNT))


class TestCache:
    def test_each_object_is_fetched_once_for_all_epochs_and_jobs(self, pod, bucket, proxy):
        pod.declare(bucket.name, ["numbers"])
        for _ in range(2):
            with Numbers() as dataset:
                loader = AlnairJobDataLoader(dataset, 5, num_workers=2, shuffle=True)
                for _ in range(2):
                    assert sorted(numbers_of(loader)) == list(range(COUNT))
                loader.close()
        assert proxy.gets == dict.fromkeys(OBJECTS, 1)

    def test_is_not_used_without_it(self, pod, bucket, proxy):
        pod.declare(bucket.name, ["numbers"], UseCache="false", LazyLoading="false")
        for _ in range(2):
            with Contents() as dataset:
                assert dataset.everything() == OBJECTS
        assert set(proxy.gets.values()) == {4}  # by the constructor, and once more
        assert not Path(os.environ["HOTSET_CACHE"]).exists()
        assert list(Path(os.environ["XDG_RUNTIME_DIR"]).iterdir()) == []

    def test_datasets_of_a_job_share_one_of_the_cache(self, pod, bucket, proxy):
        bucket.put_many({"im/train/a": b"1", "im/val/b": b"2", "other": b"3"})
        pod.declare(bucket.name, ["im/val", "im/train"])
        with Contents(["im/train"]) as train, Contents(["im/val"]) as val, Contents() as both:
            assert train.everything() == {"im/train/a": b"1"}
            assert val.everything() == {"im/val/b": b"2"}
            assert both.everything() == {"im/train/a": b"1", "im/val/b": b"2"}
        assert len(hotset.datasets()) == 1
        assert proxy.lists == 2

    def test_that_is_too_small_loses_nothing(self, pod, bucket, monkeypatch):
        """What was evicted is fetched again."""
        large = {f"large/{number:02}": content(str(number), MB) for number in range(24)}
        bucket.put_many(large)
        monkeypatch.setenv("HOTSET_QUOTA", "16MiB")
        pod.declare(bucket.name, ["large"], LazyLoading=False, MaxMemory=4)
        with Contents() as dataset:
            assert len(dataset.chunks) == 6
            for _ in range(2):
                assert dataset.everything() == large


class TestWaiting:
    def test_the_first_batch_does_not_wait_for_the_rest(self, pod, bucket, proxy, no_leaks):
        """In Alnair a job began when its last object had been copied."""
        pod.declare(bucket.name)
        proxy.hang(key="numbers/00[01][3-9]")
        with Numbers() as dataset:
            loader = AlnairJobDataLoader(dataset, 3)
            assert next(loader)[0].tolist() == [0, 1, 2]
            proxy.release()
            assert [sample for data, _ in loader._epoch for sample in data.tolist()] == list(range(3, COUNT))

    def test_lazy_data_are_fetched_ahead_in_the_order_of_training(self, pod, bucket, proxy):
        pod.declare(bucket.name)
        with Numbers() as dataset:
            next(AlnairJobDataLoader(dataset, 1, shuffle=True))
            proxy.wait_for("GET", COUNT)

    def test_a_batch_is_read_at_once_where_nothing_is_fetched_ahead(self, pod, bucket, proxy):
        """All of its requests are under way at the same time; in Alnair there was one after the other."""
        pod.declare(bucket.name, UseCache=False)
        with Numbers() as dataset:
            rule = proxy.hang()
            loader = AlnairJobDataLoader(dataset, 4, num_workers=1)
            got = []
            thread = threading.Thread(target=lambda: got.append(next(loader)[0].tolist()))
            thread.start()
            proxy.wait_for("GET", 4)
            assert rule.hits == 4
            proxy.release()
            thread.join()
            assert got == [[0, 1, 2, 3]]
            loader.close()

    @pytest.mark.parametrize("cached", [True, False])
    def test_the_next_window_is_fetched_while_this_one_is_consumed(self, pod, bucket, proxy, cached, no_leaks):
        pod.declare(bucket.name, UseCache=cached, LazyLoading=False, MaxMemory=1)
        with Numbers() as dataset, AlnairJobDataLoader(dataset, 1) as loader:
            assert set(proxy.gets) == set(list(OBJECTS)[:3])
            next(loader)
            for key in list(OBJECTS)[3:6]:
                proxy.wait_for("GET", 1, key=key)
            assert set(proxy.gets) == set(list(OBJECTS)[:6])

    def test_a_short_failure_of_the_store_is_not_seen(self, pod, bucket, proxy, way):
        pod.declare(bucket.name, **way)
        proxy.status(503, every=3, times=5)
        with Contents() as dataset:
            assert dataset.everything() == OBJECTS


class TestObjects:
    def test_keys_go_deeper_than_the_jobs_or_beside_them(self, pod, bucket, way):
        bucket.put_many({"im/val/n1/a": b"1", "im/val/n2/b": b"2", "beside/c": b"3"})
        pod.declare(bucket.name, ["im/val"], **way)
        for keys, found in (
            (["im/val/n2"], {"im/val/n2/b": b"2"}),
            (["im/val/n1/a"], {"im/val/n1/a": b"1"}),
            (["beside"], {"beside/c": b"3"}),
            (None, {"im/val/n1/a": b"1", "im/val/n2/b": b"2"}),
        ):
            with Contents(keys) as dataset:
                assert dataset.everything() == found

    def test_below_two_prefixes_are_there_once(self, pod, bucket, way):
        pod.declare(bucket.name, ["numbers", "numbers/000"], **way)
        with Contents() as dataset:
            assert dataset.everything() == OBJECTS
            assert sum(map(len, dataset.chunks)) == COUNT
        with Contents(["numbers/000"]) as dataset:
            assert len(dataset.everything()) == 10

    def test_without_keys_the_whole_bucket(self, pod, bucket, way):
        bucket.put_many({"x": b"1", "y/z": b"2"})
        pod.declare(bucket.name, **way)
        with Contents() as dataset:
            assert dataset.everything() == {**OBJECTS, "x": b"1", "y/z": b"2"}

    def test_markers_of_directories_are_none(self, pod, bucket, way):
        bucket.put("im/", b"")
        bucket.put("im/n1/", b"")
        bucket.put_many({"im/n1/a": b"1", "im/n1/empty": b""})
        pod.declare(bucket.name, ["im"], **way)
        with Contents() as dataset:
            assert dataset.everything() == {"im/n1/a": b"1", "im/n1/empty": b""}

    def test_large_ones_are_whole(self, pod, bucket, way):
        """Larger than a pack and than any window; in Alnair one piece of such an object was left, or nothing at all."""
        large = {"large/a": content("a", 9 * MB), "large/b": content("b", 17 * MB + 1)}
        bucket.put_many(large)
        pod.declare(bucket.name, ["large"], **way)
        with Contents() as dataset:
            assert dataset.everything() == large

    def test_that_vanish_are_errors_or_left_out(self, pod, bucket, way, no_leaks):
        if not way["LazyLoading"]:
            way = {**way, "MaxMemory": 1}
        pod.declare(bucket.name, **way)
        with Numbers() as dataset:
            bucket.delete("numbers/0007")
            with AlnairJobDataLoader(dataset, 4) as loader, pytest.raises(Changed, match="numbers/0007"):
                numbers_of(loader)
            if way["LazyLoading"]:
                with AlnairJobDataLoader(dataset, 4, num_workers=1, on_error="skip") as loader:
                    assert numbers_of(loader) == [number for number in range(COUNT) if number != 7]
                    assert loader.skipped == 1

    @pytest.mark.parametrize("cached", [True, False])
    def test_none_at_all(self, pod, bucket, cached, no_leaks):
        pod.declare(bucket.name, ["nothing"], UseCache=cached)
        with pytest.raises(NotFound, match=rf"nothing to read at s3://{bucket.name}, .* begins with 'nothing'"):
            Numbers()
        pod.declare(f"{bucket.name}-x", UseCache=cached)
        with pytest.raises(NotFound, match=f"{bucket.name}-x"):
            Numbers()


class TestSecrets:
    def test_go_nowhere(self, pod, bucket, way, caplog, capfd):
        pod.declare(bucket.name, **way)
        pod.tell()
        with caplog.at_level(logging.DEBUG), Numbers() as dataset:
            loader = AlnairJobDataLoader(dataset, 4, num_workers=1)
            assert numbers_of(loader) == list(range(COUNT))
            pickled = pickle.dumps(dataset)
            shown = f"{dataset!r} {loader!r} {dataset.chunks!r} {dataset.__dict__['_AlnairJobDataset__objects']!r}"
        said = shown + caplog.text + "".join(capfd.readouterr())
        assert SECRET_KEY not in said
        assert "PASSWORD" not in said
        assert SECRET_KEY.encode() not in pickled
        for path in Path(os.environ["HOTSET_CACHE"]).rglob("*"):
            assert not path.is_file() or SECRET_KEY.encode() not in path.read_bytes(), path

    def test_that_are_wrong_are_said_to_be(self, pod, bucket, way):
        pod.declare(bucket.name, **way)
        pod.sign(bucket.server, aws_secret_access_key="NOT-THE-KEY")
        with pytest.raises(Denied) as caught:
            Numbers()
        assert "NOT-THE-KEY" not in str(caught.value)

    def test_may_come_from_the_environment(self, pod, bucket, way, monkeypatch):
        (pod.secret / "client.conf").unlink()
        use(monkeypatch, bucket.server.env())
        pod.declare(bucket.name, **way)
        with Contents() as dataset:
            assert dataset.everything() == OBJECTS


class TestPod:
    def test_the_job_knows_what_the_client_container_told(self, pod, bucket):
        pod.declare(bucket.name, ["numbers"])
        pod.tell()
        with Numbers() as dataset:
            assert (dataset.jobname, dataset.bucket_name) == ("job", bucket.name)
            assert dataset.jobinfo.jinfo.jobId == "me/ImageNet-Mini"
            assert dataset.jobinfo.jinfo.ccauth.port == 6379
            assert dataset.load_metainfo()["datasource"]["keys"] == ["numbers"]

    def test_a_uri_stands_for_the_bucket(self, bucket, proxy, monkeypatch):
        """The same script on a laptop: names are those of the cluster."""
        bucket.put_many(OBJECTS)
        use(monkeypatch, {**proxy.env(), "HOTSET_ALNAIR_URI": bucket.url})
        with Contents(["numbers/0000"]) as dataset:
            assert dataset.everything() == {"numbers/0000": OBJECTS["numbers/0000"]}
