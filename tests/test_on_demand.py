"""Models that are loaded on demand, with an engine and models that only remember."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lumen_uring.control import on_demand
from lumen_uring.control.calls import CallError, LoadError
from lumen_uring.control.on_demand import OnDemand
from lumen_uring.repository.entries import entries_of
from lumen_uring.settings.origin import Origin
from lumen_uring.settings.schema import Config


class Live:
    """Serves what was put; refuses the names in `broken`."""

    def __init__(self, tmp_path: Path, max_loaded: int) -> None:
        repository = {"paths": [str(tmp_path)], "control": "explicit", "max_loaded": max_loaded}
        self.config = Config.model_validate({"repository": repository})
        self.served: list[Any] = []
        self.broken: set[str] = set()
        self.log: list[str] = []

    def models(self) -> tuple[Any, ...]:
        return tuple(self.served)

    def put(self, entry: Any, called_off: threading.Event, is_proved: bool = False) -> None:
        self.log.append(f"{'again' if is_proved else 'load'} {entry.name}")
        if entry.name in self.broken:
            raise LoadError("it is broken")
        self.served.append(entry)

    def remove(self, name: str) -> None:
        self.log.append(f"unload {name}")
        self.served = [one for one in self.served if one.name != name]

    try_remove = remove

    def longest_idle(self, spared: list[str]) -> str | None:
        """The first one that came."""
        return next((one.name for one in self.served if one.name not in spared), None)


@pytest.fixture
def live(tmp_path: Path) -> Live:
    for name in ("a", "b", "c", "d"):
        folder = tmp_path / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(b"graph")
    return Live(tmp_path, 2)


def test_the_first_goes_when_the_third_comes(live: Live) -> None:
    models = OnDemand(live, live)  # type: ignore[arg-type]
    for name in ("a", "b", "a", "c", "a"):
        assert models.refusal(name) is None
        models.load(name, threading.Event())
    assert live.log == ["load a", "load b", "unload a", "load c", "unload b", "again a"]


def test_what_a_client_has_brought_stays(live: Live, tmp_path: Path) -> None:
    """Nobody could bring it again; nor is it one of those that repository.max_loaded counts. One
    that a list of the repository names goes, wherever its folder is."""
    far = str(tmp_path.with_name("elsewhere") / "m")
    live.served = [
        SimpleNamespace(name=name, base=name, version=1, origin=Origin(far, 1, listed=listed))
        for name, listed in (("up", ""), ("listed", "config.json"))
    ]
    models = OnDemand(live, live)  # type: ignore[arg-type]
    for name in ("a", "b", "c"):
        models.load(name, threading.Event())
    assert live.log == ["load a", "unload listed", "load b", "unload a", "load c"]
    assert [one.name for one in live.served] == ["up", "b", "c"]


def test_a_file_that_changed_is_tried_first(live: Live, tmp_path: Path) -> None:
    models = OnDemand(live, live)  # type: ignore[arg-type]
    models.load("a", threading.Event())
    live.remove("a")
    (tmp_path / "a/1/model.onnx").write_bytes(b"another graph")
    models.load("a", threading.Event())
    assert live.log == ["load a", "unload a", "load a"]


def test_one_that_failed_rests(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 54: nobody tries again at once."""
    models = OnDemand(live, live)  # type: ignore[arg-type]
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(on_demand.time, "monotonic", lambda: now.s)
    live.broken = {"b"}
    with pytest.raises(CallError, match="model 'b' could not be loaded: it is broken") as caught:
        models.load("b", threading.Event())
    assert caught.value.code == 503
    assert models.refusal("b") == (503, "model 'b' could not be loaded: it is broken")
    assert models.refusal("a") is None
    now.s += 5.1
    assert models.refusal("b") is None
    live.broken = set()
    models.load("b", threading.Event())
    assert models.refusal("b") is None


def test_names_that_nobody_has(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 54: they cost a look at when the folders changed, and are never paths."""
    looks: list[int] = []
    names_in = on_demand.names_in
    monkeypatch.setattr(on_demand, "names_in", lambda of: looks.append(1) or names_in(of))
    models = OnDemand(live, live)  # type: ignore[arg-type]
    for name in ("x", "../a", "a/1", "", "y"):
        assert models.refusal(name) == (404, f"Request for unknown model: '{name}' is not found")
    assert models.refusal("a:1") is None
    assert len(looks) == 1  # the folders are read when they change
    (tmp_path / "x/1").mkdir(parents=True)
    (tmp_path / "x/1/model.onnx").write_bytes(b"graph")
    assert models.refusal("x") is None
    with pytest.raises(CallError) as caught:
        models.load("a:7", threading.Event())
    assert caught.value.code == 404
    assert (models.refusal("a:7") or (0,))[0] == 404  # the same answer without a try


def test_a_name_that_a_file_says_comes_with_the_file(live: Live, tmp_path: Path) -> None:
    """The names in files are read again, too, when the folders have changed."""
    os.utime(tmp_path, ns=(0, 0))  # another time than the one of the change below
    models = OnDemand(live, live)  # type: ignore[arg-type]
    assert models.refusal("named") == (404, "Request for unknown model: 'named' is not found")
    (tmp_path / "e").mkdir()
    (tmp_path / "e/model.onnx").write_bytes(b"graph")
    said = {"name": "named", "parameters": {"uri": "model.onnx"}}
    (tmp_path / "e/model-settings.json").write_text(json.dumps(said))
    assert models.refusal("named") is None


def test_a_name_that_a_file_says_later(live: Live, tmp_path: Path, monkeypatch: Any) -> None:
    """No time of the repository's folder tells of a file below: a name that is missing is looked
    for again after a while."""
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(on_demand.time, "monotonic", lambda: now.s)
    (tmp_path / "e").mkdir()
    (tmp_path / "e/model.onnx").write_bytes(b"graph")
    models = OnDemand(live, live)  # type: ignore[arg-type]
    assert models.refusal("named") is not None
    said = {"name": "named", "parameters": {"uri": "model.onnx"}}
    (tmp_path / "e/model-settings.json").write_text(json.dumps(said))
    assert models.refusal("named") is not None
    now.s += 5.1
    assert models.refusal("named") is None


def test_calls_to_load_make_room_too(live: Live, tmp_path: Path) -> None:
    """For what is not there yet. What a call has given a configuration stays: no request would
    bring it again."""
    models = OnDemand(live, live)  # type: ignore[arg-type]
    for name in ("a", "b"):
        models.load(name, threading.Event())
    [again] = entries_of(live.config, "a")
    models.make_room([again])
    assert live.log == ["load a", "load b"]
    [given] = entries_of(live.config, "a", {"max_batch_size": 4})
    live.served = [given, *live.served[1:]]
    models.make_room([given])  # it needs no place
    for name in ("c", "d"):
        models.make_room(entries_of(live.config, name))
        live.put(entries_of(live.config, name)[0], threading.Event())
    assert live.log[2:] == ["load c", "unload b", "load d"]
    assert given in live.served
    with pytest.raises(CallError, match="those that a call or the settings gave") as caught:
        models.load("a:2", threading.Event())  # a client does not undo what a call has chosen
    assert caught.value.code == 404


def test_the_highest_version_comes_first_and_goes_last(live: Live, tmp_path: Path) -> None:
    """It is the one that a request without a version asks for."""
    live = Live(tmp_path, 3)
    (tmp_path / "a/2").mkdir()
    (tmp_path / "a/2/model.onnx").write_bytes(b"graph")
    (tmp_path / "a/config.pbtxt").write_text("version_policy: { all {} }")
    models = OnDemand(live, live)  # type: ignore[arg-type]
    for name in ("a", "b", "c"):
        models.load(name, threading.Event())
    assert live.log == [
        "load a:2", "load a:1", "load b", "unload a:1", "unload a:2", "load c",
    ]  # fmt: skip
    live.log.clear()
    models.load("a", threading.Event())
    live.served.sort(key=lambda one: one.name)  # version 1 is the one that is idle longest
    models.load("d", threading.Event())
    assert live.log == ["unload b", "again a:2", "again a:1", "unload a:1", "load d"]


def test_more_versions_than_places(live: Live, tmp_path: Path) -> None:
    for version in (2, 3):
        (tmp_path / f"a/{version}").mkdir()
        (tmp_path / f"a/{version}/model.onnx").write_bytes(b"graph")
    (tmp_path / "a/config.pbtxt").write_text("version_policy: { all {} }")
    models = OnDemand(live, live)  # type: ignore[arg-type]
    with pytest.raises(CallError, match=r"it has 3 versions, and repository\.max_loaded is 2"):
        models.load("a", threading.Event())
    assert live.log == []
