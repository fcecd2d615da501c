"""Another model in the place of one that cannot answer: upstreams in a row, from here to one and
back; the slots that upstreams leave to the models here; streams that say nothing."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import graphs
import http2
import numpy as np
import pytest
import text_folders
import web
import wire
from conftest import Serve
from harness import Server, eventually
from operating import Reloaded, free_port, key
from test_e2e_upstreams import CHAT, ask
from upstreams import END, STREAM, Peer, Request, Upstream, chunk, event, plain, upstream
from web import Http

pytestmark = pytest.mark.once  # what chooses another model is the same on both backends

EMBEDDINGS = "/v1/embeddings"


def named(name: str) -> Any:
    """A script that says who it is, and what it was asked."""

    def script(request: Request, peer: Peer) -> None:
        peer.send(plain(json.dumps({"by": name, "asked": request.document}).encode()))

    return script


def settings(fallbacks: dict[str, list[str]], **ups: Upstream) -> dict[str, Any]:
    """Each upstream serves a model of its own name, which it knows as `there-NAME`."""
    entries = {
        name: {"urls": [up.url], "models": {name: f"there-{name}"}} for name, up in ups.items()
    }
    return {"server": {"drain_seconds": 5}, "upstreams": entries, "fallbacks": fallbacks}


@contextmanager
def three() -> Iterator[dict[str, Upstream]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(upstream(named(name))) for name in ("one", "two", "six")}


def by(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str, str]:
    """The code, who answered, and the name that it was asked by."""
    found = json.loads(answer[2])
    return answer[0], found["by"], found["asked"]["model"]


# ---- upstreams in a row ----


BAD = {
    "down": plain(b"{}", "503 Down"),
    "bad": plain(b"{}", "502 Bad"),
    "busy": plain(b"{}", "429 Busy", "retry-after: 1"),
    "garbage": b"no HTTP\r\n\r\n",
}


@pytest.mark.parametrize("how", [*BAD, "gone", "silent"])
def test_the_next_model_answers(serve: Serve, how: str) -> None:
    """In its own name, the body otherwise as it came; not where the answer is the client's fault,
    nor once it has begun."""
    with three() as ups:
        document = settings({"one": ["two", "six"]}, **ups)
        document["upstreams"]["one"]["timeouts"] = {"first_byte": 0.2}
        if how == "gone":
            ups["one"].close()
        elif how == "silent":
            ups["one"].script = lambda _request, peer: peer.ends()
        else:
            ups["one"].script = lambda _request, peer: peer.send(BAD[how])
        server = serve(document)
        body = {"model": "one", "messages": [{"content": "hello"}]}
        assert by(ask(server.port, body)) == (200, "two", "there-two")
        assert ups["two"].requests[-1].document == {**body, "model": "there-two"}
        ups["two"].close()
        assert by(ask(server.port, body)) == (200, "six", "there-six")
        ups["six"].close()
        assert ask(server.port, body)[0] in (502, 503)
        figures = server.figures().io
        assert (figures["upstream_fallen"], figures["upstream_failed"]) == (5, 1)
        # A model that nobody stands in for fails alone.
        assert ask(server.port, {"model": "six"})[0] in (502, 503)


def test_answers_that_stand(serve: Serve) -> None:
    """An error that is the client's own, and one in the middle of a stream."""
    with three() as ups:
        server = serve(settings({"one": ["two"]}, **ups))
        ups["one"].script = lambda _request, peer: peer.send(plain(b'{"error":1}', "400 Bad"))
        assert ask(server.port, {"model": "one"})[::2] == (400, b'{"error":1}')

        def cut(_request: Request, peer: Peer) -> None:
            peer.send(STREAM + chunk(event("one")))
            peer.cut()

        ups["one"].script = cut
        code, _, text = ask(server.port, {"model": "one", "stream": True})
        assert code == 200
        assert b"in the middle of its answer" in text
        assert ups["two"].requests == []


def test_keys_and_budgets_hold_for_those_who_stand_in(serve: Serve) -> None:
    with three() as ups:
        document = settings({"one": ["two", "six"]}, **ups)
        keys = [key("ann", models=["one", "six"]), key("ben")]
        document["server"]["keys"] = keys
        document["budgets"] = {"models": {"two": {"requests_per_day": 1}}}
        ups["one"].close()
        server = serve(document)
        as_key = lambda name: ask(server.port, {"model": "one"}, Authorization=f"Bearer {name}")  # noqa: E731
        assert by(as_key("ann"))[1] == "six"  # it may not use two
        assert by(as_key("ben"))[1] == "two"
        assert by(as_key("ben"))[1] == "six"  # two's budget is spent


def test_what_a_full_upstream_set_aside_comes_back(serve: Serve) -> None:
    """On the way to the third model, of the second's tokens none stays taken."""
    from lumen_uring.ring import budgets

    go = threading.Event()

    def spend(request: Request, peer: Peer) -> None:
        if request.document["messages"] == "wait":
            go.wait(wire.TIMEOUT_S)
        peer.send(plain(b'{"usage":{"total_tokens":10}}'))

    port = free_port()
    path = budgets.budgets_path(port)
    try:
        with three() as ups:
            document = settings({"one": ["two", "six"]}, **ups)
            document["server"]["keys"] = [key("ann"), key("ben")]
            document["budgets"] = {"keys": {"ann": {"tokens_per_day": 5000}}}
            document["upstreams"]["two"]["in_flight"] = 1
            ups["one"].close()
            ups["two"].script = ups["six"].script = spend
            server = serve(document, options=("--port", str(port)))
            with Http(port) as peer:
                body = b'{"model": "two", "messages": "wait"}'
                peer.send(web.post(CHAT, body, "Authorization: Bearer ben"))
                eventually(lambda: ups["two"].requests, "a request that waits")
                body2 = {"model": "one", "messages": "go"}
                assert ask(server.port, body2, Authorization="Bearer ann")[0] == 200
                assert (len(ups["two"].requests), len(ups["six"].requests)) == (1, 1)
                (ann,) = budgets.read(path)
                assert ann.used == {"tokens_per_day": 10}
                go.set()
                assert peer.answer().code == 200
    finally:
        path.unlink(missing_ok=True)


def test_a_reload_brings_others_and_removes_them(serve: Serve, tmp_path: Path) -> None:
    with three() as ups:
        ups["one"].close()
        document = settings({}, **ups)
        one = Reloaded(serve, tmp_path, document)
        assert ask(one.server.port, {"model": "one"})[0] in (502, 503)
        assert "Reloaded: fallbacks." in one.reload({**document, "fallbacks": {"one": ["six"]}})
        assert by(ask(one.server.port, {"model": "one"}))[1] == "six"
        for wrong, why in (
            ({"one": ["one"]}, "fallbacks.one: expected other models, found 'one' itself"),
            ({"one": ["two", "ten"]}, "fallbacks.one.1: expected the name of a model that is se"),
            ({"one": []}, "fallbacks.one: expected a mapping of models' names to lists"),
        ):
            one.reload({**document, "fallbacks": wrong})
            eventually(lambda w=why: w in one.server.errors, why)
        assert by(ask(one.server.port, {"model": "one"}))[1] == "six"
        assert "Reloaded: fallbacks." in one.reload(document)  # none
        assert ask(one.server.port, {"model": "one"})[0] in (502, 503)


# ---- here and there ----


def texts_here(folder: Path, **ups: Upstream) -> dict[str, Any]:
    """`mean` is served here."""
    pooling = {"word_embedding_dimension": 6, "pooling_mode_mean_tokens": True}
    text_folders.write(folder / "texts" / "mean", text_folders.sentence_files(pooling))
    document = settings({"mean": ["one"], "one": ["mean"]}, **ups)
    return {**document, "repository": {"paths": [str(folder / "texts")]}}


def test_a_model_here_stands_in_for_an_upstream(serve: Serve, tmp_path: Path) -> None:
    with upstream(named("one")) as one:
        server = serve(texts_here(tmp_path, one=one))
        body = {"model": "one", "input": ["a cat", "the dog"]}
        here = ask(server.port, {**body, "model": "mean"}, EMBEDDINGS)
        assert by(ask(server.port, body, EMBEDDINGS))[1] == "one"
        one.close()
        for _ in range(3):
            code, _, text = ask(server.port, body, EMBEDDINGS)
            found = json.loads(text)
            assert (code, found["model"]) == (200, "mean")
            assert found["data"] == json.loads(here[2])["data"]
        assert ask(server.port, body, CHAT)[0] in (502, 503)  # for which it is none


def test_a_model_here_that_is_too_slow_spills(serve: Serve, tmp_path: Path) -> None:
    """Its estimate misses the deadline; who has none waits. Where the upstream is not there either,
    the client hears of that. Some run here all the same, for the estimate; and a busy machine is
    too late for anybody."""
    with upstream(named("one")) as one:
        server = serve(texts_here(tmp_path, one=one))
        body = {"model": "mean", "input": ["a cat " * 300] * 64}
        for _ in range(3):
            assert ask(server.port, body, EMBEDDINGS)[0] == 200
        assert (one.requests, spills(server)) == ([], 0)

        def is_answered_there() -> bool:
            code, _, text = ask(server.port, body, EMBEDDINGS, **{"Grpc-Timeout": "20u"})
            return code == 200 and json.loads(text).get("by") == "one"

        eventually(is_answered_there, "an answer of the upstream")
        assert one.requests[-1].document == {**body, "model": "there-one"}
        assert spills(server) > 0
        one.close()

        def is_told() -> bool:
            before = spills(server)
            code, _, _ = ask(server.port, body, EMBEDDINGS, **{"Grpc-Timeout": "20u"})
            return spills(server) > before and code in (502, 503, 504)

        eventually(is_told, "an answer that says so")


def spills(server: Server) -> int:
    return server.figures().io["upstream_spills"]


# ---- slots ----


def test_upstreams_leave_slots_to_models_here(serve: Serve, tmp_path: Path) -> None:
    """As many requests as there are slots, and no upstream answers: models here do."""
    go = threading.Event()

    def script(_request: Request, peer: Peer) -> None:
        go.wait(wire.TIMEOUT_S)
        peer.send(plain(b"{}"))

    with upstream(script) as up, ExitStack() as stack:
        document = settings({}, one=up)
        document["models"] = [{"name": "double", "path": str(graphs.double(tmp_path / "d.onnx"))}]
        document["engine"] = {"queue_capacity": 16, "thread_count": 1}
        server = serve(document)
        request = web.post(CHAT, b'{"model": "one"}')
        peers = [stack.enter_context(Http(server.port)) for _ in range(150)]
        for peer in peers:
            peer.send(request)
        eventually(lambda: refusals(server), "refusals")
        x = np.ones((1, 16), np.float32)
        with Http(server.port) as peer:
            for _ in range(20):
                answer = peer.query(web.infer("double", {"x": x}))
                np.testing.assert_array_equal(answer.array("y"), x + x)
        go.set()
        codes = [peer.answer().code for peer in peers]
        assert set(codes) == {200, 503}


def refusals(server: Server) -> int:
    """Once no more requests come in: those that found no place."""
    figures = server.figures().io
    have = figures["upstream_requests"] + figures["requests_refused"]
    return figures["requests_refused"] if have >= 150 else 0


# ---- pings ----


@pytest.mark.parametrize("protocol", ["http1", "http2"])
def test_streams_that_say_nothing(serve: Serve, protocol: str) -> None:
    """A comment between two events, and none within one."""
    pings = threading.Event()

    def script(_request: Request, peer: Peer) -> None:
        peer.send(STREAM + chunk(event("first")))
        assert pings.wait(wire.TIMEOUT_S)
        peer.send(chunk(b"data: half"))
        time.sleep(0.2)
        peer.send(chunk(b" of it\n\n") + END)

    with upstream(script) as up:
        document = settings({}, one=up)
        document["upstreams"]["one"]["ping"] = 0.05
        server = serve(document)
        body = b'{"model": "one", "stream": true}'
        read = bytearray()
        if protocol == "http1":
            with socket.create_connection(("127.0.0.1", server.port), wire.TIMEOUT_S) as peer:
                peer.sendall(web.post(CHAT, body))
                while not read.endswith(b"0\r\n\r\n"):
                    read += peer.recv(65536)
                    if read.count(b": ping\n\n") >= 2:
                        pings.set()
        else:
            with http2.Http2(server.port) as link:
                stream = link.send(web.post(CHAT, body))
                while stream not in link.answers:
                    link.read()
                    if link.body_of(stream).count(b": ping\n\n") >= 2:
                        pings.set()
                read += link.answers[stream].body
        text = bytes(read)
        assert text.count(b": ping\n\n") >= 2
        assert text.index(b"first") < text.index(b": ping") < text.index(b"half")
        assert b"ping" not in text[text.index(b"half") :]
