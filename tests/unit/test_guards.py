"""The guards of the test suite itself (tests/conftest.py): each one trips when it should, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path):
    """Run a test module of its own under the guards; returns pytest's exit code and output."""

    def run(text: str, **env: str) -> tuple[int, str]:
        (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        module = tmp_path / "test_inner.py"
        module.write_text(f"import os, threading, pytest\n{text}", encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(module)]
        inherited = {name: value for name, value in os.environ.items() if name != "CI"}
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=inherited | {"PYTHONPATH": str(ROOT)} | env,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return run


SKIPPING = {
    "in the test": "def test_x(): pytest.skip('no such server')",
    "by a mark": "@pytest.mark.skip(reason='no such server')\ndef test_x(): pass",
    "whole module": "pytest.skip('no such server', allow_module_level=True)",
}


@pytest.mark.parametrize("text", SKIPPING.values(), ids=SKIPPING.keys())
def test_a_skip_is_a_failure_in_ci(run, text):
    code, output = run(text, CI="true")
    assert code != 0
    assert "skipped in CI, where nothing may be missing: no such server" in output


def test_a_skip_is_a_skip_elsewhere(run):
    code, output = run(SKIPPING["in the test"])
    assert code == 0
    assert "1 skipped" in output


def test_a_skip_for_the_platform_is_accepted_in_ci(run):
    code, output = run("def test_x(): pytest.skip('platform: needs two NUMA nodes')", CI="true")
    assert code == 0
    assert "1 skipped" in output


def test_an_expected_failure_is_no_skip(run):
    code, _ = run("@pytest.mark.xfail\ndef test_x(): assert False", CI="true")
    assert code == 0


LEAKING = """
import subprocess
kept = [threading.Event()]
def test_leak(no_leaks):
    kept.append(open(__file__))
    kept.append(subprocess.Popen(["sleep", "60"]))
    threading.Thread(target=kept[0].wait, name="waiter").start()
def test_end():
    kept[0].set()
    kept[2].kill()
    kept[2].wait()
"""


def test_what_is_left_behind_is_named(run, tmp_path):
    code, output = run(LEAKING)
    assert code != 0
    assert f"left behind: 1 x descriptor {tmp_path}/test_inner.py, 1 x process " in output
    assert ", 1 x thread waiter" in output


def test_tidy_tests_pass(run):
    code, _ = run(
        "def test_x(no_leaks):\n"
        "    thread = threading.Thread(target=print)\n    thread.start()\n    thread.join()\n    open(__file__).close()"
    )
    assert code == 0


def test_the_environment_of_the_person_stays_outside(run, tmp_path):
    code, output = run(
        "def test_x(tmp_path):\n"
        "    assert not [name for name in os.environ if 'SECRET' in name or name == 'https_proxy']\n"
        "    assert os.environ['HOTSET_CACHE'] == str(tmp_path / 'cache')\n"
        "    assert os.path.expanduser('~') == str(tmp_path / 'home')\n"
        "    assert len(os.environ['XDG_RUNTIME_DIR']) < 60\n",
        AWS_SECRET_ACCESS_KEY="leaked",
        HOTSET_SECRET="leaked",
        https_proxy="http://127.0.0.1:1",
        HOTSET_CACHE="/elsewhere",
    )
    assert code == 0, output
