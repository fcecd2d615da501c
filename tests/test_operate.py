"""The main thread of a server that runs: signals, reloads, the drain, and the service manager.

Stand-ins write down what the engine, the log and the manager are told, in its order;
tests/e2e/operate/test_e2e_operate.py and test_e2e_reload.py have real ones.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lumen_uring import __version__
from lumen_uring.config import load
from lumen_uring.errors import ConfigError, EngineError, LumenError, MetricsError
from lumen_uring.guard import Guard
from lumen_uring.loading import add as loading
from lumen_uring.loading.model_cache import CachePlace
from lumen_uring.loading.prepare import Preparer
from lumen_uring.metrics.facts import facts_of
from lumen_uring.ring.config_struct import EnginePlace
from lumen_uring.serving import server
from lumen_uring.serving.main_loop import MainLoop
from lumen_uring.serving.notify import Notifier
from lumen_uring.settings.broken import Broken
from lumen_uring.settings.reload import plan
from lumen_uring.settings.schema import Config

Calls = list[tuple[object, ...]]
GUARD = Guard(lambda _level, _text: None)
HUP, INT, TERM = signal.SIGHUP, signal.SIGINT, signal.SIGTERM


class Told:
    """Every method of it is a call that is written down; some have an answer to give."""

    def __init__(self, name: str, calls: Calls, **answers: Callable[..., object]) -> None:
        self._name = name
        self._calls = calls
        self._answers = answers

    def __getattr__(self, method: str) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            self._calls.append((f"{self._name}.{method}", *arguments, *named.values()))
            answer = self._answers.get(method)
            return None if answer is None else answer(*arguments)

        return call


def in_turn(*values: object) -> Callable[..., object]:
    """Gives the values one after the other, then the last again; raises those that are errors."""
    left = list(values)

    def give(*_arguments: object) -> object:
        value = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(value, BaseException):
            raise value
        return value

    return give


class Scene:
    """A server that runs, made of stand-ins.

    Args:
        signals: what the queue gives, one a wait.
        config: the settings in force.
        wanted: what reading them again gives.
        engine: answers of the engine's methods.
        more: further signals, that a look during the drain finds.
        watchdog_s: of the service manager.
        reopen: what opening the log again gives, or raises.
        reload: the same of putting settings in force.
    """

    def __init__(
        self,
        signals: list[signal.Signals | None],
        config: Config | None = None,
        wanted: Config | LumenError | None = None,
        engine: dict[str, Callable[..., object]] | None = None,
        more: tuple[signal.Signals | None, ...] = (None,),
        watchdog_s: float = 0.0,
        reopen: object = None,
        reload: object = None,
    ) -> None:
        self.calls: Calls = []
        self.failures: list[str] = []
        self.config = config or load(None, ["server.unready_seconds=0"])
        quiet = {"wait": in_turn(False), "news": in_turn(""), "heartbeat": in_turn(False)}
        self.notifier: Any = Told("manager", self.calls)
        self.notifier.watchdog_s = watchdog_s
        self.metrics = Told("metrics", self.calls)
        self.watch = MainLoop(
            self.config,
            in_turn(wanted or self.config),  # type: ignore[arg-type]
            Told("log", self.calls, reopen=in_turn(reopen)),  # type: ignore[arg-type]
            self.notifier,
            Told("signals", self.calls, wait=in_turn(*signals), take=in_turn(*more)),  # type: ignore[arg-type]
            Told("engine", self.calls, **{**quiet, **(engine or {})}),  # type: ignore[arg-type]
            self.metrics,  # type: ignore[arg-type]
            Told("processes", self.calls, look=in_turn(60.0)),  # type: ignore[arg-type]
            Told(
                "live",
                self.calls,
                models=in_turn(self.config.models),
                virtual=in_turn(self.config.virtual_entries()),
                reconfigure=in_turn(reload),
            ),  # type: ignore[arg-type]
            Told("control", self.calls),  # type: ignore[arg-type]
            Told("report", self.calls, begin=in_turn(1)),  # type: ignore[arg-type]
            Guard(lambda _level, text: self.failures.append(text)),
        )

    def run(self) -> int:
        return self.watch.until_the_end()

    def told(self, *without: str) -> Calls:
        """All calls but those that only look."""
        looks = (
            *("signals.wait", "signals.take", "engine.wait", "engine.news", *without),
            *(
                "processes.look",
                "live.models",
                "live.virtual",
                "control.list_models",
                "control.listed",
                "control.look",
                "control.close",
            ),
            *("report.begin", "report.end"),
        )
        return [call for call in self.calls if call[0] not in looks]


DRAIN = ("log.say", "Draining for at most 5 s; a second signal ends the server at once.")
FAILS_AS = {
    "processes.look": "processes",
    "signals.wait": "signals",
    "engine.news": "news",
    "control.look": "control",
    "manager.reloading": "signals",
}
STOPPING = ("manager.stopping", 8.0, "Draining for at most 5 s.")


@pytest.mark.parametrize("number", [INT, TERM, signal.SIGQUIT, signal.SIGXCPU])
def test_a_signal_drains_and_ends(number: signal.Signals) -> None:
    scene = Scene([None, number], engine={"wait": in_turn(False, False, False, True)})
    assert scene.run() == 0
    assert scene.told() == [STOPPING, ("engine.stop", 5.0), DRAIN]
    # Looked at once a second, and every tenth of one while it drains.
    waits = [call for call in scene.calls if call[0] in ("signals.wait", "engine.wait")]
    assert waits[:4] == [("signals.wait", 1.0), ("engine.wait", 0)] * 2
    assert waits[4:] == [("engine.wait", 0.1)] * 2


@pytest.mark.parametrize(
    "part", ["processes.look", "signals.wait", "engine.news", "control.look", "manager.reloading"]
)
def test_a_part_that_fails_ends_nothing(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    ends = {"wait": in_turn(*[False] * 12, True)}
    scene = Scene([HUP, None, TERM], engine=ends, watchdog_s=1.0)
    who, _, call = part.partition(".")
    told = {"manager": scene.notifier, **vars(scene.watch)}.get(who) or getattr(
        scene.watch, f"_{who}"
    )
    usual, failures = getattr(told, call), iter([OSError(24, "Too many open files"), MemoryError()])

    def fails(*arguments: object) -> object:
        if error := next(failures, None):
            raise error
        return usual(*arguments)

    monkeypatch.setattr(told, call, fails, raising=False)
    assert scene.run() == 0
    assert scene.failures[0].startswith(f"{FAILS_AS[part]}: OSError: [Errno 24]")
    assert DRAIN in scene.calls


def test_sigterm_turns_readiness_off_first_and_ctrl_c_does_not() -> None:
    config = load(None, ["server.unready_seconds=1000", "server.drain_seconds=2.5"])
    ends = {"wait": in_turn(False, False, True)}
    unready = [
        ("manager.stopping", 1005.5, "Draining for at most 2.5 s."),
        ("engine.unready",),
        ("log.say", "Readiness is off; the server still serves for 1000 s."),
        ("engine.stop", 2.5),
        ("log.say", "Draining for at most 2.5 s; a second signal ends the server at once."),
    ]
    scene = Scene([TERM, None, signal.SIGUSR1, INT], config, engine=dict(ends))
    assert scene.run() == 0
    assert scene.told() == unready
    waits = [call[1] for call in scene.calls if call[0] == "signals.wait"]
    assert waits[0] == 1.0
    assert all(0 < wait <= 1.0 for wait in waits)
    # An engine that ends meanwhile is not waited for either.
    scene = Scene([TERM, None], config, engine={"wait": in_turn(False, False, True)})
    assert scene.run() == 0
    assert scene.told() == unready
    scene = Scene([INT], config, engine={"wait": in_turn(False, True)})
    assert scene.run() == 0
    assert scene.told() == [
        ("manager.stopping", 5.5, "Draining for at most 2.5 s."),
        *unready[3:],
    ]


def test_a_second_signal_ends_at_once_and_a_third_the_process() -> None:
    scene = Scene([TERM], more=(None, INT))
    assert scene.run() == 0
    assert scene.told() == [
        STOPPING,
        ("engine.stop", 5.0),
        DRAIN,
        ("engine.stop", 0),
        ("signals.give_back", server.ENDING),
    ]
    assert scene.calls[-1][0] == "signals.give_back"
    looked = [call for call in scene.calls if call[0] == "signals.take"]
    assert looked == [("signals.take", server.ENDING)] * 2


def test_a_model_that_does_not_return_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = tmp_path / "figures"
    figures.touch()
    ended: list[int] = []

    class Ended(BaseException):
        pass

    def end(status: int) -> None:
        ended.append(status)
        raise Ended

    class Info:
        stats_path = str(figures)

    monkeypatch.setattr(os, "_exit", end)
    config = load(None, ["server.drain_seconds=0.25"])
    scene = Scene([TERM], config, engine={"info": in_turn(Info())})
    with pytest.raises(Ended):
        scene.run()
    assert ended == [0]
    assert not figures.exists()
    assert (
        "log.say",
        "A model has not returned: the server ends without it.",
        "warning",
    ) in scene.calls
    # The drain and two seconds more, in tenths.
    assert scene.calls.count(("engine.wait", 0.1)) == 23
    figures.touch()
    figures.unlink()
    with pytest.raises(Ended):  # somebody has tidied it away already
        Scene([TERM], config, engine={"info": in_turn(Info())}).run()


def test_an_engine_that_ends_by_itself_is_a_failure() -> None:
    scene = Scene([None], engine={"wait": in_turn(False, True)})
    assert scene.run() == 1
    assert scene.told() == [("log.log", "error", "The engine ended by itself.")]
    # Also where a signal comes at that moment: nothing was drained.
    scene = Scene([TERM], engine={"wait": in_turn(True)})
    assert scene.run() == 1


def test_news_heartbeats_and_signals_that_mean_nothing() -> None:
    answers = {
        "wait": in_turn(False, False, False, True),
        "news": in_turn("", "A file is full."),
        "heartbeat": in_turn(False, True),
    }
    scene = Scene([None, signal.SIGALRM, None], engine=answers, watchdog_s=4.0)
    assert scene.run() == 1
    assert scene.told() == [
        ("engine.heartbeat",),
        ("log.log", "debug", "SIGALRM is ignored."),
        ("log.log", "error", "A file is full."),
        ("engine.heartbeat",),
        ("manager.alive",),
        ("log.log", "error", "A file is full."),
        ("engine.heartbeat",),
        ("manager.alive",),
        ("log.log", "error", "The engine ended by itself."),
    ]
    # Nobody asks for a heartbeat where no watchdog waits for it.
    scene = Scene([None], engine={"wait": in_turn(False, True), "heartbeat": in_turn(True)})
    assert scene.run() == 1
    assert scene.told() == [("log.log", "error", "The engine ended by itself.")]


NOT_BY_ITSELF = ("log.log", "error", "The engine ended by itself.")


def once() -> dict[str, Callable[..., object]]:
    return {"wait": in_turn(False, True)}


def test_a_reload_puts_its_part_in_force_everywhere() -> None:
    wanted = load(
        None,
        [
            "server.hosts=[b.example]",
            "server.rate=7",
            "log.level=error",
            "server.port=1234",
            "engine.idle=spin",
            "server.unready_seconds=0",
        ],
    )
    scene = Scene([HUP], wanted=wanted, engine=once())
    assert scene.run() == 1
    server_part = {"hosts": ("b.example",), "rate": 7.0}
    config = scene.config.model_copy(
        update={
            "server": scene.config.server.model_copy(update=server_part),
            "log": wanted.log,
        }
    )
    assert scene.told() == [
        ("manager.reloading",),
        ("log.reopen", wanted.log),
        ("live.reconfigure", config),
        ("metrics.set_hosts", ("b.example",)),
        ("engine.reopen_files", config),
        ("log.log", "warning", "server.port cannot change without a restart: 8000 stays."),
        ("log.log", "warning", "engine.idle cannot change without a restart: adaptive stays."),
        ("log.log", "info", "Reloaded: server.rate, server.hosts, log.level."),
        ("manager.ready", "Reloaded."),
        NOT_BY_ITSELF,
    ]
    assert scene.watch._config == config
    said = {call[0]: call[1:] for call in scene.calls}
    summary, *refused = said["report.begin"][0]  # type: ignore[misc]
    assert (summary, len(refused)) == ("Reloaded: server.rate, server.hosts, log.level.", 2)
    assert said["control.list_models"][0] == wanted.models


def test_a_reload_that_changes_nothing_says_so() -> None:
    scene = Scene([HUP], engine=once())
    assert scene.run() == 1
    assert ("log.log", "info", "Reloaded: no setting has changed.") in scene.calls


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            {"wanted": ConfigError("port: x\nhost: y")},
            [
                (
                    "log.log",
                    "error",
                    "The reload failed, the old settings stay in force:\nport: x\nhost: y",
                )
            ],
        ),
        (
            {"reopen": ConfigError("log.path: no.")},
            [
                ("log.reopen", load().log),
                ("log.log", "error", "log.path: no. The old settings stay in force."),
            ],
        ),
        (
            {"reload": EngineError("no memory")},
            [
                ("log.reopen", load().log),
                ("live.reconfigure", load(None, ["server.rate=3"])),
                ("live.reconfigure", load(None, ["server.unready_seconds=0"])),
                ("log.log", "error", "The reload failed, only the log was opened again: no memory"),
            ],
        ),
    ],
)
def test_a_reload_that_is_refused_changes_nothing(answers: dict[str, Any], told: Calls) -> None:
    wanted = answers.get("wanted", load(None, ["server.rate=3"]))
    again = {name: answers[name] for name in ("reopen", "reload") if name in answers}
    scene = Scene([HUP], wanted=wanted, engine=once(), **again)
    assert scene.run() == 1
    assert scene.told() == [
        ("manager.reloading",), *told, ("manager.ready", "Reloaded."), NOT_BY_ITSELF,
    ]  # fmt: skip
    assert scene.watch._config == scene.config


def test_the_log_to_come_is_opened_again_while_the_workers_change() -> None:
    """Once they could not, the models have the settings that stayed, too."""
    options = ["log.level=debug", "engine.thread_count=2", "server.unready_seconds=0"]
    wanted = load(None, options)
    reopened = threading.Event()

    def change(_config: Config) -> bool:
        assert reopened.wait(60)
        raise EngineError("no core is left")

    engine: dict[str, Callable[..., object]] = {
        "change_workers": change,
        "reopen_files": lambda _config: reopened.set(),
        "wait": lambda _seconds: any(call[0] == "report.begin" for call in scene.calls),
    }
    scene = Scene([HUP, signal.SIGUSR1, None], wanted=wanted, engine=engine)
    assert scene.run() == 1
    asked = scene.config.model_copy(update={"log": wanted.log, "engine": wanted.engine})
    stays = asked.model_copy(update={"engine": scene.config.engine})
    given = [call for call in scene.calls if call[0] in ("log.reopen", "live.reconfigure")]
    assert given == [
        ("log.reopen", wanted.log),
        ("live.reconfigure", asked),
        ("log.reopen", wanted.log),
        ("live.reconfigure", stays),
    ]
    assert scene.watch._config == stays


def test_a_reload_that_is_asked_for_during_another_follows_it_once() -> None:
    """The first one waits for the workers, whom the engine then refuses to change."""
    may_end = threading.Event()
    turns: list[int] = []

    def change_workers(_config: Config) -> bool:
        assert may_end.wait(30)
        raise EngineError("No memory is left")

    def news() -> str:
        turns.append(1)
        if len(turns) == 2:  # both signals are obeyed
            may_end.set()
        return ""

    def count(name: str) -> int:
        return sum(call[0] == name for call in scene.calls)

    scene = Scene(
        [HUP, HUP, None],
        wanted=load(None, ["engine.thread_count=2"]),
        engine={
            "change_workers": change_workers,
            "news": news,
            "wait": lambda _timeout_s: count("report.begin") >= 2,
        },
    )
    assert scene.run() == 1
    assert count("manager.reloading") == 2
    assert scene.failures == []


def test_workers_stay_where_their_change_breaks() -> None:
    """Whatever the engine raises: the settings in force are those of the workers that there are."""
    more = ("engine.thread_count=2", "server.unready_seconds=0")
    scene = Scene(
        [HUP, None],
        wanted=load(None, [*more, "server.hosts=[a.example]"]),
        engine={
            "change_workers": in_turn(RuntimeError("broken")),
            "wait": lambda _timeout_s: any(call[0] == "report.begin" for call in scene.calls),
        },
    )
    assert scene.run() == 1
    why = "The workers could not be changed; the engine's settings stay."
    assert ("log.log", "warning", why) in scene.calls
    assert ("log.log", "info", "Reloaded: server.hosts.") in scene.calls
    assert scene.watch._config.engine == scene.config.engine


def test_sigusr1_opens_all_files_again() -> None:
    scene = Scene([signal.SIGUSR1], engine=once())
    assert scene.run() == 1
    assert scene.told() == [
        ("log.reopen", scene.config.log),
        ("engine.reopen_files", scene.config),
        NOT_BY_ITSELF,
    ]


# ---- what a reload may change ----

# Setting, another value of it, and whether it changes at once.
RELOADED = [
    ("server.keys", f"[{{name: a, sha256: '{'ab' * 32}'}}]", True),
    ("server.hosts", "[a.example]", True),
    ("server.rate", "3", True),
    ("server.burst", "4", True),
    ("server.unready_seconds", "4", True),
    ("server.drain_seconds", "6", True),
    ("server.port", "7", False),
    ("server.max_in_flight", "8", False),
    ("server.metrics_port", "9", False),
    ("server.default_timeout_ms", "10", False),
    ("engine.thread_count", "2", True),
    ("engine.queue_type", "scq", True),
    ("engine.allocator_type", "standard", True),
    ("engine.idle", "park", False),
    ("engine.telemetry_csv_path", "x", False),
    ("log.level", "error", True),
    ("log.format", "json", True),
    ("log.path", "x", True),
    ("log.access_path", "x", False),
    ("traces.endpoint", "http://127.0.0.1:4318/v1/traces", False),
    ("traces.share", "0.5", False),
    ("traces.service", "other", False),
    ("budgets.path", "x", False),
    ("models.0.rate", "3", True),
    ("models.0.burst", "5", True),
]


@pytest.mark.parametrize(("setting", "value", "at_once"), RELOADED)
def test_which_settings_a_reload_changes(setting: str, value: str, at_once: bool) -> None:
    rates = [] if setting.endswith("rate") else ["server.rate=2", "models.0.rate=2"]
    current = load(None, rates)
    wanted = load(None, [*rates, f"{setting}={value}"])
    made = plan(current, wanted)
    if at_once:
        assert made == (wanted, (setting,), (), wanted.models, ())
        return
    section: Any = current
    for step in setting.split("."):
        section = section[int(step)] if step.isdecimal() else getattr(section, step)
    stays = "null" if section is None else section
    assert made == (
        current, (), (f"{setting} cannot change without a restart: {stays} stays.",),
        wanted.models, (),
    )  # fmt: skip


def test_a_reload_looks_at_every_section() -> None:
    """What it does not compare would change, or stay, without a word."""

    class Asked:
        """Settings that note what is asked of them."""

        def __init__(self, config: Config) -> None:
            self._config = config
            self.names: set[str] = set()

        def __getattr__(self, name: str) -> Any:
            self.names.add(name)
            return getattr(self._config, name)

    wanted = Asked(load())
    plan(load(), wanted)  # type: ignore[arg-type]
    assert set(Config.model_fields) <= wanted.names


@pytest.mark.parametrize("change", [{"port": 8444}, {"only": True}])
def test_certificates_change_and_what_listens_does_not(change: dict[str, object]) -> None:
    tls = {"port": 8443, "certificates": [{"cert": "a.pem", "key": "a.key"}]}

    def having(**other: object) -> Config:
        return Config.model_validate({"server": {"tls": {**tls, **other}}})

    current = having()
    renewed = having(certificates=[{"cert": "b.pem", "key": "b.key"}])
    assert plan(current, renewed)[:3] == (renewed, ("server.tls",), ())
    made = plan(current, having(**change))
    assert made[:2] == (current, ())
    [refused] = made.refused
    assert refused.startswith("server.tls cannot change without a restart")


@pytest.mark.parametrize("setting", ["path=other", "batch_size=2", "labels=x"])
def test_a_model_of_other_settings_is_loaded_again(setting: str) -> None:
    current, wanted = load(), load(None, [f"models.0.{setting}"])
    assert plan(current, wanted) == (
        current, ("model digits (to be loaded again)",), (), wanted.models, (),
    )  # fmt: skip


def test_models_come_and_go_and_rates_change_at_once() -> None:
    current = load(None, ["models.0.rate=1", "models.1.rate=2"], ["a=x", "b=y"])
    wanted = load(None, ["models.0.rate=3", "models.1.rate=4"], ["b=y", "c=z"])
    made = plan(current, wanted)
    assert made.refused == ()
    assert made.changed == (
        "model a (to be unloaded)", "models.1.rate", "model c (to be loaded)",
    )  # fmt: skip
    assert made.models == wanted.models
    assert [(model.name, model.path, model.rate) for model in made.config.models] == [
        ("a", "x", 1),
        ("b", "y", 3),
    ]
    listed = plan(current, wanted, {"b"})  # the other one came by a call, and stays
    assert listed == made._replace(changed=("models.1.rate", "model c (to be loaded)"))


# ---- the start ----


def test_every_problem_of_files_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    models = [f"a={tmp_path}/none", f"b={tmp_path}/m", f"c={tmp_path}/gone"]
    (kept,), problems = server._find_files(load(None, (), models))
    assert kept[0].name == "b"
    assert [(name, str(problem).split()[3]) for name, problem in problems] == [
        ("a", f"{tmp_path}/none"),
        ("c", f"{tmp_path}/gone"),
    ]
    # Without any file there is nothing more to find out.
    with pytest.raises(ConfigError) as caught:
        server._find_files(load(None, (), [models[0], models[2]]))
    assert len(str(caught.value).splitlines()) == 2
    config = load(None, (), ["d=builtin:digits", f"b={tmp_path}/m"])
    ((digits, path, names), (model, own, none)), _ = server._find_files(config)
    assert (digits.name, path.name, model.name) == ("d", "digits.onnx", "b")
    assert names == b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9"
    assert (own, none) == (tmp_path / "m", None)


def test_models_are_added_each_with_its_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    class Info:
        ort_version = "1.2.3"

    places = {"x": CachePlace(Path("/c/x"), None), "y": CachePlace(None, "y is not kept")}
    asked: list[tuple[str, str]] = []

    def place(path: Path, version: str, _fixed: Mapping[str, int], _given: str) -> CachePlace:
        asked.append((str(path), version))
        return places[str(path)]

    monkeypatch.setattr(loading, "cache_place", place)
    config = load(None, ["models.1.engine=onnxruntime"], ["a=x", "b=y"])
    one, two = config.models
    files = [(one, Path("x"), b"labels"), (two, Path("y"), None)]
    calls: Calls = []
    notes: list[str] = []
    engine: Any = Told("engine", calls, info=in_turn(Info()))
    native = EnginePlace(None, "no file", "y is made anew")
    monkeypatch.setattr(loading, "engine_place", lambda *_: native)
    names = server._load_models(engine, config, files, notes, [])
    assert next(names) == "a"
    assert len(calls) == 1  # the name is told before the model is loaded
    assert list(names) == ["b"]
    assert calls[1:] == [
        ("engine.add_model", one, Path("x"), Path("/c/x"), b"labels", native, None),
        ("engine.add_model", two, Path("y"), None, None, None, None),
    ]
    assert notes == ["y is made anew", "y is not kept"]
    assert asked == [("x", "1.2.3"), ("y", "1.2.3")]
    first, second = EngineError("first", -6), EngineError("second", -5)
    engine = Told("engine", calls, info=in_turn(Info()), add_model=in_turn(first, second))
    with pytest.raises(EngineError) as caught:
        list(server._load_models(engine, config, files, notes, []))
    assert str(caught.value) == "first\nsecond"
    # With a file that is not there, the whole is a wrong configuration.
    engine = Told("engine", calls, info=in_turn(Info()), add_model=in_turn(None, second))
    with pytest.raises(ConfigError) as wrong:
        list(server._load_models(engine, config, files, notes, [("c", ConfigError("no file"))]))
    assert str(wrong.value) == "no file\nsecond"


@pytest.mark.parametrize("fails", [False, True])
def test_where_the_metrics_page_is(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """A port that was asked for must be had; one of several need not."""
    calls: Calls = []

    class Page(Told):
        def __init__(self, *arguments: object) -> None:
            super().__init__("page", calls)
            calls.append(("page", *arguments))
            if fails:
                raise MetricsError("no page")

        @classmethod
        def on_free_port(cls, *arguments: object) -> Page:
            calls.append(("free", *arguments))
            return cls()

    monkeypatch.setattr(server, "MetricsServer", Page)
    common = ["server.metrics_host='::1'", "server.hosts=[a.example]", "server.port=9000"]
    common += ["server.grpc_port=8002", "server.agent_port=8003"]
    common.append("server.tls={port: 8004, certificates: [{cert: c, key: k}]}")
    notes: list[str] = []
    with server._metrics(load(None, common), notes) as page:
        assert (page is None) is fails
    made = [("free", "::1", ("a.example",), (9000, 8002, 8003, 8004)), ("page",)]
    assert calls == (made if fails else [*made, ("page.close",)])
    assert notes == (["no page"] if fails else [])
    calls.clear()
    config = load(None, [*common, "server.metrics_port=9100"])
    if fails:
        with pytest.raises(MetricsError, match="no page"), server._metrics(config, notes):
            pass
    else:
        with pytest.raises(KeyError), server._metrics(config, notes):
            raise KeyError  # it is closed whatever happens
        assert calls[1:] == [("page.close",)]
    assert calls[0] == ("page", "::1", 9100, ("a.example",))
    calls.clear()
    with server._metrics(load(None, [*common, "server.metrics_port=0"]), notes) as page:
        assert page is None
    assert calls == []


@pytest.mark.parametrize(
    ("overrides", "logged"),
    [([], False), (["log.format=json"], True), (["log.path={path}"], True)],
)
def test_why_a_start_failed_is_in_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    overrides: list[str],
    logged: bool,
) -> None:
    """Where people read, the command's own sentence is enough."""
    path = tmp_path / "log"
    config = load(None, [text.format(path=path) for text in overrides])

    def refuse(*_arguments: object) -> int:
        raise EngineError("no such thing")

    monkeypatch.setattr(server, "_serve", refuse)
    monkeypatch.setattr(os, "isatty", lambda _descriptor: False)
    with pytest.raises(EngineError, match="no such thing"):
        server.run(config)
    told = path.read_text() if path.exists() else capfd.readouterr().err
    assert ("no such thing" in told) is logged


def test_the_facts_of_the_page() -> None:
    class Info:
        ort_version, workers, io_threads, slots = "1.9", 3, 2, 64

    models = [{"name": "a", "providers": ["openvino", "cpu"]}, {"name": "virtual"}]
    rows = [("a", 1, "READY")]
    facts = facts_of(Info(), {"models": models}, lambda: rows, GUARD)  # type: ignore[arg-type]
    assert facts.states() == rows
    assert facts.providers == (("a", ("openvino", "cpu")), ("virtual", ()))
    assert (facts.ort_version, facts.workers, facts.io_threads, facts.slots) == ("1.9", 3, 2, 64)
    assert facts.version == __version__


class Info:
    """An engine's state after its start."""

    port, io_threads, workers, slots, arena_bytes = 8123, 1, 2, 64, 256 << 20
    slot_classes, worker_cpus, nodes = (), (0, 1), ()
    tls_port = 0
    io_backend, io_detail, ort_version = "epoll", "", "1.2.3"
    stats_path = "/figures"
    budgets_path = ""
    notes = ("of the engine",)


DIGITS: dict[str, Any] = {
    "name": "digits",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [],
    "rgb8": None,
}


def start(
    monkeypatch: pytest.MonkeyPatch, one_place: bool, signals: tuple[signal.Signals | None, ...]
) -> tuple[int, Calls]:
    """Runs a whole start over stand-ins; the engine ends by itself at once."""
    calls: Calls = []

    class Place(Told):
        def __enter__(self) -> Place:
            calls.append((f"{self._name}.enter",))
            return self

        def __exit__(self, *_error: object) -> None:
            calls.append((f"{self._name}.exit",))

    engine = Place(
        "engine", calls, info=in_turn(Info()), describe=in_turn({"models": [DIGITS]}),
        wait=in_turn(True),
    )  # fmt: skip
    queue = Place("signals", calls, take=in_turn(*signals), wait=in_turn(None))
    page: Any = Told("page", calls)
    page.port, page.address = 8005, "http://page"
    manager: Any = Told("manager", calls)
    manager.watchdog_s = 0.0
    monkeypatch.setattr(server, "SignalQueue", lambda taken: queue)
    monkeypatch.setattr(server, "Engine", lambda config, runtime: engine)
    monkeypatch.setattr(server, "Notifier", lambda: manager)
    processes = Place("processes", calls, start=in_turn(True), look=in_turn(60.0))
    monkeypatch.setattr(server, "Processes", lambda journal, guard: processes)
    live = SimpleNamespace(states=Told("states", calls))
    monkeypatch.setattr(server, "LiveModels", lambda *_given, **_files: live)
    monkeypatch.setattr(server, "Control", lambda *_given: Told("control", calls))
    monkeypatch.setattr(server, "Report", lambda path: Told("report", calls))
    monkeypatch.setattr(server.onnxruntime_path, "find", lambda: Path("/ort.so"))
    monkeypatch.setattr(
        server.MetricsServer, "on_free_port", classmethod(lambda _class, *_given: page)
    )
    monkeypatch.setattr(loading, "cache_place", lambda *_given: CachePlace(None, "of the cache"))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")  # so that it is as before afterwards
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    journal: Any = Told("log", calls)
    journal.is_stdout = one_place
    status = server._serve(load(), load, server._Kept(journal, {}, Preparer()))
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    return status, calls


@pytest.mark.parametrize("one_place", [True, False])
def test_a_start_from_its_first_step_to_its_last(
    monkeypatch: pytest.MonkeyPatch, one_place: bool
) -> None:
    status, calls = start(monkeypatch, one_place, (None,))
    assert status == 1
    # The thread that watches a start asks for more time, and says what takes long, at any moment.
    others = ("log.show", "log.say", "engine.info", "manager.more_time")
    names = [call[0] for call in calls if call[0] not in others]
    logged = [] if one_place else ["log.log"] * 3
    assert names == [
        "signals.enter", "processes.enter", "engine.enter",
        "manager.status", "manager.status", "signals.take", "engine.add_model",
        "manager.status", "processes.start",
        "engine.set_metrics_port", "engine.open_errands", "manager.status",
        "engine.set_fallbacks", "engine.set_traffic", "engine.set_budgets", "engine.start",
        "engine.describe",
        "page.start", "control.start", *logged, "manager.ready",
        "processes.look", "signals.wait", "engine.wait", "log.log",
        "control.close", "report.close",
        "page.close", "engine.exit", "processes.exit", "signals.exit",
    ]  # fmt: skip
    said = {call[0]: call for call in calls}
    assert [call[1] for call in calls if call[0] == "manager.status"] == [
        "Trying models with a process of their own.", "Loading model digits.",
        "Starting the models' processes.", "Warming up.",
    ]  # fmt: skip
    assert said["signals.take"] == ("signals.take", server.ENDING)
    assert said["engine.set_metrics_port"] == ("engine.set_metrics_port", 8005)
    path, facts, pid = said["page.start"][1:]
    assert (path, pid) == (Path("/figures"), os.getpid())
    assert facts == facts_of(
        Info(),
        {"models": [DIGITS]},
        facts.states,
        facts.guard,
        tuple,
        facts.budgets,
        load=facts.load,
    )  # type: ignore[arg-type]
    shown = [str(call[1]) for call in calls if call[0] == "log.show"]
    assert shown[0].endswith("serves on 127.0.0.1:8123 (ONNX Runtime 1.2.3)")
    assert "  metrics  http://page" in shown
    assert [line for line in shown if "note" in line] == [
        "  note     of the cache", "  note     of the engine",
    ]  # fmt: skip
    assert said["manager.ready"] == ("manager.ready", shown[0])
    if not one_place:
        assert [call[1:] for call in calls if call[0] == "log.log"][:3] == [
            ("info", shown[0]), ("warning", "of the cache"), ("warning", "of the engine"),
        ]  # fmt: skip


def test_a_signal_while_models_are_loaded_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    status, calls = start(monkeypatch, True, (INT,))
    assert status == 0
    names = [call[0] for call in calls]
    assert "engine.start" not in names
    assert names[-4:] == ["page.close", "engine.exit", "processes.exit", "signals.exit"]


def test_a_check_looks_at_models_and_at_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    added: Calls = []

    class Engine(Told):
        def __init__(self, *_given: object) -> None:
            super().__init__("engine", added, info=in_turn(Info()))

        def __enter__(self) -> Engine:
            return self

        def __exit__(self, *_error: object) -> None:
            added.append(("closed",))

    monkeypatch.setattr(server, "Engine", Engine)
    monkeypatch.setattr(server.onnxruntime_path, "find", lambda: Path("/ort.so"))
    monkeypatch.setattr(loading, "cache_place", lambda *_given: CachePlace(None, "not kept"))
    lines, unserved = server.check(load())
    assert unserved == []
    assert lines[0].startswith("model digits: /")
    assert lines[0].endswith("digits.onnx")
    assert lines[1:] == ["note: not kept"]
    assert [call[0] for call in added] == ["engine.info", "engine.add_model", "closed"]
    found = server.check(load().with_broken((Broken("b", "it is no model"),)))
    assert found == server.Checked(lines, ["not served: b: it is no model"])
    with pytest.raises(ConfigError, match=r"log\.path: expected a file that can be written"):
        server.check(load(None, [f"log.path={tmp_path}/none/log"]))


def test_which_signals_a_server_takes() -> None:
    """All that would end the process by default and leave its files behind, but for faults."""
    assert server.ENDING == (INT, TERM, signal.SIGQUIT, signal.SIGXCPU)
    assert set(server._TAKEN) == {
        *server.ENDING, HUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM,
        signal.SIGPROF, signal.SIGIO, signal.SIGPWR, signal.SIGCHLD,
    }  # fmt: skip


# ---- the service manager ----


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_what_a_service_manager_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    name = f"lumen-test-{os.getpid()}" if kind == "abstract" else str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(30)
        manager.bind(f"\0{name}" if kind == "abstract" else name)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if kind == "abstract" else name)
        monkeypatch.setenv("WATCHDOG_USEC", "2500000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        notifier = Notifier()
        assert notifier.watchdog_s == 2.5
        before_us = time.monotonic_ns() // 1000
        for call, datagram in [
            (lambda: notifier.ready("all is well"), "READY=1\nSTATUS=all is well"),
            (lambda: notifier.status("loading"), "STATUS=loading"),
            (
                lambda: notifier.stopping(7.25, "draining"),
                "STOPPING=1\nEXTEND_TIMEOUT_USEC=7250000\nSTATUS=draining",
            ),
            (notifier.alive, "WATCHDOG=1"),
        ]:
            call()
            assert manager.recv(4096).decode() == datagram
        notifier.reloading()
        state, moment = manager.recv(4096).decode().split("\n")
        assert state == "RELOADING=1"
        assert moment.startswith("MONOTONIC_USEC=")
        assert before_us <= int(moment.partition("=")[2]) <= time.monotonic_ns() // 1000
    notifier.ready("a manager that is gone costs nothing")


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        (None, None, 0.0),
        ("1500000", None, 1.5),
        ("1500000", "own", 1.5),
        ("1500000", "1", 0.0),
        ("0", None, 0.0),
        ("-1", None, 0.0),
        ("soon", None, 0.0),
        ("1500000", "x", 0.0),
    ],
)
def test_how_often_a_watchdog_wants_to_hear(
    monkeypatch: pytest.MonkeyPatch, usec: str | None, pid: str | None, seconds: float
) -> None:
    for name, value in (("USEC", usec), ("PID", str(os.getpid()) if pid == "own" else pid)):
        if value is None:
            monkeypatch.delenv(f"WATCHDOG_{name}", raising=False)
        else:
            monkeypatch.setenv(f"WATCHDOG_{name}", value)
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/s")
    assert Notifier().watchdog_s == seconds
    # Without a manager there is nobody to hear it.
    for none in ("", "relative", "vsock:2:1"):
        monkeypatch.setenv("NOTIFY_SOCKET", none)
        notifier = Notifier()
        assert notifier.watchdog_s == 0
        notifier.alive()
        notifier.ready("nobody")
