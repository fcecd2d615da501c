"""Which tensors of a graph belong to its sequences, as settings and Triton's files say it."""

from __future__ import annotations

import json
import queue
from pathlib import Path
from typing import Any

import graphs
import harness
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritons
import web
from conftest import Serve
from graphs import INT64, tensor
from onnx import TensorProto, helper
from test_e2e_sequences import ask, summing, sums, total
from web import Http

pytestmark = pytest.mark.once  # what runs models is the same on both backends

PBTXT = """
max_batch_size: 4
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  oldest { max_candidate_sequences: 3 }
  control_input [
    { name: "START" control [{ kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }] },
    { name: "END" control [{ kind: CONTROL_SEQUENCE_END bool_false_true: [false, true] }] },
    { name: "READY" control [{ kind: CONTROL_SEQUENCE_READY fp32_false_true: [0, 1] }] },
    { name: "ID" control [{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT32 }] }
  ]
  state [{
    input_name: "s" output_name: "s_next" data_type: TYPE_FP32 dims: [2]
    initial_state: { name: "first" data_type: TYPE_FP32 dims: [2] data_file: "first" }
  }]
}
"""


def repository(folder: Path, text: str) -> Path:
    model = folder / "sums"
    (model / "1").mkdir(parents=True)
    (model / "initial_state").mkdir()
    summing(model / "1" / "model.onnx")
    (model / "initial_state" / "first").write_bytes(np.array([100, 200], "<f4").tobytes())
    (model / "config.pbtxt").write_text(text)
    return folder


def test_a_configuration_of_triton(serve: Serve, tmp_path: Path) -> None:
    folder = repository(tmp_path / "models", PBTXT)
    server = serve({"models": [], "repository": {"paths": [str(folder)]}})
    with Http(server.port) as http:
        assert total(ask(http, [1, 2], sequence_id=5, sequence_start=True)) == [101, 202]
        assert total(ask(http, [1, 2], sequence_id=5)) == [102, 204]
        section = http.query(web.get("/v2/models/sums/config")).json()["sequence_batching"]
    assert section["oldest"]["max_candidate_sequences"] == 3
    assert section["max_sequence_idle_microseconds"] == 5_000_000


@pytest.mark.parametrize("streams", [False, True])
def test_tritons_client_over_grpc(serve: Serve, tmp_path: Path, streams: bool) -> None:
    """As its examples do it: sequences side by side, one call for each request or one for
    all."""
    folder = repository(tmp_path / "models", PBTXT)
    server = serve({"models": [], "repository": {"paths": [str(folder)]}})
    values = {"x": np.array([[1, 2]], "<f4"), "at": np.array([0], "<i8")}
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    found: dict[str, list[list[float]]] = {}
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        if streams:
            client.start_stream(lambda result, error: answers.put((result, error)))
        for turn in range(4):
            for which in (1000, 1001):
                asked = client.async_stream_infer if streams else client.infer
                result = asked(
                    "sums",
                    tritons.inputs_of(triton, values),
                    request_id=str(which),
                    sequence_id=which,
                    sequence_start=turn == 0,
                    sequence_end=turn == 3,
                )
                if streams:
                    result, error = answers.get(timeout=harness.SETTLE_S)
                    assert error is None
                found.setdefault(result.get_response().id, []).append(
                    result.as_numpy("y").ravel().tolist()
                )
        if streams:
            client.stop_stream()
    expected = [[101.0 + turn, 202.0 + 2 * turn] for turn in range(4)]
    assert found == dict.fromkeys(("1000", "1001"), expected)


WARMUP = """
model_warmup [{
  name: "all"
  inputs { key: "x" value: { data_type: TYPE_FP32 dims: [1, 2] random_data: true } }
  inputs { key: "at" value: { data_type: TYPE_INT64 dims: [1] zero_data: true } }
  inputs { key: "START" value: { data_type: TYPE_INT32 dims: [1, 1] zero_data: true } }
  inputs { key: "ID" value: { data_type: TYPE_UINT32 dims: [1] zero_data: true } }
  inputs { key: "s" value: { data_type: TYPE_FP32 dims: [1, 2] zero_data: true } }
}]
"""


def test_a_warm_up_request_may_name_controls_and_states(serve: Serve, tmp_path: Path) -> None:
    """Triton wants values of them too. Lumen knows better ones: those of a first request."""
    text = PBTXT.replace("max_batch_size: 4", "").replace("dims: [2]", "dims: [1, 2]")
    folder = repository(tmp_path / "models", text + WARMUP)
    server = serve({"models": [], "repository": {"paths": [str(folder)]}})
    with Http(server.port) as http:
        assert total(ask(http, [1, 2], sequence_id=5, sequence_start=True)) == [101, 202]


def telling(path: Path, shape: list[int | str]) -> Path:
    """told = the id BYTES [1] or [1, 1]; y = s + x INT64 [1], which is the next s."""
    nodes = [
        helper.make_node("Add", ["s", "x"], ["y"]),
        helper.make_node("Identity", ["y"], ["s_next"]),
        helper.make_node("Identity", ["ID"], ["told"]),
    ]
    inputs = [tensor("x", INT64, [1]), tensor("s", INT64, [1])]
    outputs = [tensor("y", INT64, [1]), tensor("s_next", INT64, [1])]
    inputs.append(tensor("ID", TensorProto.STRING, shape))
    outputs.append(tensor("told", TensorProto.STRING, shape))
    return graphs.save(path, nodes, inputs, outputs)


@pytest.mark.parametrize("shape", [[1], ["n", 1]])
def test_a_graph_that_takes_the_id_as_a_text(
    serve: Serve, tmp_path: Path, shape: list[int | str]
) -> None:
    path = telling(tmp_path / "tells.onnx", shape)
    sequences = {"id": "ID", "state": {"s": "s_next"}, "max_open": 2}
    room = {"max_output_bytes": 1024}
    model = {"name": "tells", "path": str(path), "sequences": sequences, **room}
    server = serve({"models": [model]})
    ids = (7, "7", "é" * 64, 2**64 - 1, "a", "an ear that hears for longer than others")
    with Http(server.port) as http:
        for which in ids:  # one after the other has the same two places
            for turn in range(3):
                parameters = {
                    "sequence_id": which,
                    "sequence_start": turn == 0,
                    "sequence_end": turn == 2,
                }
                x = {"x": np.array([5], "<i8")}
                answer = http.query(web.infer("tells", x, parameters=parameters))
                assert answer.outputs["y"].data.tolist() == [5 * (turn + 1)]
                assert answer.outputs["told"].data == [str(which).encode()]
        section = http.query(web.get("/v2/models/tells/config")).json()["sequence_batching"]
        (control,) = section["control_input"]
        assert control["control"][0]["data_type"] == "TYPE_STRING"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"start": "BEGIN"}, "sequences: expected an input of the graph, found 'BEGIN'"),
        ({"state": {"s": "gone"}}, "sequences: expected an output of the graph, found 'gone'"),
        ({"start": "ID", "id": None}, "sequences: start: expected BOOL, INT32 or FP32, 'ID' has"),
        (
            {"id": "END", "end": None},
            "sequences: id: expected INT32, INT64, UINT32, UINT64 or BYTES",
        ),
        ({"state": {"s": "told"}}, "expected an output of its type and shape"),
        ({"start": "x"}, "sequences: start: expected one element, 'x' has 2"),
    ],
)
def test_settings_that_do_not_fit_the_graph(
    cache: Path, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    config = tmp_path / "config.yaml"
    models = [sums(summing(tmp_path / "sums.onnx"), **change)]
    config.write_text(json.dumps({"models": models}))
    done = harness.run(["--config", str(config)], cache)
    assert done.returncode == 1
    assert said in done.stderr, done.stderr
