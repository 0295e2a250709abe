from __future__ import annotations

import pytest

from hotset.cli.text import ago, duration, facts, percent, plural, printable, table

SECOND = 10**9


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.0, "0 %"), (0.0001, "<1 %"), (0.42, "42 %"), (0.994, "99 %"), (0.9999, "99 %"), (1.0, "100 %")],
)
def test_something_is_never_nothing_and_nearly_is_never_all(share, shown):
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (60, "1:00 min"), (185, "3:05 min"), (7380, "2:03 h")],
)
def test_durations(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "just now"), (59, "59 seconds ago"), (60, "1 minute ago"), (7200, "2 hours ago"), (172_800, "2 days ago")],
)
def test_how_long_ago(seconds, shown):
    assert ago(1000 * SECOND, (1000 + seconds) * SECOND) == shown


def test_a_clock_that_was_set_back_is_no_future():
    assert ago(2000 * SECOND, 1000 * SECOND) == "just now"


def test_never():
    assert ago(0, 5 * SECOND) == "never"


def test_plurals():
    assert [plural(n, "object") for n in (0, 1, 2, 12345)] == ["0 objects", "1 object", "2 objects", "12,345 objects"]


@pytest.mark.parametrize("key", ["a\nb", "\x1b[2J", "a\x00b", " leading", "trailing ", "", "\u202egpj.exe"])
def test_keys_that_could_deceive_a_terminal_are_escaped(key):
    shown = printable(key)
    assert shown.isprintable()
    assert shown == repr(key)


@pytest.mark.parametrize("key", ["train/n01/a.jpg", "日本/語", "a blank.txt"])
def test_other_keys_are_shown_as_they_are(key):
    assert printable(key) == key


def test_columns():
    shown = table(("NAME", "SIZE"), [("a", "10 B"), ("longer", "5 B")], right="SIZE")
    assert shown.splitlines() == ["NAME    SIZE", "a       10 B", "longer   5 B"]


def test_facts_line_up_and_leave_no_blanks_behind():
    assert facts([("a", "1"), ("long", "")]).splitlines() == ["a     1", "long"]
