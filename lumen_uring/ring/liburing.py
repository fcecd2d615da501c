"""liburing through ctypes: only the calls that ask for the kernel's features.

Used by probe.py alone, on the main thread. Layouts and numbers are those of the kernel's
include/uapi/linux/io_uring.h, which never change. It submits no operation to any ring.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from ctypes import c_int, c_uint, c_uint8, c_uint16, c_uint32, c_uint64
from typing import Final

from lumen_uring.errors import LibraryError

SONAME: Final = "liburing.so.2"

# io_uring_setup flags Lumen asks for, with what each needs beside it to be accepted.
SETUP_FLAGS: Final[dict[str, tuple[int, int]]] = {
    "CQSIZE": (1 << 3, 0),
    "CLAMP": (1 << 4, 0),
    "R_DISABLED": (1 << 6, 0),
    "SUBMIT_ALL": (1 << 7, 0),
    "COOP_TASKRUN": (1 << 8, 0),
    "TASKRUN_FLAG": (1 << 9, 1 << 8),
    "SINGLE_ISSUER": (1 << 12, 0),
    "DEFER_TASKRUN": (1 << 13, 1 << 12),
}

# IORING_OP_* that Lumen submits.
OPCODES: Final[dict[str, int]] = {
    "NOP": 0,
    "POLL_ADD": 6,
    "SENDMSG": 9,
    "TIMEOUT": 11,
    "ACCEPT": 13,
    "ASYNC_CANCEL": 14,
    "CLOSE": 19,
    "READ": 22,
    "SEND": 26,
    "RECV": 27,
    "SHUTDOWN": 34,
    "MSG_RING": 40,
}

FEATURES: Final[dict[str, int]] = {
    "SINGLE_MMAP": 1 << 0,
    "NODROP": 1 << 1,
    "SUBMIT_STABLE": 1 << 2,
    "RW_CUR_POS": 1 << 3,
    "CUR_PERSONALITY": 1 << 4,
    "FAST_POLL": 1 << 5,
    "POLL_32BITS": 1 << 6,
    "SQPOLL_NONFIXED": 1 << 7,
    "EXT_ARG": 1 << 8,
    "NATIVE_WORKERS": 1 << 9,
    "RSRC_TAGS": 1 << 10,
    "CQE_SKIP": 1 << 11,
    "LINKED_FILE": 1 << 12,
    "REG_REG_RING": 1 << 13,
    "RECVSEND_BUNDLE": 1 << 14,
    "MIN_TIMEOUT": 1 << 15,
}

_OP_SUPPORTED: Final = 1
# The same on all architectures.
_SYS_IO_URING_SETUP: Final = 425
_SYS_IO_URING_ENTER: Final = 426
_RING_ENTRIES: Final = 8


class Params(ctypes.Structure):
    """struct io_uring_params; the ring offsets at its end are of no interest here."""

    _fields_ = [
        ("sq_entries", c_uint32),
        ("cq_entries", c_uint32),
        ("flags", c_uint32),
        ("sq_thread_cpu", c_uint32),
        ("sq_thread_idle", c_uint32),
        ("features", c_uint32),
        ("wq_fd", c_uint32),
        ("resv", c_uint32 * 3),
        ("offsets", c_uint8 * 80),
    ]


class _ProbeOp(ctypes.Structure):
    _fields_ = [("op", c_uint8), ("resv", c_uint8), ("flags", c_uint16), ("resv2", c_uint32)]


class _Probe(ctypes.Structure):
    _fields_ = [
        ("last_op", c_uint8),
        ("ops_len", c_uint8),
        ("resv", c_uint16),
        ("resv2", c_uint32 * 3),
        ("ops", _ProbeOp * 256),
    ]


class _BufferRegistration(ctypes.Structure):
    _fields_ = [
        ("ring_addr", c_uint64),
        ("ring_entries", c_uint32),
        ("bgid", c_uint16),
        ("flags", c_uint16),
        ("resv", c_uint64 * 3),
    ]


# struct io_uring has 216 bytes in liburing 2.3; room for what later versions may add.
_Ring = c_uint64 * 128

_FUNCTIONS: Final[tuple[tuple[str, object, tuple[object, ...]], ...]] = (
    (
        "io_uring_queue_init_params",
        c_int,
        (c_uint, ctypes.POINTER(_Ring), ctypes.POINTER(Params)),
    ),
    ("io_uring_queue_exit", None, (ctypes.POINTER(_Ring),)),
    ("io_uring_get_probe_ring", ctypes.POINTER(_Probe), (ctypes.POINTER(_Ring),)),
    ("io_uring_free_probe", None, (ctypes.POINTER(_Probe),)),
    (
        "io_uring_register_buf_ring",
        c_int,
        (ctypes.POINTER(_Ring), ctypes.POINTER(_BufferRegistration), c_uint),
    ),
    ("io_uring_unregister_buf_ring", c_int, (ctypes.POINTER(_Ring), c_int)),
)


class Liburing:
    """The loaded library.

    Args:
        name: a soname or a path.

    Raises:
        LibraryError: not installed, or older than 2.2.
    """

    def __init__(self, name: str = SONAME) -> None:
        try:
            self._library = ctypes.CDLL(name)
            for function_name, restype, argtypes in _FUNCTIONS:
                function = getattr(self._library, function_name)
                function.restype = restype
                function.argtypes = argtypes
        except OSError:
            raise LibraryError(
                f"{name} is not installed: install it (Debian: apt-get install liburing2)."
            ) from None
        except AttributeError as error:
            raise LibraryError(f"{name} is older than 2.2: {error}.") from None

    def setup(self, flags: int) -> tuple[int, int]:
        """Makes a small ring and takes it down again.

        Args:
            flags: IORING_SETUP_*.

        Returns:
            (0, feature bits), or (errno, 0).

        Source:
            man io_uring_setup(2)
        """
        ring, params, result = self._open(flags)
        if result < 0:
            return -result, 0
        self._library.io_uring_queue_exit(ctypes.byref(ring))
        return 0, int(params.features)

    def enter(self) -> int:
        """Makes a small ring and enters it with nothing to do; liburing would not make the call.

        Returns:
            0, or an errno.

        Source:
            man io_uring_enter(2)
        """
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        syscall.restype = ctypes.c_long
        params = Params()
        descriptor = syscall(
            ctypes.c_long(_SYS_IO_URING_SETUP), c_uint(_RING_ENTRIES), ctypes.byref(params)
        )
        if descriptor < 0:
            return ctypes.get_errno()
        nothing = (c_uint(0), c_uint(0), c_uint(0), ctypes.c_void_p(None), ctypes.c_size_t(0))
        result = syscall(ctypes.c_long(_SYS_IO_URING_ENTER), c_uint(descriptor), *nothing)
        number = ctypes.get_errno() if result < 0 else 0
        os.close(descriptor)
        return number

    def operations(self) -> tuple[int, frozenset[int]]:
        """Asks which operations the kernel has.

        Returns:
            The last opcode it knows and the set it supports; (-1, empty) where it cannot say.

        Source:
            man io_uring_register(2), IORING_REGISTER_PROBE
        """
        ring, _params, result = self._open(0)
        if result < 0:
            return -1, frozenset()
        try:
            probe = self._library.io_uring_get_probe_ring(ctypes.byref(ring))
            if not probe:
                return -1, frozenset()
            try:
                entries = probe.contents.ops[: probe.contents.ops_len]
                supported = frozenset(
                    int(entry.op) for entry in entries if entry.flags & _OP_SUPPORTED
                )
                return int(probe.contents.last_op), supported
            finally:
                self._library.io_uring_free_probe(probe)
        finally:
            self._library.io_uring_queue_exit(ctypes.byref(ring))

    def register_buffer_ring(self) -> int:
        """Registers a ring of provided buffers and takes it down again.

        Returns:
            0, or an errno.

        Source:
            man io_uring_register_buf_ring(3)
        """
        ring, _params, result = self._open(0)
        if result < 0:
            return -result
        try:
            with mmap.mmap(-1, mmap.PAGESIZE) as memory:
                anchor = ctypes.c_char.from_buffer(memory)
                registration = _BufferRegistration(
                    ring_addr=ctypes.addressof(anchor), ring_entries=_RING_ENTRIES, bgid=0
                )
                result = self._library.io_uring_register_buf_ring(
                    ctypes.byref(ring), ctypes.byref(registration), 0
                )
                if result == 0:
                    self._library.io_uring_unregister_buf_ring(ctypes.byref(ring), 0)
                # mmap refuses to close while an exported pointer lives.
                del anchor
            return -int(result)
        finally:
            self._library.io_uring_queue_exit(ctypes.byref(ring))

    def _open(self, flags: int) -> tuple[ctypes.Array[c_uint64], Params, int]:
        ring = _Ring()
        params = Params(flags=flags)
        if flags & SETUP_FLAGS["CQSIZE"][0]:
            params.cq_entries = 4 * _RING_ENTRIES
        result = self._library.io_uring_queue_init_params(
            _RING_ENTRIES, ctypes.byref(ring), ctypes.byref(params)
        )
        return ring, params, int(result)


def errno_name(number: int) -> str:
    """Names an errno, for example "EPERM".

    Args:
        number: positive.
    """
    return errno.errorcode.get(number, f"errno {number}")
