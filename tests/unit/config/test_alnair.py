"""The variables of Alnair's jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotset.cli import checks
from hotset.config.alnair import VARIABLES, AlnairSettings
from hotset.errors import InvalidInput


def test_without_any_variable_the_directories_are_those_of_a_pod():
    assert AlnairSettings.of({}) == AlnairSettings()
    assert AlnairSettings().jobs == Path("/jobs")
    assert AlnairSettings().share == Path("/share")
    assert AlnairSettings().secret == Path("/secret")


def test_empty_means_not_set():
    assert AlnairSettings.of(dict.fromkeys([*VARIABLES, "JOBNAME"], "")) == AlnairSettings()


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("JOBNAME", "train", "jobname", "train"),
        ("HOTSET_ALNAIR_URI", "s3://bucket", "uri", "s3://bucket"),
        ("HOTSET_ALNAIR_QOS", "lazyloading=true, maxmemory=50,", "qos", {"lazyloading": "true", "maxmemory": "50"}),
        ("HOTSET_ALNAIR_JOBS", "/j", "jobs", Path("/j")),
        ("HOTSET_ALNAIR_SHARE", "/s", "share", Path("/s")),
        ("HOTSET_ALNAIR_SECRET", "/x", "secret", Path("/x")),
        ("HOTSET_ALNAIR_WAIT", "1.5", "wait", 1.5),
    ],
)
def test_what_each_variable_sets(name, text, field, value):
    changed = vars(AlnairSettings.of({name: text}))
    assert changed == {**vars(AlnairSettings()), field: value}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HOTSET_ALNAIR_QOS", "lazyloading"),
        ("HOTSET_ALNAIR_WAIT", "long"),
        ("HOTSET_ALNAIR_WAIT", "-1"),
        ("HOTSET_ALNAIR_WAIT", "nan"),
        ("HOTSET_ALNAIR_WAIT", "inf"),
    ],
)
def test_a_wrong_value_names_its_variable(name, text):
    with pytest.raises(InvalidInput, match=name):
        AlnairSettings.of({name: text})


def test_a_signed_uri_is_not_shown():
    assert "HUSH" not in repr(AlnairSettings.of({"HOTSET_ALNAIR_URI": "https://host/m.jsonl?signature=HUSH"}))


def test_doctor_knows_them():
    [good] = checks.variables({"HOTSET_ALNAIR_WAIT": "5"})
    assert good.state == "ok"
    [wrong] = checks.variables({"HOTSET_ALNAIR_WAIT": "soon"})
    assert (wrong.state, wrong.remedy) == ("wrong", f"HOTSET_ALNAIR_WAIT is {VARIABLES['HOTSET_ALNAIR_WAIT']}")
    [mistyped] = checks.variables({"HOTSET_ALNAIR_JOB": "/j"})
    assert mistyped.remedy == "did you mean HOTSET_ALNAIR_JOBS?"
    [secret] = checks.variables({"HOTSET_ALNAIR_URI": "https://me:PASSWORD@host/m.jsonl?signature=SECRET"})
    assert "PASSWORD" not in secret.text
    assert "SECRET" not in secret.text
