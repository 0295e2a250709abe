"""The shape of the code base, as far as a machine can watch over it (the layers: `make check`)."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hotset

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hotset"
LONGEST = 400

MODULES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES + sorted((ROOT / "bench").rglob("*.py")), ids=name_of)
def test_a_module_can_be_read_in_one_sitting(path):
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= LONGEST, f"{lines} lines: which of its purposes can move out?"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "no docstring"


@pytest.mark.parametrize("path", [path for path in MODULES if SOURCE / "config" not in path.parents], ids=name_of)
def test_only_config_reads_the_environment(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    readers = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    found = [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in readers and ast.unparse(node.value) == "os")
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and readers & {name.name for name in node.names})
    ]
    assert not found, f"lines {found}: take an `env: Mapping[str, str]` instead"


def test_importing_hotset_is_light():
    heavy = {"numpy", "pyarrow", "obstore", "torch", "typer", "rich", "fsspec", "multiprocessing", "asyncio"}
    program = "import sys, hotset; print(*sorted(name for name in sys.modules if '.' not in name))"
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV")}  # it brings modules along
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "hotset" in loaded
    assert not loaded & heavy


def test_every_public_name_exists_and_is_documented():
    assert hotset.__all__
    undocumented = [name for name in hotset.__all__ if not name.startswith("__") and not getattr(hotset, name).__doc__]
    assert not undocumented


#: Libraries that crash when they meet another one in one process.
APART = ("hotset.tensorflow", "hotset.paddle")


def test_every_module_can_be_imported():
    """Extras aside: the test environment has all of them."""
    names = [name for name in module_names() if not name.startswith(APART)]
    for name in names:
        importlib.import_module(name)
    assert {"hotset.errors", "hotset.source.base"} <= set(names)


@pytest.mark.parametrize("package", APART)
def test_every_module_of_a_framework_can_be_imported(package):
    names = [name for name in module_names() if name.startswith(package)]
    assert package in names
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", program, *names], check=True, capture_output=True)


def module_names() -> list[str]:
    names = (".".join(("hotset", *path.relative_to(SOURCE).with_suffix("").parts)) for path in MODULES)
    return [name.removesuffix(".__init__") for name in names]
