"""Models whose graph other execution providers compute: OpenVINO from its wheel, where that is
here; and `cpu`, which every ONNX Runtime has."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import graphs
import harness
import needs
import numpy as np
import pytest
import web
from conftest import Serve
from harness import Server
from web import Http

from lumen_uring import Client

pytestmark = pytest.mark.once  # what computes is the same on both backends

RANDOM = np.random.default_rng(3)


def digits(name: str, **more: object) -> dict[str, Any]:
    return {"name": name, "path": "builtin:digits", "engine": "onnxruntime", **more}


def entry_of(server: Server, name: str) -> dict[str, Any]:
    return next(model for model in server.description["models"] if model["name"] == name)


def answers(server: Server, name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with Client("127.0.0.1", server.port) as client:
        return client.infer(name, arrays).outputs


def a_batch(server: Server, name: str, rows: int) -> dict[str, np.ndarray]:
    """Random rows for a model of floats whose rows alone are free."""
    return {
        tensor["name"]: RANDOM.random((rows, *tensor["shape"][1:]), dtype=np.float32)
        for tensor in entry_of(server, name)["inputs"]
    }


def test_cpu_is_what_a_model_has_without(serve: Serve) -> None:
    server = serve({"models": [digits("plain"), digits("cpu", providers=["cpu"])]})
    assert entry_of(server, "plain")["providers"] == entry_of(server, "cpu")["providers"] == ["cpu"]
    for rows in (1, 5):
        x = a_batch(server, "plain", rows)
        plain, cpu = (answers(server, name, x) for name in ("plain", "cpu"))
        assert [a.tobytes() for a in plain.values()] == [a.tobytes() for a in cpu.values()]
    assert "provider " not in server.output


def test_a_model_with_providers_is_loaded_again_while_it_serves(serve: Serve) -> None:
    """Its settings reach the process that tries it, and one of its own."""
    models = [digits("cpu", providers=[{"cpu": {}}])]
    models.append(digits("apart", providers=["cpu"], isolation="process"))
    server = serve({"repository": {"control": "explicit"}, "models": models})
    x = a_batch(server, "cpu", 2)
    before = answers(server, "cpu", x)
    with Http(server.port) as http:
        answer = http.query(web.post("/v2/repository/models/cpu/load"))
        assert answer.code == 200, answer.body
    for name in ("cpu", "apart"):
        again = answers(server, name, x)
        assert [a.tobytes() for a in again.values()] == [a.tobytes() for a in before.values()]


def with_openvino(serve: Serve, models: list[dict[str, Any]]) -> Server:
    """Not forked: the tests' own process has another ONNX Runtime."""
    settings = {"engine": {"thread_count": 2, "queue_type": "mpmc"}, "models": models}
    return serve(settings, prefix=["env"], extra_environment=needs.openvino())


def cores_of(server: Server) -> dict[str, str]:
    """The cores of the main thread and of each worker."""
    found = {}
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        text = (task / "status").read_text()
        name = re.search(r"^Name:\t(.*)$", text, re.MULTILINE)
        cores = re.search(r"^Cpus_allowed_list:\t(.*)$", text, re.MULTILINE)
        assert name
        assert cores
        if name[1].startswith("lumen-w/") or task.name == str(server.pid):
            found[name[1]] = cores[1]
    return found


def test_openvino_answers_as_the_cpu_does(serve: Serve, tmp_path: Path) -> None:
    double = str(graphs.double(tmp_path / "double.onnx"))
    server = with_openvino(
        serve,
        [
            digits("cpu"),
            digits("ov", providers=["openvino"]),
            digits("rows", providers=["openvino", "cpu"], batch_size=8),
            {"name": "double", "path": double, "providers": ["openvino"], "run": "inline"},
        ],
    )
    entry = entry_of(server, "ov")
    assert entry["providers"] == ["openvino", "cpu"]
    assert entry["nodes"] > 0 == entry["nodes_on_cpu"]
    assert entry["engine"] == "onnxruntime"
    assert entry["width_why"] == "it has other providers"
    assert entry["run_why"] == "engine.queue_type is set"
    nodes = entry["nodes"]
    assert f"provider ov: openvino, then cpu; none of {nodes} nodes left" in server.output
    for rows in (1, 2, 7):
        x = a_batch(server, "cpu", rows)
        expected = answers(server, "cpu", x)
        for name in ("ov", "rows"):
            found = answers(server, name, x)
            for output, array in expected.items():
                np.testing.assert_allclose(found[output], array, rtol=1e-3, atol=1e-4)
    x = a_batch(server, "double", 3)
    assert (answers(server, "double", x)["y"] == 2 * x["x"]).all()
    with Http(server.port) as http:
        config = json.loads(http.query(web.get("/v2/models/ov/config")).body)
    assert config["parameters"]["providers"] == {"string_value": "openvino, cpu"}


def test_openvino_leaves_the_threads_where_they_are(serve: Serve) -> None:
    plain = with_openvino(serve, [digits("cpu")])
    expected = cores_of(plain)
    plain.stop()
    server = with_openvino(serve, [digits("ov", providers=["openvino"])])
    assert cores_of(server) == expected
    assert "moves the thread" not in server.output
    server.stop()
    pinning = {"openvino": {"load_config": {"CPU": {"ENABLE_CPU_PINNING": True}}}}
    server = with_openvino(serve, [digits("ov", providers=[pinning])])
    assert cores_of(server) == expected
    assert "a provider (openvino, cpu) moves the thread that runs it" in server.output
    for rows in (1, 3, 2, 5):
        answers(server, "ov", a_batch(server, "ov", rows))
    # The worker is pinned again after it has answered.
    harness.eventually(lambda: cores_of(server) == expected, "workers on their cores")


def test_one_session_for_all_workers(serve: Serve) -> None:
    """As for a device: OpenVINO is told one that stands for the CPU."""
    device = {"openvino": {"device_type": "HETERO:CPU"}}
    server = with_openvino(serve, [digits("cpu"), digits("one", providers=[device])])
    batches = [a_batch(server, "cpu", 1 + number % 5) for number in range(40)]
    expected = [answers(server, "cpu", x) for x in batches]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: answers(server, "one", x), batches))
    for one, other in zip(found, expected, strict=True):
        for output, array in other.items():
            # This device computes in bf16 where the processor can.
            np.testing.assert_allclose(one[output], array, rtol=0.1, atol=0.05)


def test_openvino_with_free_dimensions(serve: Serve, tmp_path: Path) -> None:
    path = str(graphs.double(tmp_path / "free.onnx", columns="m"))  # type: ignore[arg-type]
    model = {"name": "free", "path": path, "providers": ["openvino"], "max_dims": {"m": 64}}
    server = with_openvino(serve, [model])
    for shape in ((1, 64), (3, 1), (2, 17)):
        x = RANDOM.random(shape, dtype=np.float32)
        assert (answers(server, "free", {"x": x})["y"] == 2 * x).all()


@pytest.mark.parametrize(
    ("provider", "why"),
    [
        ({"openvino": {"no_such_option": 1}}, "no_such_option"),
        ({"openvino": {"device_type": "MOON"}}, "of openvino, cpu the CPU gets all 7 nodes"),
        ({"openvino": {"load_config": {"CPU": {"NO_SUCH": "1"}}}}, "NO_SUCH"),
        ("cuda", "has (openvino, cpu), found 'cuda': the wheel onnxruntime-gpu has it"),
    ],
)
def test_what_openvino_refuses(cache: Path, provider: object, why: str) -> None:
    variables = needs.openvino()
    settings = ["--set", f"models.0.providers={json.dumps([provider])}"]
    done = harness.run(["serve", *settings, "--port", "0"], cache, ["env"], variables)
    assert done.returncode == 1
    assert "cannot be served" in done.stderr
    assert why in done.stderr
    assert "Traceback" not in done.stderr
