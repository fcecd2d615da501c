"""Budgets: what keys and models may have in a minute and in a day, over upstreams and texts here.

Row 53 of the list of hostile inputs. Days are counted, since a test may begin in one minute and end
in the next; c/test_budgets.c has the clock in its hand.
"""

from __future__ import annotations

import json
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import text_folders
import web
from conftest import Serve
from harness import Server, eventually
from operating import Reloaded, free_port, key
from test_e2e_upstreams import CHAT, ask, said
from upstreams import END, STREAM, Peer, Request, Upstream, chunk, event, plain, settings, upstream
from web import Http

from lumen_uring import Client
from lumen_uring.errors import RateLimited

pytestmark = pytest.mark.once  # what counts is the same on both backends

KEYS = [key("ann"), key("ben")]  # each is its own token


@pytest.fixture
def up() -> Iterator[Upstream]:
    with upstream(spend) as one:
        yield one


@pytest.fixture
def port() -> Iterator[int]:
    """For a server whose counts have a name, which outlives it."""
    number = free_port()
    yield number
    budgets_path(number).unlink(missing_ok=True)


def budgets_path(port: int) -> Path:
    from lumen_uring.ring import budgets

    return budgets.budgets_path(port)


def spend(request: Request, peer: Peer) -> None:
    """Says that it took what `spend` in the request says."""
    usage = {"prompt_tokens": 1, "completion_tokens": request.document.get("spend", 1) - 1}
    peer.send(plain(json.dumps({"choices": [], "usage": usage}).encode()))


def served(url: str, budgets: dict[str, Any], **rest: Any) -> dict[str, Any]:
    document = settings(url, **rest)
    return {**document, "server": {"drain_seconds": 5, "keys": KEYS}, "budgets": budgets}


def start(serve: Serve, port: int, document: dict[str, Any]) -> Server:
    return serve(document, options=("--port", str(port)))


def ask_as(name: str, server: Server, path: str = CHAT, **fields: Any) -> tuple[int, str]:
    """The code, and the sentence of an error."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], **fields}
    answer = ask(server.port, body, path, Authorization=f"Bearer {name}")
    return (answer[0], "") if answer[0] == 200 else said(answer)


def row(port: int, kind: str, name: str) -> Any:
    from lumen_uring.ring import budgets

    found = budgets.read(budgets_path(port))
    return next(one for one in found if (one.kind, one.name) == (kind, name))


def used(port: int, name: str, kind: str = "key") -> int:
    return int(row(port, kind, name).used["tokens_per_day"])


# ---- who pays what ----


def test_a_budget_is_charged_what_the_answer_says(serve: Serve, up: Upstream, port: int) -> None:
    """Not what was set aside for it; of another key, and of the server, nothing."""
    document = served(up.url, {"keys": {"ann": {"tokens_per_day": 5000}}})
    server = start(serve, port, document)
    assert ask_as("ann", server, spend=300)[0] == 200
    assert used(port, "ann") == 300
    assert ask_as("ann", server, spend=4500, max_tokens=4000)[0] == 200
    assert used(port, "ann") == 4800
    code, why = ask_as("ann", server, max_tokens=190)
    assert code == 429
    assert "the budget of this key is 5000 tokens per day: 200 are left" in why
    assert ask_as("ann", server, max_tokens=100, spend=50)[0] == 200
    assert ask_as("ben", server, spend=9000)[0] == 200
    assert (row(port, "key", "ann").tokens, row(port, "key", "ann").refused) == (4850, 1)
    # What it never has is said as such, with no time after which it would help.
    answer = ask(server.port, {"model": "chat", "max_tokens": 6000}, Authorization="Bearer ann")
    assert (answer[0], "which it never has" in said(answer)[1]) == (429, True)


def test_a_model_has_a_budget_for_all_keys(serve: Serve, up: Upstream, port: int) -> None:
    budgets = {
        "models": {"chat": {"requests_per_day": 3}},
        "keys": {"ben": {"requests_per_day": 1}},
    }
    server = start(serve, port, served(up.url, budgets))
    assert [ask_as(name, server)[0] for name in ("ann", "ben", "ben", "ann", "ann")] == [
        *(200, 200, 429, 200, 429)
    ]
    code, why = ask_as("ann", server)
    assert (code, "the budget of model 'chat' is 3 requests per day: 0 are left" in why) == (429, 1)
    # What one budget refused, the other did not pay.
    assert row(port, "model", "chat").used == {"requests_per_day": 3}


def test_a_model_that_is_loaded_later_has_its_budget(serve: Serve, tmp_path: Path) -> None:
    for name, factor in (("first", 2), ("later", 3)):
        graphs.times(tmp_path / f"models/{name}/1/model.onnx", factor)
    repository = {"paths": [str(tmp_path / "models")], "control": "explicit", "load": ["first"]}
    budgets = {"models": {"later": {"requests_per_day": 2}}}
    server = serve({"repository": repository, "budgets": budgets})
    inference = web.infer("later", {"x": np.ones((1, 16), np.float32)})
    with Http(server.port) as peer:
        assert peer.query(web.post("/v2/repository/models/later/load", b"{}")).code == 200
        assert [peer.query(inference).code for _ in range(4)] == [200, 200, 429, 429]


def test_what_comes_to_nothing_costs_nothing(serve: Serve, port: int) -> None:
    """Nobody there, an error of the upstream; each had set something aside."""
    answers = iter(["500 Internal Server Error", "400 Bad Request", "429 Too Many Requests"])

    def fail(_request: Request, peer: Peer) -> None:
        peer.send(plain(b'{"error":{"message":"no"}}', next(answers)))

    with upstream(fail) as up:
        server = start(serve, port, served(up.url, {"keys": {"ann": {"tokens_per_day": 5000}}}))
        for _ in range(3):
            body = {"model": "chat"}
            assert ask(server.port, body, Authorization="Bearer ann")[0] in (500, 400, 429)
    assert ask_as("ann", server)[0] in (502, 503)
    assert used(port, "ann") == 0
    assert row(port, "key", "ann").requests == 4


@pytest.mark.parametrize("says", [True, False])
def test_streams(serve: Serve, port: int, says: bool) -> None:
    """With usage at their end, which they are asked for, or else a token for each event."""

    def stream(request: Request, peer: Peer) -> None:
        assert request.document.get("stream_options") == ({"include_usage": True} if says else None)
        assert request.document["model"] == "org/there"
        peer.send(STREAM)
        for number in range(40):
            peer.send(chunk(event(f"word {number}")))
        if says:
            for piece in (b'data: {"choices":[],"us', b'age":{"total_tokens":12', b"34}}\n\n"):
                peer.send(chunk(piece))
        peer.send(chunk(b"data: [DONE]\n\n") + END)

    with upstream(stream) as up:
        budgets = {"keys": {"ann": {"tokens_per_day": 5000}}}
        document = served(up.url, budgets, tokens={"ask": says, "bytes_each": 1})
        server = start(serve, port, document)
        assert ask_as("ann", server, stream=True)[0] == 200
        asked = len('"role":"user","content":"hello""stream":') + 40
        assert used(port, "ann") == 1234 if says else 41 < used(port, "ann") < 41 + asked


def test_a_client_that_leaves_pays_for_what_there_was(serve: Serve, port: int) -> None:
    """Row 53: the prompt, and the events until then; what else was set aside comes back."""
    gone = threading.Event()

    def stream(_request: Request, peer: Peer) -> None:
        peer.send(STREAM)
        for number in range(10):
            peer.send(chunk(event(f"word {number}")))
        gone.wait(10)

    with upstream(stream) as up:
        budgets = {"keys": {"ann": {"tokens_per_day": 50_000}}}
        server = start(serve, port, served(up.url, budgets))
        body = json.dumps(
            {"model": "chat", "stream": True, "max_tokens": 30_000, "prompt": "x" * 200}
        )
        request = web.post(CHAT, body.encode(), "Authorization: Bearer ann")
        with Http(server.port) as peer:
            peer.send(request)
            read = b""
            while b"word 9" not in read:
                read += peer.socket.recv(65536)
            assert used(port, "ann") > 30_000
            code, why = ask_as("ann", server, max_tokens=30_000)
            assert (code, "tokens per day" in why) == (429, True)
        eventually(lambda: used(port, "ann") < 1000, "the end", found=lambda: used(port, "ann"))
        gone.set()
        assert 110 <= used(port, "ann") < 200


def test_many_clients_never_exceed_it(serve: Serve, port: int) -> None:
    """Row 53: 64 at once, each answer as large as its request allows; to the token."""
    spent = []
    lock = threading.Lock()

    def all_of_it(request: Request, peer: Peer) -> None:
        tokens = request.document["max_tokens"]
        with lock:
            spent.append(tokens)
        peer.send(plain(json.dumps({"usage": {"total_tokens": tokens}}).encode()))

    with upstream(all_of_it) as up:
        budgets = {
            "keys": {"ann": {"tokens_per_day": 20_000}},
            "models": {"chat": {"tokens_per_day": 30_000}},
        }
        server = start(serve, port, served(up.url, budgets))

        def client(number: int) -> None:
            name = "ann" if number % 2 else "ben"
            for _ in range(20):
                ask_as(name, server, max_tokens=50 + number)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 25_000 < sum(spent) == used(port, "chat", "model") <= 30_000
        assert used(port, "ann") <= 20_000


# ---- how long they hold ----


def test_counts_outlive_the_server(
    serve: Serve, up: Upstream, port: int, tmp_path: Path, cache: Path
) -> None:
    """Killed, stopped, and on a machine that starts anew."""
    path = tmp_path / "budgets.json"
    budgets = {"keys": {"ann": {"tokens_per_day": 2000}}, "path": str(path)}
    document = served(up.url, budgets)
    server = start(serve, port, document)
    assert ask_as("ann", server, spend=700)[0] == 200
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server = start(serve, port, document)
    assert used(port, "ann") == 700
    assert ask_as("ann", server, spend=1100, max_tokens=1100)[0] == 200
    server.stop()
    budgets_path(port).unlink()  # as a new container has it
    server = start(serve, port, document)
    assert used(port, "ann") == 1800
    assert ask_as("ann", server)[0] == 429


def test_a_reload_changes_limits_and_no_counts(serve: Serve, up: Upstream, tmp_path: Path) -> None:
    document = served(up.url, {"keys": {"ann": {"requests_per_day": 2}}})
    one = Reloaded(serve, tmp_path, document)
    assert [ask_as("ann", one.server)[0] for _ in range(3)] == [200, 200, 429]
    budgets = {"keys": {"ann": {"requests_per_day": 3}, "ben": {"requests_per_day": 1}}}
    assert "budgets.keys" in one.reload({**document, "budgets": budgets})
    assert [ask_as("ann", one.server)[0] for _ in range(2)] == [200, 429]
    assert [ask_as("ben", one.server)[0] for _ in range(2)] == [200, 429]
    assert "budgets.keys" in one.reload({**document, "budgets": {}})
    assert ask_as("ann", one.server)[0] == 200
    one.reload({**document, "budgets": budgets})
    assert [ask_as("ann", one.server)[0] for _ in range(1)] == [429]
    wrong = {"keys": {"eve": {}}, "models": {"chat": {"tokens_per_minute": -1}}}
    one.reload({**document, "budgets": wrong})
    why = "budgets.models.chat.tokens_per_minute"
    eventually(lambda: why in one.server.errors, why)
    one.reload({**document, "budgets": {"keys": {"eve": {}}}})
    known = "budgets.keys.eve: expected a name of server.keys"
    eventually(lambda: known in one.server.errors, known)


def test_files_that_hold_no_counts(
    up: Upstream, port: int, tmp_path: Path, cache: Path, serve: Serve
) -> None:
    """Row 53: a copy that is none is an error; the file of another version begins anew."""
    from harness import run

    path = tmp_path / "budgets.json"
    config = tmp_path / "config.yaml"
    document = {**settings(up.url), "budgets": {"models": {"chat": {}}, "path": str(path)}}
    config.write_text(json.dumps(document))
    for text in (
        "",
        "{}",
        '{"version":2,"budgets":[]}',
        '{"version":1,"budgets":[{"kind":"key"}]}',
    ):
        path.write_text(text)
        ended = run(["--config", str(config), "--port", str(port)], cache)
        assert ended.returncode == 2
        assert f"budgets.path: {path}: expected counts that a server wrote" in ended.stderr
    budgets_path(port).write_bytes(b"something else")  # of another version: it begins anew
    path.unlink()
    document["budgets"]["models"] = {"chat": {"tokens_per_day": 5000}}
    server = serve(document, options=("--port", str(port)))
    assert ask(server.port, {"model": "chat", "spend": 5})[0] == 200
    assert used(port, "chat", "model") == 5


# ---- texts that are served here ----


def test_texts_that_are_served_here(serve: Serve, port: int, tmp_path: Path) -> None:
    """They are charged the tokens that were computed, before their client may ask again."""
    pooling = {"word_embedding_dimension": 6, "pooling_mode_mean_tokens": True}
    text_folders.write(tmp_path / "texts" / "mean", text_folders.sentence_files(pooling))
    document = {
        "repository": {"paths": [str(tmp_path / "texts")]},
        "models": [{"name": "double", "path": str(graphs.double(tmp_path / "double.onnx"))}],
        "server": {"keys": KEYS},
        "budgets": {"keys": {"ann": {"tokens_per_day": 100}}},
    }
    server = start(serve, port, document)
    field = "Authorization: Bearer ann"
    body = json.dumps({"model": "mean", "input": ["a cat", "a cat"]}).encode()  # eight tokens
    codes = []
    with Http(server.port) as peer:
        for _ in range(20):
            codes.append(peer.query(web.post("/v1/embeddings", body, field)).code)
        x = np.ones((1, 16), np.float32)
        assert (
            peer.query(web.infer("double", {"x": x}, headers=[field])).code == 200
        )  # it has no tokens
    # As long as the bytes of one more fit: none is refused for what was set aside before.
    least = next(n for n in range(20) if 8 * n + len(body) > 100)
    assert codes == [200] * least + [429] * (20 - least)
    assert used(port, "ann") == 8 * least
    with Client("127.0.0.1", server.port, token="ann") as client:
        client.infer("mean", {"text": np.array(["a cat"], object)})
        assert used(port, "ann") == 8 * least + 4
        with pytest.raises(RateLimited, match="the budget of this key is 100 tokens per day"):
            client.infer("mean", {"text": np.array(["a cat " * 20], object)})
        np.testing.assert_array_equal(client.infer("double", {"x": x}).outputs["y"], x + x)


# ---- who sees them ----


def test_budgets_that_a_reload_brings_are_shown(serve: Serve, up: Upstream, tmp_path: Path) -> None:
    """A server that had none at its start has no file of counts until then."""
    document = served(up.url, {})
    document["server"]["metrics_port"] = metrics = free_port()
    one = Reloaded(serve, tmp_path, document)
    one.reload({**document, "budgets": {"keys": {"ann": {"requests_per_day": 2}}}})

    def is_shown() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics") as page:
            return b'lumen_budget_limit{kind="key",name="ann"' in page.read()

    eventually(is_shown, "the budget of the key ann on the metrics page")
    one.server.idle_fds = 0  # they are counted anew: the file of counts is open from now on


def test_they_are_shown(serve: Serve, up: Upstream, port: int, cache: Path) -> None:
    from harness import run

    budgets = {"keys": {"ann": {"tokens_per_day": 5000, "requests_per_minute": 100}}}
    document = served(up.url, budgets)
    document["server"]["metrics_port"] = metrics = free_port()
    server = start(serve, port, document)
    assert ask_as("ann", server, spend=42)[0] == 200
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics") as page:
        lines = page.read().decode().splitlines()
    who = 'kind="key",name="ann"'
    assert f'lumen_budget_limit{{{who},per="minute",unit="requests"}} 100.0' in lines
    assert f'lumen_budget_used{{{who},per="day",unit="tokens"}} 42.0' in lines
    assert f"lumen_budget_tokens_total{{{who}}} 42.0" in lines
    shown = run(["stats", "--port", str(port), "--json"], cache)
    (one,) = json.loads(shown.stdout)["budgets"]
    assert (one["name"], one["used"]["tokens_per_day"], one["tokens"]) == ("ann", 42, 42)
    table = run(["stats", "--port", str(port)], cache).stdout
    assert [line.split() for line in table.splitlines() if "tokens per day" in line] == [
        ["tokens", "per", "day", "42", "5,000"]
    ]
