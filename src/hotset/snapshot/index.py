"""The index of a snapshot: two memory-mapped Arrow files, one row an object and one row a pack, and their checksums.

Readers touch only the columns they need, through plain memoryviews of the mapped file (30 ns a look-up, no copy), and
all processes of a machine share the pages. Keys are sorted, so a key is found by bisection in a few microseconds without
a hash table; that saves 12 bytes an object in every cache. Arrow is used in this file only, and imported when an index is
written or mapped: it takes as long as the first pages of a listing.
"""

from __future__ import annotations

import importlib
import json
import threading
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from hotset.errors import Corrupt, NotFound
from hotset.snapshot.fingerprint import decode
from hotset.snapshot.listing import Listing
from hotset.snapshot.plan import Plan
from hotset.source.base import Fingerprint, ObjectInfo

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Pack", "Snapshot", "prepare", "write_index"]

OBJECTS, PACKS, SUMS = "objects.arrow", "packs.arrow", "sums.json"
_REMEDY = "`hotset reload` writes the current one anew, `hotset gc` removes an older one"
_FORMAT = b"1"
#: One key of so many is kept in memory for look-ups: half of the steps of a bisection cost a tenth then.
_SAMPLED = 512


class Pack(NamedTuple):
    """One pack of the plan: the objects ``[first, first + objects)`` and the units they are fetched in."""

    name: bytes
    first: int
    objects: int
    size: int  #: bytes of data
    units: int
    stripe: int  #: length of each unit but the last; 0 if units are objects


def prepare() -> None:
    """Import what `write_index` needs while something else is waited for."""
    threading.Thread(target=importlib.import_module, args=("pyarrow",), name="hotset-import", daemon=True).start()


def write_index(directory: Path, listing: Listing, plan: Plan) -> None:
    """Write its files into ``directory``, which the caller publishes (nothing here is atomic)."""
    import pyarrow as pa

    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(listing.sizes, dtype=np.int64)))
    starts = plan.first[:-1]
    members = np.diff(plan.first)
    sizes = ends[plan.first[1:]] - ends[starts]
    striped = sizes + members * plan.parameters.overhead > plan.parameters.limit
    units = np.where(striped, -(-sizes // plan.parameters.stripe), members)
    packs = np.repeat(np.arange(plan.packs, dtype=np.uint32), members)
    offsets = ends[:-1] - np.repeat(ends[starts], members)
    objects = pa.record_batch(
        {
            "key": _binary(listing.keys, listing.key_offsets),
            "pack": pa.array(packs),
            "offset": pa.array(offsets.astype(np.uint32)),
            "size": pa.array(listing.sizes),
            "kind": pa.array(listing.kinds),
            "fingerprint": _binary(listing.fingerprints, listing.fingerprint_offsets),
            "modified_ns": pa.array(listing.modified_ns),
        }
    )
    table = pa.record_batch(
        {
            "name": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(32), plan.packs, [None, pa.py_buffer(b"".join(plan.names))]
            ),
            "first": pa.array(starts.astype(np.uint64)),
            "size": pa.array(sizes.astype(np.uint64)),
            "units": pa.array(units.astype(np.uint32)),
            "stripe": pa.array(np.where(striped, plan.parameters.stripe, 0).astype(np.uint32)),
        }
    )
    about = {
        b"hotset.format": _FORMAT,
        b"hotset.digest": plan.digest.encode(),
        b"hotset.bytes": str(int(ends[-1])).encode(),
    }
    for name, batch in ((OBJECTS, objects), (PACKS, table)):
        batch = batch.replace_schema_metadata(about)
        with pa.OSFile(str(directory / name), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
    (directory / SUMS).write_text(json.dumps({name: _sum_of(directory / name) for name in (OBJECTS, PACKS)}))


class Snapshot:
    """An index, mapped. Immutable; cheap to open; may be used from any number of threads and forked processes.

    Positions are the places of objects in key order, 0 to ``len(self) - 1``.
    """

    def __init__(self, directory: Path) -> None:
        """Map the index in ``directory``. `NotFound` if there is none, `Corrupt` if it is not a whole index."""
        sums = _sums(directory / SUMS)
        about, objects = _map(directory / OBJECTS, sums)
        _, packs = _map(directory / PACKS, sums)
        self.digest = about[b"hotset.digest"].decode()
        self.total_bytes = int(about[b"hotset.bytes"])
        self._count = int(objects.num_rows)
        self._batch = objects  # keeps the map alive
        self._sample: list[bytes] | None = None  # made at the first look-up by key
        self._keys, self._key_offsets = _binary_views(objects.column("key"))
        self._prints, self._print_offsets = _binary_views(objects.column("fingerprint"))
        #: Columns for the read path, indexed by position; see `locate` for their meaning.
        self.packs = _view(objects.column("pack"), "I")
        self.offsets = _view(objects.column("offset"), "I")
        self.sizes = _view(objects.column("size"), "Q")
        self._kinds = _view(objects.column("kind"), "B")
        self._modified = _view(objects.column("modified_ns"), "q")
        self._pack_count = int(packs.num_rows)
        self._names = memoryview(packs.column("name").buffers()[1] or b"")
        self.pack_first = _view(packs.column("first"), "Q")
        self.pack_sizes = _view(packs.column("size"), "Q")
        self.pack_units = _view(packs.column("units"), "I")
        self._stripes = _view(packs.column("stripe"), "I")

    def __len__(self) -> int:
        return self._count

    @property
    def pack_count(self) -> int:
        return self._pack_count

    def pack(self, number: int) -> Pack:
        first = self.pack_first[number]
        after = self.pack_first[number + 1] if number + 1 < self.pack_count else self._count
        return Pack(
            self.pack_name(number),
            first,
            after - first,
            self.pack_sizes[number],
            self.pack_units[number],
            self._stripes[number],
        )

    def pack_name(self, number: int) -> bytes:
        return self._names[number * 32 : number * 32 + 32].tobytes()

    def pack_names(self) -> list[bytes]:
        return [self.pack_name(number) for number in range(self.pack_count)]

    def key(self, position: int) -> str:
        return self.key_bytes(position).decode()

    def key_bytes(self, position: int) -> bytes:
        return bytes(self._keys[self._key_offsets[position] : self._key_offsets[position + 1]])

    def keys(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        for position in range(start, self._count if stop is None else stop):
            yield self.key(position)

    def find(self, key: str) -> int:
        """The position of ``key``; `NotFound` if the snapshot has no such object."""
        wanted = key.encode()
        position = self._bisect(wanted)
        if position < self._count and self.key_bytes(position) == wanted:
            return position
        raise NotFound(f"no object {key!r} in this snapshot of {self._count} objects")

    def prefix(self, prefix: str) -> range:
        """The positions of all keys that begin with ``prefix``: neighbours, since keys are sorted."""
        low = prefix.encode()
        high = low.rstrip(b"\xff")
        end = self._bisect(high[:-1] + bytes([high[-1] + 1])) if high else self._count
        return range(self._bisect(low), end)

    def _bisect(self, wanted: bytes) -> int:
        """The first position whose key is not less than ``wanted``: in a sample of keys first, then between two of them."""
        if self._sample is None:
            self._sample = [self.key_bytes(position) for position in range(0, self._count, _SAMPLED)]
        block = bisect_left(self._sample, wanted)
        low, high = max(0, (block - 1) * _SAMPLED), min(self._count, block * _SAMPLED)
        keys, offsets = self._keys, self._key_offsets
        return bisect_left(
            range(self._count), wanted, low, high, key=lambda i: keys[offsets[i] : offsets[i + 1]].tobytes()
        )

    def locate(self, position: int) -> tuple[int, int, int]:
        """(pack, offset in the pack's data, size)."""
        return self.packs[position], self.offsets[position], self.sizes[position]

    def stored_fingerprint(self, position: int) -> tuple[int, bytes]:
        """Code and bytes as stored: equal exactly if this is the same version and known to be settled."""
        low, high = self._print_offsets[position], self._print_offsets[position + 1]
        return self._kinds[position], bytes(self._prints[low:high])

    def fingerprint(self, position: int) -> Fingerprint:
        return decode(*self.stored_fingerprint(position))

    def modified_ns(self, position: int) -> int:
        return self._modified[position]

    def info(self, position: int) -> ObjectInfo:
        """The object as its source listed it."""
        version = self.fingerprint(position)
        return ObjectInfo(
            self.key(position), self.sizes[position], version.kind, version.value, self._modified[position]
        )

    def unit_range(self, number: int, unit: int) -> tuple[int, int, int]:
        """(position of the object, start, end): which bytes of which object are unit ``unit`` of pack ``number``."""
        stripe = self._stripes[number]
        position = self.pack_first[number] + (0 if stripe else unit)
        size = self.sizes[position]
        if not stripe:
            return position, 0, size
        return position, unit * stripe, min((unit + 1) * stripe, size)

    def unit_offset(self, number: int, unit: int) -> int:
        """Where unit ``unit`` begins in the data of pack ``number``."""
        stripe = self._stripes[number]
        return unit * stripe if stripe else self.offsets[self.pack_first[number] + unit]

    def units_of(self, position: int, start: int = 0, end: int | None = None) -> tuple[int, range]:
        """(pack, units) that hold the bytes ``[start, end)`` of an object."""
        number = self.packs[position]
        stripe = self._stripes[number]
        if not stripe:
            unit = position - self.pack_first[number]
            return number, range(unit, unit + 1)
        end = self.sizes[position] if end is None else end
        return number, range(start // stripe, max(start // stripe, -(-end // stripe)))

    def size_array(self) -> npt.NDArray[np.uint64]:
        return np.frombuffer(self.sizes, dtype=np.uint64)


def _binary(blob: bytes, offsets: npt.NDArray[np.int64]) -> pa.Array:
    """A binary column from its parts; 64-bit offsets only where 32 bits do not reach."""
    import pyarrow as pa

    wide = len(blob) >= 2**31
    column = offsets if wide else offsets.astype(np.int32)
    kind = pa.large_binary() if wide else pa.binary()
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(column.tobytes()), pa.py_buffer(blob)])


def _sum_of(path: Path) -> int:
    """Read, not mapped: a disk that fails is then an error and not a signal, and no page stays mapped for it."""
    total = 0
    buffer = memoryview(bytearray(2**20))
    with path.open("rb", buffering=0) as file:
        while length := file.readinto(buffer):
            total = crc32c(buffer[:length], total)
    return total


def _sums(path: Path) -> dict[str, int]:
    try:
        return dict(json.loads(path.read_bytes()))
    except FileNotFoundError as error:
        raise NotFound(f"there is no index at {path.parent}") from error
    except (ValueError, TypeError) as error:
        raise Corrupt(f"the index in {path.parent} is damaged ({path.name}); {_REMEDY}") from error


def _map(path: Path, sums: dict[str, int]) -> tuple[dict[bytes, bytes], pa.RecordBatch]:
    import pyarrow as pa

    try:
        if _sum_of(path) != sums.get(path.name):
            raise Corrupt(f"the index {path} is damaged: its checksum is wrong; {_REMEDY}")
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        about = reader.schema.metadata or {}
        if about.get(b"hotset.format") != _FORMAT:
            raise Corrupt(
                f"{path} has format {about.get(b'hotset.format')!r}; this version of hotset reads {_FORMAT!r}"
            )
        return about, reader.get_batch(0)
    except FileNotFoundError as error:
        raise NotFound(f"there is no index at {path}") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise Corrupt(f"the index {path} cannot be read ({error}); {_REMEDY}") from error


_Code = Literal["B", "I", "Q", "i", "q"]


def _view(column: pa.Array, code: _Code) -> memoryview:
    buffer = column.buffers()[1]
    if buffer is None:
        return memoryview(b"").cast(code)
    view = memoryview(buffer).cast("B").cast(code)
    return view[column.offset : column.offset + len(column)]


def _binary_views(column: pa.Array) -> tuple[memoryview, memoryview]:
    import pyarrow as pa

    _, offsets, data = column.buffers()
    code: _Code = "q" if pa.types.is_large_binary(column.type) else "i"
    return memoryview(data or b""), memoryview(offsets or bytes(8)).cast("B").cast(code)
