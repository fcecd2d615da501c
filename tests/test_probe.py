"""The io_uring probe: on this kernel as it is, and on worse ones by mask."""

from __future__ import annotations

import errno
import gc
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import needs
import pytest

from lumen_uring.ring import liburing
from lumen_uring.ring import probe as probing
from lumen_uring.ring.liburing import FEATURES, OPCODES, SETUP_FLAGS, Liburing, errno_name
from lumen_uring.ring.probe import (
    BUFFER_RING,
    IO_URING,
    KNOWN_BAD,
    MASK_NAMES,
    backend_of_auto,
    explain,
    probe,
    probe_as_pretended,
)


@pytest.fixture(scope="module", autouse=True)
def _kernel_has_io_uring() -> None:
    needs.io_uring()


# ---- numbers, and kernels made up here ----


def test_numbers_are_those_of_the_kernels_header(tmp_path: Path) -> None:
    """liburing's copy of it: the C library is built with the same one."""
    wanted = {
        **{f"IORING_OP_{name}": number for name, number in OPCODES.items()},
        **{f"IORING_SETUP_{name}": flag for name, (flag, _needs) in SETUP_FLAGS.items()},
        **{f"IORING_FEAT_{name}": bit for name, bit in FEATURES.items()},
        "IO_URING_OP_SUPPORTED": liburing._OP_SUPPORTED,
        "__NR_io_uring_setup": liburing._SYS_IO_URING_SETUP,
        "__NR_io_uring_enter": liburing._SYS_IO_URING_ENTER,
    }
    lines = []
    for name in wanted:
        line = f'printf("{name} %llu\\n", (unsigned long long)({name}));'
        # A flag that a later kernel has may be missing in the header; operations are an enum.
        guarded = name.startswith(("IORING_SETUP_", "IORING_FEAT_"))
        lines.append(f"#ifdef {name}\n{line}\n#endif\n" if guarded else f"{line}\n")
    code = tmp_path / "numbers.c"
    head = "#include <stdio.h>\n#include <sys/syscall.h>\n#include <liburing.h>\nint main(void) {\n"
    code.write_text(head + "".join(lines) + "}\n")
    subprocess.run(["gcc", "-o", str(tmp_path / "numbers"), str(code)], check=True)
    printed = subprocess.run([tmp_path / "numbers"], capture_output=True, check=True, text=True)
    found = {name: int(value) for name, value in map(str.split, printed.stdout.splitlines())}
    assert found == {name: wanted[name] for name in found}
    assert {f"IORING_OP_{name}" for name in OPCODES} <= found.keys()
    assert len(found) >= 12 + 6 + 12 + 3


class Kernel:
    """Stands in for liburing: a kernel of which each answer is given.

    Args:
        flags: IORING_SETUP_* that it knows.
        setup, enter, buffer_ring: errnos, 0 for success.
        features: feature bits.
        opcodes: that it has.
    """

    def __init__(
        self,
        flags: int = 2**32 - 1,
        setup: int = 0,
        enter: int = 0,
        buffer_ring: int = 0,
        features: int = 0b1011,
        opcodes: frozenset[int] = frozenset(OPCODES.values()),
    ) -> None:
        self.answers = (flags, setup, enter, buffer_ring, features, opcodes)

    def setup(self, flags: int) -> tuple[int, int]:
        known, result, *_rest = self.answers
        if result:
            return result, 0
        for flag, needed in SETUP_FLAGS.values():
            if flags & flag and needed and not flags & needed:
                return errno.EINVAL, 0
        return (errno.EINVAL, 0) if flags & ~known else (0, self.answers[4])

    def enter(self) -> int:
        return self.answers[2]

    def register_buffer_ring(self) -> int:
        return self.answers[3]

    def operations(self) -> tuple[int, frozenset[int]]:
        return 47, self.answers[5]


def on(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> probing.ProbeReport:
    monkeypatch.setattr(probing, "Liburing", lambda: kernel)
    return probe()


def test_a_report_holds_each_answer_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    report = on(monkeypatch, Kernel(opcodes=frozenset({0, 13, 26, 27}), buffer_ring=errno.EINVAL))
    assert (report.available, report.trouble, report.last_op) == (True, None, 47)
    assert report.features == ("SINGLE_MMAP", "NODROP", "RW_CUR_POS")
    assert report.feature_bits == 0b1011
    assert {name for name, there in report.opcodes.items() if there} == {
        "NOP", "ACCEPT", "SEND", "RECV",
    }  # fmt: skip
    assert report.buffer_ring == errno.EINVAL
    assert report.missing == (
        "POLL_ADD", "SENDMSG", "TIMEOUT", "ASYNC_CANCEL", "CLOSE", "READ", "SHUTDOWN", "MSG_RING",
        BUFFER_RING,
    )  # fmt: skip
    assert report.setup_flags == dict.fromkeys(SETUP_FLAGS, 0)
    assert report.kernel == os.uname().release
    monkeypatch.setattr(probing, "Liburing", Kernel)
    hidden = probe({"NODROP", "RW_CUR_POS"})
    assert (hidden.feature_bits, hidden.features) == (1, ("SINGLE_MMAP",))


@pytest.mark.parametrize(
    ("known", "best"),
    [
        (range(16), "SINGLE_ISSUER DEFER_TASKRUN COOP_TASKRUN SUBMIT_ALL CQSIZE CLAMP"),
        (range(13), "SINGLE_ISSUER COOP_TASKRUN SUBMIT_ALL CQSIZE CLAMP"),
        (range(12), "COOP_TASKRUN SUBMIT_ALL CQSIZE CLAMP"),
        (range(8), "SUBMIT_ALL CQSIZE CLAMP"),
        (range(7), "CQSIZE CLAMP"),
        (range(3), ""),
    ],
)
def test_the_best_flags_that_a_kernel_takes_together(
    monkeypatch: pytest.MonkeyPatch, known: range, best: str
) -> None:
    report = on(monkeypatch, Kernel(flags=sum(1 << bit for bit in known)))
    assert report.setup == tuple(best.split())
    for name, (flag, needed) in SETUP_FLAGS.items():
        has = all(bit in known for bit in range(16) if (flag | needed) >> bit & 1)
        assert report.setup_flags[name] == (0 if has else errno.EINVAL), name


@pytest.mark.parametrize(
    ("kernel", "error"),
    [
        (Kernel(setup=errno.EPERM), "EPERM"),
        (Kernel(enter=errno.EACCES), "EACCES"),
        (Kernel(setup=errno.ENOMEM, enter=errno.EPERM), "ENOMEM"),
        (Kernel(buffer_ring=errno.EPERM), "EPERM"),
        (Kernel(buffer_ring=errno.EACCES), "EACCES"),
        (Kernel(buffer_ring=errno.ENOSYS), "ENOSYS"),
    ],
)
def test_a_filter_that_allows_a_part_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel, error: str
) -> None:
    report = on(monkeypatch, kernel)
    assert report.trouble is not None
    assert (report.available, report.trouble.error, report.last_op) == (False, error, -1)
    assert set(OPCODES) < set(report.missing)
    trouble = report.trouble
    assert backend_of_auto(report) == ("epoll", f"{error}: {trouble.cause}", trouble.cure)


@pytest.mark.parametrize(
    ("release", "backend"),
    [
        ("5.14.21", "io_uring"),
        ("5.15.0", "epoll"),
        ("5.19.17-2-generic", "epoll"),
        ("6.0.255", "epoll"),
        ("6.0.256", "io_uring"),
        ("6.1.0", "io_uring"),
        ("6.6.5", "io_uring"),
        ("10.0.1", "io_uring"),
    ],
)
def test_kernels_whose_io_uring_has_faults(
    monkeypatch: pytest.MonkeyPatch, release: str, backend: str
) -> None:
    report = replace(on(monkeypatch, Kernel()), kernel=release)
    found, why, cure = backend_of_auto(report)
    assert found == backend
    assert (f"Linux {release} has known faults (libuv issue 4141)" in why) == (backend == "epoll")
    assert bool(cure) == (backend == "epoll")


def test_the_last_of_several_versions_in_the_mask_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMEN_URING_MASK", "kernel=5.10.1, kernel=6.2.3 buffer_rings")
    report = probe_as_pretended()
    assert (report.kernel, report.masked) == ("6.2.3", (BUFFER_RING,))
    for word, hidden in (
        ("setup", IO_URING),
        ("defer_taskrun", "DEFER_TASKRUN"),
        ("single_issuer", "SINGLE_ISSUER"),
        ("coop_taskrun", "COOP_TASKRUN"),
        ("submit_all", "SUBMIT_ALL"),
        ("buffer_rings", BUFFER_RING),
    ):
        monkeypatch.setenv("LUMEN_URING_MASK", word)
        assert probe_as_pretended().masked == (hidden,)
    monkeypatch.setenv("LUMEN_URING_MASK", "multishot_accept fd_install,registered_ring")
    assert probe_as_pretended().masked == ()
    monkeypatch.setenv("LUMEN_URING_MASK", "kernel=1.0,nonsense")
    with pytest.raises(ValueError, match="holds 'nonsense', expected names such as setup"):
        probe_as_pretended()


def test_the_questions_leave_no_descriptor_behind() -> None:
    """And their answers are what the kernel said, with the sign of an errno."""
    library = Liburing()
    library.setup(0)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    assert library.setup(0)[0] == 0
    assert library.setup(SETUP_FLAGS["CQSIZE"][0])[0] == 0
    assert library.setup(1 << 31) == (errno.EINVAL, 0)
    assert library.enter() == 0
    assert library.register_buffer_ring() >= 0
    last, supported = library.operations()
    assert max(supported) <= last
    assert OPCODES["NOP"] in supported
    assert len(os.listdir("/proc/self/fd")) <= before
    assert (errno_name(errno.EPERM), errno_name(9999)) == ("EPERM", "errno 9999")


# ---- this kernel ----


def test_reports_what_this_kernel_has() -> None:
    report = probe()
    assert report.available
    assert report.trouble is None
    assert report.opcodes["NOP"]
    assert report.last_op >= 13
    assert "SINGLE_MMAP" in report.features
    assert all(result >= 0 for result in report.setup_flags.values())
    assert all(report.setup_flags[name] == 0 for name in report.setup)


def test_the_mask_hides_features() -> None:
    masked = probe({"DEFER_TASKRUN", "RECV", BUFFER_RING, "NODROP"})
    assert masked.setup_flags["DEFER_TASKRUN"] == errno.EINVAL
    assert "DEFER_TASKRUN" not in masked.setup
    assert not masked.opcodes["RECV"]
    assert {"RECV", BUFFER_RING} <= set(masked.missing)
    assert "NODROP" not in masked.features
    assert masked.masked == (BUFFER_RING, "DEFER_TASKRUN", "NODROP", "RECV")


def test_the_mask_walks_down_the_ladder() -> None:
    """Row F3."""
    assert "SUBMIT_ALL" not in probe({"SUBMIT_ALL"}).setup
    assert probe({"CQSIZE"}).setup == ()


def test_no_io_uring_at_all() -> None:
    report = probe({IO_URING})
    assert not report.available
    assert report.trouble is not None
    assert report.trouble.error == "ENOSYS"
    assert BUFFER_RING in report.missing


def test_no_liburing() -> None:
    report = probe(library="libnothing-of-the-kind.so.9")
    assert not report.available
    assert report.trouble is not None
    assert "apt-get install" in report.trouble.cause


def test_another_library_in_its_place() -> None:
    report = probe(library="libc.so.6")
    assert report.trouble is not None
    assert "older than 2.2" in report.trouble.cause


def test_an_unknown_name_in_the_mask() -> None:
    with pytest.raises(ValueError, match="NOPE"):
        probe({"NOPE"})


def fake_proc(directory: Path, disabled: str | None, seccomp: int) -> Path:
    (directory / "sys/kernel").mkdir(parents=True)
    (directory / "self").mkdir()
    if disabled is not None:
        (directory / "sys/kernel/io_uring_disabled").write_text(f"{disabled}\n")
    (directory / "self/status").write_text(f"Name:\tx\nSeccomp:\t{seccomp}\nSeccomp_filters:\t0\n")
    return directory


@pytest.mark.parametrize(
    ("number", "disabled", "seccomp", "cause", "cure"),
    [
        (errno.EPERM, "2", 2, "kernel.io_uring_disabled is 2", "sysctl"),
        (errno.EPERM, "1", 0, "kernel.io_uring_disabled is 1", "io_uring_group"),
        (errno.EPERM, "0", 2, "seccomp filter forbids", "seccomp profile"),
        (errno.EPERM, None, 0, "security policy", "audit log"),
        (errno.EACCES, "0", 0, "security policy", "audit log"),
        (errno.ENOSYS, None, 0, "older than 5.1", "6.1"),
        (errno.ENOSYS, None, 2, "a seccomp filter hides it", "6.1"),
        (errno.ENOMEM, "0", 0, "locked-memory limit", "ulimit -l"),
        (errno.EMFILE, "0", 0, "descriptors", "ulimit -n"),
        (errno.ENFILE, "0", 0, "descriptors", "ulimit -n"),
        (errno.EACCES, "2", 0, "kernel.io_uring_disabled is 2", "sysctl"),
        (errno.EACCES, "0", 1, "seccomp filter forbids", "seccomp profile"),
        (errno.EINVAL, "0", 0, "io_uring_setup failed", "man"),
    ],
)
def test_each_refusal_has_cause_and_cure(
    tmp_path: Path, number: int, disabled: str | None, seccomp: int, cause: str, cure: str
) -> None:
    """Row F1."""
    trouble = explain(number, fake_proc(tmp_path, disabled, seccomp))
    assert trouble.error == errno.errorcode[number]
    assert cause in trouble.cause
    assert cure in trouble.cure


def test_names_and_bad_kernels_are_those_of_the_engine() -> None:
    """Row F4."""
    text = (Path(__file__).parents[1] / "c/src/ring/uring_features.c").read_text()
    names = re.findall(r'\{"(\w+)", LM_MASK_\w+\}', text)
    assert names == list(MASK_NAMES)
    version = r"LM_KERNEL\((\d+), (\d+), (\d+)\)"
    rows = re.findall(rf'\{{{version}, {version}, (LM_URING_\w+),\s+"([^"]+)"\}}', text)
    compiled = tuple(
        (tuple(map(int, row[:3])), tuple(map(int, row[3:6])), row[6], row[7]) for row in rows
    )
    assert compiled == KNOWN_BAD


def test_a_refusal_is_an_errno(monkeypatch: pytest.MonkeyPatch) -> None:
    """liburing answers with a negative number, a system call with -1 and errno."""
    exits: list[object] = []

    class Library:
        def __init__(self, opened: int, registered: int = 0) -> None:
            self.opened, self.registered = opened, registered

        def io_uring_queue_init_params(self, *_given: object) -> int:
            return self.opened

        def io_uring_queue_exit(self, *given: object) -> None:
            exits.append(given)

        def io_uring_register_buf_ring(self, *_given: object) -> int:
            return self.registered

        def io_uring_get_probe_ring(self, *_given: object) -> None:
            return None

    asked = object.__new__(Liburing)
    asked._library = Library(-errno.ENOMEM)  # type: ignore[assignment]
    assert asked.setup(0) == (errno.ENOMEM, 0)
    assert asked.register_buffer_ring() == errno.ENOMEM
    assert asked.operations() == (-1, frozenset())
    assert exits == []  # there is no ring to take down
    asked._library = Library(0, -errno.EINVAL)  # type: ignore[assignment]
    assert asked.register_buffer_ring() == errno.EINVAL
    assert asked.operations() == (-1, frozenset())
    assert len(exits) == 2

    class Libc:
        class syscall:  # noqa: N801
            def __new__(cls, *_given: object) -> int:  # type: ignore[misc]
                return -1

    monkeypatch.setattr(liburing.ctypes, "CDLL", lambda *_name, **_options: Libc)
    monkeypatch.setattr(liburing.ctypes, "get_errno", lambda: errno.ENOSYS)
    assert asked.enter() == errno.ENOSYS
