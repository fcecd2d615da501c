"""gRPC answers as HTTP does, bit by bit: every kind of graph and datatype, tensors as bytes and in
their fields, metadata, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import graphs
import grpc
import needs
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http
import web
from harness import Server
from test_e2e_grpc import CONTENTS, many, words
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from web import Http, Tensor

pytestmark = pytest.mark.once  # messages are made by the same code on both

# Statuses of HTTP, and gRPC's codes of the same meaning: the refusals below have no others.
CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    500: grpc.StatusCode.INTERNAL,
}
RANDOM: Final = np.random.default_rng(7)
TRAINED: Final = {"mnist": (1, 1, 28, 28), "squeezenet": (2, 3, 224, 224)}
NOT_A_NUMBER: Final = np.array([0x7FC00001, 0xFF800000, 0x80000000, 1] * 4, "<u4").view("<f4")


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("<f4")


def bits(kind: str, *shape: int) -> Tensor:
    """Any bits: of floats also NaNs, infinities and the smallest numbers."""
    dtype = np.dtype(web.NUMPY[kind])
    data = RANDOM.bytes(int(np.prod(shape)) * dtype.itemsize)
    array = np.frombuffer(data, dtype) if kind != "BOOL" else np.frombuffer(data, "u1") % 2 == 1
    return Tensor(kind, shape, array)


def cases() -> dict[str, Mapping[str, Tensor]]:
    """The inputs of each model; what is behind a dot is another case of it."""
    integers = {"x": np.array([2, -3, 1 << 62, -1], "<i8")}
    arrays: dict[str, Mapping[str, np.ndarray]] = {
        "double": {"x": floats(1, 16)},
        "double.rows": {"x": floats(7, 16)},
        "double.odd": {"x": NOT_A_NUMBER.reshape(1, 16)},
        "tag": integers,
        "several": {"a": floats(5, 4), "k": floats(3), "b": np.arange(5, dtype="<i8")},
        "scalar": {"x": np.float32(1.5).reshape(())},
        "nonzero": {"x": np.array([[0, 1, 0, 2, 0, 3]], "<f4")},
        "nonzero.none": {"x": np.zeros((1, 6), "<f4")},
        "reshape": {"x": floats(12), "shape": np.array([2, 3, 2], "<i8")},
        "rankless.flat": {"x": floats(6), "is_flat": np.array(True)},
        "rankless.table": {"x": floats(6), "is_flat": np.array(False)},
        "large": {"x": floats(1)},
        "gather_rows": {"x": np.array([4, 0, 3], "<i8")},
        "block": {"x": floats(1, 70000)},
        "many": {f"i{number}": floats(2, 3) for number in range(70)},
    }
    made: dict[str, Mapping[str, Tensor]] = {
        name: {key: web.tensor(array) for key, array in inputs.items()}
        for name, inputs in arrays.items()
    }
    every = {f"in_{kind}": bits(kind, 4, 3) for kind, _, _ in graphs.DTYPES}
    texts = web.strings(["", "a\0b", "Grüße", "x" * 3000], (2, 2))
    return {
        **made,
        "dtypes": every,
        "echo": {"x": bits("UINT8", 50_001)},
        "words": {"a": texts, "b": replace(texts, data=texts.data[::-1])},
        "mnist": {"Input3": web.tensor(floats(*TRAINED["mnist"]))},
        "squeezenet": {"data_0": web.tensor(floats(*TRAINED["squeezenet"]))},
    }


CASES: Final = cases()


@pytest.fixture(scope="module")
def server(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("parity")
    makers = {
        "double": graphs.double, "tag": graphs.tag, "several": graphs.several,
        "scalar": graphs.scalar, "reshape": graphs.reshape, "rankless": graphs.rankless,
        "gather_rows": graphs.gather_rows, "dtypes": graphs.dtypes, "echo": graphs.echo,
        "words": words,
    }  # fmt: skip
    files = {name: make(folder / f"{name}.onnx") for name, make in makers.items()}
    files |= {
        "nonzero": graphs.nonzero(folder / "nonzero.onnx", 6),
        "large": graphs.large(folder / "large.onnx", 200_000),
        "block": graphs.double(folder / "block.onnx", 70000, rows=1),
        "many": many(folder / "many.onnx", 70),
    }
    for name in TRAINED:
        trained = needs.SHARED / "models" / name / "model.onnx"
        files |= {name: trained} if trained.exists() else {}
    settings: dict[str, object] = {
        "server": {"arena_bytes": "128MiB", "max_request_bytes": "2MiB"},
        "models": [{"name": name, "path": str(path)} for name, path in files.items()],
    }
    with Server(settings, cache) as running:
        yield running


@pytest.fixture(scope="module")
def stub(server: Server) -> Iterator[service_pb2_grpc.GRPCInferenceServiceStub]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def blob(tensor: Tensor) -> bytes:
    if tensor.datatype == "BYTES":
        return b"".join(len(text).to_bytes(4, "little") + text for text in tensor.data)
    return bytes(tensor.data.tobytes())


def request(model: str, inputs: Mapping[str, Tensor], raw: bool = True) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model)
    for name, tensor in inputs.items():
        one = message.inputs.add(name=name, datatype=tensor.datatype, shape=tensor.shape)
        if raw:
            message.raw_input_contents.append(blob(tensor))
        else:
            field = {**CONTENTS, "BYTES": "bytes_contents"}[tensor.datatype]
            getattr(one.contents, field).extend(list(tensor.data))
    return message


Outputs = list[tuple[str, str, tuple[int, ...], bytes]]


def by_http(http: Http, model: str, inputs: Mapping[str, Tensor]) -> Outputs:
    """Names, datatypes, shapes and bytes, in their order."""
    answer = http.query(web.infer(model, inputs))
    found = answer.outputs
    return [(name, one.datatype, tuple(one.shape), blob(one)) for name, one in found.items()]


def by_grpc(answer: pb.ModelInferResponse) -> Outputs:
    raw = answer.raw_output_contents
    assert len(raw) == len(answer.outputs)
    return [
        (one.name, one.datatype, tuple(one.shape), bytes(data))
        for one, data in zip(answer.outputs, raw, strict=True)
    ]


@pytest.mark.parametrize("case", CASES)
def test_answers(
    server: Server, stub: service_pb2_grpc.GRPCInferenceServiceStub, case: str
) -> None:
    model, inputs = case.partition(".")[0], CASES[case]
    if model in TRAINED:
        needs.shared_file(f"models/{model}/model.onnx")
    with Http(server.port) as http:
        expected = by_http(http, model, inputs)
    assert expected
    assert all(name for name, *_ in expected)
    assert by_grpc(stub.ModelInfer(request(model, inputs))) == expected
    has_fields = all(one.datatype in (*CONTENTS, "BYTES") for one in inputs.values())
    if has_fields:
        assert by_grpc(stub.ModelInfer(request(model, inputs, raw=False))) == expected


def test_every_model_has_a_case(server: Server) -> None:
    served = set(server.models)
    assert served <= {case.partition(".")[0] for case in CASES}
    assert len(served) >= 14


def test_metadata_and_configuration(server: Server) -> None:
    """Of NVIDIA's two clients; numbers of 64 bits are strings in the JSON of Protocol Buffers."""
    url = f"127.0.0.1:{server.port}"
    with (
        triton_http.InferenceServerClient(url) as plain,
        triton.InferenceServerClient(url) as client,
    ):
        for model in server.models:
            here, there = plain.get_model_metadata(model), client.get_model_metadata(model)
            for side in ("inputs", "outputs"):
                told = [(t.name, t.datatype, list(t.shape)) for t in getattr(there, side)]
                assert told == [(t["name"], t["datatype"], t["shape"]) for t in here[side]]
            assert (there.name, list(there.versions)) == (here["name"], here["versions"])
            assert there.platform == here["platform"]
            config, answer = plain.get_model_config(model), client.get_model_config(model).config
            for side in ("input", "output"):
                told = [(t.name, list(t.dims)) for t in getattr(answer, side)]
                assert told == [(t["name"], [int(d) for d in t["dims"]]) for t in config[side]]
            assert answer.max_batch_size == config["max_batch_size"]


def wrong() -> dict[str, tuple[str, Mapping[str, Tensor]]]:
    """What is refused, by what is wrong with it."""
    x = web.tensor(floats(2, 16))
    return {
        "a model that is not there": ("nobody", {"x": x}),
        "an input that is not there": ("double", {"y": x}),
        "an input too many": ("double", {"x": x, "y": x}),
        "an input too few": ("several", {"a": web.tensor(floats(5, 4))}),
        "another datatype": ("double", {"x": web.tensor(np.zeros((2, 16), "<i4"))}),
        "no datatype": ("double", {"x": replace(x, datatype="FP33")}),
        "another rank": ("double", {"x": web.tensor(floats(32))}),
        "another shape": ("double", {"x": web.tensor(floats(2, 15))}),
        "too few bytes": ("double", {"x": replace(x, data=x.data[:31])}),
        "too many bytes": ("double", {"x": replace(x, data=floats(33))}),
        "rows that differ": (
            "several",
            {**CASES["several"], "b": web.tensor(np.arange(4, dtype="<i8"))},
        ),
        "a Run that fails": ("gather_rows", {"x": web.tensor(np.array([9], "<i8"))}),
    }


@pytest.mark.parametrize("what", wrong())
def test_refusals(
    server: Server, stub: service_pb2_grpc.GRPCInferenceServiceStub, what: str
) -> None:
    """The same sentence, and the status that is like HTTP's."""
    model, inputs = wrong()[what]
    with Http(server.port) as http:
        answer = http.query(web.infer(model, inputs))
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request(model, inputs))
    assert answer.code in CODES, answer
    assert caught.value.code() == CODES[answer.code], (answer, caught.value)
    assert json.dumps(answer.error) == json.dumps(caught.value.details())
