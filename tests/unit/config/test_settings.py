"""Each variable of ours: what it means, what it means when it is not there, and what a wrong value says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotset.config import settings
from hotset.config.settings import VARIABLES, Settings, environment, runtime_directory
from hotset.errors import Denied, InvalidInput

HOME = {"HOME": "/home/somebody"}


def of(**variables: str) -> Settings:
    return Settings.of({**HOME, **variables})


class TestDefaults:
    def test_without_any_variable(self):
        assert of() == Settings(cache=Path("/home/somebody/.cache/hotset"), runtime=of().runtime)

    def test_the_cache_lies_where_the_user_keeps_caches(self):
        assert of(XDG_CACHE_HOME="/fast").cache == Path("/fast/hotset")
        assert of(XDG_CACHE_HOME="/fast", HOTSET_CACHE="/dev/shm/mine").cache == Path("/dev/shm/mine")

    def test_empty_means_not_set(self):
        assert of(**dict.fromkeys(VARIABLES, "")) == of()

    def test_a_relative_cache_is_meant_from_here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert of(HOTSET_CACHE="here").cache == tmp_path / "here"

    def test_a_tilde_is_the_home(self, monkeypatch):
        monkeypatch.setenv("HOME", "/home/other")
        assert of(HOTSET_CACHE="~/c").cache == Path("/home/other/c")


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("HOTSET_QUOTA", "200GiB", "quota", 200 * 2**30),
        ("HOTSET_QUOTA", "123456789", "quota", 123456789),
        ("HOTSET_MAX_RATE", "100MB", "max_rate", 100_000_000),
        ("HOTSET_MAX_REQUESTS", "12", "max_requests", 12),
        ("HOTSET_STAGING", "64MiB", "staging", 64 * 2**20),
        ("HOTSET_LOOKAHEAD", "2GiB", "lookahead", 2 * 2**30),
        ("HOTSET_FRESH_FOR", "7.5", "fresh_for", 7.5),
        ("HOTSET_FRESH_FOR", "0", "fresh_for", 0.0),
        ("HOTSET_TRUST_DOMAIN", "team-a", "trust_domain", "team-a"),
        ("HOTSET_RUNTIME", "/run/x", "runtime", Path("/run/x")),
        ("HOTSET_CACHE", "/c", "cache", Path("/c")),
    ],
)
def test_what_each_variable_sets(name, text, field, value):
    changed = of(**{name: text})
    assert getattr(changed, field) == value
    assert {other: getattr(changed, other) for other in vars(changed) if other != field} == {
        other: getattr(of(), other) for other in vars(changed) if other != field
    }


def test_no_variable_is_without_its_test():
    tested = {mark.args[1][n][0] for mark in test_what_each_variable_sets.pytestmark for n in range(len(mark.args[1]))}
    assert tested == set(VARIABLES)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HOTSET_QUOTA", "lots"),
        ("HOTSET_QUOTA", "-1"),
        ("HOTSET_QUOTA", "12 parsecs"),
        ("HOTSET_MAX_RATE", "fast"),
        ("HOTSET_MAX_REQUESTS", "many"),
        ("HOTSET_MAX_REQUESTS", "0"),
        ("HOTSET_MAX_REQUESTS", "-4"),
        ("HOTSET_MAX_REQUESTS", "2.5"),
        ("HOTSET_MAX_REQUESTS", "inf"),
        ("HOTSET_STAGING", "x"),
        ("HOTSET_LOOKAHEAD", "x"),
        ("HOTSET_FRESH_FOR", "soon"),
        ("HOTSET_FRESH_FOR", "-1"),
        ("HOTSET_FRESH_FOR", "nan"),
    ],
)
def test_a_wrong_value_names_its_variable(name, text):
    with pytest.raises(InvalidInput, match=name):
        of(**{name: text})


class TestRuntimeDirectory:
    """The directory of the sockets must be ours alone: whoever gets in could talk to our fillers."""

    def test_is_made_for_this_user_only(self, tmp_path):
        made = runtime_directory(Settings(cache=tmp_path, runtime=tmp_path / "a" / "run"))
        assert made.stat().st_mode & 0o777 == 0o700

    def test_an_existing_one_is_used(self, tmp_path):
        (tmp_path / "run").mkdir(mode=0o700)
        assert runtime_directory(Settings(cache=tmp_path, runtime=tmp_path / "run")) == tmp_path / "run"

    @pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o777])
    def test_one_that_others_can_enter_is_refused(self, tmp_path, mode):
        (tmp_path / "run").mkdir()
        (tmp_path / "run").chmod(mode)
        with pytest.raises(Denied, match="HOTSET_RUNTIME"):
            runtime_directory(Settings(cache=tmp_path, runtime=tmp_path / "run"))

    def test_one_of_somebody_else_is_refused(self, tmp_path, monkeypatch):
        (tmp_path / "run").mkdir(mode=0o700)
        monkeypatch.setattr(settings.os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
        with pytest.raises(Denied, match="HOTSET_RUNTIME"):
            runtime_directory(Settings(cache=tmp_path, runtime=tmp_path / "run"))

    def test_a_link_to_a_directory_of_ours_is_refused(self, tmp_path):
        """In a directory that everybody may write to, it could point anywhere a moment later."""
        (tmp_path / "real").mkdir(mode=0o700)
        (tmp_path / "run").symlink_to(tmp_path / "real")
        with pytest.raises(Denied):
            runtime_directory(Settings(cache=tmp_path, runtime=tmp_path / "run"))

    def test_a_file_in_its_place_is_refused(self, tmp_path):
        (tmp_path / "run").touch(mode=0o600)
        with pytest.raises(Denied, match="HOTSET_RUNTIME"):
            runtime_directory(Settings(cache=tmp_path, runtime=tmp_path / "run"))

    def test_one_too_long_for_a_socket_is_refused(self, tmp_path):
        with pytest.raises(InvalidInput, match="HOTSET_RUNTIME"):
            runtime_directory(Settings(cache=tmp_path, runtime=tmp_path / ("x" * 80)))

    def test_by_default_in_the_users_runtime_directory(self, tmp_path, monkeypatch):
        assert of(XDG_RUNTIME_DIR="/run").runtime == Path("/run/hotset")

    @pytest.mark.parametrize("given", ["/no/such/directory", "/" + "x" * 80, ""])
    def test_where_that_does_not_do_in_tmp_with_the_users_number(self, given):
        assert of(XDG_RUNTIME_DIR=given).runtime == Path(f"/tmp/hotset-{os.geteuid()}")


def test_the_environment_is_a_copy(monkeypatch):
    monkeypatch.setenv("HOTSET_QUOTA", "1GiB")
    copy = environment()
    monkeypatch.setenv("HOTSET_QUOTA", "2GiB")
    assert copy["HOTSET_QUOTA"] == "1GiB"
