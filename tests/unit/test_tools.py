"""How the tests get their servers (tests/support/tools.py), with a `go` that only pretends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import tools

PRETENDING = """#!/bin/sh
echo "$@" >> "{log}"
[ -e "{broken}" ] && {{ echo "module not found" >&2; exit 1; }}
printf '#!/bin/sh\\n' > "$GOBIN/versitygw"
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with an empty cache and with a `go`; its calls are the lines of ``calls``."""
    path = tmp_path / "bin"
    path.mkdir()
    go = path / "go"
    go.write_text(PRETENDING.format(log=tmp_path / "calls", broken=tmp_path / "broken"), encoding="utf-8")
    go.chmod(0o755)
    monkeypatch.setattr(tools, "_CACHE", tmp_path / "tools")
    monkeypatch.setattr(tools, "_ENV", {"PATH": f"{path}:/usr/bin:/bin"})
    return tmp_path


def test_builds_the_fixed_version_once(machine, capfd):
    with ThreadPoolExecutor(4) as threads:
        programs = set(threads.map(tools.tool, ["versitygw"] * 8))
    assert programs == {machine / "tools" / "versitygw-v1.8.0" / "versitygw"}
    assert (machine / "calls").read_text() == "install github.com/versity/versitygw/cmd/versitygw@v1.8.0\n"
    assert capfd.readouterr().err.count("building versitygw v1.8.0 (once)") == 1


def test_a_failed_build_leaves_nothing_and_says_why(machine):
    (machine / "broken").touch()
    with pytest.raises(tools.ToolMissingError, match="module not found"):
        tools.tool("versitygw")
    assert [path.name for path in (machine / "tools").iterdir()] == ["versitygw.lock"]
    (machine / "broken").unlink()
    assert tools.tool("versitygw").exists()


@pytest.mark.parametrize(("ci", "outcome"), [(False, pytest.skip.Exception), (True, pytest.fail.Exception)])
def test_without_go_a_test_skips_and_ci_fails(machine, monkeypatch, ci, outcome):
    monkeypatch.setattr(tools, "_ENV", {"PATH": str(machine)})
    monkeypatch.setattr(tools, "CI", ci)
    with pytest.raises(outcome, match="no `go` on the PATH"):
        tools.require("versitygw")


def test_building_all_minds_a_missing_go_in_ci_only(machine, monkeypatch, capsys):
    monkeypatch.setattr(tools, "_ENV", {"PATH": str(machine)})
    monkeypatch.setattr(tools, "CI", False)
    assert tools.main() == 0
    monkeypatch.setattr(tools, "CI", True)
    assert tools.main() == 1
    assert "toxiproxy-server" in capsys.readouterr().err
