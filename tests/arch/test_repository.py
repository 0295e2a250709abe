"""The repository stands alone: whoever clones it needs nothing of the machine that it was written on."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from hotset.config.settings import VARIABLES

ROOT = Path(__file__).parents[2]
HERE = Path(__file__)


def tracked_files() -> list[Path]:
    # The owner of a checkout in a container is often somebody else.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in listed.split("\0") if name]


@pytest.mark.parametrize(
    "private",
    [r"\.\./shared", r"(?<![\w.])/work/", r"/root/", r"/tmp/(t|venv-)"],
    ids=["shared", "work", "root", "venv"],
)
def test_no_file_names_a_private_place(private):
    found = []
    for path in tracked_files():
        if path == HERE or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found += [
            f"{path.relative_to(ROOT)}:{number}"
            for number, line in enumerate(text.splitlines(), 1)
            if re.search(private, line)
        ]
    assert not found


def test_the_lock_names_one_public_index():
    """A lock made behind a mirror would name the mirror, and work nowhere else."""
    locked = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    indexes = {package["source"]["registry"] for package in locked if package["name"] != "hotset"}
    files = {package["sdist"]["url"] for package in locked if "sdist" in package}
    files |= {wheel["url"] for package in locked for wheel in package.get("wheels", ())}
    hosts = {url.split("/")[2] for url in files}
    assert len(indexes) == len(hosts) == 1
    assert all(re.fullmatch(r"https://[a-z]+\.org/simple", index) for index in indexes)
    assert all(re.fullmatch(r"files\.[a-z]+\.org", host) for host in hosts)


def test_every_variable_is_documented():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    table = page.partition("## Environment variables")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(HOTSET_\w+)`", table, re.MULTILINE) == list(VARIABLES)


def test_every_layer_is_documented():
    """In both places that draw them; optional ones aside."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    words = [word for layer in layers for word in re.findall(r"[a-z]+", re.sub(r"\(\w+\)", "", layer))]
    for page, heading in (("CONTRIBUTING.md", "## Where things go"), ("docs/design.md", "## Layers")):
        text = (ROOT / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
        assert not [word for word in words if not re.search(rf"\b{word}\b", text)], page


def test_what_to_run_for_what_exists():
    """A directory or file that is named is one that there is."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## What to run for what")[2]
    named = set(re.findall(r"tests/[\w./]+", text.partition("\n## ")[0]))
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_coverage_has_a_floor():
    report = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["coverage"]["report"]
    assert report["fail_under"] >= 90


def test_the_makefile_documents_its_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
    documented = set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))
    assert documented == phony
