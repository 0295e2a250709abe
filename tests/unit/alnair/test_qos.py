"""Configurations, whoever wrote them: the operator, a person in a ConfigMap, a script."""

from __future__ import annotations

import pytest

from hotset.alnair.qos import normal_qos
from hotset.errors import InvalidInput


def qos(given, **more):
    return normal_qos(given, where="job.json", **more)


def test_as_the_operator_writes_them():
    given = {"UseCache": True, "MaxMemory": 50, "DurabilityInDisk": 1440, "LazyLoading": False}
    assert qos(given) == given


def test_as_people_write_them_in_a_configmap():
    """Every value is a string there, and the text "false" is true to Python."""
    given = {"usecache": "false", "maxmemory": "128", "durabilityInDisk": " 5 ", "lazy_loading": "True"}
    assert qos(given) == {"UseCache": False, "MaxMemory": 128, "DurabilityInDisk": 5, "LazyLoading": True}


@pytest.mark.parametrize("text", ["false", "False", "FALSE", "0", "no", "off", "f", 0, False])
def test_what_is_false(text):
    assert qos({"UseCache": text}) == {"UseCache": False}


@pytest.mark.parametrize("text", ["true", "True", "TRUE", "1", "yes", "on", "t", 1, True])
def test_what_is_true(text):
    assert qos({"UseCache": text}) == {"UseCache": True}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("usecache", "maybe"),
        ("usecache", ""),
        ("usecache", None),
        ("lazyloading", 2),
        ("maxmemory", "lots"),
        ("maxmemory", "128MB"),
        ("maxmemory", -1),
        ("maxmemory", 1.5),
        ("maxmemory", True),
        ("durabilityindisk", "²"),
    ],
)
def test_what_makes_no_sense_is_named(key, value):
    with pytest.raises(InvalidInput, match=f"job.json: {key} is "):
        qos({key: value})


def test_strangers_are_passed_over_where_a_configmap_may_hold_them():
    assert qos({"color": "blue", "UseCache": "1"}, strangers=True) == {"UseCache": True}
    with pytest.raises(InvalidInput, match="known are usecache"):
        qos({"usecahce": True})


def test_a_list_is_no_configuration():
    with pytest.raises(InvalidInput, match="list"):
        qos([1])
