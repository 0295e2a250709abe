from __future__ import annotations

import json
from pathlib import Path

import pytest

from hotset.base.files import is_tmpfs
from hotset.cli import checks
from hotset.config.settings import Settings
from hotset.tier.node import CacheDirectory
from tests.unit.tier.making import contents, dataset_in, publish

MIB = 2**20
MEMORY = Path("/dev/shm")


def only(findings):
    [found] = findings
    return found


def test_a_variable_that_makes_no_sense_is_named_with_its_meaning():
    found = only(checks.variables({"HOTSET_QUOTA": "much", "PATH": "/bin"}))
    assert found.state == "wrong"
    assert "HOTSET_QUOTA" in found.text
    assert "how large" in found.remedy


def test_a_mistyped_variable_is_guessed():
    found = only(checks.variables({"HOTSET_CAHCE": "/x"}))
    assert (found.state, found.remedy) == ("note", "did you mean HOTSET_CACHE?")


def test_a_good_variable():
    assert only(checks.variables({"HOTSET_QUOTA": "5GiB"})).state == "ok"


def test_a_cache_that_does_not_exist_yet_is_not_made_by_looking(tmp_path):
    found = only(checks.cache(Settings(cache=tmp_path / "a" / "b", quota=100 * MIB)))
    assert found.state == "ok"
    assert "100.0 MiB" in found.text
    assert not (tmp_path / "a").exists()


def test_a_cache_of_a_newer_format(tmp_path):
    CacheDirectory(tmp_path)
    (tmp_path / "hotset.json").write_text(json.dumps({"format": 99, "quota": 1}))
    found = only(checks.cache(Settings(cache=tmp_path)))
    assert found.state == "wrong"
    assert "upgrade" in found.text


def test_a_cache_on_a_network_file_system(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "network_filesystem", lambda path: "NFS")
    found = only(checks.cache(Settings(cache=tmp_path)))
    assert found.state == "wrong"
    assert "HOTSET_CACHE" in found.remedy


def test_a_quota_larger_than_the_disk(tmp_path):
    found = only(checks.cache(Settings(cache=tmp_path, quota=2**60)))
    assert found.state == "note"
    assert "HOTSET_QUOTA" in found.remedy


def test_a_healthy_cache(tmp_path):
    CacheDirectory(tmp_path, quota=64 * MIB)
    found = only(checks.cache(Settings(cache=tmp_path)))
    assert found.state == "ok"
    assert "of 64.0 MiB used" in found.text


@pytest.mark.skipif(not MEMORY.is_dir() or not is_tmpfs(MEMORY), reason="platform: no tmpfs at /dev/shm")
class TestMemory:
    settings = Settings(cache=MEMORY / "hotset-test-that-does-not-exist", quota=800 * MIB)

    def test_the_control_group_would_be_killed(self):
        found = only(checks.memory(self.settings, limit=lambda: (1000 * MIB, Path("/sys/x/memory.max"))))
        assert found.state == "wrong"
        assert "700.0 MiB" in found.remedy
        assert "/sys/x/memory.max" in found.remedy

    def test_the_machine_would_run_out_of_memory(self):
        assert only(checks.memory(self.settings, limit=lambda: None, total=lambda: 1000 * MIB)).state == "note"

    def test_enough(self):
        assert only(checks.memory(self.settings, limit=lambda: (4000 * MIB, Path("/x")))).state == "ok"


def test_a_cache_on_a_disk_is_not_charged_to_memory(tmp_path):
    if is_tmpfs(tmp_path):
        pytest.skip("platform: temporary files lie in memory here")
    assert only(checks.memory(Settings(cache=tmp_path, quota=2**50), limit=lambda: (1, Path("/x")))).state == "ok"


def test_too_few_descriptors_and_maps():
    few = list(checks.limits(Settings(cache=Path("/x")), descriptors=lambda: 256, maps=lambda: 1000))
    assert [found.state for found in few] == ["wrong", "wrong"]
    assert "ulimit -n" in few[0].remedy
    assert "max_map_count" in few[1].remedy
    enough = checks.limits(Settings(cache=Path("/x")), descriptors=lambda: 4096, maps=lambda: 65530)
    assert {found.state for found in enough} == {"ok"}


def test_a_runtime_directory_that_others_can_enter(tmp_path):
    tmp_path.chmod(0o777)
    found = only(checks.runtime(Settings(cache=tmp_path, runtime=tmp_path)))
    assert found.state == "wrong"
    assert "HOTSET_RUNTIME" in found.text


def test_a_damaged_dataset_is_named(tmp_path):
    cache = CacheDirectory(tmp_path)
    place = tmp_path / "datasets" / "0123"
    place.mkdir()
    (place / "dataset.json").write_text("{")
    (tmp_path / "names" / "broken").symlink_to("../datasets/0123")
    wrong, summary = checks.datasets(Settings(cache=cache.root))
    assert wrong.state == "wrong"
    assert "broken" in wrong.text
    assert "hotset drop broken" in wrong.remedy
    assert summary.text == "0 datasets in the cache"


def test_a_damaged_index_is_no_reason_to_drop_it(tmp_path):
    cache = CacheDirectory(tmp_path)
    publish(dataset_in(cache, "broken"), contents())
    (cache.dataset("broken").path / "current").write_text("{")
    wrong, _ = checks.datasets(Settings(cache=cache.root))
    assert (wrong.state, wrong.remedy) == ("wrong", "hotset reload broken")


def test_a_source_without_objects(tmp_path):
    from hotset.source import SourceOptions

    (tmp_path / "empty").mkdir()
    states = [found.state for found in checks.source(str(tmp_path / "empty"), SourceOptions(), {})]
    assert states == ["ok", "wrong"]
