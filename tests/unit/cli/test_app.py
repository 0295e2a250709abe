"""The frame around all commands: help, usage errors, defects, what is imported when."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hotset import __version__
from hotset.cli import app, ls
from hotset.cli.app import COMMANDS, run

NAMES = [module.__name__.rpartition(".")[2] for module in COMMANDS]


@pytest.fixture
def hotset(capsys):
    def call(*arguments):
        code = run(arguments)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


@pytest.mark.parametrize("name", NAMES)
def test_every_help_has_an_example_and_says_json(hotset, name):
    code, out, err = hotset(name, "--help")
    assert (code, err) == (0, "")
    examples = out.partition("Examples:")[2]
    assert f"hotset {name}" in examples
    assert "--json" in out
    assert "--debug" in out


def test_the_overview_names_every_command_with_a_whole_sentence(hotset):
    code, out, _ = hotset("--help")
    assert code == 0
    commands = out.partition("Commands:")[2].partition("Examples:")[0]
    told = dict(line.split(None, 1) for line in commands.strip().splitlines())
    assert list(told) == NAMES
    assert all(sentence.endswith(".") and not sentence.endswith("...") for sentence in told.values())


def test_without_a_command_there_is_the_overview(hotset):
    code, out, _ = hotset()
    assert code == 0
    assert "Commands:" in out


def test_version(hotset):
    assert hotset("--version") == (0, f"hotset {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lod"], "'lod'"),
        (["load", "--frobnicate"], "--frobnicate"),
        (["show"], "name"),
        (["load", "x", "--layout", "tar"], "tar"),
        (["demo", "--images", "many"], "--images"),
        (["demo", "--images", "3"], "256"),
    ],
)
def test_a_wrong_use_is_one_line_and_names_the_help(hotset, arguments, said):
    code, out, err = hotset(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert said in err
    assert "--help`" in err


@pytest.mark.parametrize(
    "arguments", [["load", "--json", "--bogus"], ["load", "--bogus", "--json"], ["--json", "lod"], ["show", "--json"]]
)
def test_a_wrong_use_is_a_document_for_programs(hotset, arguments):
    code, out, err = hotset(*arguments)
    error = json.loads(out)["error"]
    assert (code, error["kind"]) == (2, "InvalidInput")
    assert err == f"error: {error['message']}\n"
    assert "--help`" in error["message"]


def test_a_wrong_use_shows_where_it_was_noticed_on_demand(hotset):
    code, out, err = hotset("load", "--bogus", "--debug")
    assert (code, out) == (2, "")
    assert "Traceback" in err
    assert "error: " in err


def test_a_defect_is_a_sentence_and_a_traceback_only_on_demand(hotset, monkeypatch):
    def broken() -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(ls, "existing_cache", broken)
    code, out, err = hotset("ls")
    assert (code, out) == (1, "")
    assert err == "error: ZeroDivisionError: by zero (this was not foreseen; --debug shows where it comes from)\n"
    code, _, err = hotset("ls", "--debug")
    assert code == 1
    assert "Traceback" in err


def test_an_error_is_a_document_for_programs(hotset):
    code, out, err = hotset("show", "nothing", "--json")
    assert code == 1
    assert json.loads(out)["error"]["kind"] == "NotFound"
    assert "'nothing'" in json.loads(out)["error"]["message"]
    assert err.startswith("error: ")


def test_ctrl_c_is_130(hotset, monkeypatch):
    def stopped() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ls, "existing_cache", stopped)
    monkeypatch.setattr(app.threading, "active_count", lambda: 1)  # a thread of another test must not end us
    assert hotset("ls") == (130, "", "error: interrupted\n")


def test_help_imports_nothing_heavy():
    heavy = {"numpy", "pyarrow", "obstore", "rich", "xxhash", "crc32c", "matplotlib", "PIL", "asyncio"}
    program = "import sys; from hotset.cli.app import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
    assert not heavy & set(done.stderr.split())


def test_the_shell_completes_commands_and_names(tmp_path):
    (tmp_path / "cache" / "names").mkdir(parents=True)
    (tmp_path / "cache" / "names" / "train").touch()

    def complete(line):
        env = os.environ | {
            "_HOTSET_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split())),
        }
        return subprocess.run(
            [sys.executable, "-m", "hotset"], env=env, capture_output=True, text=True, check=True
        ).stdout

    assert {"show", "snapshots"} <= set(complete("hotset ").split())
    assert complete("hotset show ").split() == ["train"]
