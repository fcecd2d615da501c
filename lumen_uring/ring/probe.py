"""Asks this kernel which parts of io_uring it allows, why not more, and what would allow more.

Called by `lumen doctor` and tests, on the main thread. It makes small rings and closes them at
once; it changes nothing on the machine. A mask can hide features, so that a new kernel answers like
an old one; LUMEN_URING_MASK hides them from the server and from `doctor`.
"""

from __future__ import annotations

import errno
import os
import platform
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lumen_uring.errors import LibraryError
from lumen_uring.ring.liburing import FEATURES, OPCODES, SETUP_FLAGS, Liburing, errno_name

IO_URING: Final = "IO_URING"
BUFFER_RING: Final = "BUFFER_RING"
MASKABLE: Final = frozenset({IO_URING, BUFFER_RING, *SETUP_FLAGS, *OPCODES, *FEATURES})

# The engine tries these sets of flags from the first on, until the kernel accepts one.
_LADDER: Final = (
    ("SINGLE_ISSUER", "DEFER_TASKRUN", "COOP_TASKRUN", "SUBMIT_ALL", "CQSIZE", "CLAMP"),
    ("SINGLE_ISSUER", "COOP_TASKRUN", "SUBMIT_ALL", "CQSIZE", "CLAMP"),
    ("COOP_TASKRUN", "SUBMIT_ALL", "CQSIZE", "CLAMP"),
    ("SUBMIT_ALL", "CQSIZE", "CLAMP"),
    ("CQSIZE", "CLAMP"),
    (),
)


# Names in LUMEN_URING_MASK (c/src/ring/uring_features.c) and their names here; None: a feature that
# this probe does not test.
MASK_NAMES: Final[dict[str, str | None]] = {
    "setup": IO_URING,
    "defer_taskrun": "DEFER_TASKRUN",
    "single_issuer": "SINGLE_ISSUER",
    "coop_taskrun": "COOP_TASKRUN",
    "submit_all": "SUBMIT_ALL",
    "multishot_accept": None,
    "buffer_rings": BUFFER_RING,
    "registered_ring": None,
    "fd_install": None,
    "self_test": None,
    "epoll_pwait2": None,
}

# As known_bad in uring_features.c: first and last version, verdict, source.
KNOWN_BAD: Final = (
    ((5, 15, 0), (6, 0, 255), "LM_URING_AVOID", "libuv issue 4141"),
    ((6, 6, 1), (6, 6, 9), "LM_URING_ONE_SHOT_ACCEPT", "liburing issue 1062"),
    ((6, 7, 4), (6, 7, 4), "LM_URING_ONE_SHOT_ACCEPT", "liburing issue 1062"),
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the kernel refuses something and what to do: a sentence each."""

    error: str
    cause: str
    cure: str


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The kernel's answers.

    `setup_flags` and `buffer_ring` hold 0 for accepted, else the errno; `setup` is the best set of
    flags accepted together; `last_op` is -1 when the kernel does not report it.
    """

    kernel: str
    available: bool
    trouble: Trouble | None
    features: tuple[str, ...]
    feature_bits: int
    last_op: int
    setup_flags: dict[str, int]
    setup: tuple[str, ...]
    opcodes: dict[str, bool]
    buffer_ring: int
    masked: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """The operations Lumen uses that this kernel does not have, buffer ring included."""
        names = [name for name, supported in self.opcodes.items() if not supported]
        return (*names, *([BUFFER_RING] if self.buffer_ring else []))


def probe(pretend_missing: Collection[str] = (), library: str | None = None) -> ProbeReport:
    """Asks the kernel.

    Args:
        pretend_missing: names out of MASKABLE to treat as refused.
        library: liburing's soname or path; None takes the installed one.

    Returns:
        The report; a missing liburing or a refusing kernel is in it, never raised.

    Raises:
        ValueError: pretend_missing holds an unknown name.
    """
    masked = frozenset(pretend_missing)
    if not masked <= MASKABLE:
        raise ValueError(f"unknown io_uring features: {sorted(masked - MASKABLE)}")
    try:
        liburing = Liburing() if library is None else Liburing(library)
    except LibraryError as error:
        sentence = str(error)
        return _unavailable(masked, Trouble("liburing", sentence, "Install liburing 2.2 or later."))
    result, bits = (errno.ENOSYS, 0) if IO_URING in masked else liburing.setup(0)
    # A seccomp filter may allow this system call and refuse the others.
    result = result or liburing.enter()
    buffer_ring = (
        errno.EINVAL if BUFFER_RING in masked or result else liburing.register_buffer_ring()
    )
    if buffer_ring in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        result = buffer_ring
    if result:
        return _unavailable(masked, explain(result))
    flags = {
        name: errno.EINVAL if name in masked else liburing.setup(flag | needs)[0]
        for name, (flag, needs) in SETUP_FLAGS.items()
    }
    last_op, supported = liburing.operations()
    for name in masked & FEATURES.keys():
        bits &= ~FEATURES[name]
    return ProbeReport(
        kernel=platform.release(),
        available=True,
        trouble=None,
        features=tuple(name for name, bit in FEATURES.items() if bits & bit),
        feature_bits=bits,
        last_op=last_op,
        setup_flags=flags,
        setup=_climb(liburing, masked),
        opcodes={name: code in supported and name not in masked for name, code in OPCODES.items()},
        buffer_ring=buffer_ring,
        masked=tuple(sorted(masked)),
    )


def probe_as_pretended() -> ProbeReport:
    """Asks the kernel, without the features that LUMEN_URING_MASK hides.

    Raises:
        ValueError: the mask holds a name that the server would refuse.
    """
    words = [word for word in re.split(r"[, ]+", os.environ.get("LUMEN_URING_MASK", "")) if word]
    releases = [word.removeprefix("kernel=") for word in words if word.startswith("kernel=")]
    names = [word for word in words if not word.startswith("kernel=")]
    if unknown := sorted(set(names) - MASK_NAMES.keys()):
        raise ValueError(f"LUMEN_URING_MASK holds {unknown[0]!r}, expected names such as setup")
    report = probe({name for word in names if (name := MASK_NAMES[word]) is not None})
    if "self_test" in names:
        trouble = Trouble("self-test", "LUMEN_URING_MASK makes it fail.", "Remove self_test there.")
        report = replace(report, trouble=trouble)
    return replace(report, kernel=releases[-1]) if releases else report


def backend_of_auto(report: ProbeReport) -> tuple[str, str, str]:
    """Says which backend `io_backend: auto` takes, as lm_ring_open in c/src/ring/ring.c decides.

    Args:
        report: as a probe gave it.

    Returns:
        "io_uring" or "epoll", the reason, and the cure, which is empty for io_uring.
    """
    version = tuple(int(part) for part in re.findall(r"\d+", report.kernel)[:3])
    for first, last, verdict, why in KNOWN_BAD:
        if verdict == "LM_URING_AVOID" and first <= version <= last:
            cure = "Use Linux 6.1 or later, or ask for it with io_backend: io_uring."
            return "epoll", f"io_uring of Linux {report.kernel} has known faults ({why})", cure
    if report.trouble is not None:
        return "epoll", f"{report.trouble.error}: {report.trouble.cause}", report.trouble.cure
    missing = [name for name in report.missing if name in ("ACCEPT", "RECV", "SEND", BUFFER_RING)]
    if missing:
        return "epoll", f"this kernel lacks {', '.join(missing)}", "Use Linux 6.1 or later."
    return "io_uring", "it is complete; a self-test at start confirms it", ""


def explain(number: int, proc: Path = Path("/proc")) -> Trouble:
    """Says why io_uring_setup failed.

    Args:
        number: the errno.
        proc: where /proc is.

    Returns:
        Cause and cure.

    Source:
        man io_uring_setup(2), "ERRORS"; Documentation/admin-guide/sysctl/kernel.rst
    """
    name = errno_name(number)
    disabled = _read(proc / "sys/kernel/io_uring_disabled")
    filtered = any(
        line.split(":")[1].strip() not in ("", "0")
        for line in _read(proc / "self/status").splitlines()
        if line.startswith("Seccomp:")
    )
    if number in (errno.EPERM, errno.EACCES):
        if disabled in ("1", "2"):
            return Trouble(
                name,
                f"kernel.io_uring_disabled is {disabled}, which forbids io_uring here.",
                "As root: sysctl kernel.io_uring_disabled=0 (or, at 1, join the group in "
                "kernel.io_uring_group).",
            )
        if filtered:
            return Trouble(
                name,
                "A seccomp filter forbids io_uring, as container runtimes do by default.",
                "Run the container with a seccomp profile that allows io_uring_setup, "
                "io_uring_enter and io_uring_register.",
            )
        return Trouble(
            name,
            "A security policy (SELinux, AppArmor) forbids io_uring.",
            "Find the denial in the audit log, and allow io_uring for this program.",
        )
    if number == errno.ENOSYS:
        cause = "This kernel has no io_uring: it is older than 5.1 or built without CONFIG_IO_URING"
        hidden = ", or a seccomp filter hides it" if filtered else ""
        return Trouble(name, f"{cause}{hidden}.", "Use a Linux kernel of 6.1 or later.")
    if number == errno.ENOMEM:
        return Trouble(
            name,
            "The ring's memory does not fit the locked-memory limit (kernels before 5.12) or the "
            "cgroup's memory limit.",
            "Raise it: ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit.",
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return Trouble(name, "No file descriptors are left.", "Raise the limit: ulimit -n 65536.")
    return Trouble(name, "io_uring_setup failed.", "See man io_uring_setup(2) for this error.")


def _climb(liburing: Liburing, masked: frozenset[str]) -> tuple[str, ...]:
    for names in _LADDER:
        flags = 0
        for name in names:
            flags |= SETUP_FLAGS[name][0]
        if masked.isdisjoint(names) and liburing.setup(flags)[0] == 0:
            return names
    return ()


def _unavailable(masked: frozenset[str], trouble: Trouble) -> ProbeReport:
    return ProbeReport(
        kernel=platform.release(),
        available=False,
        trouble=trouble,
        features=(),
        feature_bits=0,
        last_op=-1,
        setup_flags={},
        setup=(),
        opcodes=dict.fromkeys(OPCODES, False),
        buffer_ring=errno.ENOSYS,
        masked=tuple(sorted(masked)),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""
