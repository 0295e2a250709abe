"""From what a user wrote to the parts of a dataset, before anything is listed."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import requests

from hotset.config.builder import Build, default_name
from hotset.errors import AlreadyExists, InvalidInput, NotFound
from hotset.fill.settings import decode_settings, encode_settings
from hotset.source import SourceOptions

SECRETS = {
    "access_key": "AKIA-the-access-key",
    "secret_key": "the-secret-key",
    "session_token": "the-session-token",
    "proxy": "http://me:the-proxy-password@127.0.0.1:3128",
    "extra": {"sse_customer_key_base64": "the-extra-secret"},
}
WORDS = ["AKIA-the-access-key", "the-secret-key", "the-session-token", "the-proxy-password", "the-extra-secret"]
ENDPOINT = "http://127.0.0.1:9/"


def everything_below(root: Path) -> str:
    """The content, name and link target of every file, as text."""
    parts = []
    for directory, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(directory) / name
            parts.append(str(path))
            if path.is_symlink():
                parts.append(os.readlink(path))
            elif path.is_file():
                parts.append(path.read_bytes().decode("latin-1"))
    return "\n".join(parts)


def options(**said) -> SourceOptions:
    return SourceOptions(endpoint=ENDPOINT, region="us-east-1", **said)


class TestNames:
    @pytest.mark.parametrize(
        ("uri", "slug"),
        [
            ("s3://bucket/train", "bucket-train"),
            ("s3://bucket/train/", "bucket-train"),
            ("s3://my.bucket/Données/a_b", "my-bucket-donn-es-a-b"),
            ("s3://bucket", "bucket"),
        ],
    )
    def test_the_default_is_a_slug_of_the_uri_and_six_hex_digits(self, uri, slug):
        name = Build(uri, options=options(**SECRETS)).name
        assert re.fullmatch(re.escape(slug) + "-[0-9a-f]{6}", name)

    def test_a_long_uri_makes_a_name_of_bearable_length(self):
        name = Build("s3://bucket/" + "deep/" * 60, options=options(**SECRETS)).name
        assert len(name) <= 47
        assert re.fullmatch("[a-z0-9][a-z0-9-]*", name)

    def test_the_same_uri_gives_the_same_name_and_another_place_another(self):
        def name(uri, **said):
            return Build(uri, options=options(**{**SECRETS, **said})).name

        assert name("s3://bucket/train") == name("s3://bucket/train/")
        assert name("s3://bucket/train") == name("s3://bucket/train", secret_key="another")
        elsewhere = Build(
            "s3://bucket/train", options=replace(options(**SECRETS), endpoint="http://127.0.0.1:10/")
        ).name
        assert elsewhere != name("s3://bucket/train")
        assert elsewhere[:-6] == name("s3://bucket/train")[:-6]

    def test_other_patterns_are_another_dataset(self, tmp_path):
        names = {Build(str(tmp_path), **said).name for said in ({}, {"include": "*.jpg"}, {"exclude": ["*.jpg"]})}
        assert len(names) == 3

    def test_a_path_of_symbols_only_still_has_a_name(self, tmp_path):
        record = Build(str(tmp_path)).directory.record()
        odd = replace(record, sources=(replace(record.sources[0], uri="s3://___"),))
        assert default_name(odd) == f"dataset-{odd.identifier[:6]}"

    def test_a_name_of_another_source_is_refused_and_says_whose_it_is(self, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        Build(str(tmp_path / "a"), "images")
        with pytest.raises(AlreadyExists, match=re.escape(str(tmp_path / "a"))):
            Build(str(tmp_path / "b"), "images")

        assert Build(None, "images").directory.identifier == Build(str(tmp_path / "a"), "images").directory.identifier

    @pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "with blank", "x" * 101, "ü"])
    def test_a_name_that_cannot_be_a_file_name_is_refused(self, tmp_path, name):
        with pytest.raises(InvalidInput):
            Build(str(tmp_path), name or "/")

    def test_two_names_for_one_dataset_share_it(self, tmp_path):
        assert Build(str(tmp_path), "one").directory.path == Build(str(tmp_path), "two").directory.path


class TestWhatIsOpened:
    def test_nothing_said_is_refused(self):
        with pytest.raises(InvalidInput, match="URI"):
            Build(None)

    def test_no_sources_are_refused(self):
        with pytest.raises(InvalidInput, match="at least one"):
            Build({})

    def test_an_unknown_name_lists_the_known_ones(self, tmp_path):
        Build(str(tmp_path), "known")
        with pytest.raises(NotFound, match="known"):
            Build(None, "unknown")

    @pytest.mark.parametrize("uri", ["ftp://host/x", "s4://bucket", "", "  "])
    def test_an_unknown_scheme_leaves_nothing_behind(self, uri, tmp_path):
        with pytest.raises(InvalidInput):
            Build(uri, "never", cache=tmp_path / "c")
        with pytest.raises(NotFound):
            Build(None, "never", cache=tmp_path / "c")

    def test_a_relative_path_is_meant_from_here_and_now(self, tmp_path, monkeypatch):
        (tmp_path / "data").mkdir()
        monkeypatch.chdir(tmp_path)
        here = Build("data")
        assert here.fill_settings.sources[0].uri == str(tmp_path / "data")
        assert here.name == Build(str(tmp_path / "data")).name

    def test_several_sources_each_under_its_path(self, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        given = {"images": str(tmp_path / "a"), "labels/": str(tmp_path / "b")}
        build = Build(given, "both")
        assert [entry.path for entry in build.fill_settings.sources] == ["images", "labels"]
        assert Build(list(given.items()), "both").directory.path == build.directory.path

    def test_patterns_by_name_are_those_it_was_made_with(self, tmp_path):
        Build(str(tmp_path), "some", include="*.jpg", exclude=("a*", "b*"))
        settings = Build(None, "some").fill_settings
        assert (settings.include, settings.exclude) == (("*.jpg",), ("a*", "b*"))

    @pytest.mark.parametrize("what", ["include", "exclude"])
    @pytest.mark.parametrize("made", [(), ("*.jpg", "a*")], ids=["none", "some"])
    def test_by_name_other_patterns_are_refused_and_say_which_it_has(self, tmp_path, what, made):
        Build(str(tmp_path), "some", **{what: made})
        assert Build(None, "some", **{what: made}).directory.path == Build(None, "some").directory.path
        for other in ("*.png", ["a*", "*.jpg"]):
            with pytest.raises(
                InvalidInput, match=rf"'some' was made with .*leave {what} out, or give the URI"
            ) as told:
                Build(None, "some", **{what: other})
            assert ("no " + what if not made else "'*.jpg', 'a*'") in str(told.value)

    def test_by_name_the_other_layout_is_refused(self, tmp_path):
        Build(str(tmp_path), "tree", layout="files")
        assert Build(None, "tree", layout="files").directory.record().layout == "files"
        with pytest.raises(AlreadyExists, match=r"layout 'files'.*convert"):
            Build(None, "tree", layout="packs")

    def test_the_layout_is_adopted_unless_another_is_asked_for(self, tmp_path):
        Build(str(tmp_path), "tree", layout="files")
        assert Build(str(tmp_path), "tree").directory.record().layout == "files"
        with pytest.raises(AlreadyExists, match="layout"):
            Build(str(tmp_path), "tree", layout="packs")

    def test_what_is_said_in_the_call_wins_over_the_environment(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOTSET_MAX_RATE", "1MB")
        monkeypatch.setenv("HOTSET_QUOTA", "32MiB")
        assert Build(str(tmp_path)).fill_settings.max_rate == 1_000_000
        build = Build(str(tmp_path), max_rate="2MB", quota="64MiB")
        assert (build.fill_settings.max_rate, build.cache.quota) == (2_000_000, 64 * 2**20)


class TestSecrets:
    def test_no_file_of_the_cache_holds_one(self, tmp_path):
        Build("s3://bucket/x", "secret", cache=tmp_path / "c", options=options(**SECRETS, profile="p", account="acc"))
        Build("https://127.0.0.1/m.jsonl?sig=the-signature", "signed", cache=tmp_path / "c")
        text = everything_below(tmp_path / "c")
        assert "bucket" in text  # the search finds what is there
        for secret in [*WORDS, "the-signature"]:
            assert secret not in text

    def test_none_is_in_what_is_shown_or_pickled(self):
        build = Build("s3://bucket/x", options=options(**SECRETS))
        client = build.client()
        shown = repr(build.fill_settings) + repr(build.directory.record()) + repr(client.__getstate__())
        for secret in WORDS:
            assert secret not in shown

    def test_every_option_is_either_recorded_or_a_secret(self, tmp_path):
        """A new option must be put on one side or the other."""
        given = {
            "endpoint": ENDPOINT, "region": "r", "account": "acc", "anonymous": False, "requester_pays": True,
            "profile": "p", "ca_file": requests.certs.where(), "allow_http": True, "bucket_in_host": False, "if_match": False,
            "user": "hdfs", "connect_timeout": 3.5, "read_timeout": 4.5, "request_timeout": 5.5,
            "max_connections": 7, **SECRETS,
        }  # fmt: skip
        assert set(given) == {field.name for field in fields(SourceOptions)}
        Build("s3://bucket/x", "all", options=SourceOptions(**given))
        reopened = Build(None, "all").fill_settings.sources[0].options
        expected = SourceOptions(**{key: value for key, value in given.items() if key not in SECRETS})
        assert reopened == expected

    def test_options_of_now_are_added_to_the_recorded_ones(self):
        Build("s3://bucket/x", "mine", options=options(**SECRETS))
        again = Build(None, "mine", options=SourceOptions(access_key="a", secret_key="b")).fill_settings
        assert again.sources[0].options == options(access_key="a", secret_key="b")

    def test_they_reach_the_filler_through_the_pipe(self):
        build = Build("s3://bucket/x", options=options(**SECRETS), include="*.jpg", max_rate=5)
        message = json.loads(encode_settings(build.fill_settings, {"A": "1"}, "/s.sock", 17))
        assert decode_settings(message["settings"]) == build.fill_settings
        assert (message["env"], message["socket"], message["parent"]) == ({"A": "1"}, "/s.sock", 17)


class TestFreshness:
    def test_never_takes_any_listing_always_only_one_of_now(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOTSET_FRESH_FOR", "60")
        build = Build(str(tmp_path))
        assert build.fresh_since_ns("never") is None
        auto, always = build.fresh_since_ns("auto"), build.fresh_since_ns("always")
        assert auto is not None
        assert always is not None
        assert always - auto >= 60 * 10**9 - 10**9
