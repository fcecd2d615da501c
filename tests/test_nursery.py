"""The nursery: a process that forks the checks of models, and what happens when it is not there."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path

import pytest

from lumen_uring.config import load
from lumen_uring.loading.check import files
from lumen_uring.loading.nursery import Forked, Nursery
from lumen_uring.loading.prepare import PrepareError, Preparer, nursery_for

MODULE = """
    import json, os, signal, sys, time

    warm = []

    def warm_up():
        warm.append(os.getpid())

    def main():
        told = json.load(sys.stdin)
        what = told if isinstance(told, str) else told["config"]["models"][0]["name"]
        parent = os.getppid()
        note = "forked" if warm == [parent] else "alone"
        if what == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "raise":
            raise OSError(24, "Too many open files")
        if what == "exit":
            sys.exit("no model")
        if what == "hang":
            time.sleep(600)
        if what == "orphan" and note == "forked":
            os.kill(parent, signal.SIGKILL)
            time.sleep(600)
        print("to standard error", file=sys.stderr)
        print(json.dumps({"reason": None, "notes": [note]}))
        return 3 if what == "three" else 0

    if __name__ == "__main__":
        sys.exit(main())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "stand_in.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "stand_in"


def end_of(check: Forked) -> int:
    while (status := check.wait(60)) is None:
        pass
    return status


def test_checks_are_forked_one_after_the_other(module: str) -> None:
    """Each has files of its own, and none is hurt by how another one ends."""
    nursery = Nursery(module, False)
    pids = set()
    for what, status, said, trouble in (
        ("good", 0, b'{"reason": null, "notes": ["forked"]}\n', b"to standard error\n"),
        ("crash", -signal.SIGSEGV, b"", b""),
        ("raise", 1, b"", b"OSError: [Errno 24] Too many open files\n"),
        ("exit", 1, b"", b"no model\n"),
        ("three", 3, b'{"reason": null, "notes": ["forked"]}\n', b"to standard error\n"),
    ):
        with files(f'"{what}"'.encode()) as told:
            check = nursery.begin(told)
            assert end_of(check) == status
            found = told.read()
            assert found[0] == said
            assert found[1].endswith(trouble)
            pids.add(check.pid)
    assert len(pids) == 5  # none is the nursery's
    nursery.close()
    nursery.close()


def test_a_check_is_killed_alone(module: str) -> None:
    nursery = Nursery(module, False)
    with files(b'"hang"') as told:
        check = nursery.begin(told)
        check.kill()  # perhaps before it is forked
        assert end_of(check) == -signal.SIGKILL
        check.kill()  # when it has ended: not the next one
    with files(b'"good"') as told:
        assert end_of(nursery.begin(told)) == 0
    nursery.close()


def test_it_ends_with_whoever_started_it(module: str) -> None:
    """As after the server was killed: the check goes, too."""
    nursery = Nursery(module, False)
    with files(b'"hang"') as told:
        check = nursery.begin(told)
        while check.pid == nursery._process.pid:  # type: ignore[union-attr]
            check.wait(0.01)
        assert nursery._socket is not None
        assert nursery._process is not None
        nursery._socket.close()
        assert nursery._process.wait(60) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(check.pid, 0)


def told_by(preparer: Preparer, name: str) -> list[str]:
    config = load(None, ["repository.load_gently=false", "repository.control=watch"])
    return preparer.prepare(config, config.models[0].model_copy(update={"name": name})).notes


def test_without_a_nursery_a_check_starts_alone(module: str) -> None:
    """It ends while it checks, is killed between two checks, or cannot be started."""
    nursery = Nursery(module, False)
    preparer = Preparer(module, nursery=nursery)
    preparer.start()
    assert told_by(preparer, "good") == ["forked"]
    assert told_by(preparer, "orphan") == ["alone"]
    assert told_by(preparer, "good") == ["forked"]  # a new one
    assert nursery._process is not None
    os.kill(nursery._process.pid, signal.SIGKILL)
    nursery._process.wait()
    assert told_by(preparer, "good") == ["alone"]
    assert told_by(preparer, "good") == ["forked"]
    with pytest.raises(PrepareError, match="signal SIGSEGV"):
        told_by(preparer, "crash")
    with pytest.raises(OSError, match="Too many open files"):
        told_by(preparer, "raise")
    assert told_by(preparer, "good") == ["forked"]
    preparer.stop()
    with pytest.raises(PrepareError, match="shutting down"):
        told_by(preparer, "good")
    assert nursery._process is None
    broken = Preparer(module, nursery=Nursery("there_is_no_such_module", False))
    assert told_by(broken, "good") == ["alone"]
    broken.stop()


def test_servers_whose_models_stay_have_none() -> None:
    assert nursery_for(load()) is None
    watched = load(None, ["repository.control=watch"])
    assert nursery_for(watched) is not None
