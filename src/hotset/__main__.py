"""`python -m hotset` is `hotset`."""

from __future__ import annotations

import sys

from hotset.cli import main

if __name__ == "__main__":
    sys.exit(main())
