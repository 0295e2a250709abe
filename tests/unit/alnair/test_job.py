"""What a job learns from the files of its pod, and that nothing of what is secret in them gets out."""

from __future__ import annotations

import pickle
import threading
import traceback

import pytest

from hotset.alnair.job import Place, find_job
from hotset.config.alnair import AlnairSettings
from hotset.errors import InvalidInput, NotFound, Unavailable
from tests.support.alnair import Pod


@pytest.fixture
def pod(tmp_path):
    return Pod(tmp_path / "pod")


def settings(pod, **more):
    return AlnairSettings.of({**pod.env, **more})


class TestJobFile:
    def test_says_where_and_how(self, pod):
        pod.declare("bucket", ["imagenet-mini/val", "imagenet-mini/train"], MaxMemory=50)
        job = find_job(settings(pod))
        assert (job.name, job.bucket) == ("job", "bucket")
        assert job.place.uri == "s3://bucket"
        assert job.place.prefixes == ("imagenet-mini/train", "imagenet-mini/val")
        assert job.qos == {"UseCache": True, "MaxMemory": 50, "DurabilityInDisk": 1440, "LazyLoading": True}
        assert job.info == job.meta
        assert job.meta["datasource"]["bucket"] == "bucket"

    def test_without_keys_it_is_the_whole_bucket(self, pod):
        pod.declare("bucket")
        assert find_job(settings(pod)).place.prefixes == ()

    def test_an_empty_prefix_is_the_whole_bucket(self, pod):
        pod.declare("bucket", ["a", ""])
        assert find_job(settings(pod)).place.prefixes == ()

    def test_without_configurations_it_is_what_an_alnairpod_means(self, pod):
        pod.declare("bucket", qos={})
        assert find_job(settings(pod)).qos == {
            "UseCache": False,
            "MaxMemory": 0,
            "DurabilityInDisk": 0,
            "LazyLoading": False,
        }

    def test_configurations_of_a_configmap_are_text(self, pod):
        pod.declare("bucket", qos={"usecache": "false", "maxmemory": "7", "team": "a"})
        assert find_job(settings(pod)).qos == {
            "UseCache": False,
            "MaxMemory": 7,
            "DurabilityInDisk": 0,
            "LazyLoading": False,
        }

    def test_another_kind_of_store(self, pod):
        pod.declare("bos://bucket.bj.bcebos.com")
        assert find_job(settings(pod)).place.uri == "bos://bucket.bj.bcebos.com"

    @pytest.mark.parametrize("name", ["a:b", "a}b", "é", "a b"])
    def test_the_name_of_a_datasource_may_be_any(self, pod, name):
        pod.declare("bucket")
        file = pod.jobs / "job.json"
        file.write_text(file.read_text().replace("ImageNet-Mini", name))
        assert find_job(settings(pod)).meta["datasource"]["name"] == name

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "{}",
            '{"datasource": "bucket"}',
            '{"datasource": {"bucket": ""}}',
            '{"datasource": {"bucket": 1}}',
            '{"datasource": {"bucket": "b", "keys": "train"}}',
            '{"datasource": {"bucket": "b", "keys": [1]}}',
            '{"datasource": {"bucket": "b"}, "qos": [1]}',
            '{"datasource": {"bucket": "b"}, "qos": {"usecache": "maybe"}}',
        ],
    )
    def test_one_that_cannot_be_right_is_named(self, pod, text):
        (pod.jobs / "job.json").write_text(text)
        with pytest.raises(InvalidInput, match=r"jobs/job\.json"):
            find_job(settings(pod))

    def test_a_name_that_leads_elsewhere_is_refused(self, pod):
        with pytest.raises(InvalidInput, match="JOBNAME"):
            find_job(settings(pod, JOBNAME="../job"))

    def test_what_the_script_says_overrides_its_configurations(self, pod):
        pod.declare("bucket", UseCache=True)
        assert find_job(settings(pod), qos={"usecache": False}).qos["UseCache"] is False


class TestWithoutAJob:
    def test_a_uri_takes_its_place(self, pod):
        job = find_job(settings(pod, HOTSET_ALNAIR_URI="s3://bucket", HOTSET_ALNAIR_QOS="maxmemory=5"))
        assert (job.place.uri, job.place.prefixes, job.place.options()) == ("s3://bucket", (), None)
        assert job.qos == {"UseCache": True, "MaxMemory": 5, "DurabilityInDisk": 0, "LazyLoading": False}
        assert job.info["qos"] == job.qos

    def test_a_path_is_meant_from_here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert find_job(AlnairSettings(), uri="data").place.uri == str(tmp_path / "data")

    def test_a_job_comes_before_the_variable_and_after_the_argument(self, pod):
        pod.declare("bucket")
        chosen = settings(pod, HOTSET_ALNAIR_URI="s3://other")
        assert find_job(chosen).place.uri == "s3://bucket"
        assert find_job(chosen, uri="s3://third").place.uri == "s3://third"

    def test_without_anything_it_says_what_to_set(self, pod):
        with pytest.raises(NotFound, match=r"there is no .*/jobs/job\.json.*HOTSET_ALNAIR_URI"):
            find_job(settings(pod))
        with pytest.raises(NotFound, match=r"JOBNAME is not set.*HOTSET_ALNAIR_URI"):
            find_job(AlnairSettings())

    def test_a_mistyped_configuration_is_named(self):
        with pytest.raises(InvalidInput, match=r"HOTSET_ALNAIR_QOS.*'lazy'"):
            find_job(AlnairSettings(uri="/x", qos={"lazy": "true"}))


class TestClientContainer:
    def test_without_one_nothing_is_waited_for(self, pod):
        pod.declare("bucket")
        assert find_job(settings(pod)).info["name"] == "job"

    def test_what_it_told_is_the_jobs_information(self, pod):
        pod.declare("bucket")
        pod.tell()
        job = find_job(settings(pod))
        assert job.info["jinfo"]["ccauth"]["host"] == "redis-cluster"
        assert "PASSWORD" not in repr(job)

    def test_it_may_come_later_and_is_read_when_it_is_complete(self, pod):
        pod.declare("bucket")
        pod.tell('{"jinfo": {"tok')
        rest = threading.Timer(0.3, pod.tell)
        rest.start()
        assert find_job(settings(pod)).info["jinfo"]["token"] == "T"
        rest.join()

    @pytest.mark.parametrize(("text", "state"), [(None, "is not there"), ('{"PASSW', "is not complete")])
    def test_it_is_not_waited_for_for_ever(self, pod, text, state):
        pod.declare("bucket")
        pod.share.mkdir()
        if text is not None:
            pod.tell(text)
        with pytest.raises(Unavailable, match=rf"share/job\.json {state} after 0\.2 seconds.*client") as caught:
            find_job(settings(pod, HOTSET_ALNAIR_WAIT="0.2"))
        assert "PASSW" not in "".join(traceback.format_exception(caught.value))

    def test_a_job_without_a_cache_does_not_need_it(self, pod):
        pod.declare("bucket", UseCache=False)
        pod.share.mkdir()
        assert find_job(settings(pod)).info["name"] == "job"


class TestSecret:
    @pytest.fixture
    def place(self, pod):
        pod.declare("bucket")
        return find_job(settings(pod)).place

    def write(self, pod, text):
        (pod.secret / "client.conf").write_text(text)

    def test_holds_the_keys(self, pod, place):
        self.write(pod, "[aws_s3]\naws_access_key_id = AK\naws_secret_access_key = S%K/=\nregion_name = us-west-2\n")
        options = place.options()
        assert (options.access_key, options.secret_key, options.region) == ("AK", "S%K/=", "us-west-2")
        assert options.endpoint is options.session_token is None

    def test_may_hold_an_endpoint_and_a_session(self, pod, place):
        self.write(pod, "[aws_s3]\nendpoint_url=http://minio:9000\nAWS_SESSION_TOKEN=t\nregion_name=\n")
        options = place.options()
        assert (options.endpoint, options.session_token, options.region) == ("http://minio:9000", "t", None)

    @pytest.mark.parametrize("text", [None, "", "[alnair_manager]\nusername=me\n"])
    def test_without_it_credentials_come_from_the_environment(self, pod, place, text):
        if text is not None:
            self.write(pod, text)
        assert place.options() is None

    @pytest.mark.parametrize("text", ["aws_secret_access_key=SECRET", "[aws_s3]\nSECRET", "[aws_s3\nSECRET=1"])
    def test_a_damaged_one_is_named_but_not_shown(self, pod, place, text):
        self.write(pod, text)
        with pytest.raises(InvalidInput, match=r"client\.conf") as caught:
            place.options()
        assert "SECRET" not in "".join(traceback.format_exception(caught.value))

    def test_what_is_handed_to_a_worker_carries_no_key(self, pod, place):
        self.write(pod, "[aws_s3]\naws_access_key_id=AK\naws_secret_access_key=SECRET\n")
        place.options()
        assert b"SECRET" not in pickle.dumps(place)
        assert pickle.loads(pickle.dumps(place)).options().secret_key == "SECRET"


class TestHolding:
    """Datasets of one job share one dataset of the cache, unless one asks for more than the job declares."""

    DECLARED = Place("s3://b", ("a/train", "a/val"))

    @pytest.mark.parametrize("keys", [[], ["a/val"], ["a/val/deeper"], ["a/train/1", "a/validation"]])
    def test_what_the_job_declares(self, keys):
        assert self.DECLARED.holding(keys) is self.DECLARED

    @pytest.mark.parametrize(
        ("keys", "prefixes"), [(["a"], ("a",)), (["c", "a/val"], ("a/val", "c")), ([""], ()), (["a/va"], ("a/va",))]
    )
    def test_anything_else_is_a_place_of_its_own(self, keys, prefixes):
        assert self.DECLARED.holding(keys).prefixes == prefixes

    def test_where_nothing_is_declared_only_what_is_asked_for_is_listed(self):
        assert Place("s3://b").holding(["a"]).prefixes == ("a",)
        assert Place("s3://b").holding([]).prefixes == ()
