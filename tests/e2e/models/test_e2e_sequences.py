"""Models with a state: requests of one sequence go on where the one before ended."""

from __future__ import annotations

import json
import select
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import graphs
import harness
import numpy as np
import onnxruntime as ort
import pytest
import web
from conftest import Serve
from graphs import FLOAT, INT64, tensor
from harness import Server
from onnx import TensorProto, helper
from tritonclient.http import InferenceServerClient, InferInput
from web import Answer, Http

from lumen_uring import Client
from lumen_uring.errors import BadRequest

pytestmark = pytest.mark.once  # what runs models is the same on both backends

LONG = 40_000  # trips of a slow graph, which last longer than its client waits
CONTROLS = {"start": "START", "end": "END", "ready": "READY", "id": "ID"}


def summing(path: Path) -> Path:
    """y = s + x FP32 [n, 2], which is the next s; told = what the controls say, INT64 [4]; and the
    first element of x is looked up in a table of four, so that others fail."""
    casts = [
        helper.make_node("Cast", [name], [f"{name}_i"], to=TensorProto.INT64)
        for name in CONTROLS.values()
    ]
    flat = [
        helper.make_node("Reshape", [f"{name}_i", "one"], [f"{name}_1"])
        for name in CONTROLS.values()
    ]
    nodes = [
        helper.make_node("Add", ["s", "x"], ["y"]),
        helper.make_node("Identity", ["y"], ["s_next"]),
        *casts,
        *flat,
        helper.make_node("Concat", [f"{name}_1" for name in CONTROLS.values()], ["told"], axis=0),
        helper.make_node("Gather", ["table", "at"], ["found"]),
    ]
    inputs = [
        tensor("x", FLOAT, ["n", 2]),
        tensor("at", INT64, [1]),
        tensor("s", FLOAT, ["n", 2]),
        tensor("START", TensorProto.INT32, ["n", 1]),
        tensor("END", TensorProto.BOOL, [1]),
        tensor("READY", FLOAT, [1, 1]),
        tensor("ID", TensorProto.UINT32, [1]),
    ]
    outputs = [
        tensor("y", FLOAT, ["n", 2]),
        tensor("s_next", FLOAT, ["n", 2]),
        tensor("told", INT64, [4]),
        tensor("found", FLOAT, [1]),
    ]
    constants = {"one": np.array([1]), "table": np.arange(4, dtype=np.float32)}
    return graphs.save(path, nodes, inputs, outputs, constants)


def counting(path: Path) -> Path:
    """y = s + 1, INT64 [1], which is the next s; x INT64 [1] is not looked at."""
    nodes = [
        helper.make_node("Mul", ["x", "none"], ["nothing"]),
        helper.make_node("Add", ["s", "one"], ["more"]),
        helper.make_node("Add", ["more", "nothing"], ["y"]),
        helper.make_node("Identity", ["y"], ["s_next"]),
    ]
    inputs = [tensor("x", INT64, [1]), tensor("s", INT64, [1])]
    outputs = [tensor("y", INT64, [1]), tensor("s_next", INT64, [1])]
    constants = {"none": np.array([0]), "one": np.array([1])}
    return graphs.save(path, nodes, inputs, outputs, constants)


def recurrent(path: Path, steps: int | str) -> Path:
    """An LSTM of 3 inputs and 5 cells: x FP32 [steps, 1, 3], h and c FP32 [1, n, 5] -> y FP32
    [steps, 1, 1, 5], h_next, c_next."""
    random = np.random.default_rng(5)
    weights = {
        "W": random.normal(0, 0.5, (1, 20, 3)).astype(np.float32),
        "R": random.normal(0, 0.5, (1, 20, 5)).astype(np.float32),
    }
    outputs = ["y", "h_next", "c_next"]
    node = helper.make_node("LSTM", ["x", "W", "R", "", "", "h", "c"], outputs, hidden_size=5)
    state = [1, "n", 5]
    return graphs.save(
        path,
        [node],
        [tensor("x", FLOAT, [steps, 1, 3]), tensor("h", FLOAT, state), tensor("c", FLOAT, state)],
        [
            tensor("y", FLOAT, [steps, 1, 1, 5]),
            tensor("h_next", FLOAT, state),
            tensor("c_next", FLOAT, state),
        ],
        weights,
    )


def sums(path: Path, **rest: object) -> dict[str, object]:
    sequences = {**CONTROLS, "state": {"s": "s_next"}, **rest}
    return {"name": "sums", "path": str(path), "sequences": sequences}


def counts(path: Path, **rest: object) -> dict[str, object]:
    sequences = {"state": {"s": "s_next"}, **rest}
    return {"name": "counts", "path": str(path), "sequences": sequences}


@pytest.fixture
def server(serve: Serve, tmp_path: Path) -> Server:
    models = [sums(summing(tmp_path / "sums.onnx")), counts(counting(tmp_path / "counts.onnx"))]
    return serve({"models": [*models, {"name": "digits", "path": "builtin:digits"}]})


def ask(
    http: Http,
    values: Sequence[float],
    *,
    at: int = 0,
    binary: bool = True,
    **parameters: object,
) -> Answer:
    inputs = {"x": np.array([values], "<f4"), "at": np.array([at], "<i8")}
    return http.query(web.infer("sums", inputs, binary=binary, parameters=parameters))


def total(answer: Answer) -> list[float]:
    found: list[float] = answer.outputs["y"].array.reshape(-1).tolist()
    return found


def count(http: Http, **parameters: object) -> Answer:
    text = web.infer("counts", {"x": np.array([0], "<i8")}, binary=False, parameters=parameters)
    return http.query(text)


@pytest.mark.parametrize("binary", [True, False])
def test_each_sequence_has_its_state(server: Server, binary: bool) -> None:
    one, other = 7, 2**32 - 1
    with Http(server.port) as http, Http(server.port) as second:
        first = ask(http, [1, 2], binary=binary, sequence_id=one, sequence_start=True)
        assert total(first) == [1, 2]
        assert first.outputs["told"].data.tolist() == [1, 0, 1, one]
        assert list(first.outputs) == ["y", "told", "found"]
        assert total(ask(second, [10, 20], sequence_id=other, sequence_start=True)) == [10, 20]
        middle = ask(second, [1, 2], binary=binary, sequence_id=one)
        assert total(middle) == [2, 4]
        assert middle.outputs["told"].data.tolist() == [0, 0, 1, one]
        assert total(ask(http, [1, 1], sequence_id=other)) == [11, 21]
        last = ask(http, [1, 2], sequence_id=one, sequence_end=True)
        assert total(last) == [3, 6]
        assert last.outputs["told"].data.tolist() == [0, 1, 1, one]
        assert ask(http, [1, 2], sequence_id=one).code == 400  # it has ended
        # A start where one is open begins anew, and an end may be a start.
        assert total(ask(http, [5, 5], sequence_id=other, sequence_start=True)) == [5, 5]
        both = ask(http, [6, 6], sequence_id=one, sequence_start=True, sequence_end=True)
        assert total(both) == [6, 6]
        assert both.outputs["told"].data.tolist() == [1, 1, 1, one]
        assert ask(http, [1, 2], sequence_id=one).code == 400


def test_a_text_may_name_a_sequence(server: Server) -> None:
    with Http(server.port) as http:
        for name in ("7", 7, "an ear", "é" * 64):
            assert count(http, sequence_id=name, sequence_start=True).code == 200
        for turn in (2, 3):
            assert count(http, sequence_id="an ear").outputs["y"].data.tolist() == [turn]
        assert count(http, sequence_id="7").outputs["y"].data.tolist() == [2]
        assert count(http, sequence_id=7).outputs["y"].data.tolist() == [2]
        # The graph of the other model takes the number.
        assert ask(http, [1, 2], sequence_id="7", sequence_start=True).error == (
            "parameters: sequence_id: expected an integer of 1 to 4294967295, for input 'ID' of "
            "model 'sums'"
        )


def test_what_is_no_part_of_a_sequence_is_refused(server: Server) -> None:
    with Http(server.port) as http:
        for parameters in ({}, {"sequence_id": 0}, {"sequence_id": "", "sequence_start": True}):
            assert ask(http, [1, 2], **parameters).error == (
                "parameters: sequence_id: expected an integer above 0 or a string: requests of "
                "model 'sums' are parts of sequences"
            )
        assert ask(http, [1, 2], sequence_id=3).error == (
            "parameters: sequence_start: expected true: this sequence of model 'sums' did not "
            "begin, has ended, or had no request for 60000 ms"
        )
        for wrong, found in ((-1, "a negative integer"), (True, "true or false"), ([], "an array")):
            assert ask(http, [1, 2], sequence_id=wrong).error == (
                "parameters: sequence_id: expected an integer above 0 or a string of at most 128 "
                f"bytes, found {found}"
            )
        long = ask(http, [1, 2], sequence_id="x" * 129).error
        assert long.endswith("a string of at most 128 bytes, found a string")
        assert ask(http, [1, 2], sequence_id=1 << 32, sequence_start=True).code == 400
        (told,) = http.query(web.get("/v2/models/digits")).json()["inputs"]
        digits = {told["name"]: np.zeros((1, *told["shape"][1:]), "<f4")}
        for parameters in ({"sequence_id": 3}, {"sequence_start": True}, {"sequence_end": True}):
            (name,) = parameters
            found = http.query(web.infer("digits", digits, parameters=parameters)).error
            assert found == f"parameters: {name}: expected none: model 'digits' has no sequences"
    with (
        Client("127.0.0.1", server.port) as client,
        pytest.raises(BadRequest, match="requests of model 'counts' are parts of sequences"),
    ):
        client.infer("counts", {"x": np.array([0])})


def test_what_fails_leaves_the_state_as_it_was(server: Server) -> None:
    with Http(server.port) as http:
        assert ask(http, [1, 1], at=9, sequence_id=4, sequence_start=True).code == 400
        assert ask(http, [1, 1], sequence_id=4).code == 400  # it did not begin
        assert total(ask(http, [1, 1], sequence_id=4, sequence_start=True)) == [1, 1]
        assert ask(http, [50, 50], at=9, sequence_id=4).code == 400
        assert total(ask(http, [1, 1], sequence_id=4)) == [2, 2]
        assert ask(http, [50, 50], at=9, sequence_id=4, sequence_end=True).code == 400
        # Nor does a start that fails end what is open.
        assert ask(http, [50, 50], at=9, sequence_id=4, sequence_start=True).code == 400
        # An answer that JSON cannot say.
        inputs = {"x": np.array([[np.nan, 1]], "<f4"), "at": np.array([0], "<i8")}
        parameters = {"sequence_id": 4}
        asked = web.infer("sums", inputs, binary_outputs=False, parameters=parameters)
        assert http.query(asked).code == 500
        assert total(ask(http, [1, 1], sequence_id=4, sequence_end=True)) == [3, 3]


def test_a_client_that_left_during_its_run(serve: Serve, tmp_path: Path) -> None:
    path = graphs.slow_sums(tmp_path / "slow.onnx")
    engine = {"thread_count": 2, "queue_type": "mpmc"}
    server = serve({"engine": engine, "models": [counts(path)]})

    def text(x: int, **parameters: object) -> bytes:
        values = {"x": np.array([x], "<i8")}
        return web.infer("counts", values, parameters={"sequence_id": 1, **parameters})

    with Http(server.port) as http, Http(server.port) as leaver:
        assert http.query(text(0, sequence_start=True)).code == 200
        leaver.send(text(10_000))

        def runs() -> bool:
            if http.query(text(0)).code == 503:
                return True
            if select.select([leaver.socket], [], [], 0)[0]:  # it was over before this was asked
                leaver.answer("POST")
                leaver.send(text(10_000))
            return False

        harness.eventually(runs, "its Run has begun")
        leaver.reset()
        harness.eventually(lambda: http.query(text(0)).code == 200, "its Run has ended")
        assert http.query(text(1)).outputs["y"].data.tolist() == [1]
        # So does one that was answered before its Run has ended, since its time was over.
        harness.eventually(
            lambda: "has not returned" in http.query(text(LONG, timeout=100_000)).error,
            "an answer during a Run",
        )
        harness.eventually(lambda: http.query(text(0)).code == 200, "the late one's Run has ended")
        assert http.query(text(1)).outputs["y"].data.tolist() == [2]


def test_the_table_is_bounded(serve: Serve, tmp_path: Path) -> None:
    path = counting(tmp_path / "counts.onnx")
    server = serve({"models": [counts(path, max_open=2)]})
    with Http(server.port) as http:
        for number in (1, 2):
            assert count(http, sequence_id=number, sequence_start=True).code == 200
        full = count(http, sequence_id=3, sequence_start=True)
        assert (full.code, full.headers["retry-after"]) == (503, "1")
        assert full.error == (
            "parameters: sequence_start: expected fewer open sequences: model 'counts' takes no "
            "more now, of at most 2 (sequences.max_open); send it again later"
        )
        assert count(http, sequence_id=1, sequence_end=True).outputs["y"].data.tolist() == [2]
        assert count(http, sequence_id=3, sequence_start=True).code == 200
        assert count(http, sequence_id=2).outputs["y"].data.tolist() == [2]


def test_an_idle_sequence_gives_way(serve: Serve, tmp_path: Path) -> None:
    path = counting(tmp_path / "counts.onnx")
    server = serve({"models": [counts(path, max_open=1, idle_ms=1)]})
    with Http(server.port) as http:
        assert count(http, sequence_id=1, sequence_start=True).code == 200
        time.sleep(0.01)
        assert count(http, sequence_id=1).code == 400
        assert count(http, sequence_id=1, sequence_start=True).code == 200
        time.sleep(0.01)
        assert count(http, sequence_id=2, sequence_start=True).outputs["y"].data.tolist() == [1]
        time.sleep(0.01)
        assert count(http, sequence_id=1).code == 400


def test_many_clients_of_a_few_sequences(serve: Serve, tmp_path: Path) -> None:
    """Each answer but a refusal is one step of its sequence: none is lost, none comes twice."""
    path = counting(tmp_path / "counts.onnx")
    engine = {"thread_count": 2, "queue_type": "mpmc"}
    server = serve({"engine": engine, "models": [counts(path)]})
    seen: dict[int, list[int]] = {number: [] for number in range(1, 4)}

    def client(which: int) -> None:
        with Http(server.port) as http:
            for turn in range(200):
                number = 1 + (which + turn) % 3
                answer = count(http, sequence_id=number)
                if answer.code == 200:
                    seen[number] += answer.outputs["y"].data.tolist()
                else:
                    assert (answer.code, answer.headers["retry-after"]) == (503, "1")
                    assert "runs one of this sequence; send it again later" in answer.error

    with Http(server.port) as http:
        for number in seen:
            assert count(http, sequence_id=number, sequence_start=True).code == 200
    threads = [threading.Thread(target=client, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for values in seen.values():
        assert sorted(values) == list(range(2, len(values) + 2))


def test_what_clients_are_told(server: Server) -> None:
    with Http(server.port) as http:
        told = http.query(web.get("/v2/models/sums")).json()
        assert [one["name"] for one in told["inputs"]] == ["x", "at"]
        assert [one["name"] for one in told["outputs"]] == ["y", "told", "found"]
        config = http.query(web.get("/v2/models/sums/config")).json()
    assert config["max_batch_size"] == 0  # not every tensor has rows
    section = config["sequence_batching"]
    assert section["max_sequence_idle_microseconds"] == 60_000_000
    kinds = {one["name"]: one["control"][0]["kind"] for one in section["control_input"]}
    assert kinds == {
        "START": "CONTROL_SEQUENCE_START",
        "END": "CONTROL_SEQUENCE_END",
        "READY": "CONTROL_SEQUENCE_READY",
        "ID": "CONTROL_SEQUENCE_CORRID",
    }
    (state,) = section["state"]
    assert (state["input_name"], state["output_name"]) == ("s", "s_next")
    assert (state["data_type"], state["dims"]) == ("TYPE_FP32", [1, 2])


def test_the_document_of_a_request_with_a_sequence(server: Server) -> None:
    """The parameters may stand behind the inputs, as tritonclient writes them."""
    document = {
        "inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [0]}],
        "parameters": {"sequence_id": 11, "sequence_start": True, "sequence_end": False},
    }
    with Http(server.port) as http:
        text = web.post(web.path("counts"), json.dumps(document).encode())
        assert http.query(text).outputs["y"].data.tolist() == [1]


def test_a_recurrent_network_in_pieces(serve: Serve, tmp_path: Path) -> None:
    """NVIDIA's client sends two signals, piece by piece in turns: the answers are those of one Run
    over each whole signal."""
    path = recurrent(tmp_path / "lstm.onnx", 4)
    state = {"h": "h_next", "c": "c_next"}
    server = serve({"models": [{"name": "lstm", "path": str(path), "sequences": {"state": state}}]})
    whole = ort.InferenceSession(str(recurrent(tmp_path / "whole.onnx", "steps")))
    signals = np.random.default_rng(6).normal(size=(2, 20, 1, 3)).astype(np.float32)
    zeros = np.zeros((1, 1, 5), np.float32)
    expected = [whole.run(["y"], {"x": one, "h": zeros, "c": zeros})[0] for one in signals]
    found: list[list[np.ndarray]] = [[], []]
    with InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        for piece in range(5):
            for which, name in enumerate((31, "a text")):
                given = InferInput("x", [4, 1, 3], "FP32")
                given.set_data_from_numpy(signals[which, 4 * piece : 4 * piece + 4])
                answer = client.infer(
                    "lstm",
                    [given],
                    sequence_id=name,
                    sequence_start=piece == 0,
                    sequence_end=piece == 4,
                )
                found[which].append(answer.as_numpy("y"))
    for pieces, one in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.concatenate(pieces), one, rtol=1e-5, atol=1e-6)
