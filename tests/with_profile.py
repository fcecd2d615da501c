"""Runs a command under a seccomp profile, as a container runtime would apply it.

    python tests/with_profile.py PROFILE.json COMMAND...

Debian's libseccomp makes the filter from the profile. Memory that is writable cannot become
executable either, where the kernel has that switch (Linux 6.3): systemd's MemoryDenyWriteExecute.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

ALLOW, ERRNO = 0x7FFF0000, 0x00050000  # SCMP_ACT_* of seccomp.h
MASKED_EQ = 7  # SCMP_CMP_MASKED_EQ
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1  # linux/prctl.h


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = (
        ("index", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def load(profile: dict[str, Any], seccomp: ctypes.CDLL) -> None:
    """Applies a profile to this process, for ever."""
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    seccomp.seccomp_init.restype = ctypes.c_void_p
    seccomp.seccomp_init.argtypes = (ctypes.c_uint32,)
    seccomp.seccomp_rule_add_array.argtypes = (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(Comparison),
    )
    seccomp.seccomp_load.argtypes = (ctypes.c_void_p,)
    context = seccomp.seccomp_init(ERRNO | profile["defaultErrnoRet"])
    for rule in profile["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ALLOW"
        arguments = rule.get("args", [])
        assert all(entry["op"] == "SCMP_CMP_MASKED_EQ" for entry in arguments)
        compared = (Comparison * len(arguments))(
            *(
                Comparison(entry["index"], MASKED_EQ, entry["value"], entry["valueTwo"])
                for entry in arguments
            )
        )
        for name in rule["names"]:
            number = seccomp.seccomp_syscall_resolve_name(name.encode())
            if number >= 0:  # another processor's, or younger than the library
                given = (context, ALLOW, number, len(arguments), compared)
                assert seccomp.seccomp_rule_add_array(*given) == 0, name
    assert seccomp.seccomp_load(context) == 0


def main() -> None:
    """Becomes the command."""
    profile = json.loads(Path(sys.argv[1]).read_text())
    ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)
    load(profile, ctypes.CDLL("libseccomp.so.2"))
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
