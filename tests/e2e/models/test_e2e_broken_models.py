"""Models that cannot be served cost their owners, and nobody else: a server starts without them,
names them, says by its readiness what the settings say, and takes them once they are mended."""

from __future__ import annotations

import shutil
from pathlib import Path

import graphs
import numpy as np
import pytest
import web
import yaml
from conftest import Serve
from harness import Server, eventually, run
from web import Http, get, post

pytestmark = pytest.mark.once  # what loads models: the same on both backends

X = np.arange(16, dtype=np.float32)[None]
LOAD, UNLOAD = "/v2/repository/models/%s/load", "/v2/repository/models/%s/unload"
# Each in its own way, and what is said of it.
BROKEN = {
    "no_model": "model.onnx",  # the engine's
    "no_version": "expected a folder for each version",
    "unread": "unknown field 'speed'",
    "outside": "expected no link out of the repository",
    "declared": "expected the graph's shape",
    "sequences": "response_cache",
    "needs": "it runs 'no_model', which cannot be served",
    "too_large": "server.arena_bytes",
}
BOUNDS = {"max_request_bytes": "1MiB", "arena_bytes": "64MiB"}  # unless set, they follow the models
SEQUENCES = """
response_cache { enable: true }
sequence_batching {
  control_input { name: "x" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] } }
}
"""
ENSEMBLE = """
platform: "ensemble"
input { name: "x" data_type: TYPE_FP32 dims: [-1, 16] }
output { name: "y" data_type: TYPE_FP32 dims: [-1, 16] }
ensemble_scheduling { step {
  model_name: "no_model" model_version: -1
  input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }
} }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model good, and one of each kind that is not."""
    models = tmp_path / "models"
    for name in ("good", *BROKEN.keys() - {"outside", "needs", "no_version"}):
        (models / name / "1").mkdir(parents=True)
        graphs.double(models / name / "1/model.onnx")
    (models / "no_model/1/model.onnx").write_bytes(b"no model at all")
    (models / "no_version").mkdir()
    (models / "no_version/config.pbtxt").touch()
    (models / "unread/config.pbtxt").write_text("speed: 3")
    (tmp_path / "elsewhere").mkdir()
    (models / "outside").symlink_to(tmp_path / "elsewhere")
    wrong = 'input { name: "x" data_type: TYPE_FP32 dims: [-1, 7] }'
    (models / "declared/config.pbtxt").write_text(wrong)
    (models / "sequences/config.pbtxt").write_text(SEQUENCES)
    (models / "needs/1").mkdir(parents=True)
    (models / "needs/config.pbtxt").write_text(ENSEMBLE)
    graphs.large(models / "too_large/1/model.onnx", 1 << 24)
    return models


def index_of(server: Server) -> dict[str, tuple[str, str]]:
    with Http(server.port) as http:
        index = http.query(post("/v2/repository/index")).json()
    return {one["name"]: (one.get("state", ""), one.get("reason", "")) for one in index}


def is_ready(server: Server) -> bool:
    with Http(server.port) as http:
        return http.query(get("/v2/health/ready")).code == 200


def answers(server: Server, name: str) -> bool:
    assert server.alive, (server.process.poll(), server.errors)
    with Http(server.port) as http:
        answer = http.query(web.infer(name, {"x": X}))
        if answer.code != 200:
            return False
        np.testing.assert_array_equal(answer.array("y"), X + X)
        return True


def call(server: Server, target: str) -> int:
    with Http(server.port) as http:
        return http.query(post(target)).code


@pytest.mark.parametrize(
    ("control", "strict"),
    [("explicit", True), ("watch", True), ("watch", False), ("none", False)],
)
def test_a_server_starts_without_them(
    serve: Serve, folder: Path, control: str, strict: bool
) -> None:
    repository = {"paths": [str(folder)], "control": control, "strict_readiness": strict}
    server = serve(
        {
            "server": BOUNDS,
            "repository": {**repository, "load": ["*"] if control == "explicit" else []},
        }
    )
    index = index_of(server)
    assert index["good"] == ("READY", "")
    for name, says in BROKEN.items():
        eventually(lambda name=name: index_of(server)[name][0] != "LOADING", "a second look", 60)
        state, reason = index_of(server)[name]
        assert (name, state, says in reason) == (name, "UNAVAILABLE", True), reason
        assert f"model {name}: not served" in server.errors
        assert not answers(server, name)
    assert answers(server, "good")
    assert is_ready(server) is not strict
    server.check_idle()


def test_one_that_is_mended_and_one_that_is_given_up(serve: Serve, folder: Path) -> None:
    for name in BROKEN.keys() - {"no_model", "unread"}:
        (folder / name).unlink() if (folder / name).is_symlink() else shutil.rmtree(folder / name)
    load = ["good", "no_model", "unread", "missing"]
    repository = {"paths": [str(folder)], "control": "explicit", "load": load}
    server = serve({"repository": repository})
    assert "expected models that are there" in index_of(server)["missing"][1]
    graphs.double(folder / "no_model/1/model.onnx")
    assert call(server, LOAD % "no_model") == 200
    assert answers(server, "no_model")
    assert not is_ready(server)
    assert call(server, UNLOAD % "unread") == 200  # nobody wants it any more
    assert not is_ready(server)
    assert call(server, UNLOAD % "missing") == 200
    assert is_ready(server)
    assert index_of(server) == {"good": ("READY", ""), "no_model": ("READY", "")}
    assert call(server, LOAD % "unread") == 400
    assert is_ready(server)
    server.check_idle()


def test_folders_that_are_mended_are_loaded(serve: Serve, folder: Path) -> None:
    server = serve({"server": BOUNDS, "repository": {"paths": [str(folder)], "control": "watch"}})
    assert not is_ready(server)
    graphs.double(folder / "no_model/1/model.onnx")
    (folder / "unread/config.pbtxt").unlink()
    for name in BROKEN.keys() - {"no_model", "unread", "needs"}:
        (folder / name).unlink() if (folder / name).is_symlink() else shutil.rmtree(folder / name)
    for name in ("no_model", "unread"):
        eventually(lambda name=name: answers(server, name), f"{name} to be served", 60)
    # An ensemble comes with what it runs.
    eventually(lambda: index_of(server)["needs"] == ("READY", ""), "the ensemble", 60)
    eventually(lambda: is_ready(server), "readiness", 60)
    assert set(index_of(server)) == {"good", "no_model", "unread", "needs"}
    # A new one that is broken is nobody's loss.
    (folder / "late/1").mkdir(parents=True)
    (folder / "late/1/model.onnx").write_bytes(b"no model either")
    eventually(lambda: index_of(server).get("late", ("",))[0] == "UNAVAILABLE", "its state", 60)
    assert is_ready(server)
    server.check_idle()


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_a_repository_that_comes_later(serve: Serve, tmp_path: Path, kind: str) -> None:
    models = tmp_path / "models"
    if kind == "empty":
        models.mkdir()
    server = serve({"repository": {"paths": [str(models)], "control": "watch"}})
    assert is_ready(server) is (kind == "empty")
    assert index_of(server) == {}
    (tmp_path / "new/good/1").mkdir(parents=True)
    graphs.double(tmp_path / "new/good/1/model.onnx")
    if kind == "empty":
        (tmp_path / "new/good").rename(models / "good")
    else:
        (tmp_path / "new").rename(models)
    eventually(lambda: answers(server, "good"), "the model to be served", 60)
    eventually(lambda: is_ready(server), "readiness", 60)  # said after the load
    server.check_idle()


def test_a_strict_server_refuses_and_names_the_cure(folder: Path, cache: Path) -> None:
    for name in BROKEN.keys() - {"no_model"}:
        (folder / name).unlink() if (folder / name).is_symlink() else shutil.rmtree(folder / name)
    for wrong in ("no_model", "unread"):
        refused = run([str(folder), "--port", "0"], cache)
        assert refused.returncode in (1, 2)
        assert wrong in refused.stderr
        assert "set repository.strict_readiness: false" in refused.stderr
        shutil.rmtree(folder / "no_model", ignore_errors=True)
        (folder / "unread").mkdir(exist_ok=True)
        (folder / "unread/config.pbtxt").write_text("speed: 3")


def test_a_reload_beside_a_broken_folder(serve: Serve, folder: Path, cache: Path) -> None:
    """A served version stays while the folder of its model cannot be read."""
    for name in BROKEN:
        (folder / name).unlink() if (folder / name).is_symlink() else shutil.rmtree(folder / name)
    path = folder.with_name("config.yaml")
    settings = {"paths": [str(folder)], "strict_readiness": False}
    path.write_text(yaml.safe_dump({"repository": settings}))
    server = serve({"repository": settings})
    (folder / "good/config.pbtxt").write_text("speed: 3")
    (folder / "second/1").mkdir(parents=True)
    graphs.double(folder / "second/1/model.onnx")
    done = run(["reload", "--port", str(server.port)], cache)
    assert (done.returncode, "unknown field 'speed'" in done.stdout) == (1, True), done.stdout
    assert answers(server, "good")
    assert answers(server, "second")
    server.check_idle()
