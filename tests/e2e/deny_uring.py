"""deny_uring.py ERRNO all|setup|enter|register COMMAND...: runs a command that is refused io_uring.

The kernel itself answers these system calls with the error, through a seccomp filter, as it does in
a container: EPERM for all of them is Docker's default.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

# The same numbers on every architecture (include/uapi/asm-generic/unistd.h).
CALLS = {"setup": (425, 425), "enter": (426, 426), "register": (427, 427), "all": (425, 427)}
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
# Classic BPF, as linux/bpf_common.h and linux/seccomp.h have it.
LOAD_WORD, JUMP_IF_GREATER_OR_EQUAL, JUMP_IF_GREATER, RETURN = 0x20, 0x35, 0x25, 0x06
RETURN_ERRNO, RETURN_ALLOW = 0x00050000, 0x7FFF0000


def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def deny(error: int, first: int, last: int) -> None:
    """Has the kernel answer the calls from `first` to `last` with an error, for this process."""
    program = b"".join(
        (
            instruction(LOAD_WORD, 0),  # seccomp_data.nr
            instruction(JUMP_IF_GREATER_OR_EQUAL, first, 0, 2),
            instruction(JUMP_IF_GREATER, last, 1, 0),
            instruction(RETURN, RETURN_ERRNO | error),
            instruction(RETURN, RETURN_ALLOW),
        )
    )
    code = ctypes.create_string_buffer(program, len(program))
    filter_program = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    number = ctypes.c_ulong
    for words in (
        (PR_SET_NO_NEW_PRIVS, number(1), number(0), number(0), number(0)),
        (PR_SET_SECCOMP, number(SECCOMP_MODE_FILTER), filter_program, number(0), number(0)),
    ):
        if libc.prctl(*words):
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    _, name, calls, *command = sys.argv
    deny(getattr(errno, name), *CALLS[calls])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
