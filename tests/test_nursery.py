"""The nursery: a process that forks the checks of models, and what happens when it is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
        note = "forked" if warm == [parent] else "alone" if __name__ == "__main__" else "cold"
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
            check = nursery.begin(told, False)
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
        check = nursery.begin(told, False)
        check.kill()  # perhaps before it is forked
        assert end_of(check) == -signal.SIGKILL
        check.kill()  # when it has ended: not the next one
    with files(b'"good"') as told:
        assert end_of(nursery.begin(told, False)) == 0
    nursery.close()


def test_it_ends_with_whoever_started_it(module: str) -> None:
    """As after the server was killed: the check goes, too."""
    nursery = Nursery(module, False)
    with files(b'"hang"') as told:
        check = nursery.begin(told, False)
        while check.pid == nursery._process.pid:  # type: ignore[union-attr]
            check.wait(0.01)
        assert nursery._socket is not None
        assert nursery._process is not None
        nursery._socket.close()
        assert nursery._process.wait(60) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(check.pid, 0)


FORKS = """
    import os, signal, sys, threading
    from lumen_uring.config import load
    from lumen_uring.loading.check import files
    from lumen_uring.loading.nursery import Nursery
    from lumen_uring.loading.prepare import Preparer

    def note(gently):
        settings = [f"repository.load_gently={gently}", "repository.control=watch"]
        config = load(None, settings)
        return preparer.prepare(config, config.models[0]).notes

    def state(name):
        return open(f"/proc/{nursery._process.pid}/{name}").read().strip()

    print("not flushed", end="")
    secret = open("/etc/hostname")
    signal.signal(signal.SIGTERM, lambda *_: None)
    nursery = Nursery("stand_in", True)
    preparer = Preparer("stand_in", nursery=nursery)
    preparer.fork()
    first = nursery._process.pid
    assert note("false") == ["cold"]  # the server's own modules, at the server's priority
    assert state("comm") == "lumen-nursery"
    assert len(os.listdir(f"/proc/{first}/fd")) == 4  # three that lead nowhere, and the line
    assert os.sched_getscheduler(first) == os.SCHED_OTHER
    assert note("true") == ["forked"]  # it was made warm for the first gentle one
    assert os.sched_getscheduler(first) == os.SCHED_IDLE
    assert note("false") == ["alone"]  # it cannot step up again
    preparer.start()
    assert nursery._process.pid == first
    os.kill(first, signal.SIGTERM)  # as systemd ends all of a service
    assert nursery._process.wait() == -signal.SIGTERM
    assert note("true") == ["alone"]
    assert note("true") == ["forked"]  # by one that started anew
    assert nursery._process.pid != first
    preparer.stop()
    assert nursery._process is None

    preparer = Preparer("stand_in", nursery=nursery)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    preparer.fork()
    assert nursery._process is None  # what another thread holds would be held for ever
    ended.set()
    thread.join()
    real, os.fork = os.fork, lambda: (_ for _ in ()).throw(OSError(11, "no process"))
    preparer.fork()
    os.fork = real
    assert nursery._process is None
    assert note("true") == ["forked"]
    preparer.stop()
"""


def test_a_server_forks_its_nursery_at_the_start(module: str) -> None:
    """A process of its own has one thread, as a server at its start."""
    script = textwrap.dedent(FORKS)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "not flushed"), done.stderr


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
    (model,) = load().models
    apart = model.model_copy(update={"isolation": "process"})
    assert nursery_for(load().with_models((apart,), (), ())) is not None
