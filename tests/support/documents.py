"""The code in the documentation, so that tests can run it."""

from __future__ import annotations

import re

from tests.support.processes import REPOSITORY


def python_in(page: str) -> str:
    """All Python blocks of a page, one after the other."""
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks, f"no code in {page}"
    return "\n".join(blocks)


def with_changes(code: str, changes: dict[str, str]) -> str:
    """The same with other words: a test has no bucket and no time for 90 epochs."""
    for before, after in changes.items():
        assert before in code, before
        code = code.replace(before, after)
    return code
