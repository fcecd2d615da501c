"""Keys that change places in the settings while requests are under way: each stays its client's."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import web
from conftest import Serve
from graphs import times
from harness import eventually
from operating import Reloaded, key
from test_e2e_fallbacks import settings, three
from test_e2e_on_demand import settings as on_demand
from test_e2e_upstreams import CHAT, ask
from upstreams import Request, plain
from web import Http

pytestmark = pytest.mark.once


def test_a_fallback_has_the_rights_of_its_key(serve: Serve, tmp_path: Path) -> None:
    """ann may not use `two`; while `one` thinks, ben takes ann's place."""
    go = threading.Event()

    def fail_late(request: Request, peer: Any) -> None:
        go.wait(60)
        peer.send(plain(b"{}", "502 Bad"))

    with three() as upstreams:
        upstreams["one"].script = fail_late
        document = settings({"one": ["two", "six"]}, **upstreams)
        ann, ben = key("ann", models=["one", "six"]), key("ben")
        document["server"]["keys"] = [ann, ben]
        running = Reloaded(serve, tmp_path, document)
        found: list[Any] = []
        asking = threading.Thread(
            target=lambda: found.append(
                ask(running.server.port, {"model": "one"}, Authorization="Bearer ann")
            )
        )
        asking.start()
        eventually(lambda: upstreams["one"].requests, "the request is there")
        document["server"]["keys"] = [ben, ann]
        running.reload(document)
        go.set()
        asking.join()
        assert found[0][0] == 200
        assert upstreams["six"].requests
        assert not upstreams["two"].requests


def test_a_body_that_comes_meanwhile(serve: Serve, tmp_path: Path) -> None:
    with three() as upstreams:
        document = settings({}, **upstreams)
        ann, ben = key("ann", models=["one"]), key("ben", models=["two"])
        document["server"]["keys"] = [ann]
        running = Reloaded(serve, tmp_path, document)
        for keys, code in (([ben, ann], 200), ([ben], 403)):
            with Http(running.server.port) as http:
                whole = web.post(CHAT, b'{"model": "one"}', "Authorization: Bearer ann")
                http.send(whole[:-3])
                eventually(lambda: running.server.figures().slots_in_use == 1, "its slot")
                document["server"]["keys"] = keys
                running.reload(document)
                http.send(whole[-3:])
                assert http.answer().code == code


def test_a_model_that_is_loaded_meanwhile(serve: Serve, tmp_path: Path) -> None:
    chosen = on_demand(tmp_path, 3)
    ann, ben = key("ann", models=["m1"]), key("ben", models=["own"])
    chosen["models"] = [{"name": "own", "path": str(times(tmp_path / "own.onnx", 9))}]
    chosen["server"] = {"keys": [ann, ben]}
    running = Reloaded(serve, tmp_path, chosen)
    rows = np.ones((1, 16), np.float32)
    with Http(running.server.port) as http:
        http.send(web.infer("m1", {"x": rows}, headers=["Authorization: Bearer ann"]))
        chosen["server"] = {"keys": [ben, ann]}
        running.reload(chosen)
        assert http.answer().code == 200


def test_a_pipelined_head_says_its_own(serve: Serve) -> None:
    """Both begin in one turn; the first one is refused, and the upstream sees the second."""
    with three() as upstreams:
        server = serve(settings({}, **upstreams))
        said = "X-Request-Id: another"
        parent = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        with Http(server.port) as http:
            http.send(
                web.post(CHAT, b'{"model": "none"}', said, parent)
                + web.post(CHAT, b'{"model": "one"}')
            )
            assert [http.answer().code for _ in range(2)] == [404, 200]
        head = upstreams["one"].requests[-1].head.lower()
        assert "another" not in head
        assert "0af7651916cd43dd8448eb211c80319c" not in head
