"""``python -m hotset.alnair``: the directory to put on PYTHONPATH for scripts that were written for Alnair."""

from __future__ import annotations

import sys
from pathlib import Path

sys.stdout.write(f"{Path(__file__).parent / 'compat'}\n")
