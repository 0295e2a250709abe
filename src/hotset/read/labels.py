"""The class of a sample is the directory that it lies in, as torchvision's ImageFolder and Keras have it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotset.read.keys import Keys

__all__ = ["Classes", "classes_of"]


@dataclass(frozen=True)
class Classes:
    """``names`` of the classes, sorted; ``indices``: of the class of each object, -1 where it has none."""

    names: tuple[str, ...]
    indices: npt.NDArray[np.int64]

    @property
    def members(self) -> npt.NDArray[np.int64]:
        """The positions of the objects that have a class: the samples. Others (a list of files at the root) are none."""
        return np.flatnonzero(self.indices >= 0)


def classes_of(keys: Keys, root: str = "") -> Classes:
    """The directories right below ``root`` are the classes; an object may lie in one of them at any depth.

    The same names and indices as torchvision's ImageFolder gives the same tree. Costs a look-up a directory, not one an
    object: neighbours in key order share it.
    """
    root = f"{root.strip('/')}/" if root.strip("/") else ""
    inside = keys.prefix(root)
    runs: list[tuple[str, int, int]] = []
    place = inside.start
    while place < inside.stop:
        name, slash, _ = keys[place][len(root) :].partition("/")
        after = place + 1
        if slash and name:
            directory = f"{root}{name}/"
            if after < inside.stop and keys[after].startswith(directory):  # else a directory of one: no search
                after = keys.prefix(directory).stop
            runs.append((name, place, after))
        place = after
    names = tuple(sorted(name for name, _, _ in runs))  # not the order of the keys: "a-b/x" comes before "a/x"
    number = {name: index for index, name in enumerate(names)}
    indices = np.full(len(keys), -1, np.int64)
    for name, first, end in runs:
        indices[first:end] = number[name]
    return Classes(names, indices)
