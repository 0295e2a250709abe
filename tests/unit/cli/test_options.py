from __future__ import annotations

import pytest

from hotset.cli.options import complete_name, existing_cache, mounts
from hotset.errors import InvalidInput


def test_one_uri():
    assert mounts("s3://bucket", []) == "s3://bucket"
    assert mounts(None, []) is None


def test_several_sources_keep_their_order():
    given = ["images=s3://a/x?v=1", "labels=/data/labels"]
    assert mounts(None, given) == [("images", "s3://a/x?v=1"), ("labels", "/data/labels")]


@pytest.mark.parametrize("source", ["s3://a/b", "images", "=s3://a", "images=", "s3://a=b"])
def test_a_source_without_a_path_is_refused(source):
    with pytest.raises(InvalidInput, match="write PATH=URI"):
        mounts(None, [source])


def test_a_path_is_for_one_source():
    with pytest.raises(InvalidInput, match="'a'"):
        mounts(None, ["a=/x", "b=/y", "a=/z"])


def test_uri_and_sources_exclude_each_other():
    with pytest.raises(InvalidInput, match="not both"):
        mounts("s3://bucket", ["a=/x"])


def test_looking_makes_no_cache(tmp_path):
    assert existing_cache() is None
    assert complete_name("") == []
    assert not (tmp_path / "cache").exists()


def test_names_are_completed(tmp_path):
    (tmp_path / "cache" / "names").mkdir(parents=True)
    for name in ("train", "trial", "val"):
        (tmp_path / "cache" / "names" / name).touch()
    assert complete_name("tr") == ["train", "trial"]


def test_completion_is_silent_where_the_environment_is_wrong(monkeypatch):
    monkeypatch.setenv("HOTSET_QUOTA", "much")
    assert complete_name("") == []
