"""The io_uring probe: on this kernel as it is, and on worse ones by mask."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import needs
import pytest

from lumen_uring.ring.probe import (
    BUFFER_RING,
    IO_URING,
    KNOWN_BAD,
    MASK_NAMES,
    explain,
    probe,
)


@pytest.fixture(scope="module", autouse=True)
def _kernel_has_io_uring() -> None:
    needs.io_uring()


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
