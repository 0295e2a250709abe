"""Read-only memory maps that keep no descriptor.

Python's `mmap` holds a duplicate descriptor for each map, and a dataset has thousands of packs. These maps are made with
mmap(2) directly, cost no descriptor, and live exactly as long as some view of them does: each slice holds the map.
"""

from __future__ import annotations

import ctypes
import errno
import os
import weakref

__all__ = ["map_readonly", "populate"]

_PROT_READ = 1
_MAP_SHARED = 1
_FAILED = ctypes.c_void_p(-1).value
_MADV_POPULATE_READ = 22

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class _Span(ctypes.Structure):
    """An iovec."""

    _fields_ = (("address", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.process_vm_readv.argtypes = [
    ctypes.c_int,
    ctypes.POINTER(_Span),
    ctypes.c_ulong,
    ctypes.POINTER(_Span),
    ctypes.c_ulong,
    ctypes.c_ulong,
]
#: As many spans as one call takes (IOV_MAX).
_SPANS = 1024


def map_readonly(fd: int, length: int, offset: int = 0) -> memoryview:
    """The bytes ``[offset, offset + length)`` of a file as a read-only view; ``offset`` is a multiple of the page size.

    The map is undone when the last slice of the view is gone. The caller may close ``fd`` at once.
    """
    if length == 0:
        return memoryview(b"")
    address = _libc.mmap(None, length, _PROT_READ, _MAP_SHARED, fd, offset)
    if address == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"mmap of {length} bytes: {os.strerror(code)}")
    owner = (ctypes.c_ubyte * length).from_address(address)
    finalizer = weakref.finalize(owner, _libc.munmap, address, length)
    finalizer.atexit = False  # the kernel does it, and another exit handler may still read
    return memoryview(owner).cast("B").toreadonly()


def populate(view: memoryview) -> None:
    """Read the pages under ``view`` in now, so that a failing disk is an OSError here and not a SIGBUS later."""
    if view.nbytes == 0:
        return
    address = _address_of(view)
    page = os.sysconf("SC_PAGESIZE")
    start = address - address % page
    code = 0
    if _libc.madvise(start, address + view.nbytes - start, _MADV_POPULATE_READ) != 0:
        code = ctypes.get_errno()
        if code == errno.EINVAL:  # a kernel before 5.14
            code = _look_at_pages(range(start, address + view.nbytes, page))
    if code:
        raise OSError(code, f"reading {view.nbytes} bytes ahead: {os.strerror(code)}")


def _look_at_pages(pages: range) -> int:
    """Let the kernel copy a byte of each page from this process to this process: where reading it ourselves would be a
    signal, its copy ends with an error number.
    """
    seen = ctypes.create_string_buffer(_SPANS)
    for first in range(0, len(pages), _SPANS):
        some = pages[first : first + _SPANS]
        there = (_Span * len(some))(*(_Span(page, 1) for page in some))
        here = _Span(ctypes.addressof(seen), len(some))
        copied = _libc.process_vm_readv(os.getpid(), ctypes.byref(here), 1, there, len(some), 0)
        if copied < 0 and (code := ctypes.get_errno()) != errno.EFAULT:
            return 0 if code in (errno.EPERM, errno.ENOSYS) else code  # forbidden in this container: nobody can look
        if copied < len(some):
            return errno.EIO
    return 0


def _address_of(view: memoryview) -> int:
    """Where a read-only view lies. ctypes refuses read-only buffers, so ask the buffer protocol itself."""
    buffer = (ctypes.c_char * 256)()  # a Py_buffer is 80 bytes; its first word is the address
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), buffer, 0)
    try:
        return int.from_bytes(buffer.raw[:8], "little")
    finally:
        ctypes.pythonapi.PyBuffer_Release(buffer)
