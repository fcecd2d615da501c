"""Answers of upstreams at random, over HTTP/1.1 and HTTP/2, in any framing and in pieces, some cut;
then all is as before.

The seed is printed with a failure. LUMEN_E2E_SEED replays one (each client's choices, not their
timing), LUMEN_E2E_SECONDS sets the time for a longer soak.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections import Counter
from typing import Any

import http2
import numpy as np
import pytest
import tls
import web
import wire
from conftest import Serve
from harness import Server
from upstreams import END, STREAM, Peer, Request, chunk, plain, upstream
from upstreams2 import upstream2

SEED = int(os.environ.get("LUMEN_E2E_SEED", time.time_ns() % 2**32))
SECONDS = float(os.environ.get("LUMEN_E2E_SECONDS", "3"))
THREADS = 8
CHAT = "/v1/chat/completions"
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\n\r\n"


def answer_to(document: dict[str, Any]) -> bytes:
    """The body that a request asks for."""
    return np.random.default_rng(document["seed"]).bytes(document["bytes"])


def path_of(document: dict[str, Any]) -> str:
    return "/v1/embeddings" if document["model"] == "twice" else CHAT


def script(request: Request, peer: Peer) -> None:
    """Answers as the request says: its framing, in pieces, cut after `cut` bytes."""
    document = request.document
    random = np.random.default_rng(document["seed"] + 1)
    body = answer_to(document)
    match document["framing"]:
        case "length":
            answer = plain(body)
        case "chunks":
            answer, at = STREAM, 0
            while at < len(body):
                size = int(random.choice([1, 50, 3000, 9000, 70000]))
                answer, at = answer + chunk(body[at : at + size]), at + size
            answer += END
        case _:
            answer = UNTIL_CLOSED + body
    cut = document["cut"]
    if cut is not None:
        answer = answer[: cut % len(answer)]
    while answer:
        size = int(random.choice([1, 7, 1000, 20000, 200000]))
        peer.send(answer[:size])
        answer = answer[size:]
        if random.random() < 0.02:
            time.sleep(0.002)
    if cut is not None:
        peer.cut()
    elif document["framing"] == "close":
        peer.end()


class Client:
    """One thread's requests; every answer that was not cut is compared."""

    def __init__(self, server: Server, files: tls.Files, seed: int) -> None:
        self._server = server
        self._files = files
        self._random = np.random.default_rng(seed)
        self.done: Counter[str] = Counter()
        self.error: BaseException | None = None

    def _one_of(self, *these: Any) -> Any:
        return these[int(self._random.integers(0, len(these)))]

    def main(self, until: float) -> None:
        try:
            while time.monotonic() < until:
                document = {
                    "model": self._one_of("plain", "tls", "plain2", "tls2", "twice"),
                    "seed": int(self._random.integers(0, 1 << 30)),
                    "framing": self._one_of("length", "chunks", "close"),
                    "bytes": self._one_of(0, 1, 256, 4096, 10_000, 100_000, 700_000),
                    "cut": int(self._random.integers(0, 1 << 20)) if self._below(6) == 0 else None,
                    "pad": "p" * self._one_of(0, 0, 10, 5000, 200_000),
                }
                action = self._one_of(self.http1, self.http1, self.http2, self.tls, self.leaves)
                try:
                    action(document)
                except (OSError, EOFError, http.client.IncompleteRead):
                    if document["cut"] is None:
                        raise AssertionError(f"{action.__name__}: {_brief(document)}") from None
                self.done[action.__name__] += 1
        except BaseException as error:
            self.error = error

    def _below(self, most: int) -> int:
        return int(self._random.integers(0, most))

    def _check(self, document: dict[str, Any], code: int, body: bytes) -> None:
        if document["cut"] is None:
            assert (code, body) == (200, answer_to(document)), (code, body[:200], _brief(document))

    def http1(self, document: dict[str, Any]) -> None:
        peer = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=wire.TIMEOUT_S)
        try:
            peer.request("POST", path_of(document), json.dumps(document).encode())
            answer = peer.getresponse()
            if self._below(10) == 0:
                time.sleep(0.02)
            self._check(document, answer.status, answer.read())
        finally:
            peer.close()

    def http2(self, document: dict[str, Any], over_tls: bool = False) -> None:
        to: Any = self._server.port
        if over_tls:
            to = tls.connect(tls.port_of(self._server), tls.context(self._files, ["h2"]))
        with http2.Http2(to, window=self._one_of(1 << 24, 1000, 65535)) as peer:
            stream = peer.send(web.post(path_of(document), json.dumps(document).encode()))
            while stream not in peer.answers and stream not in peer.resets:
                peer.read()
            if stream in peer.resets:
                assert document["cut"] is not None, _brief(document)
                return
            self._check(document, peer.answers[stream].code, peer.answers[stream].body)

    def tls(self, document: dict[str, Any]) -> None:
        self.http2(document, over_tls=True)

    def leaves(self, document: dict[str, Any]) -> None:
        request = web.post(path_of(document), json.dumps(document).encode())
        with wire.Wire(self._server.port) as peer:
            peer.send(request[: self._one_of(10, 200, len(request))])
            time.sleep(self._random.random() * 0.01)


def _brief(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "pad": len(document["pad"])}


@pytest.mark.once
def test_answers_of_any_form(serve: Serve, files: tls.Files) -> None:
    print(f"seed {SEED}")
    alpn = tls.server_context(files)
    alpn.set_alpn_protocols(["h2"])
    with (
        upstream(script) as plainly,
        upstream(script, tls=tls.server_context(files)) as secured,
        upstream2(script) as plainly2,
        upstream2(script, tls=alpn, window=5000, streams=3) as secured2,
        upstream2(script) as other2,
    ):
        server = serve(
            {
                "server": {"tls": files.settings(), "drain_seconds": 5},
                "upstreams": {
                    "plain": {"urls": [plainly.url], "models": {"plain": "there"}},
                    "secured": {
                        "urls": [secured.url],
                        "models": {"tls": "a-longer-name-there"},
                        "ca": files.ca,
                    },
                    "plain2": {
                        "urls": [plainly2.url],
                        "models": {"plain2": "there"},
                        "http2": "always",
                    },
                    "twice": {  # whose answers often take longer than that
                        "urls": [plainly2.url, other2.url],
                        "models": {"twice": "there"},
                        "http2": "always",
                        "hedge": 0.001,
                        "retry": {"budget": 1.0},
                    },
                    "secured2": {
                        "urls": [secured2.url],
                        "models": {"tls2": "a-longer-name-there"},
                        "ca": files.ca,
                    },
                },
            }
        )
        until = time.monotonic() + SECONDS
        clients = [Client(server, files, SEED + number) for number in range(THREADS)]
        threads = [threading.Thread(target=one.main, args=(until,)) for one in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in clients:
            if one.error:
                raise one.error
        assert sum(sum(one.done.values()) for one in clients) > THREADS
        server.wait_until_idle()
