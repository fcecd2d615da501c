"""Names that come and go: a server has 64 places at a time and any number of names in its life.
The figures, rights and native indexes of a name that went are never another one's.

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
from harness import Server, eventually
from test_e2e_models_live import times
from web import Http, post
from wire import Wire, frame

from lumen_uring.ring import stats

pytestmark = pytest.mark.once  # what loads models: the same on both backends

X = np.arange(16, dtype=np.float32)[None]
PLACES = 64
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


def test_the_place_of_a_name_that_went(serve: Serve, tmp_path: Path) -> None:
    """Versions of one model come and go beside as many models as there is room for."""
    file = str(times(tmp_path / "filler.onnx", 7))
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
            "server": {"keys": keys, "arena_bytes": "64MiB"},
            "engine": {"queue_type": "mpmc"},
            "models": [{"name": f"f{n}", "path": file} for n in range(PLACES - 3)],
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
        assert factor(server, "f3") == 7
    assert "m:1" not in answered(server)

    # One more has the last place, and another one is refused until a name goes.
    assert call(server, "one/load").code == 200
    assert factor(server, "one", OLD) == 9
    answer = call(server, "two/load")
    assert (answer.code, "at most 64 names at a time" in answer.error) == (400, True)
    assert call(server, "one/unload").code == 200
    answer = call(server, "two/load")
    assert answer.code == 200, answer.error
    # A key that might use the name that went may not use this one.
    assert factor(server, "two") == 8
    assert factor(server, "two", OLD) == -403
    assert "one" not in answered(server)
    # The figures of names that went are gone: the account of all together does not balance here.
    server.check_errors()
    server.terminate()
    server.expect_clean_end()
