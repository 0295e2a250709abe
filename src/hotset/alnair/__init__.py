"""Alnair's dataset API over hotset: scripts written for Alnair run as they are, on a cluster or on a laptop.

    from hotset.alnair import AlnairJobDataLoader, AlnairJobDataset

Scripts that import ``lib.AlnairJobDataset``, ``AlnairJobDataset`` or ``AlnairJob`` find them in a directory to put on
PYTHONPATH, which ``python -m hotset.alnair`` prints. Needs ``pip install hotset[torch]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotset.alnair.dataset import AlnairJobDataset
    from hotset.alnair.dots import dotdict
    from hotset.alnair.loader import AlnairJobDataLoader

__all__ = ["AlnairJobDataLoader", "AlnairJobDataset", "dotdict"]

_LAZY = {
    "AlnairJobDataLoader": "hotset.alnair.loader",
    "AlnairJobDataset": "hotset.alnair.dataset",
    "dotdict": "hotset.alnair.dots",
}


def __getattr__(name: str) -> Any:
    # Printing the path must not cost the import of torch.
    if name in _LAZY:
        from importlib import import_module

        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] == "torch":
                raise ModuleNotFoundError(f"{name} needs torch: pip install 'hotset[torch]'", name="torch") from error
            raise
    raise AttributeError(f"module 'hotset.alnair' has no attribute {name!r}")
