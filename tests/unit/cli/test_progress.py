from __future__ import annotations

import io
import json

import pytest

from hotset.cli.options import Show
from hotset.cli.progress import (
    LINE_EVERY,
    Status,
    _Bar,
    _Documents,
    _Lines,
    _Silent,
    checking,
    listing,
    loading,
    reporter,
)
from hotset.fill.progress import FillStats, Progress


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_load_says_objects_bytes_rates_time_left_and_errors():
    progress = Progress(1500, 4000, 30 * 2**20, 130 * 2**20, 3, 2100.0, 50.0 * 2**20)
    status = loading(progress, FillStats(retried=12))
    assert status.text == (
        "1,500 of 4,000 objects, 30.0 MiB of 130.0 MiB, 2,100 objects/s, 50.0 MiB/s, 2.0 s left, 12 retried, 3 failed"
    )
    assert status.share == pytest.approx(30 / 130)


def test_before_the_first_object_there_is_no_rate_and_no_end_in_sight():
    assert loading(Progress(0, 1, 0, 10), FillStats()).text == "0 of 1 object, 0 B of 10 B"


def test_what_a_program_reads_is_json():
    status = loading(Progress(1, 2, 10, 20, 0, 1.0, 10.0), FillStats())
    assert json.loads(json.dumps(status.facts))["seconds_left"] == 1.0


def test_nobody_knows_how_long_a_listing_will_be():
    assert listing(0) == Status("listing", "asking the source", None, {"objects": 0})
    assert listing(1200).text == "1,200 objects"


def test_an_empty_dataset_is_checked_at_once():
    assert checking("checking", 0, 0).share == 1.0


def test_a_log_gets_a_line_a_phase_and_then_one_every_few_seconds():
    stream, clock = io.StringIO(), Clock()
    lines = _Lines(stream, clock)
    for moment, status in [
        (0.0, Status("listing", "1 object")),
        (0.1, Status("listing", "2 objects")),
        (0.2, Status("loading", "a", 0.25)),
        (LINE_EVERY, Status("loading", "b", 0.5)),
        (LINE_EVERY + 0.3, Status("loading", "c", 0.75)),
    ]:
        clock.now = 100.0 + moment
        lines.show(status)
    assert stream.getvalue().splitlines() == ["listing: 1 object", "loading: 25 %, a", "loading: 75 %, c"]


def test_a_program_gets_a_document_a_line():
    stream, clock = io.StringIO(), Clock()
    documents = _Documents(stream, clock)
    documents.show(Status("loading", "", 0.5, {"bytes": 1}))
    documents.show(Status("loading", "", 0.5, {"bytes": 2}))
    clock.now += 1
    documents.show(Status("loading", "", 0.5, {"bytes": 3}))
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"phase": "loading", "bytes": 1},
        {"phase": "loading", "bytes": 3},
    ]


def test_a_bar_is_gone_in_the_end_and_what_was_said_stays():
    stream = io.StringIO()
    bar = _Bar(stream)
    bar.show(Status("listing", "2 objects"))
    bar.show(Status("loading", "half of it", 0.5))
    bar.say("kept")
    bar.close()
    bar.close()
    assert "kept" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()


@pytest.mark.parametrize(
    ("show", "as_json", "kind"),
    [
        (Show.auto, False, _Lines),  # the tests' standard error is no terminal
        (Show.auto, True, _Silent),
        (Show.lines, True, _Lines),
        (Show.json, False, _Documents),
        (Show.none, False, _Silent),
    ],
)
def test_how_progress_is_shown(show, as_json, kind):
    assert isinstance(reporter(show, as_json=as_json), kind)
