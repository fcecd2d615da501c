"""Files of models belong to somebody else, who writes, cuts and deletes them while they are served:
the answers stay those of the file that was loaded, and the next load takes the new one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import web
from conftest import Serve
from graphs import FLOAT, helper, save, tensor
from harness import Server, children
from web import Http

from lumen_uring import Client

pytestmark = pytest.mark.once  # what loads models: the same on both backends

COLUMNS = 1 << 18  # a MiB of weights, which no kernel packs into memory of its own
KINDS = ("ort", "onnx", "external", "kept beside")
X = np.ones((1, COLUMNS), "<f4")


def times(path: Path, factor: float) -> Path:
    """y = factor * x element by element, x FP32 [1, COLUMNS], in one file."""
    weights = np.full((1, COLUMNS), factor, np.float32)
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    shape = [1, COLUMNS]
    inputs, outputs = [tensor("x", FLOAT, shape)], [tensor("y", FLOAT, shape)]
    return save(path, nodes, inputs, outputs, {"w": weights})


def make(kind: str, folder: Path, factor: float) -> Path:
    """A model of that kind in a folder; its files are written in place where they are there."""
    folder.mkdir(exist_ok=True)
    path = times(folder / "made.onnx", factor)
    if kind in ("external", "kept beside"):
        model = onnx.load(path)
        if kind == "kept beside":  # ONNX Runtime's own format has no optional values
            (node,) = model.graph.node
            node.output[0] = "m"
            model.graph.node.extend(
                [
                    helper.make_node("Optional", ["m"], ["o"]),
                    helper.make_node("OptionalGetElement", ["o"], ["y"]),
                ]
            )
        onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="weights.bin")
        path.unlink()
        return folder / "model.onnx"
    if kind == "ort":
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(folder / "made.ort")
        options.add_session_config_entry("session.save_model_format", "ORT")
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        path.unlink()
        path = folder / "made.ort"
    to = folder / f"model.{kind}"
    with to.open("r+b" if to.exists() else "wb") as file, path.open("rb") as made:
        shutil.copyfileobj(made, file)
        file.truncate()
    path.unlink()
    return to


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def served(serve: Serve, tmp_path: Path, kind: str) -> tuple[Server, Path]:
    """A server of that model, in its own process and in one of its own."""
    path = make(kind, tmp_path / "m", 2.0)
    models = [
        {"name": "here", "path": str(path)},
        {"name": "apart", "path": str(path), "isolation": "process"},
    ]
    server = serve({"engine": {"thread_count": 2}, "models": models})
    return server, path


def expect(server: Server, factor: float, *names: str) -> None:
    with Client("127.0.0.1", server.port) as client:
        for name in names:
            for _ in range(4):  # whichever worker it is
                answer = client.infer(name, {"x": X}).outputs["y"]
                np.testing.assert_array_equal(answer, X * np.float32(factor))


def overwritten(file: Path) -> None:
    with file.open("r+b") as open_file:
        open_file.write(os.urandom(file.stat().st_size))


def cut(file: Path) -> None:
    os.truncate(file, 100)


WAYS: list[Callable[[Path], None]] = [overwritten, cut, Path.unlink]


def test_whatever_becomes_of_the_file_the_answers_stay(served: tuple[Server, Path]) -> None:
    """None of them is mapped."""
    server, path = served
    expect(server, 2, "here", "apart")
    for pid in (server.pid, *children(server.pid)):
        assert str(path.parent) not in Path(f"/proc/{pid}/maps").read_text(), pid
    for change in WAYS:
        for file in path.parent.iterdir():
            change(file)
        expect(server, 2, "here", "apart")


def test_the_next_load_takes_the_new_file_or_nothing(
    serve: Serve, tmp_path: Path, kind: str
) -> None:
    """By a call, as an operator has it, while a client asks; a file that is no model changes
    nothing."""
    version = tmp_path / "repository" / "m" / "1"
    version.mkdir(parents=True)
    suffix = "ort" if kind == "ort" else "onnx"
    make(kind, version, 2.0)
    repository = {
        "paths": [str(tmp_path / "repository")],
        "control": "explicit",
        "load": ["*"],
    }
    server = serve({"repository": repository, "models": []})
    load = web.post("/v2/repository/models/m/load", b"{}")
    with Http(server.port) as http:
        expect(server, 2, "m")
        for factor in (3.0, 5.0):
            make(kind, version, factor)  # in place, as cp does
            assert http.query(load).code == 200
            expect(server, factor, "m")
        os.truncate(version / f"model.{suffix}", 100)
        assert http.query(load).code == 400
        expect(server, 5, "m")


@pytest.mark.parametrize("kind", ["external", "kept beside"])
def test_the_copy_of_weights_stays_where_no_graph_holds_them(tmp_path: Path, kind: str) -> None:
    """The next start takes it, and the optimised graph where there is one."""
    path = make(kind, tmp_path / "m", 2.0)
    cache = tmp_path / "cache"
    settings = {"models": [{"name": "here", "path": str(path)}]}
    inodes = []
    for _ in range(2):
        with Server(settings, cache) as server:
            expect(server, 2, "here")
            assert "not kept" not in server.output
        kept = {entry.name.partition("-")[2]: entry for entry in (cache / "lumen").iterdir()}
        assert ("weights" in kept) == (kind == "kept beside")
        assert any(name.endswith(".ort") for name in kept) == (kind == "external")
        inodes.append({entry.stat().st_ino for entry in kept.values()})
    assert inodes[0] == inodes[1]


def test_the_cache_keeps_its_bound_while_models_come(tmp_path: Path) -> None:
    """Each version is a MiB, and the cache has room for three: what is served is there."""
    version = tmp_path / "repository" / "m" / "1"
    version.mkdir(parents=True)
    make("onnx", version, 2.0)
    repository = {
        "paths": [str(tmp_path / "repository")],
        "control": "explicit",
        "load": ["*"],
        "cache_bytes": "3500KiB",
    }
    cache = tmp_path / "cache"
    load = web.post("/v2/repository/models/m/load", b"{}")
    with (
        Server({"repository": repository, "models": []}, cache) as server,
        Http(server.port) as http,
    ):
        for factor in (3.0, 5.0, 7.0, 9.0, 11.0):
            make("onnx", version, factor)
            assert http.query(load).code == 200
            expect(server, factor, "m")
            kept = list((cache / "lumen").glob("*.ort"))
            assert sum(path.stat().st_size for path in kept) <= 3500 << 10
        assert len(kept) == 3
