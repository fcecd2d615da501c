"""A folder as Triton lays it out, served, inspected and refused."""

from __future__ import annotations

import json
from pathlib import Path

import graphs
import pytest
from conftest import Serve
from harness import run
from web import Http, get

pytestmark = pytest.mark.once  # what reads folders: the same on both backends

CONFIG = 'max_batch_size: 8 input { name: "x" data_type: %s dims: 16 }'


def repository(folder: Path, datatype: str) -> Path:
    """Two versions of `double`, and `echo` without a configuration."""
    for place in ("double/1", "double/3", "echo/1"):
        (folder / place).mkdir(parents=True)
    for version in (1, 3):
        graphs.double(folder / f"double/{version}/model.onnx")
    graphs.echo(folder / "echo/1/model.onnx")
    (folder / "double/config.pbtxt").write_text(CONFIG % datatype)
    return folder


def test_a_repository_is_served(serve: Serve, tmp_path: Path) -> None:
    folder = repository(tmp_path, "TYPE_FP32")
    server = serve({"repository": {"paths": [str(folder)]}})
    with Http(server.port) as http:
        assert http.query(get("/v2/models/double")).json()["name"] == "double"
        assert http.query(get("/v2/models/double/config")).json()["max_batch_size"] == 8
        assert http.query(get("/v2/models/echo")).code == 200


def test_a_repository_is_inspected(cache: Path, tmp_path: Path) -> None:
    folder = repository(tmp_path, "TYPE_FP32")
    shown = run(["inspect", str(folder)], cache)
    assert shown.returncode == 0, shown.stderr
    assert "model double: can be served" in shown.stdout
    assert "n is 1 to 8 in a request" in shown.stdout
    assert f"Serve them: lumen {folder}" in shown.stdout
    assert "model echo: can be served" in run(["doctor", str(folder)], cache).stdout


def test_a_configuration_that_contradicts_its_graph(cache: Path, tmp_path: Path) -> None:
    folder = repository(tmp_path, "TYPE_INT64")
    says = f"{folder}/double/config.pbtxt:1 input 'x': expected FP32 as in the graph, found INT64"
    shown = run(["inspect", str(folder), "--json"], cache)
    assert shown.returncode == 1
    reasons = {model["name"]: model.get("reason") for model in json.loads(shown.stdout)["models"]}
    assert reasons == {"double": says, "echo": None}
    refused = run([str(folder), "--port", "0"], cache)
    assert (refused.returncode, refused.stderr.strip()) == (1, f"lumen: {says}")
