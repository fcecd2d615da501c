"""Names of upstreams' hosts, looked up again: who is asked when, what the engine is told, what is
said of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.guard import Guard
from lumen_uring.ring.upstreams import Address
from lumen_uring.serving import resolver, upstreams
from lumen_uring.settings.upstreams import UpstreamConfig

A, B, C = (Address(f"10.0.0.{n}", 80, "there") for n in (1, 2, 3))


class Engine:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[Address, ...]] = {"up": (A, B)}
        self.moves: list[tuple[str, tuple[Address, ...]]] = []
        self.answer: Callable[[], bool] = lambda: True

    def addresses_of(self, name: str) -> tuple[Address, ...]:
        return self.places[name]

    def move_upstream(self, name: str, found: Any) -> bool:
        self.moves.append((name, tuple(found)))
        moved = self.answer()
        if moved:
            self.places[name] = tuple(found)
        return moved


class Scene:
    """A resolver whose look-ups find what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, resolve: float = 30.0) -> None:
        self.now_s = 100.0
        self.found: Any = [A, B]
        self.asked: list[UpstreamConfig] = []
        self.said: list[tuple[str, str]] = []
        self.engine = Engine()
        self.config = UpstreamConfig(urls=["http://there"], models={"m": "n"}, resolve=resolve)
        monkeypatch.setattr(resolver.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(upstreams, "addresses", self.addresses)
        guard = Guard(lambda level, text: self.said.append((level, text)))
        self.resolver = resolver.Resolver(self.engine, {"up": self.config}, guard)  # type: ignore[arg-type]

    def addresses(self, name: str, config: UpstreamConfig) -> Any:
        assert name == "up"
        self.asked.append(config)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def look(self, seconds: float = 0.0) -> None:
        """A look so much later, and one when its look-ups have ended."""
        self.now_s += seconds
        self.resolver.look()
        for thread in threading.enumerate():
            if thread.name == "lumen-resolve":
                thread.join(10)
        self.resolver.look()


def test_hosts_are_looked_up_as_often_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.look(29)
    assert scene.asked == []
    scene.look(1)
    assert len(scene.asked) == 1
    assert scene.engine.moves == []  # nothing new
    scene.found = [B, A]  # in another order
    scene.look(30)
    assert scene.engine.moves == []
    scene.found = [B, C]
    scene.look(29)
    scene.look(1)
    assert scene.engine.moves == [("up", (B, C))]
    assert scene.said == [("info", "Upstream up is at 10.0.0.2:80, 10.0.0.3:80 now.")]
    never = Scene(monkeypatch, resolve=0)
    never.look(1e9)
    assert never.asked == []


def test_what_cannot_be_looked_up_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once, until it goes well again."""
    scene = Scene(monkeypatch)
    for scene.found in (ConfigError("no such host"), OSError("odd")):
        scene.look(30)
        scene.look(30)
    assert [text for _, text in scene.said] == [
        "no such host; the addresses of before stay.",
        "upstreams.up.urls: OSError: odd; the addresses of before stay.",
    ]
    scene.found = [A, B]
    scene.look(30)
    scene.found = ConfigError("no such host")
    scene.look(30)
    assert len(scene.said) == 3
    assert scene.engine.moves == []


def test_addresses_that_have_no_place_yet_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.found = [C]
    scene.engine.answer = lambda: False
    scene.look(30)
    assert set(scene.engine.moves) == {("up", (C,))}
    assert (scene.engine.places["up"], scene.said) == ((A, B), [])
    scene.look()
    scene.engine.answer = lambda: True
    scene.look()
    assert scene.engine.places["up"] == (C,)
    assert len(scene.said) == 1

    def refuse() -> bool:
        raise EngineError("expected addresses without TLS", -1)

    scene.engine.answer = refuse
    scene.found = [A]
    scene.look(30)
    assert scene.said[-1] == (
        "warning", "expected addresses without TLS; the addresses of before stay.",
    )  # fmt: skip


def test_a_reload_looks_up_other_hosts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.resolver.change({"up": scene.config})
    scene.look()
    assert scene.asked == []
    other = scene.config.model_copy(update={"urls": ("http://elsewhere",)})
    scene.found = [C]
    scene.resolver.change({"up": other})
    scene.look()
    assert scene.asked == [other]
    assert scene.engine.places["up"] == (C,)


def test_a_slow_look_up_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does what it finds count, once a reload has named other hosts."""
    scene = Scene(monkeypatch)
    go = threading.Event()
    slow = scene.config

    def addresses(_name: str, config: UpstreamConfig) -> list[Address]:
        if config == slow:
            assert go.wait(10)
        return [A] if config == slow else [C]

    monkeypatch.setattr(upstreams, "addresses", addresses)
    scene.now_s += 30
    for _ in range(3):
        scene.resolver.look()  # asks once
    scene.resolver.change({"up": slow.model_copy(update={"urls": ("http://elsewhere",)})})
    go.set()
    until = time.time() + 10
    while scene.engine.moves == [] and time.time() < until:
        scene.look()
    assert scene.engine.moves == [("up", (C,))]
