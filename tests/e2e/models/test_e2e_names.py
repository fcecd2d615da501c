"""Names: many at a time, and any number in a server's life. The figures, rights and native indexes
of a name that went are never another one's.

LUMEN_E2E_NAMES is how many versions of one model come; tests/c/test_live.c does 10,000 names.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import web
from conftest import Serve
from graphs import times
from harness import Server, eventually
from web import Http, post
from wire import Wire, frame

from lumen_uring.ring import stats

pytestmark = pytest.mark.once  # what loads models: the same on both backends

X = np.arange(16, dtype=np.float32)[None]
MANY, SHOWN = 200, 64
VERSIONS = int(os.environ.get("LUMEN_E2E_NAMES", "4"))
ROOT, OLD = b"root-token", b"old-token"


def call(server: Server, target: str) -> web.Answer:
    with Http(server.port) as http:
        header = f"Authorization: Bearer {ROOT.decode()}"
        return http.query(post(f"/v2/repository/models/{target}", b"", header))


def factor(server: Server, name: str, token: bytes = ROOT) -> int:
    with Http(server.port) as http:
        header = f"Authorization: Bearer {token.decode()}"
        answer = http.query(web.infer(name, {"x": X}, headers=[header]))
        return int(answer.array("y")[0, 1]) if answer.code == 200 else -answer.code


def answered(server: Server) -> dict[str, int]:
    """Of each model in the statistics file, how many requests the workers have answered."""
    return {
        name: counters.get("ok", 0)
        for name, counters in stats.read(server.stats_path).models.items()
    }


def served(server: Server) -> dict[str, int]:
    """The numbers by which native clients call the models."""
    with Wire(server.port) as wire:
        token = ROOT.ljust(32, b"\0")
        reply = wire.ask(frame(kind=3, flags=1, payload=token))
        return {one["name"]: one["index"] for one in json.loads(reply.payload)["models"]}


def native(server: Server, number: int) -> int:
    """The factor of the model of that number, or its status below 0."""
    with Wire(server.port) as wire:
        payload = ROOT.ljust(32, b"\0") + X.tobytes()
        reply = wire.ask(frame(model=number, flags=1, payload=payload))
        return -reply.status if reply.status else int(np.frombuffer(reply.payload, "<f4")[1])


def test_names_that_come_and_go(serve: Serve, tmp_path: Path) -> None:
    """Versions of one model; and a key that names a model which comes later."""
    versions = tmp_path / "models/m"
    for version in (1, 2):
        times(versions / f"{version}/model.onnx", version)
    (versions / "config.pbtxt").write_text("version_policy: { latest { num_versions: 2 } }")
    times(tmp_path / "models/one/1/model.onnx", 9)
    times(tmp_path / "models/two/1/model.onnx", 8)
    keys = [
        {"name": "root", "sha256": hashlib.sha256(ROOT).hexdigest(), "admin": True},
        {"name": "old", "sha256": hashlib.sha256(OLD).hexdigest(), "models": ["one"]},
    ]
    server = serve(
        {
            "server": {"keys": keys},
            "engine": {"queue_type": "mpmc"},
            "models": [{"name": "filler", "path": str(times(tmp_path / "filler.onnx", 7))}],
            "repository": {
                "paths": [str(tmp_path / "models")], "control": "explicit", "load": ["m"],
            },
        }
    )  # fmt: skip
    old: dict[int, str] = {}
    for version in range(3, 3 + VERSIONS):
        before = served(server)
        went = f"m:{version - 2}"
        for _ in range(version):
            assert factor(server, "m") == version - 1
        times(versions / f"{version}/model.onnx", version)
        answer = call(server, "m/load")
        assert answer.code == 200, answer.error
        old[before[went]] = went
        now = served(server)
        assert went not in now
        for number, name in old.items():
            assert number not in now.values(), name
            assert native(server, number) == -2
        assert answered(server)[f"m:{version}"] == 0
        assert native(server, now[f"m:{version}"]) == version
        assert factor(server, "m") == version
        eventually(lambda v=version: answered(server)[f"m:{v}"] == 2, "its answers")
        assert factor(server, "filler") == 7

    assert factor(server, "one", OLD) == -404
    assert call(server, "one/load").code == 200
    assert factor(server, "one", OLD) == 9
    assert call(server, "one/unload").code == 200
    assert call(server, "two/load").code == 200
    assert factor(server, "two") == 8
    assert factor(server, "two", OLD) == -403
    server.check_errors()
    server.terminate()
    server.expect_clean_end()


def test_many_names_at_a_time(serve: Serve, tmp_path: Path) -> None:
    """More than a person reads: the pages for people show some, the others all."""
    file = str(times(tmp_path / "x.onnx", 7))
    names = [f"n{number}" for number in range(MANY)]
    server = serve(
        {
            "engine": {"queue_type": "mpmc"},
            "models": [{"name": name, "path": file} for name in names],
        }
    )
    for name in (names[0], names[64], names[-1]):
        assert factor(server, name) == 7
    assert list(served(server)) == names
    with Http(server.port) as http:
        listed = http.query(web.get("/v2/models/stats")).json()["model_stats"]
        assert [one["name"] for one in listed] == names
        assert listed[64]["inference_stats"]["success"]["count"] == 1
        [alone] = http.query(web.get("/v2/models/n65/stats")).json()["model_stats"]
        assert (alone["name"], alone["inference_count"]) == ("n65", 0)
        assert http.query(web.get("/v1/models")).json()["models"] == names
        assert len(http.query(web.get("/figures")).json()["models"]) == SHOWN
        page = http.query(web.get("/")).body.decode()
        assert page.count("<tr data-model=") == SHOWN
        assert f"And {MANY - SHOWN} models more" in page
    server.terminate()
    assert f"{MANY - SHOWN} more: GET /v1/models has all names" in server.output
    server.expect_clean_end()
