"""The control of loading: what calls are answered, what becomes of the states, and that a model
that crashes, hangs or eats memory while it is checked harms nobody."""

from __future__ import annotations

import base64
import errno
import itertools
import json
import queue
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lumen_uring.config import load
from lumen_uring.control import states
from lumen_uring.control.control import Control
from lumen_uring.control.following import Following
from lumen_uring.control.live_models import LiveModels, Virtual, files_of
from lumen_uring.errors import EngineError
from lumen_uring.guard import Guard
from lumen_uring.loading import model_file
from lumen_uring.loading.prepare import Prepared, PrepareError, Preparer
from lumen_uring.repository.entries import entries_in
from lumen_uring.ring.errands import Errand
from lumen_uring.serving.logs import levels_from
from lumen_uring.serving.triton_settings import TritonSettings
from lumen_uring.settings import reload
from lumen_uring.settings.broken import Broken
from lumen_uring.settings.models import EnsembleConfig, ModelConfig
from lumen_uring.settings.schema import Config


class FakeEngine:
    """Calls as the C library would give them, and the answers to them."""

    def __init__(self) -> None:
        self.calls: queue.Queue[Errand] = queue.Queue()
        self.answers: dict[int, queue.Queue[tuple[int, Any]]] = {}
        self.holds: list[bool] = []
        self.unloaded: list[str] = []
        self.settles = 0
        self.is_settled = True
        self.refusal = ""
        self.reloads: list[list[str]] = []

    def ask(self, kind: str, name: str = "", body: bytes = b"") -> int:
        number = len(self.answers)
        self.answers[number] = queue.Queue()
        self.calls.put(Errand(number, kind, name, body))
        return number

    def answer(self, number: int) -> tuple[int, Any]:
        return self.answers[number].get(timeout=30)

    def call(self, kind: str, name: str = "", body: Any = None) -> tuple[int, Any]:
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        return self.answer(self.ask(kind, name, raw))

    def next_errand(self, timeout_s: float) -> Errand | None:
        try:
            return self.calls.get(timeout=timeout_s or 0.001)
        except queue.Empty:
            return None

    def end_errands(self) -> None:
        pass

    def finish_errand(self, errand: Errand, code: int, body: bytes = b"") -> None:
        is_text = errand.kind == "demand"  # a sentence for each client that waits
        said = None if not body else body.decode() if is_text else json.loads(body)
        self.answers[errand.id].put((code, said))

    def hold_ready(self, hold: bool) -> None:
        self.holds.append(hold)

    def reload(self, config: Config) -> None:
        self.reloads.append([model.name for model in config.models])

    def settle(self, _timeout_s: float) -> bool:
        self.settles += 1
        return self.is_settled

    def unload(self, name: str) -> None:
        if self.refusal:
            raise EngineError(self.refusal)
        self.unloaded.append(name)


class FakePreparer(Preparer):
    """Lets every model through but those of `wrong`; waits for `gate` first."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: dict[str, str] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.stopped = threading.Event()
        self.raises: list[BaseException] = []

    def prepare(
        self, config: Config, model: ModelConfig, is_over: Callable[[], bool] = lambda: False
    ) -> Prepared:
        while not (self.gate.wait(0.01) or self.stopped.is_set() or is_over()):
            pass
        if self.stopped.is_set() or is_over():
            raise PrepareError("the server is shutting down")
        if self.raises:
            raise self.raises.pop(0)
        if model.name in self.wrong:
            raise PrepareError(self.wrong[model.name])
        return Prepared(["checked"], is_gentle=True)

    def stop(self) -> None:
        self.stopped.set()


class Room:
    """A control over a folder with the models a and b; with explicit only a is loaded at start."""

    def __init__(
        self,
        folder: Path,
        how: str = "explicit",
        meanwhile: Callable[[Room], None] | None = None,
        more: Sequence[str] = (),
    ) -> None:
        """`meanwhile` happens while the server starts: what it read of the folder is old then;
        `more` are settings."""
        self.folder = folder
        for name in ("a/1", "b/2"):
            self.add(name)
        settings = [f"repository.control={how}", "repository.load=[a]", *more]
        self.config = load(None, settings, (), None, [str(folder)])
        files = {model.name: files_of(model) for model in self.config.models}
        if meanwhile is not None:
            meanwhile(self)
        self.engine, self.preparer = FakeEngine(), FakePreparer()
        self.loaded: list[tuple[str, str]] = []
        self.levels = levels_from("info")
        self.said: list[str] = []
        self.live = LiveModels(
            self.engine, self.config, self.put, self.put_virtual, self.log, self.preparer, files
        )
        asked = TritonSettings(self.live, self).answer
        self.control = Control(self.engine, self.live, self.log, asked, Guard(self.log), 0.05)
        self.control.start()

    def add(self, place: str) -> None:
        (self.folder / place).mkdir(parents=True)
        (self.folder / place / "model.onnx").touch()

    def until(self, condition: Callable[[], object]) -> None:
        """Waits for what another thread does."""
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, (self.loaded, self.engine.unloaded, self.said)
            time.sleep(0.005)

    def log(self, _level: str, text: str) -> None:
        self.said.append(text)

    def put(self, model: ModelConfig, _is_gentle: bool) -> list[str]:
        self.loaded.append((model.name, model.path.removeprefix(f"{self.folder}/")))
        return []

    def put_virtual(self, config: Config, entry: Virtual) -> None:
        assert {model.name for model in config.models} >= {"a"}
        self.loaded.append((entry.name, "virtual"))

    def states(self, **asked: object) -> dict[str, tuple[str, ...]]:
        code, index = self.engine.call("index", body=asked)
        assert code == 200
        return {
            f"{one['name']}/{one.get('version', '')}": (one.get("state", ""), one.get("reason", ""))
            for one in index
        }


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control ends when its threads have looked."""
    monkeypatch.setattr("lumen_uring.control.control._STEP_S", 0.01)


@pytest.fixture
def room(tmp_path: Path) -> Any:
    made = Room(tmp_path)
    yield made
    made.control.close()


def test_the_life_of_a_model(room: Room) -> None:
    assert room.states() == {"a/1": ("READY", ""), "b/": ("", "")}
    assert room.engine.call("load", "b") == (200, None)
    assert room.loaded == [("b", "b/2/model.onnx")]
    assert room.states() == {"a/1": ("READY", ""), "b/2": ("READY", "")}
    room.add("b/3")
    assert room.engine.call("load", "b", {"parameters": {}}) == (200, None)
    assert room.states()["b/2"] == ("UNAVAILABLE", "unloaded")
    assert room.states(ready=True) == {"a/1": ("READY", ""), "b/3": ("READY", "")}
    unload = {"parameters": {"unload_dependents": False}}
    assert room.engine.call("unload", "a", unload) == (200, None)
    assert room.engine.unloaded == ["a"]
    assert room.states()["a/1"] == ("UNAVAILABLE", "unloaded")
    assert room.engine.call("unload", "a")[0] == 404
    assert not any(room.engine.holds)
    assert "model b: version 3 is loaded" in room.said


def test_versions_that_take_each_others_place(room: Room) -> None:
    """Another policy, and a version that cannot be loaded while the last one is to go."""
    room.add("a/2")
    policy = room.folder / "a/config.pbtxt"
    policy.write_text("version_policy: { latest { num_versions: 2 } }")
    assert room.engine.call("load", "a") == (200, None)
    assert room.loaded == [("a:1", "a/1/model.onnx"), ("a:2", "a/2/model.onnx")]
    assert room.engine.unloaded == ["a"]
    both = {"a/1": ("READY", ""), "a/2": ("READY", "")}
    assert room.states(ready=True) == both
    room.add("a/3")
    room.preparer.wrong = {"a:3": "it is no model"}
    code, body = room.engine.call("load", "a")
    assert (code, body["error"]) == (400, "failed to load 'a': version 3: it is no model")
    assert room.states(ready=True) == both
    policy.write_text("version_policy: { specific { versions: [2] } }")
    assert room.engine.call("load", "a") == (200, None)
    assert room.engine.unloaded == ["a", "a:1", "a:2"]
    assert room.states(ready=True) == {"a/2": ("READY", "")}


def test_settings_as_triton_names_them(room: Room) -> None:
    at_start = {
        "log_file": "", "log_info": True, "log_warning": True, "log_error": True,
        "log_verbose_level": 0, "log_format": "default",
    }  # fmt: skip
    assert room.engine.call("logging") == (200, at_start)
    for asked, levels in (
        ({"log_verbose_level": 2}, "debug info warning error"),
        ({"log_verbose_level": 0, "log_file": "", "log_format": None}, "info warning error"),
        ({"log_info": False, "log_format": "ISO8601"}, "warning error"),
        ({"log_warning": False}, "error"),
        ({"log_error": False}, ""),
        ({"log_verbose_level": 1}, "debug"),
        (
            {"log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0},
            "info warning error",
        ),
    ):
        code, found = room.engine.call("logging", body=asked)
        assert (code, room.levels) == (200, set(levels.split()))
        # All of them, and those that were asked for as they were.
        assert found.keys() == at_start.keys()
        assert found.items() >= {k: v for k, v in asked.items() if v is not None}.items()
        assert room.engine.call("logging") == (200, found)
    for asked, why in (
        (
            {"log_info": False, "log_file": "/tmp/x"},
            "log_file: expected '', found '/tmp/x': log file location can not be updated",
        ),
        ({"log_error": "no"}, "log_error: expected true or false, found 'no'"),
        ({"log_info": 1}, "log_info: expected true or false, found 1"),
        ({"log_format": "json"}, "log_format: expected default or ISO8601, found 'json'"),
        ({"log_verbose_level": True}, "log_verbose_level: expected a whole number, 0.."),
        ({"log_verbose_level": -1}, "log_verbose_level: expected a whole number, 0.."),
        ({"log_info": False, "speed": 1}, "Expected one of log_file, "),
    ):
        code, found = room.engine.call("logging", body=asked)
        assert (code, found["error"][: len(why)]) == (400, why)
        assert room.levels == {"info", "warning", "error"}
    code, trace = room.engine.call("trace", "a")
    assert (code, trace["trace_level"], trace["trace_file"]) == (200, ["OFF"], "")
    assert room.engine.call("trace", body={"trace_level": ["OFF"], "trace_rate": None})[0] == 200
    code, found = room.engine.call("trace", body={"trace_level": ["TIMESTAMPS"]})
    assert (code, "engine.telemetry_csv_path" in found["error"]) == (400, True)
    code, found = room.engine.call("trace", "none")
    assert (code, found["error"]) == (400, "Request for unknown model : none is not found")


def test_triton_hears_of_the_settings_in_force(room: Room) -> None:
    """Not of those of the start."""
    log = room.config.log.model_copy(update={"path": "/tmp/other.log"})
    engine = room.config.engine.model_copy(update={"telemetry_csv_path": "/tmp/rows.csv"})
    room.live.reconfigure(room.config.model_copy(update={"log": log, "engine": engine}))
    assert room.engine.call("logging")[1]["log_file"] == "/tmp/other.log"
    assert room.engine.call("logging", body={"log_file": "/tmp/other.log"})[0] == 200
    assert room.engine.call("logging", body={"log_file": ""})[0] == 400
    assert room.engine.call("trace")[1]["trace_file"] == "/tmp/rows.csv"


def test_a_failed_load_leaves_what_was(room: Room) -> None:
    """Row 45."""
    room.preparer.wrong = {"a": "it is no model", "b": "it is none either"}
    code, body = room.engine.call("load", "a")
    assert (code, body) == (400, {"error": "failed to load 'a': it is no model"})
    assert room.states()["a/1"] == ("READY", "")
    room.add("a/2")
    assert room.engine.call("load", "a")[0] == 400
    assert room.states()["a/1"] == ("READY", "")
    assert room.states()["a/2"] == ("UNAVAILABLE", "it is no model")
    assert room.engine.call("load", "b")[0] == 400
    assert not any(room.engine.holds)  # its caller has been told
    assert room.states()["b/2"] == ("UNAVAILABLE", "it is none either")
    assert room.engine.call("unload", "b") == (200, None)
    assert room.states()["b/"] == ("", "")  # forgotten
    assert room.engine.call("unload", "b")[0] == 404
    assert room.loaded == []


def test_a_configuration_in_the_call(room: Room) -> None:
    said = {"name": "b", "max_batch_size": 4}
    loaded: list[ModelConfig] = []
    room.live._load = lambda model, _gentle: loaded.append(model) or []  # type: ignore[func-returns-value]
    assert room.engine.call("load", "b", {"parameters": {"config": json.dumps(said)}})[0] == 200
    assert loaded[0].max_rows == 4
    said = {"name": "c", "platform": "tensorrt_plan"}
    code, body = room.engine.call("load", "b", {"parameters": {"config": json.dumps(said)}})
    assert code == 400
    assert body["error"].splitlines() == [
        "failed to load 'b': config platform: expected 'onnxruntime_onnx': Lumen serves ONNX "
        "alone, found 'tensorrt_plan'",
        "config name: expected 'b', found 'c'",
    ]


@pytest.mark.parametrize(
    ("kind", "name", "body", "code", "says"),
    [
        ("load", "none", None, 400, "no repository holds a model 'none'"),
        ("load", "../a", None, 400, "no repository holds a model '../a'"),
        ("load", "b", b"{", 400, "body: expected JSON"),
        ("load", "b", b"[]", 400, "expected an object"),
        ("load", "b", {"parameters": {"file:1/model.onnx": "AA=="}}, 400, "brings no files"),
        ("load", "b", {"parameters": {"speed": 1}}, 400, "parameters: expected config, found"),
        ("load", "b", {"parameters": {"config": {}}}, 400, "parameters.config: expected a str"),
        ("load", "b", {"parameters": {"config": "["}}, 400, "body: expected JSON"),
        ("load", "b", {"x": 1}, 400, "'parameters' alone"),
        ("unload", "none", None, 404, "it is not loaded"),
        ("unload", "a", {"parameters": {"unload_dependents": 3}}, 400, "expected a bool"),
        ("index", "", {"ready": 1}, 400, "ready: expected true or false, found 1"),
    ],
)
def test_calls_that_are_refused(
    room: Room, kind: str, name: str, body: Any, code: int, says: str
) -> None:
    """Row 45."""
    answered, said = room.engine.call(kind, name, body)
    assert (answered, says in said["error"]) == (code, True), said
    assert room.loaded == []
    assert room.states()["a/1"] == ("READY", "")


def test_an_unload_that_the_engine_refuses(room: Room) -> None:
    room.engine.refusal = "model 'a' is an expert of 'e'"
    code, body = room.engine.call("unload", "a")
    assert (code, body["error"]) == (400, "failed to unload 'a': model 'a' is an expert of 'e'")
    assert room.states()["a/1"] == ("READY", "")


def test_a_model_that_is_asked_for_twice(room: Room) -> None:
    """The second call waits for its turn, and reads the folder again."""
    calls = [room.engine.ask("load", "b") for _ in range(3)]
    assert [room.engine.answer(call) for call in calls] == [(200, None)] * 3
    assert room.states()["b/2"] == ("READY", "")


def test_the_index_does_not_wait_for_a_load(room: Room) -> None:
    room.preparer.gate.clear()
    load_b = room.engine.ask("load", "b")
    while room.states().get("b/2") != ("LOADING", ""):
        pass
    room.preparer.gate.set()
    assert room.engine.answer(load_b) == (200, None)


def test_the_end_answers_everybody(room: Room) -> None:
    room.preparer.gate.clear()
    calls = [room.engine.ask("load", "b") for _ in range(5)]
    while room.states().get("b/2") != ("LOADING", ""):
        pass
    room.control.close()
    codes = [room.engine.answer(call)[0] for call in calls]
    assert sorted(codes) == [400, 503, 503, 503, 503]
    assert room.loaded == []


# ---- what goes wrong is its caller's ----


def test_an_error_of_any_kind_is_its_callers(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lumen_uring.control.live_models._PAUSES_S", (0.0, 0.0))
    scarce = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.EAGAIN, "none left")]
    for raised, code, says in (
        (scarce, 200, ""),  # the third try finds what it needs
        ([*scarce, OSError(errno.ENOMEM, "no memory")], 503, "has no means for it now (no memory)"),
        ([OSError(errno.EACCES, "not yours")], 500, "an error of the server's: PermissionError"),
        ([ZeroDivisionError("of nobody's")], 500, "ZeroDivisionError: of nobody's"),
        ([MemoryError()], 500, "MemoryError"),
        ([], 200, ""),
    ):
        room.preparer.raises = list(raised)
        answered, body = room.engine.call("load", "b")
        assert (answered, room.preparer.raises) == (code, [])
        state, reason = room.states()["b/2"]
        assert state == ("READY" if code == 200 else "UNAVAILABLE")
        if code != 200:
            assert says in body["error"]
            assert says in reason
        room.engine.call("unload", "b")
    assert not any(room.engine.holds)


def test_an_unload_waits_for_no_load(room: Room) -> None:
    """Also not one of the model that is being loaded, or that waits for its turn."""
    room.preparer.gate.clear()
    loads = [room.engine.ask("load", name) for name in ("b", "c", "b")]
    room.until(lambda: room.states().get("b/2") == ("LOADING", ""))
    assert room.engine.call("unload", "a") == (200, None)
    assert room.engine.unloaded == ["a"]
    assert room.engine.call("unload", "c") == (200, None)
    answer = (400, {"error": "failed to load 'c': it was unloaded before its turn"})
    assert room.engine.answer(loads[1]) == answer
    room.engine.refusal = "no model 'b' is served"
    assert room.engine.call("unload", "b") == (200, None)
    for load_b in (loads[0], loads[2]):
        code, body = room.engine.answer(load_b)
        assert (code, "it was unloaded" in body["error"]) == (400, True)
    assert room.states()["b/2"] == ("UNAVAILABLE", "unloaded")
    room.engine.refusal = ""
    room.preparer.gate.set()
    assert room.engine.call("load", "b") == (200, None)
    assert room.loaded == [("b", "b/2/model.onnx")]
    assert not any(room.engine.holds)


def test_a_model_that_comes_behind_its_unload_goes(room: Room) -> None:
    """The engine had it already when the unload came, or takes it a moment later."""

    def load(model: ModelConfig, _gently: bool) -> list[str]:
        room.engine.refusal = "no model 'b' is served"  # not yet
        assert room.engine.call("unload", "b") == (200, None)
        room.engine.refusal = ""
        return []

    room.live._load = load
    code, body = room.engine.call("load", "b")
    assert (code, "it was unloaded" in body["error"]) == (400, True)
    assert room.engine.unloaded == ["b"]
    assert {model.name for model in room.live.models()} == {"a"}
    assert room.states()["b/2"] == ("UNAVAILABLE", "unloaded")


def test_an_unload_leaves_the_files_of_a_model_that_is_being_loaded(tmp_path: Path) -> None:
    room = Room(tmp_path, more=["repository.upload_bytes=1MiB"])
    there: list[bool] = []

    def load(model: ModelConfig, _gently: bool) -> list[str]:
        there.append(Path(model.path).exists())
        return []

    room.live._load = load
    try:
        room.preparer.gate.clear()
        file = base64.b64encode(b"a model").decode()
        brought = {"parameters": {"config": "{}", "file:1/model.onnx": file}}
        load_c = room.engine.ask("load", "c", json.dumps(brought).encode())
        room.until(lambda: room.live.coming() == "c")
        assert room.engine.call("unload", "a") == (200, None)
        room.preparer.gate.set()
        assert room.engine.answer(load_c) == (200, None)
        assert there == [True]
    finally:
        room.control.close()


def test_a_policy_in_the_call_chooses_versions(room: Room) -> None:
    """As the first load, to go back, and where the model's own file is wrong."""
    for version in (3, 4):
        room.add(f"b/{version}")

    def call(policy: dict[str, Any]) -> set[str]:
        config = json.dumps({"version_policy": policy})
        assert room.engine.call("load", "b", {"parameters": {"config": config}}) == (200, None)
        ready = room.states(ready=True)
        return {name.removeprefix("b/") for name in ready if name.startswith("b/")}

    assert call({"specific": {"versions": [3]}}) == {"3"}
    assert call({"latest": {"num_versions": 2}}) == {"3", "4"}
    assert call({"specific": {"versions": [2]}}) == {"2"}
    (room.folder / "b/config.pbtxt").write_text("speed: 3")
    assert call({"all": {}}) == {"2", "3", "4"}
    config = json.dumps({"version_policy": {"specific": {"versions": [7]}}})
    code, body = room.engine.call("load", "b", {"parameters": {"config": config}})
    assert (code, "expected versions that are there (2, 3, 4), found 7" in body["error"]) == (
        400, True,
    )  # fmt: skip
    assert set(room.states(ready=True)) == {"a/1", "b/2", "b/3", "b/4"}


def test_what_is_wrong_with_others_is_not_said(room: Room) -> None:
    """Problems belong to models, and not to what their text looks like."""
    outside = room.folder.with_name("outside")
    (outside / "b").mkdir(parents=True)
    (outside / "b/model.onnx").touch()
    (room.folder / "bad/1").mkdir(parents=True)
    (room.folder / "bad/1/model.onnx").symlink_to(outside / "b/model.onnx")
    assert room.engine.call("load", "b") == (200, None)
    code, body = room.engine.call("load", "bad")
    assert (code, "expected no link out of the repository" in body["error"]) == (400, True)
    (room.folder / "linked").symlink_to(outside)
    code, body = room.engine.call("load", "linked")
    assert (code, "expected no link out of the repository" in body["error"]) == (400, True)
    code, body = room.engine.call("load", "none")
    assert body == {"error": "failed to load 'none': no repository holds a model 'none'"}


def test_a_model_that_could_not_be_read_and_is_loaded_is_listed_once(room: Room) -> None:
    """Its files had no version; readiness waits for it no more."""
    failed: list[list[str]] = []
    broken = [Broken("b", "it is no model")]
    room.control.list_models(room.live.models(), (), failed.append, broken)
    room.until(lambda: failed)
    assert room.states()["b/"] == ("UNAVAILABLE", "it is no model")
    assert room.engine.call("load", "b") == (200, None)
    assert room.states() == {"a/1": ("READY", ""), "b/2": ("READY", "")}
    assert room.engine.holds[-1] is False


def test_names_that_went_do_not_pile_up(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "UNAVAILABLE_MAX", 8)
    for number in range(20):
        room.add(f"m{number}/1")
        assert room.engine.call("load", f"m{number}") == (200, None)
        assert room.engine.call("unload", f"m{number}") == (200, None)
    assert len(room.live.states.rows()) == 8 + 1
    assert ("m19", 1, "UNAVAILABLE") in room.live.states.rows()


def test_an_unload_while_the_load_is_noted(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index says last what happened last."""
    put, threads = room.live.states.put, []

    def put_slowly(name: str, version: int, state: str, reason: str = "") -> None:
        if (name, state, threads) == ("b", "READY", []):
            threads.append(threading.Thread(target=room.live.remove, args=("b",)))
            threads[0].start()
            threads[0].join(0.1)  # it may go as far as it can
        put(name, version, state, reason)

    monkeypatch.setattr(room.live.states, "put", put_slowly)
    assert room.engine.call("load", "b") == (200, None)
    threads[0].join()
    assert {model.name for model in room.live.models()} == {"a"}
    assert room.states()["b/2"] == ("UNAVAILABLE", "unloaded")


# ---- on demand ----


@pytest.fixture
def demand(room: Room) -> Room:
    repository = room.config.repository.model_copy(update={"max_loaded": 4})
    room.live.reconfigure(room.config.model_copy(update={"repository": repository}))
    return room


def test_a_reload_leaves_what_is_loaded_on_demand_alone(demand: Room) -> None:
    demand.preparer.gate.clear()
    load_b = demand.engine.ask("demand", "b")
    demand.until(lambda: demand.states().get("b/2") == ("LOADING", ""))
    demand.control.list_models(demand.live.models(), (), lambda _: None)
    demand.preparer.gate.set()
    assert demand.engine.answer(load_b) == (200, None)
    assert demand.loaded == [("b", "b/2/model.onnx")]


@pytest.mark.parametrize("name", ["b", "b:2"])
@pytest.mark.parametrize("begins", [True, False], ids=["under way", "in the line"])
def test_an_unload_answers_who_waits_for_the_model(demand: Room, name: str, begins: bool) -> None:
    """In a sentence; who asks afterwards gets it."""
    demand.preparer.gate.clear()
    before = [] if begins else [demand.engine.ask("load", "a")]
    load_b = demand.engine.ask("demand", name)
    if begins:
        demand.until(lambda: demand.states().get("b/2") == ("LOADING", ""))
        demand.engine.refusal = "no model 'b' is served"
    assert demand.engine.call("unload", "b") == (200, None)
    code, said = demand.engine.answer(load_b)
    assert code == 503
    assert said.startswith((f"model '{name}' could not be loaded: ", f"failed to load '{name}': "))
    assert "it was unloaded" in said
    demand.engine.refusal = ""
    demand.preparer.gate.set()
    assert [demand.engine.answer(one) for one in before] == [(200, None)] * len(before)
    assert ("b", "b/2/model.onnx") not in demand.loaded
    assert demand.engine.call("demand", name) == (200, None)
    assert ("b", "b/2/model.onnx") in demand.loaded


# ---- folders and settings that change ----


def test_what_the_machine_lacked_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lumen_uring.control.live_models._PAUSES_S", ())
    monkeypatch.setattr("lumen_uring.control.control.RETRY_S", 0.05)
    room = Room(tmp_path, "watch")
    try:
        room.preparer.raises = [OSError(errno.ENFILE, "too many") for _ in range(3)]
        room.add("c/1")
        room.until(lambda: room.loaded == [("c", "c/1/model.onnx")])
        assert room.preparer.raises == []
        # A look that fails changes nothing, and is repeated.
        with monkeypatch.context() as patched:
            failures = [OSError(errno.EMFILE, "too many")] * 3

            def fail(config: Config) -> Any:
                if failures:
                    raise failures.pop()
                return entries_in(config)

            patched.setattr("lumen_uring.control.following.entries_in", fail)
            room.add("d/1")
            room.until(lambda: ("d", "d/1/model.onnx") in room.loaded)
        assert room.engine.unloaded == []
    finally:
        room.control.close()


def test_lists_and_folders_are_both_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the machine had no means for either."""
    monkeypatch.setattr("lumen_uring.control.live_models._PAUSES_S", ())
    monkeypatch.setattr("lumen_uring.control.control._FIRST_RETRY_S", 0.05)
    monkeypatch.setattr("lumen_uring.control.control.RETRY_S", 0.05)
    room = Room(tmp_path / "models", "watch")
    own = ModelConfig(name="own", path=str(tmp_path / "own.onnx"))
    lacking = [True]
    prepare = room.preparer.prepare

    def prepare_or_lack(config: Config, model: ModelConfig, *rest: Any) -> Prepared:
        if lacking and model.name in ("own", "c"):
            room.log("", f"no means for {model.name}")
            raise OSError(errno.EMFILE, "too many")
        return prepare(config, model, *rest)

    monkeypatch.setattr(room.preparer, "prepare", prepare_or_lack)
    try:
        room.control.list_models((*room.live.models(), own), (), lambda _: None)
        room.until(lambda: "no means for own" in room.said)
        room.add("c/1")
        room.until(lambda: "no means for c" in room.said)
        lacking.clear()
        room.until(lambda: {"own", "c"} <= {name for name, _ in room.loaded})
    finally:
        room.control.close()


def test_a_look_that_fails_at_the_start_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many")

    with monkeypatch.context() as patched:
        patched.setattr("lumen_uring.control.following.Following.drop_gone", fail)
        room = Room(tmp_path, "watch", lambda room: room.add("c/1"))
    try:
        room.until(lambda: ("c", "c/1/model.onnx") in room.loaded)
    finally:
        room.control.close()


class Clock:
    """Stands in for the module time of control.py, whose loader alone asks it.

    Args:
        step_s: it moves on by so much each time that it is asked; seconds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step_s: float = 0.0) -> None:
        self.now_s = 100.0
        self._step_s = step_s
        monkeypatch.setattr("lumen_uring.control.live_models._PAUSES_S", ())
        monkeypatch.setattr("lumen_uring.control.control.time", self)

    def monotonic(self) -> float:
        self.now_s += self._step_s
        return self.now_s


def listed(folder: Path, file: str) -> ModelConfig:
    """An entry of the settings for the model `own`."""
    path = folder.with_name(file)
    path.touch()
    return ModelConfig(name="own", path=str(path))


def test_what_the_machine_lacks_again_is_tried_again_as_soon_as_at_first(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses double while the machine lacks something, and begin anew after a load."""
    clock = Clock(monkeypatch, step_s=0.01)
    tries_s: list[float] = []
    prepare = room.preparer.prepare

    def noted(*arguments: Any) -> Prepared:
        tries_s.append(clock.now_s)
        return prepare(*arguments)

    monkeypatch.setattr(room.preparer, "prepare", noted)
    said = "model own: version 1 is loaded"
    for turn, lacks in enumerate((3, 1)):
        room.preparer.raises = [OSError(errno.EMFILE, "too many") for _ in range(lacks)]
        models = [*room.config.models, listed(tmp_path, f"{turn}.onnx")]
        room.control.list_models(models, (), lambda _failed: None)
        room.until(lambda count=turn + 1: room.said.count(said) == count)
    pauses_s = [after - before for before, after in itertools.pairwise(tries_s)]
    assert [*pauses_s[:3], pauses_s[4]] == pytest.approx([0.5, 1.0, 2.0, 0.5], abs=0.05)


def test_a_list_that_waits_to_be_tried_again_gives_way_to_a_newer_one(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    room.engine.is_settled = False  # the loader goes on asking: first the clock, then the engine
    failed: list[list[str]] = []
    room.preparer.raises = [OSError(errno.EMFILE, "too many")]
    for turn, file in enumerate(("older.onnx", "newer.onnx")):
        models = [*room.config.models, listed(tmp_path, file)]
        room.control.list_models(models, (), failed.append)
        room.until(lambda count=turn + 1: len(failed) == count)
    assert (len(failed[0]), failed[1]) == (1, [])
    clock.now_s += 100
    looks = room.engine.settles
    room.until(lambda: room.engine.settles >= looks + 2)
    newer = listed(tmp_path, "newer.onnx")
    assert room.loaded == [("own", newer.path)]
    assert newer in room.live.models()


def test_what_has_come_is_loaded_though_what_has_gone_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room(tmp_path, "watch")

    def fail(_self: Following) -> None:
        raise OSError(errno.EMFILE, "too many")

    try:
        room.until(lambda: room.engine.settles)  # after the look at the start
        with monkeypatch.context() as patched:
            patched.setattr(Following, "drop_gone", fail)
            room.add("c/1")
            room.until(lambda: room.loaded == [("c", "c/1/model.onnx")])
    finally:
        room.control.close()


def test_folders_that_cannot_be_read_change_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    room = Room(folder, "watch")
    try:
        folder.rename(tmp_path / "away")
        folder.write_text("something else")
        room.until(lambda: any("found nothing" in s or "model's file" in s for s in room.said))
        folder.unlink()
        (tmp_path / "away").rename(folder)
        room.add("c/1")
        room.control._changed()
        room.until(lambda: ("c", "c/1/model.onnx") in room.loaded)
        assert room.engine.unloaded == []
        assert not any(room.engine.holds)
    finally:
        room.control.close()


def test_a_check_that_hangs_holds_no_folder_up(tmp_path: Path) -> None:
    """It ends when its model goes or changes; what has gone meanwhile is unloaded at once."""
    folder = tmp_path / "models"
    room = Room(folder, "watch")
    try:
        room.preparer.gate.clear()
        room.add("c/1")
        room.until(lambda: ("c", 1, "LOADING") in room.live.states.rows())
        (folder / "b").rename(tmp_path / "elsewhere")
        room.until(lambda: room.engine.unloaded == ["b"])
        (folder / "c").rename(tmp_path / "also")
        room.until(lambda: ("c", 1, "LOADING") not in room.live.states.rows())
        room.preparer.gate.set()
        room.add("d/1")
        room.until(lambda: room.loaded == [("d", "d/1/model.onnx")])
        room.preparer.gate.clear()
        room.add("e/1")
        room.until(lambda: ("e", 1, "LOADING") in room.live.states.rows())
        done: list[list[str]] = []
        room.control.list_models([], (), done.append)
        room.until(lambda: done == [[]])
        assert "a" in room.engine.unloaded
    finally:
        room.control.close()


def test_folders_that_change(tmp_path: Path) -> None:
    room = Room(tmp_path, "watch")
    loaded, unloaded = room.loaded, room.engine.unloaded
    try:
        room.add("c/1")
        room.until(lambda: loaded == [("c", "c/1/model.onnx")])
        room.add("tmp/.new/1")
        (tmp_path / "tmp/.new/1").rename(tmp_path / "a/2")
        room.until(lambda: ("a", "a/2/model.onnx") in loaded)
        (tmp_path / "b/2/model.onnx").write_text("another one")
        room.until(lambda: ("b", "b/2/model.onnx") in loaded)
        (tmp_path / "b/config.pbtxt").write_text("max_batch_size: 4")
        room.until(lambda: loaded.count(("b", "b/2/model.onnx")) == 2)
        (tmp_path / "b/config.pbtxt").write_text("speed: 4")  # b stays as it is
        (tmp_path / "c").rename(tmp_path.with_name("elsewhere"))
        room.until(lambda: unloaded == ["c"])
        room.until(lambda: any("unknown field 'speed'" in line for line in room.said))
        (tmp_path / "b/3").mkdir()  # a version that is not whole yet
        (tmp_path / "b/config.pbtxt").unlink()
        (tmp_path / "a").rename(tmp_path.with_name("away"))
        room.until(lambda: unloaded == ["c", "a"])
        assert {model.name: model.path for model in room.live.models()} == {
            "b": str(tmp_path / "b/2/model.onnx")
        }
    finally:
        room.control.close()
    # b, of which a version is not whole, stays as it is; a, which goes while folders are read, may
    # be tried once more: this loader opens no file.
    again = [name for name, _path in loaded if name != "c"]
    assert again in (["a", "b", "b"], ["a", "b", "b", "a"])


def listing(*models: tuple[str, str]) -> str:
    """The list of OpenVINO Model Server, of names and folders."""
    configs = [{"config": {"name": name, "base_path": base}} for name, base in models]
    return json.dumps({"model_config_list": configs})


def write(path: Path, text: str) -> None:
    """As a whole: a watcher sees the old file or the new one."""
    (path.parent / ".new").write_text(text)
    (path.parent / ".new").rename(path)


def names(room: Room) -> set[str]:
    return {model.name for model in room.live.models()}


def test_a_list_that_names_other_models(tmp_path: Path) -> None:
    """What it no longer names goes, though its folder is there; a list that cannot be read, and an
    entry that is wrong, change nothing."""
    config = tmp_path / "config.json"
    write(config, listing(("a", "a"), ("b", "b")))
    room = Room(tmp_path, "watch")
    try:
        write(config, listing(("c", "a"), ("b", "b")))  # another name of the same folder
        room.until(lambda: names(room) == {"b", "c"})
        write(config, listing(("c", "a"))[:-3])
        room.until(lambda: any("config.json" in one for one in room.said))
        assert names(room) == {"b", "c"}
        write(config, json.dumps({"model_config_list": "c"}))
        room.until(lambda: any("expected a mapping" in one for one in room.said))
        write(config, listing(("c", "a"), ("b", "missing")))
        room.until(lambda: any("base_path" in one for one in room.said))
        assert names(room) >= {"b", "c"}
        write(config, listing(("c", "a"), ("d", str(tmp_path / "b"))))
        room.until(lambda: names(room) == {"c", "d"})
        write(config, listing(("c", "a")))
        room.until(lambda: names(room) == {"c"})
    finally:
        room.control.close()


def ensemble(step: str, output: str = "z") -> str:
    return f"""platform: "ensemble"
        input {{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }}
        output {{ name: "{output}" data_type: TYPE_FP32 dims: [ 4 ] }}
        ensemble_scheduling {{ step {{ model_name: "{step}" model_version: -1
            input_map {{ key: "x" value: "x" }} output_map {{ key: "y" value: "{output}" }} }} }}"""


def virtual(room: Room) -> dict[str, tuple[str, tuple[str, ...]]]:
    """The step and the outputs of each ensemble that is served."""
    found = (one for one in room.live.virtual() if isinstance(one, EnsembleConfig))
    return {one.name: (one.steps[0].model, one.outputs) for one in found}


def test_ensembles_that_come_change_and_go(tmp_path: Path) -> None:
    room = Room(tmp_path, "watch")
    try:
        (tmp_path / "e/1").mkdir(parents=True)
        write(tmp_path / "e/config.pbtxt", ensemble("a"))
        room.until(lambda: virtual(room) == {"e": ("a", ("z",))})
        room.until(lambda: room.states().get("e/1") == ("READY", ""))
        write(tmp_path / "e/config.pbtxt", ensemble("b", "other"))
        room.until(lambda: virtual(room) == {"e": ("b", ("other",))})
        both = "version_policy: { latest { num_versions: 2 } }"
        write(tmp_path / "b/config.pbtxt", both)  # the step has another name
        room.until(lambda: virtual(room) == {"e": ("b:2", ("other",))} and "b" not in names(room))
        write(tmp_path / "e/config.pbtxt", "platform: 'ensemble' nonsense")
        room.until(lambda: any("nonsense" in one for one in room.said))
        assert virtual(room) == {"e": ("b:2", ("other",))}  # it cannot be read: as it was
        unloaded = len(room.engine.unloaded)
        (tmp_path / "e").rename(tmp_path / ".e")
        (tmp_path / "b").rename(tmp_path / ".b")
        room.until(lambda: virtual(room) == {} and names(room) == {"a"})
        assert room.engine.unloaded[unloaded:] == ["e", "b:2"]
    finally:
        room.control.close()


def test_a_folder_that_becomes_an_ensemble_and_a_model_again(tmp_path: Path) -> None:
    room = Room(tmp_path, "watch")
    try:
        write(tmp_path / "b/config.pbtxt", ensemble("a"))
        room.until(lambda: virtual(room) == {"b": ("a", ("z",))} and names(room) == {"a"})
        write(tmp_path / "b/config.pbtxt", "")
        room.until(lambda: virtual(room) == {} and names(room) == {"a", "b"})
    finally:
        room.control.close()


def test_an_ensemble_waits_for_what_it_runs(tmp_path: Path) -> None:
    room = Room(tmp_path, "watch")
    try:
        (tmp_path / "e/1").mkdir(parents=True)
        write(tmp_path / "e/config.pbtxt", ensemble("c"))
        expected = ("UNAVAILABLE", "it runs 'c', which cannot be served")
        room.until(lambda: room.states().get("e/") == expected)
        room.add("c/1")
        room.until(lambda: virtual(room) == {"e": ("c", ("z",))})
        room.until(lambda: room.states().get("e/1") == ("READY", ""))
        assert "e/" not in room.states()
        write(tmp_path / "e/config.pbtxt", ensemble("d"))
        room.until(lambda: "model e: not loaded: it runs 'd', which cannot be served" in room.said)
        assert virtual(room) == {"e": ("c", ("z",))}  # as it was
    finally:
        room.control.close()


def test_an_ensemble_of_the_settings_outlives_changes_of_folders(
    tmp_path: Path,
) -> None:
    settings = ["ensembles=[{name: s, steps: [{model: a}]}]"]
    room = Room(tmp_path, "watch", more=settings)
    try:
        (tmp_path / "s/1").mkdir(parents=True)
        write(tmp_path / "s/config.pbtxt", ensemble("b"))
        room.add("c/1")
        room.until(lambda: "c" in names(room))
        assert virtual(room) == {"s": ("a", ())}
        room.until(lambda: any("another name than 's'" in one for one in room.said))
    finally:
        room.control.close()


def test_a_model_whose_file_gives_it_another_name(tmp_path: Path) -> None:
    """MLServer's settings, of a file and of a folder of versions."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one/model.onnx").touch()
    (tmp_path / "several/1").mkdir(parents=True)
    (tmp_path / "several/1/model.onnx").touch()
    for folder in ("one", "several"):
        write(tmp_path / folder / "model-settings.json", json.dumps({"name": folder}))
    room = Room(tmp_path, "watch")
    try:
        assert names(room) == {"a", "b", "one", "several"}
        for folder in ("one", "several"):
            write(tmp_path / folder / "model-settings.json", json.dumps({"name": f"{folder}-2"}))
        room.until(lambda: names(room) == {"a", "b", "one-2", "several-2"})
    finally:
        room.control.close()


def test_folders_that_change_while_the_server_starts(tmp_path: Path) -> None:
    def meanwhile(room: Room) -> None:
        (room.folder / "a/1/model.onnx").write_text("another one")
        room.add("c/1")
        (room.folder / "b").rename(tmp_path.with_name("moved"))

    room = Room(tmp_path, "watch", meanwhile)
    try:
        room.until(lambda: len(room.loaded) == 2 and room.engine.unloaded)
    finally:
        room.control.close()
    assert room.loaded == [("a", "a/1/model.onnx"), ("c", "c/1/model.onnx")]
    assert room.engine.unloaded == ["b"]


def test_settings_that_change(room: Room, tmp_path: Path) -> None:
    """The list of the settings; a model that a client had loaded is no part of it."""
    failed: list[list[str]] = []
    assert room.engine.call("load", "b") == (200, None)
    file = tmp_path / "x.onnx"
    file.touch()
    settings = ["repository.control=explicit", "models.0.max_rows=3"]
    wanted = load(None, settings, [f"x={file}"], None, [str(tmp_path)]).models
    room.control.list_models(wanted, (), failed.append)
    room.until(lambda: room.engine.unloaded == ["a"] and len(room.loaded) == 2)
    assert {model.name for model in room.live.models()} == {"b", "x"}
    room.control.list_models(wanted, (), failed.append)  # as they are: nothing is loaded
    rates = [model.model_copy(update={"rate": 2.0}) for model in wanted]
    room.control.list_models(rates, (), failed.append)
    room.until(lambda: room.live.models()[-1].rate == 2.0)
    file.write_text("another one")
    room.control.list_models(wanted, (), failed.append)
    room.until(lambda: len(room.loaded) == 3)
    room.control.list_models([], (), failed.append)
    room.until(lambda: len(failed) == 5)
    assert room.engine.unloaded == ["a", "x"]
    assert len(room.loaded) == 3
    assert failed == [[]] * 5
    room.preparer.wrong = {"x": "it is none"}
    room.control.list_models(wanted, (), failed.append)
    room.until(lambda: len(failed) == 6)
    assert failed[-1] == ["model x: not loaded: it is none"]


def test_other_labels_of_an_ensemble_are_a_change(room: Room, tmp_path: Path) -> None:
    failed: list[list[str]] = []
    labels = tmp_path / "labels.txt"
    labels.write_text("one")
    values = {"name": "e", "steps": [{"model": "a"}], "labels": str(labels)}
    whole = EnsembleConfig.model_validate(values)
    for number, times in enumerate((1, 1, 2)):
        if times == 2:
            labels.write_text("one and two")
        room.control.list_models(room.live.models(), [whole], failed.append)
        room.until(lambda count=number + 1: len(failed) == count)
        assert room.loaded == [("e", "virtual")] * times
    assert failed == [[], [], []]


def test_a_virtual_model_that_could_not_be_read_goes_with_its_entry(room: Room) -> None:
    """It is served while its entry cannot be read, and no longer once the entry is gone."""
    failed: list[list[str]] = []
    models = room.live.models()
    whole = EnsembleConfig.model_validate({"name": "e", "steps": [{"model": "a"}]})
    room.control.list_models(models, [whole], failed.append)
    room.until(lambda: len(failed) == 1)
    room.control.list_models(models, (), failed.append, [Broken("e", "it is none")])
    room.until(lambda: len(failed) == 2)
    assert (room.live.virtual(), room.engine.unloaded) == ((whole,), [])
    room.control.list_models(models, (), failed.append)
    room.until(lambda: len(failed) == 3)
    assert (room.live.virtual(), room.engine.unloaded) == ((), ["e"])
    assert failed == [[], ["model e: not loaded: it is none"], []]


INPUT = 'input [{ name: "x" data_type: TYPE_FP32 dims: [3] }]'


@pytest.mark.parametrize(
    ("text", "is_new"),
    [
        (INPUT, False),
        (f"\n# a remark\n{INPUT}", False),
        (INPUT.replace("[3]", "[4]"), True),
        (INPUT.replace('"x"', '"z"'), True),
        (INPUT.replace("FP32", "INT64"), True),
        (INPUT.replace(" }]", " reshape { shape: [1, 3] } }]"), True),
        (INPUT.replace(" }]", " optional: true }]"), True),
        (INPUT.replace("input", "output"), True),
        (f'{INPUT} default_model_filename: "model.onnx"', True),
        ("", True),
    ],
)
def test_what_a_configuration_declares_is_a_change(tmp_path: Path, text: str, is_new: bool) -> None:
    """By a change of the folder, by a reload, and of an entry of `models` that is a folder."""
    room = Room(tmp_path / "repo", "watch")
    config = tmp_path / "repo/a/config.pbtxt"
    try:
        config.write_text(INPUT)
        room.until(lambda: room.loaded == [("a", "a/1/model.onnx")])
        served = next(model for model in room.live.models() if model.name == "a")
        config.write_text(text)
        (wanted,) = (one for one in entries_in(room.config).entries if one.name == "a")
        assert reload.needs_loading(served, wanted) == is_new
        failed: list[list[str]] = []
        room.control.list_models(entries_in(room.config).entries, (), failed.append)
        room.until(lambda: failed == [[]])
        assert room.loaded == [("a", "a/1/model.onnx")] * (2 if is_new else 1)
    finally:
        room.control.close()
    place = f"m={tmp_path / 'repo/a'}"
    (after,) = load(None, (), [place], None).models
    config.write_text(INPUT)
    (before,) = load(None, (), [place], None).models
    plan = reload.plan(load(None, (), [place], None), load(None, (), [place], None))
    assert plan.changed == ()
    assert reload.needs_loading(before, after) == is_new


def test_another_version_in_a_files_settings_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/a.onnx").touch()
    entries = []
    for version in ("1", "1", "2"):
        said = {"parameters": {"version": version}}
        (tmp_path / "m/model-settings.json").write_text(json.dumps(said))
        entries += load(None, (), (), None, [str(tmp_path)]).models
    assert not reload.needs_loading(entries[0], entries[1])
    assert reload.needs_loading(entries[1], entries[2])


def test_what_a_reload_says(tmp_path: Path) -> None:
    old = load(None, ["models.0.rate=1"], ["a=a.onnx", "b=b.onnx", "c=c.onnx"])
    new = load(None, ["models.0.rate=2", "models.1.max_rows=9"], ["a=a.onnx", "c=c.onnx", "d=d"])
    plan = reload.plan(old, new)
    assert plan.changed == (
        "models.0.rate", "model b (to be unloaded)", "model c (to be loaded again)",
        "model d (to be loaded)",
    )  # fmt: skip
    assert plan.refused == ()
    assert plan.models == new.models
    assert [(model.name, model.rate, model.max_rows) for model in plan.config.models] == [
        ("a", 2.0, 0), ("b", 0.0, 0), ("c", 0.0, 0),
    ]  # fmt: skip


# ---- the check in a process of its own ----


def preparer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, starved_s: float = 600
) -> Preparer:
    """One whose process does something else."""
    (folder / "stand_in.py").write_text(textwrap.dedent(body))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return Preparer("stand_in", starved_s)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("import os; os.kill(os.getpid(), 11)", "ended with signal SIGSEGV: it said nothing"),
        ("import sys; sys.exit('no model')", "ended with status 1: no model"),
        ("raise MemoryError", "needs more memory than repository.load_bytes allows"),
        ("import time; time.sleep(60)", "took longer than 1 s (repository.load_seconds)"),
        ("print('{')", "ended with status 0"),
        ("print('{\"reason\": \"it is none\", \"notes\": []}')", "it is none"),
    ],
)  # fmt: skip
def test_a_check_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, says: str
) -> None:
    """Row 45."""
    seconds = 1 if "sleep" in body else 600
    config = load(None, [f"repository.load_seconds={seconds}", "repository.load_gently=false"])
    with pytest.raises(PrepareError) as caught:
        preparer(tmp_path, monkeypatch, body).prepare(config, config.models[0])
    assert says in str(caught.value)


def test_a_check_that_others_leave_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins again with ordinary priority, and so does the load behind it."""
    body = """
        import json, os, sys, time
        told = json.load(sys.stdin)
        assert (os.sched_getscheduler(0) == os.SCHED_IDLE) == told["gently"]
        time.sleep(60 if told["gently"] else 0)
        print(json.dumps({"reason": None, "notes": ["at last"]}))
    """
    config = load()
    starved = preparer(tmp_path, monkeypatch, body, 0.5)
    assert starved.prepare(config, config.models[0]) == (["at last"], False)


def test_a_check_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load()
    slow = preparer(tmp_path, monkeypatch, "import time; time.sleep(60)")
    timer = threading.Timer(0.2, slow.stop)
    timer.start()
    with pytest.raises(PrepareError, match="shutting down"):
        slow.prepare(config, config.models[0])
    timer.join()
    with pytest.raises(PrepareError, match="shutting down"):
        slow.prepare(config, config.models[0])


def test_a_check_fills_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, c_library: None
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ordinary = "repository.load_gently=false"
    config = load(None, ["models.0.scale=0.5", "server.keys=[]", ordinary])
    monkeypatch.setattr(model_file, "_readings", {})
    Preparer().prepare(config, config.models[0])
    [cached] = (tmp_path / "lumen").glob("*.ort")
    [(_, digest, *_)] = model_file.known()  # the process has told
    assert cached.name.startswith(digest[:32])
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    small = load(None, ["repository.load_bytes=64MiB", ordinary])
    with pytest.raises(PrepareError, match="more memory than repository"):
        Preparer().prepare(small, config.models[0])
    bad = config.models[0].model_copy(update={"path": str(tmp_path / "bad.onnx")})
    with pytest.raises(PrepareError, match=r"bad\.onnx"):
        Preparer().prepare(config, bad)
