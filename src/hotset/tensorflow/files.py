"""For scripts that read files: the dataset as a directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hotset
from hotset.errors import InvalidInput
from hotset.loaders.samples import SourceArgument

__all__ = ["files"]

_shown: dict[Path, hotset.Dataset] = {}


def files(source: SourceArgument, path: str | os.PathLike[str], name: str | None = None, **opening: Any) -> Path:
    """Show the dataset at ``path`` as a directory of plain files, complete and read-only, for `tf.io.gfile`,
    `tf.keras.utils.image_dataset_from_directory` and the like. Returns the path when all is there.

        train = tf.keras.utils.image_dataset_from_directory(files("s3://bucket/train", "data/train"))

    ``source``, ``name`` and ``opening`` as in `hotset.open`; the layout is "files". What is opened here stays open, so that
    nothing is evicted under the reader, until the process ends or the path shows something else.
    """
    if isinstance(source, hotset.Dataset):
        if name or opening:
            raise InvalidInput("the dataset is open already: say how when it is opened")
        return source.view(path)
    opened = hotset.open(source, name, layout="files", **opening)
    try:
        shown = opened.view(path)
    except BaseException:
        opened.close()
        raise
    earlier = _shown.pop(shown, None)
    _shown[shown] = opened
    if earlier is not None:
        earlier.close()
    return shown
