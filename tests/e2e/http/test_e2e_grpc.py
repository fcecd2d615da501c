"""gRPC: NVIDIA's client unmodified, health and reflection as their own packages ask for them,
messages in every form that Protocol Buffers allow, and clients that break the protocol."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import queue
import signal
import struct
import time
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import graphs
import grpc
import numpy as np
import onnx
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritons
import web
from conftest import Serve
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import proto_reflection_descriptor_database as reflection
from harness import Canary, Server, eventually, processes_of_models, stand_still
from http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    Http2,
    Raw,
    frame,
    literal,
)
from ml_dtypes import bfloat16  # onnx brings it
from onnx import helper
from operating import free_port
from test_e2e_http2_bodies import no_place
from tritonclient import utils
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from web import Http, get

pytestmark = pytest.mark.once  # what streams say is received by the same code on both

X: Final = np.arange(32, dtype="<f4").reshape(2, 16)
LABELS: Final = [f"class {number}" for number in range(16)]
BLOCK: Final = np.random.default_rng(1).random((1, 70000), np.float32)
WAIT_S: Final = 30
(
    OK, CANCELLED, UNKNOWN, INVALID, DEADLINE, NOT_FOUND, EXISTS, DENIED, EXHAUSTED, PRECONDITION,
    ABORTED, RANGE, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, LOSS, UNAUTHENTICATED,
) = range(17)  # fmt: skip
PATH: Final = "/inference.GRPCInferenceService/"
CANCEL: Final = 8  # of HTTP/2
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


def words(path: Path) -> Path:
    """Two inputs of strings, each as its own output."""
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in ("a", "b")]
    kind = onnx.TensorProto.STRING
    inputs = [graphs.tensor(name, kind, ["n", 2]) for name in ("a", "b")]
    outputs = [graphs.tensor(f"{name}_out", kind, ["n", 2]) for name in ("a", "b")]
    return graphs.save(path, nodes, inputs, outputs)


def many(path: Path, count: int) -> Path:
    """So many inputs and outputs."""
    nodes = [helper.make_node("Neg", [f"i{n}"], [f"o{n}"]) for n in range(count)]
    inputs = [graphs.tensor(f"i{n}", graphs.FLOAT, ["n", 3]) for n in range(count)]
    outputs = [graphs.tensor(f"o{n}", graphs.FLOAT, ["n", 3]) for n in range(count)]
    return graphs.save(path, nodes, inputs, outputs)


@pytest.fixture(scope="module")
def server(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("grpc")
    labels = folder / "labels.txt"
    labels.write_text("\n".join(LABELS))
    files: dict[str, Path] = {
        "double": graphs.double(folder / "double.onnx"),
        "several": graphs.several(folder / "several.onnx"),
        "dtypes": graphs.dtypes(folder / "dtypes.onnx"),
        "echo": graphs.echo(folder / "echo.onnx"),
        "block": graphs.double(folder / "block.onnx", BLOCK.size, rows=1),
        "slow": graphs.slow(folder / "slow.onnx"),
        "nonzero": graphs.nonzero(folder / "nonzero.onnx", 6),
        "words": words(folder / "words.onnx"),
        "many": many(folder / "many.onnx", 70),
    }
    models: list[dict[str, object]] = [{"name": n, "path": str(p)} for n, p in files.items()]
    models[0] |= {"labels": str(labels), "max_rows": 64}
    settings: dict[str, object] = {
        "server": {"name": "triton", "arena_bytes": "128MiB", "max_request_bytes": "2MiB"},
        "engine": {"thread_count": 2},
        "models": models,
    }
    with Server(settings, cache) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as made:
        yield made
    server.check_idle()


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as made:
        yield made
    server.check_idle()


def inputs_of(arrays: Mapping[str, np.ndarray]) -> list[Any]:
    return tritons.inputs_of(triton, arrays)


def refused(client: Any, what: str, *given: Any, **named: Any) -> tuple[str, str]:
    error = tritons.refused(client, what, *given, **named)
    return str(error.status()), str(error.message())


def code(name: str) -> str:
    return f"StatusCode.{name}"


# ---- NVIDIA's client ----


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert client.is_model_ready("double", "1")
    assert not client.is_model_ready("double", "2")
    assert not client.is_model_ready("nobody")
    found = client.get_server_metadata()
    assert found.name == "triton"
    assert "statistics" in found.extensions
    found = client.get_model_metadata("several", "1")
    assert [one.name for one in found.inputs] == ["a", "k", "b"]
    assert (found.inputs[0].datatype, list(found.inputs[0].shape)) == ("FP32", [-1, 4])
    assert list(found.versions) == ["1"]
    for what in ("get_model_metadata", "get_model_config", "get_inference_statistics"):
        status, said = refused(client, what, "nobody")
        assert status == code("NOT_FOUND")
        assert "nobody" in said


def test_config_index_and_statistics(client: Any, server: Server) -> None:
    config = client.get_model_config("double").config
    assert (config.name, config.max_batch_size) == ("double", 64)
    assert list(config.input[0].dims) == [16]
    assert config.input[0].data_type == 11  # TYPE_FP32
    assert config.version_policy.latest.num_versions == 1
    assert config.instance_group[0].kind == 2  # KIND_CPU
    index = client.get_model_repository_index().models
    assert [entry.name for entry in index] == sorted(server.models)
    assert {entry.state for entry in index} == {"READY"}
    assert len(client.get_inference_statistics().model_stats) == len(server.models)
    (before,) = client.get_inference_statistics("double").model_stats
    client.infer("double", inputs_of({"x": X}))

    def grown() -> bool:
        (now,) = client.get_inference_statistics("double", "1").model_stats
        sizes = {one.batch_size for one in now.batch_stats}
        return bool(
            now.execution_count == before.execution_count + 1
            and now.inference_count == before.inference_count + 2
            and now.inference_stats.success.ns > before.inference_stats.success.ns
            and 2 in sizes
        )

    eventually(grown, "one more execution of two rows")


def test_what_only_some_servers_do(client: Any) -> None:
    """The words are Triton's, as over HTTP."""
    for call in ("load_model", "unload_model"):
        status, said = refused(client, call, "double")
        assert status == code("UNIMPLEMENTED")
        assert "explicit model load / unload is not allowed" in said
    assert len(client.get_system_shared_memory_status().regions) == 0
    assert len(client.get_cuda_shared_memory_status().regions) == 0
    status, said = refused(client, "register_cuda_shared_memory", "region", b"aGFuZGxl", 0, 64)
    assert status == code("UNIMPLEMENTED")
    client.unregister_system_shared_memory()
    client.unregister_cuda_shared_memory("region")


def test_settings(client: Any) -> None:
    at_start = client.get_trace_settings().settings
    assert list(at_start["trace_level"].value) == ["OFF"]
    log = client.get_log_settings().settings
    assert log["log_info"].bool_param is True
    assert log["log_verbose_level"].uint32_param == 0
    assert log["log_format"].string_param == "default"
    changed = client.update_log_settings({"log_verbose_level": 1, "log_info": False}).settings
    assert (changed["log_verbose_level"].uint32_param, changed["log_info"].bool_param) == (1, False)
    client.update_log_settings({"log_verbose_level": 0, "log_info": True})
    status, said = refused(client, "update_trace_settings", settings={"trace_level": "TIMESTAMPS"})
    assert status == code("INVALID_ARGUMENT")
    assert "engine.telemetry_csv_path" in said


def test_every_type(client: Any) -> None:
    """As raw tensors: more of them than go to the slot as they come."""
    arrays = {
        f"in_{name}": np.arange(6).reshape(2, 3).astype(bfloat16 if name == "BF16" else kind)
        for name, kind in web.NUMPY.items()
    }
    inputs = []
    for name, array in arrays.items():
        one = triton.InferInput(name, [2, 3], name.removeprefix("in_"))
        one.set_data_from_numpy(array)
        inputs.append(one)
    result = client.infer("dtypes", inputs)
    for name, array in arrays.items():
        np.testing.assert_array_equal(result.as_numpy(name.replace("in_", "out_")), array)


def test_several_tensors_and_some_outputs(client: Any) -> None:
    random = np.random.default_rng(2)
    arrays = {
        "b": random.integers(-9, 9, 5), "a": random.random((5, 4), np.float32),
        "k": random.random(3, np.float32),
    }  # fmt: skip
    every = client.infer("several", inputs_of(arrays))
    names = [one.name for one in every.get_response().outputs]
    some = client.infer(
        "several", inputs_of(arrays), outputs=[triton.InferRequestedOutput("total")]
    )
    assert [one.name for one in some.get_response().outputs] == ["total"]
    np.testing.assert_array_equal(some.as_numpy("total"), every.as_numpy("total"))
    assert len(names) > 1


def test_more_tensors_than_a_frame_has_parts(client: Any, server: Server) -> None:
    """70 outputs, each of which has a tag and its bytes: over gRPC, and over HTTP/2 itself."""
    arrays = {f"i{n}": np.full((2, 3), n, "<f4") for n in range(70)}
    result = client.infer("many", inputs_of(arrays))
    for n in range(70):
        np.testing.assert_array_equal(result.as_numpy(f"o{n}"), np.full((2, 3), -n, "<f4"))
    with Http2(server.port) as link:
        answer = link.query(web.infer("many", arrays))
        np.testing.assert_array_equal(answer.array("o69"), np.full((2, 3), -69, "<f4"))


def test_strings(client: Any) -> None:
    """Two tensors whose bytes no shape tells."""
    arrays = {
        "a": np.array([["", "one"], ["zwei", "träumt"]], object),
        "b": np.array([["x" * 3000, "y"], ["z", ""]], object),
    }
    result = client.infer("words", inputs_of(arrays))
    for name, array in arrays.items():
        found = [[text.decode() for text in row] for row in result.as_numpy(f"{name}_out")]
        assert found == array.tolist()


def test_shapes_known_only_after_the_run(client: Any) -> None:
    for row in ([0, 1, 0, 2, 3, 0], [0] * 6):  # the second has outputs without elements
        x = np.array([row], "<f4")
        result = client.infer("nonzero", inputs_of({"x": x}))
        np.testing.assert_array_equal(result.as_numpy("where"), np.array(x.nonzero()))
        assert len(result.get_response().raw_output_contents) == 2


def test_classification(client: Any) -> None:
    x = np.random.default_rng(3).random((2, 16), np.float32)
    outputs = [triton.InferRequestedOutput("y", class_count=3)]
    found = client.infer("double", inputs_of({"x": x}), outputs=outputs).as_numpy("y")
    for row, ranked in zip(x + x, found, strict=True):
        order = row.argsort()[::-1][:3]
        assert [text.decode() for text in ranked] == [
            f"{row[at]:.6f}:{at}:{LABELS[at]}" for at in order
        ]


def test_ids_and_parameters(client: Any) -> None:
    result = client.infer(
        "double", inputs_of({"x": X}), request_id='an "id"/1', priority=1, timeout=60_000_000,
        parameters={"of_mine": 3, "and": "text", "of": True}, headers={"x-mine": "1"},
    )  # fmt: skip
    assert result.get_response().id == 'an "id"/1'
    np.testing.assert_array_equal(result.as_numpy("y"), X + X)
    status, said = refused(client, "infer", "double", inputs_of({"x": X}), sequence_id=7)
    assert (status, "sequence" in said) == (code("INVALID_ARGUMENT"), True)


def test_large_bodies(client: Any) -> None:
    for _ in range(20):
        result = client.infer("block", inputs_of({"x": BLOCK}))
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * BLOCK)


def test_errors(client: Any) -> None:
    for arrays, what in (
        ({"x": X[:, :8].copy()}, "shape"), ({"z": X}, "'z'"), ({"x": X.astype("<f8")}, "FP32"),
    ):  # fmt: skip
        status, said = refused(client, "infer", "double", inputs_of(arrays))
        assert (status, what in said) == (code("INVALID_ARGUMENT"), True), said
    assert refused(client, "infer", "nobody", inputs_of({"x": X}))[0] == code("NOT_FOUND")
    assert refused(client, "infer", "", inputs_of({"x": X}))[0] == code("INVALID_ARGUMENT")
    large = inputs_of({"x": np.zeros((1, 600_000), "<f4")})
    assert refused(client, "infer", "double", large)[0] == code("RESOURCE_EXHAUSTED")


@contextlib.contextmanager
def is_busy(server: Server) -> Iterator[None]:
    """All workers have something to do meanwhile, and are answered afterwards."""
    before = server.figures().requests
    busy = [Http(server.port) for _ in range(4)]
    for one in busy:
        one.send(web.infer("slow", {"x": np.array([3000], "<i8")}))
    eventually(lambda: server.figures().requests >= before + 4, "the load")
    yield
    for one in busy:
        assert one.answer().code == 200
        one.close()


def test_deadlines(client: Any, server: Server) -> None:
    """The request's own, which the server keeps; the call's, which it is told of too."""
    with is_busy(server):
        status, said = refused(client, "infer", "double", inputs_of({"x": X}), timeout=1)
        assert (status, "deadline" in said) == (code("DEADLINE_EXCEEDED"), True)


def test_the_calls_deadline_reaches_the_server(server: Server) -> None:
    head = call_head("ModelInfer", ("grpc-timeout", "1u"))
    with is_busy(server), Raw(server.port) as link:
        link.send(head + frame(DATA, 1, framed(request("double", {"x": X})), END_STREAM))
        assert status_in(link.until(HEADERS, 1)) == DEADLINE


def test_the_sooner_deadline_counts(server: Server) -> None:
    """Of the head's and the body's, which a worker reads when the head's is known already."""
    body = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [30000]}]}
    with Http(server.port) as http:
        for head, said in (("20m", 60_000_000), ("1M", 20_000)):
            text = json.dumps({**body, "parameters": {"timeout": said}}).encode()
            answer = http.query(web.post(web.path("slow"), text, f"Grpc-Timeout: {head}"))
            assert (answer.code, b"deadline" in answer.body) == (503, True), head
    server.wait_until_idle()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_messages(client: Any, algorithm: str) -> None:
    """Of requests; answers are not."""
    letters = np.random.default_rng(5).integers(97, 123, 700, "u1").tobytes().decode()
    texts = np.array([[letters, "y"]], object)
    for model, arrays, output in (
        ("double", {"x": X}, 2 * X), ("block", {"x": BLOCK}, 2 * BLOCK),
        ("words", {"a": texts, "b": texts}, None),
    ):  # fmt: skip
        result = client.infer(model, inputs_of(arrays), compression_algorithm=algorithm)
        if output is not None:
            np.testing.assert_array_equal(result.as_numpy("y"), output)
    said = refused(client, "infer", "nobody", inputs_of({"x": X}), compression_algorithm=algorithm)
    assert said[0] == code("NOT_FOUND")


def test_many_at_once(server: Server) -> None:
    tritons.ask_many(triton_aio, server.port, X, [{}] * 200, attrgetter("id"))
    server.check_idle()


# ---- streams ----


def test_streamed_inference(client: Any) -> None:
    """One answer for each request, in their order; what fails does not end the stream."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(50):
        model = "nobody" if number == 7 else "double"
        inputs = inputs_of({"x": X + np.float32(number)})
        final = number % 2 == 0
        client.async_stream_infer(
            model, inputs, request_id=str(number), enable_empty_final_response=final
        )
    for number in range(50):
        result, error = answers.get(timeout=WAIT_S)
        if number == 7:
            assert "nobody" in str(error)
            continue
        assert error is None
        response = result.get_response()
        assert response.id == str(number)
        assert ("triton_final_response" in response.parameters) == (number % 2 == 0)
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * (X + np.float32(number)))
    client.async_stream_infer("block", inputs_of({"x": BLOCK}))
    result, error = answers.get(timeout=WAIT_S)
    np.testing.assert_array_equal(result.as_numpy("y"), 2 * BLOCK)
    client.stop_stream()


def test_a_stream_whose_client_reads_little(server: Server) -> None:
    """What it says of its windows comes behind its next messages, and is read all the same."""
    one = framed(request("block", {"x": BLOCK}))
    head = [
        (":method", "POST"), (":scheme", "http"), (":path", PATH + "ModelStreamInfer"),
        (":authority", "lumen"), ("content-type", "application/grpc"),
    ]  # fmt: skip
    with Http2(server.port, window=65535) as link:
        stream = link.begin(head)
        link.body(stream, one * 4)
        (answer,) = link.wait([stream])
    said = answer.body
    for _ in range(4):
        size = struct.unpack(">I", said[1:5])[0]
        found = pb.ModelStreamInferResponse.FromString(said[5 : 5 + size])
        assert found.infer_response.raw_output_contents[0] == (BLOCK + BLOCK).tobytes()
        said = said[5 + size :]
    assert not said


def test_a_stream_whose_answer_takes_long_holds_no_other(serve: Serve, tmp_path: Path) -> None:
    """Its next messages lie aside, and the connection is read on."""
    model = {"name": "apart", "path": str(graphs.double(tmp_path / "apart.onnx"))}
    server = serve({"models": [model | {"isolation": "process"}], "server": {"hang_seconds": 600}})
    [child] = processes_of_models(server.pid)
    head = [
        (":method", "POST"), (":scheme", "http"), (":path", PATH + "ModelStreamInfer"),
        (":authority", "lumen"), ("content-type", "application/grpc"),
    ]  # fmt: skip
    with Http2(server.port) as link:
        stand_still(child)
        stream = link.begin(head)
        link.body(stream, b"".join(framed(request("apart", {"x": X + n})) for n in range(9)))
        assert link.query(get("/v2/health/live")).code == 200
        assert stream not in link.answers
        os.kill(child, signal.SIGCONT)
        (answer,) = link.wait([stream])
    said = answer.body
    for number in range(9):
        size = struct.unpack(">I", said[1:5])[0]
        found = pb.ModelStreamInferResponse.FromString(said[5 : 5 + size])
        assert found.infer_response.raw_output_contents[0] == (2 * (X + number)).tobytes()
        said = said[5 + size :]
    assert not said


def test_long_calls_that_fail_leave_nothing(server: Server) -> None:
    """More than a connection has streams, on one; and none of their memory stays."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        for _ in range(150):
            with pytest.raises(grpc.RpcError) as caught:
                list(call(iter([b"\x07"])))
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        described = reflection.ProtoReflectionDescriptorDatabase(channel)
        for _ in range(50):
            assert described.get_services()
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        for _ in range(200):
            assert client.get_model_config("many").config.max_batch_size > 0
        assert client.get_inference_statistics().model_stats
    server.check_idle()


def test_a_stream_that_is_cancelled(server: Server) -> None:
    for _ in range(10):
        with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            client.start_stream(lambda result, error: None)
            for _ in range(5):
                slow = inputs_of({"x": np.array([500], "<i8")})
                client.async_stream_infer("slow", slow)
            client.stop_stream(cancel_requests=True)
    server.wait_until_idle()


def test_health_is_watched(serve: Serve, tmp_path: Path) -> None:
    """Each change is told: of a model that comes and goes, and of the server's end."""
    repository = tmp_path / "repository" / "double" / "1"
    repository.mkdir(parents=True)
    graphs.double(repository / "model.onnx")
    server = serve(
        {
            "server": {"arena_bytes": "32MiB", "drain_seconds": 20},
            "engine": {"thread_count": 1},
            "repository": {"paths": [str(tmp_path / "repository")], "control": "explicit"},
        }
    )
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def check(service: str) -> int:
            return int(health.Check(health_pb2.HealthCheckRequest(service=service)).status)

        watch = health.Watch(health_pb2.HealthCheckRequest(service="double"), timeout=WAIT_S)
        assert next(watch).status == SERVICE_UNKNOWN
        with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            client.load_model("double")
            assert next(watch).status == SERVING
            assert check("double") == check("") == SERVING
            assert check("inference.GRPCInferenceService") == SERVING
            client.unload_model("double")
            assert next(watch).status == SERVICE_UNKNOWN
        with pytest.raises(grpc.RpcError) as caught:
            check("double")
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        watch.cancel()
        whole = health.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        assert next(whole).status == SERVING
        server.terminate()
        said = []
        with pytest.raises(grpc.RpcError) as caught:
            said.extend(one.status for one in whole)
        assert said in ([], [NOT_SERVING])
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    server.wait()


def test_a_watch_ends_with_its_connection(serve: Serve, tmp_path: Path) -> None:
    """Not because nothing changes, however long; and it does not keep an old connection."""
    server = serve(
        {
            "server": {
                "arena_bytes": "32MiB",
                "idle_timeout_seconds": 1,
                "max_connection_age_seconds": 3,
            },
            "engine": {"thread_count": 1},
            "models": [{"name": "double", "path": str(graphs.double(tmp_path / "d.onnx"))}],
        }
    )
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        assert next(watch).status == SERVING
        with pytest.raises(grpc.RpcError) as caught:
            next(watch)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "older than server.max_connection_age_seconds" in caught.value.details()
        again = health.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        assert next(again).status == SERVING


def test_reflection(channel: grpc.Channel) -> None:
    """What it describes is what Triton's own descriptors say, as far as it goes."""
    found = reflection.ProtoReflectionDescriptorDatabase(channel)
    assert "inference.GRPCInferenceService" in found.get_services()
    pool = descriptor_pool.DescriptorPool(found)
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    ours = {method.name: method for method in service.methods}
    theirs = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods
    assert set(ours) == {method.name for method in theirs}
    seen: set[str] = set()

    def compare(here: Any, there: Any) -> None:
        assert here.full_name == there.full_name
        if here.full_name in seen:
            return
        seen.add(here.full_name)
        known = {field.number: field for field in there.fields}
        for field in here.fields:
            other = known[field.number]
            assert (field.name, field.type, field.is_repeated) == (
                other.name, other.type, other.is_repeated,
            ), field.full_name  # fmt: skip
            if field.message_type:
                compare(field.message_type, other.message_type)
            if field.enum_type:
                names = [(value.name, value.number) for value in field.enum_type.values]
                assert names == [(v.name, v.number) for v in other.enum_type.values]

    for method in theirs:
        mine = ours[method.name]
        compare(mine.input_type, method.input_type)
        compare(mine.output_type, method.output_type)
        assert mine.client_streaming == method.client_streaming
        assert mine.server_streaming == method.server_streaming
    assert len(seen) > 60
    health = pool.FindServiceByName("grpc.health.v1.Health")
    assert health.methods_by_name["Watch"].server_streaming
    with pytest.raises(KeyError):
        pool.FindMessageTypeByName("inference.Nothing")


# ---- messages in every form ----


def request(model: str, arrays: Mapping[str, np.ndarray]) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=model)
    for name, array in arrays.items():
        kind = utils.np_to_triton_dtype(array.dtype)
        message.inputs.add(name=name, datatype=kind, shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
    return message


def framed(message: Any) -> bytes:
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return struct.pack(">BI", 0, len(data)) + data


def call_head(method: str, *more: tuple[str, str], stream: int = 1) -> bytes:
    path = method if method.startswith("/") else PATH + method
    fields = (
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "lumen"),
        ("content-type", "application/grpc"), ("te", "trailers"), *more,
    )  # fmt: skip
    return frame(HEADERS, stream, literal(*fields), END_HEADERS)


def status_in(block: bytes) -> int:
    """The grpc-status of a block, which has no table and no Huffman's code."""
    at = block.index(b"grpc-status") + len(b"grpc-status")
    return int(block[at + 1 : at + 1 + block[at]])


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def part(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def send_message(link: Http2, data: bytes, most: int = 1 << 20) -> int:
    """Asks for an inference in frames of at most so many bytes. Returns its stream."""
    head = [
        (":method", "POST"), (":scheme", "http"), (":path", PATH + "ModelInfer"),
        (":authority", "lumen"), ("content-type", "application/grpc+proto"),
    ]  # fmt: skip
    stream = link.begin(head)
    link.body(stream, framed(data), most=most)
    return stream


def answer_to(server: Server, data: bytes, most: int = 1 << 20) -> pb.ModelInferResponse:
    """The message that answers a message."""
    with Http2(server.port) as link:
        return message_of(link, send_message(link, data, most))


def message_of(link: Http2, stream: int) -> pb.ModelInferResponse:
    (found,) = link.wait([stream])
    assert found.headers.get("grpc-status", "0") == "0", found.headers
    assert struct.unpack(">BI", found.body[:5]) == (0, len(found.body) - 5)
    return pb.ModelInferResponse.FromString(found.body[5:])


INPUT: Final = part(1, b"x") + part(2, b"FP32")
FORMS: Final = {
    "usual": part(1, b"double") + part(5, INPUT + part(3, b"\x02\x10")) + part(7, X.tobytes()),
    "shape unpacked": part(1, b"double")
    + part(5, INPUT + b"\x18\x02\x18\x10")
    + part(7, X.tobytes()),
    "inputs behind tensors": part(1, b"double")
    + part(7, X.tobytes())
    + part(5, part(3, b"\x02\x10") + INPUT),
    "name behind inputs": part(5, INPUT + part(3, b"\x02\x10"))
    + part(1, b"double")
    + part(7, X.tobytes()),
    "long varints": part(1, b"double")
    + b"\xaa\x80\x00"
    + varint(len(INPUT) + 4)
    + INPUT
    + part(3, b"\x02\x10")
    + b"\x3a\x80\x81\x80\x00"
    + X.tobytes(),
    "unknown fields": part(1, b"double")
    + part(99, b"what")
    + b"\xf8\x07\x01"
    + b"\xf9\x07" + bytes(8)
    + b"\xfd\x07" + bytes(4)
    + part(5, INPUT + part(3, b"\x02\x10") + part(77, b"x"))
    + part(7, X.tobytes()),
    "the last name counts": part(1, b"nobody")
    + part(1, b"double")
    + part(5, INPUT + part(3, b"\x02\x10"))
    + part(7, X.tobytes()),
    "something behind": part(1, b"double")
    + part(5, INPUT + part(3, b"\x02\x10"))
    + part(7, X.tobytes())
    + part(99, b"behind"),
}  # fmt: skip


@pytest.mark.parametrize("most", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("form", FORMS)
def test_messages_of_any_form(server: Server, form: str, most: int) -> None:
    answer = answer_to(server, FORMS[form], most)
    assert answer.raw_output_contents[0] == (X + X).tobytes()
    assert list(answer.outputs[0].shape) == [2, 16]


CONTENTS: Final = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip


def values_of(name: str) -> np.ndarray:
    kind = np.dtype(web.NUMPY[name])
    if kind.kind == "b":
        return np.array([[True, False, True], [False, True, False]])
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.array([[limits.min, limits.max, 0], [1, 2, 3]], kind)
    return np.array([[0.1, -2.5, 1e30], [0, -0.0, 3]], kind)


def test_typed_contents(server: Server) -> None:
    """In the fields of their type; what has none comes raw, and beside them nothing does."""
    whole = {name: values_of(name) for name in CONTENTS}
    channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    arrays = {
        name: whole.get(name, np.zeros((2, 3), bfloat16 if name == "BF16" else kind))
        for name, kind in web.NUMPY.items()
    }
    message = pb.ModelInferRequest(model_name="dtypes")
    for name, array in arrays.items():
        one = message.inputs.add(name=f"in_{name}", datatype=name, shape=[2, 3])
        if name in CONTENTS:
            getattr(one.contents, CONTENTS[name]).extend(array.ravel().tolist())
        message.raw_input_contents.append(array.tobytes())
    raw = stub.ModelInfer(message)
    del message.raw_input_contents[:]
    with pytest.raises(grpc.RpcError) as caught:  # FP16 and BF16 have none
        stub.ModelInfer(message)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    by_name = {output.name: at for at, output in enumerate(raw.outputs)}
    for name, array in arrays.items():
        assert raw.raw_output_contents[by_name[f"out_{name}"]] == array.tobytes()
    single = pb.ModelInferRequest(model_name="double")
    one = single.inputs.add(name="x", datatype="FP32", shape=X.shape)
    one.contents.fp32_contents.extend(X.ravel().tolist())
    assert stub.ModelInfer(single).raw_output_contents[0] == (X + X).tobytes()
    text = pb.ModelInferRequest(model_name="words")
    for name in ("a", "b"):
        one = text.inputs.add(name=name, datatype="BYTES", shape=[1, 2])
        one.contents.bytes_contents.extend([b"", b"two"])
    assert stub.ModelInfer(text).raw_output_contents[0] == b"\0\0\0\0\3\0\0\0two"
    large = pb.ModelInferRequest(model_name="block")
    one = large.inputs.add(name="x", datatype="FP32", shape=BLOCK.shape)
    one.contents.fp32_contents.extend(BLOCK.ravel().tolist())
    assert stub.ModelInfer(large).raw_output_contents[0] == (BLOCK + BLOCK).tobytes()
    channel.close()


def test_typed_contents_wait_for_a_slot(serve: Serve, tmp_path: Path) -> None:
    """However long they are and in whatever pieces they come."""
    asked = []
    with no_place(serve, tmp_path) as (server, free), Http2(server.port) as link:
        for most in (100, 3000, 1 << 20):
            for rows in (1, 40, 100, 200):
                x = np.full((rows, 16), rows / most, "<f4")
                message = pb.ModelInferRequest(model_name="double")
                one = message.inputs.add(name="x", datatype="FP32", shape=x.shape)
                one.contents.fp32_contents.extend(x.ravel().tolist())
                asked.append((x, send_message(link, message.SerializeToString(), most)))
        free()
        for x, stream in asked:
            answer = message_of(link, stream)
            assert answer.raw_output_contents[0] == (x + x).tobytes()


BAD: Final = {
    "contents of another type": part(1, b"double")
    + part(5, INPUT + part(3, b"\x02\x10") + part(5, part(2, bytes(32)))),
    "too few contents": part(1, b"double") + part(5, INPUT + part(3, b"\x02\x10")),
    "a number beyond its type": part(1, b"dtypes")
    + part(5, part(1, b"in_INT8") + part(2, b"INT8") + part(5, part(2, b"\xac\x02"))),
    "too few tensors": part(1, b"several")
    + part(5, part(1, b"a"))
    + part(5, part(1, b"b"))
    + part(7, b"1"),
    "too many tensors": FORMS["usual"] + part(7, b"1"),
    "another size": part(1, b"double")
    + part(5, INPUT + part(3, b"\x02\x10"))
    + part(7, X.tobytes()[1:]),
    "a negative size": part(1, b"double")
    + part(5, INPUT + part(3, b"\xff" * 9 + b"\x01" + b"\x10"))
    + part(7, X.tobytes()),
    "no name": part(5, INPUT),
    "a name behind the tensors": part(7, X.tobytes())
    + part(5, INPUT + part(3, b"\x02\x10"))
    + part(1, b"double"),
    "no field": b"\x07",
    "a field of a length beyond the message": part(1, b"double") + b"\x2a\x7f\x01",
    "an endless number": part(1, b"double") + b"\x08" + b"\xff" * 11,
    "no datatype": part(1, b"double") + part(5, part(1, b"x")) + part(7, b"1"),
    "nothing": b"",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_messages(server: Server, name: str) -> None:
    """Row 49."""
    for most in (1, 1 << 20):
        with Raw(server.port) as link:
            data = framed(BAD[name])
            link.send(call_head("ModelInfer"))
            for at in range(0, len(data), most):
                link.send(frame(DATA, 1, data[at : at + most]))
            link.send(frame(DATA, 1, b"", END_STREAM))
            assert status_in(link.until(HEADERS, 1)) == INVALID
            link.send(call_head("ServerLive", stream=3) + frame(DATA, 3, bytes(5), END_STREAM))
            assert link.until(DATA, 3) == framed(b"\x08\x01")


def outcome(link: Raw, stream: int = 1) -> int:
    """The status that a call ends with; minus the error of a reset."""
    for kind, flags, of, payload in link.frames():
        if of == stream and kind == HEADERS and flags & END_STREAM:
            return status_in(payload)
        if of == stream and kind == RST_STREAM:
            return -int(struct.unpack(">I", payload)[0])
    raise EOFError("the connection ended first")


CALLS: Final = {
    "a compressed message": (b"\x01" + framed(FORMS["usual"])[1:], UNIMPLEMENTED),
    "more than may come": (struct.pack(">BI", 0, 2**32 - 1), EXHAUSTED),
    "less than announced": (framed(FORMS["usual"])[:-9], INVALID),
    "half a prefix": (bytes(3), INVALID),
    "no message": (b"", INVALID),
    "a second message": (framed(FORMS["usual"]) * 2, INVALID),
    "a head of many small fields": (framed(part(1, b"double") + b"\x18\x01" * 9000), INVALID),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_none(server: Server, name: str) -> None:
    """Row 49."""
    data, status = CALLS[name]
    with Canary(server), Raw(server.port) as link:
        link.send(call_head("ModelInfer") + frame(DATA, 1, data, END_STREAM))
        assert outcome(link) == status
        link.send(call_head("ServerLive", stream=3) + frame(DATA, 3, bytes(5), END_STREAM))
        assert link.until(DATA, 3) == framed(b"\x08\x01")


def packed(message: bytes) -> bytes:
    data = gzip.compress(message, 6, mtime=0)
    return struct.pack(">BI", 1, len(data)) + data


PACKED: Final = {
    "good": (packed(FORMS["usual"]), OK),
    "cut": (struct.pack(">BI", 1, 50) + packed(FORMS["usual"])[5:55], INVALID),
    "no gzip": (b"\x01" + framed(FORMS["usual"])[1:], INVALID),
    "a bomb": (packed(part(1, b"double") + part(7, bytes(100 << 20))), EXHAUSTED),
    "a name longer than any": (packed(part(1, b"double" * 1000)), INVALID),
    "nothing": (packed(b""), INVALID),
}


@pytest.mark.parametrize("most", [1, 1 << 20])
@pytest.mark.parametrize("name", PACKED)
def test_compressed_messages_that_are_none(server: Server, name: str, most: int) -> None:
    """Row 49."""
    data, status = PACKED[name]
    head = call_head("ModelInfer", ("grpc-encoding", "gzip"))
    with Canary(server), Raw(server.port) as link:
        link.send(head)
        step = max(most, len(data) // 2000)
        for at in range(0, len(data), step):
            link.send(frame(DATA, 1, data[at : at + step]))
        link.send(frame(DATA, 1, b"", END_STREAM))
        assert outcome(link) == status


@pytest.mark.parametrize("path", ["/a.B/C", PATH, PATH + "modelInfer", "/", "/v2/health/live"])
def test_unknown_methods(server: Server, path: str) -> None:
    """Row 49."""
    with Raw(server.port) as link:
        link.send(call_head(path) + frame(DATA, 1, bytes(5), END_STREAM))
        assert outcome(link) == UNIMPLEMENTED


def test_a_message_that_is_no_inference_is_bounded(server: Server) -> None:
    """Row 49."""
    with Raw(server.port) as link:
        data = framed(part(1, bytes(20_000)))
        link.send(call_head("ModelMetadata") + frame(DATA, 1, data, END_STREAM))
        assert outcome(link) == EXHAUSTED


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer", "ModelMetadata"])
def test_calls_that_stay_open_are_bounded(server: Server, method: str) -> None:
    """Row 49. Half a message each, 64 on each of 40 connections: others are served meanwhile."""
    half = framed(FORMS["usual"])[:30]
    with Canary(server), contextlib.ExitStack() as stack:
        links = [stack.enter_context(Raw(server.port)) for _ in range(40)]
        for link in links:
            for number in range(64):
                stream = 2 * number + 1
                link.send(call_head(method, stream=stream) + frame(DATA, stream, half))
        with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            result = client.infer("double", inputs_of({"x": X}))
            np.testing.assert_array_equal(result.as_numpy("y"), X + X)
    server.wait_until_idle()


def test_a_few_clients_do_not_take_all_streams(server: Server) -> None:
    """Row 49. Of calls of many messages, of which an I/O thread has 256."""
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(Raw(server.port)) for _ in range(6)]
        for link in links:
            for stream in range(1, 128, 2):
                link.send(call_head("ModelStreamInfer", stream=stream))
            link.send(frame(PING, 0, bytes(8)))
            assert link.until(PING, 0) == bytes(8)  # it has read them all
        with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            answers: queue.Queue[Any] = queue.Queue()
            client.start_stream(lambda result, error: answers.put((result, error)))
            client.async_stream_infer("double", inputs_of({"x": X}))
            result, error = answers.get(timeout=WAIT_S)
            assert error is None
            np.testing.assert_array_equal(result.as_numpy("y"), X + X)
            client.stop_stream()
    server.wait_until_idle()


def test_calls_that_are_cancelled_at_any_point(server: Server) -> None:
    """Row 49."""
    data = framed(FORMS["usual"])
    with Canary(server), Raw(server.port) as link:
        stream = 1
        for at in range(0, len(data), 5):
            link.send(call_head("ModelInfer", stream=stream) + frame(DATA, stream, data[:at]))
            link.send(frame(RST_STREAM, stream, struct.pack(">I", CANCEL)))
            stream += 2
            if stream % 32 == 1:
                time.sleep(0.3)  # a client may cancel a hundred a second
        link.send(call_head("ServerLive", stream=stream))
        link.send(frame(DATA, stream, bytes(5), END_STREAM))
        assert link.until(DATA, stream) == framed(b"\x08\x01")
    server.wait_until_idle()


def test_a_slow_reader_holds_only_itself(server: Server) -> None:
    with Http2(server.port, window=100) as link:
        head = [
            (":method", "POST"), (":scheme", "http"), (":path", PATH + "ModelInfer"),
            (":authority", "lumen"), ("content-type", "application/grpc"),
        ]  # fmt: skip
        message = framed(request("block", {"x": BLOCK}))
        stream = link.begin(head)
        link.body(stream, message)
        (answer,) = link.wait([stream])
        found = pb.ModelInferResponse.FromString(answer.body[5:])
        assert found.raw_output_contents[0] == (BLOCK + BLOCK).tobytes()


def test_a_port_of_its_own(serve: Serve, tmp_path: Path) -> None:
    """Which speaks all that the other one does, with one I/O thread and with two."""
    for threads in (1, 2):
        port = free_port()
        server = serve(
            {
                "server": {"arena_bytes": "32MiB", "grpc_port": port, "io_threads": threads},
                "engine": {"thread_count": 1},
                "models": [{"name": "double", "path": str(graphs.double(tmp_path / "d.onnx"))}],
            }
        )
        for one in (port, server.port):
            with triton.InferenceServerClient(f"127.0.0.1:{one}") as client:
                result = client.infer("double", inputs_of({"x": X}))
                np.testing.assert_array_equal(result.as_numpy("y"), X + X)
            with Http(one) as http:
                assert http.query(web.get("/v2/health/ready")).code == 200
        server.terminate()
        assert server.wait() == 0


def test_a_client_outlives_its_connections(serve: Serve, tmp_path: Path) -> None:
    server = serve(
        {
            "server": {"arena_bytes": "32MiB", "max_connection_age_seconds": 1},
            "engine": {"thread_count": 1},
            "models": [{"name": "double", "path": str(graphs.double(tmp_path / "d.onnx"))}],
        }
    )
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        while server.figures().io["connections_accepted"] < 3:
            result = client.infer("double", inputs_of({"x": X}))
            np.testing.assert_array_equal(result.as_numpy("y"), X + X)


# ---- keys ----

ADA: Final = b"the-key-of-ada-0123456789"
ROOT: Final = b"the-key-of-root-0123456789"


def test_keys(serve: Serve, tmp_path: Path) -> None:
    """Metadata bring them, as headers do; health needs none."""
    server = serve(
        {
            "server": {
                "arena_bytes": "32MiB",
                "keys": [
                    {"name": "root", "sha256": hashlib.sha256(ROOT).hexdigest(), "admin": True},
                    {"name": "ada", "sha256": hashlib.sha256(ADA).hexdigest()},
                ],
            },
            "engine": {"thread_count": 1},
            "models": [{"name": "double", "path": str(graphs.double(tmp_path / "d.onnx"))}],
        }
    )
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        assert client.is_server_ready()
        inputs = inputs_of({"x": X})
        assert refused(client, "infer", "double", inputs)[0] == code("UNAUTHENTICATED")
        headers = {"authorization": f"Bearer {ADA.decode()}"}
        result = client.infer("double", inputs, headers=headers)
        np.testing.assert_array_equal(result.as_numpy("y"), X + X)
        by_key = {"x-api-key": ADA.decode()}
        assert client.get_model_metadata("double", headers=by_key).name == "double"
        said = refused(client, "load_model", "double", headers=headers)
        assert said[0] == code("PERMISSION_DENIED")
        answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)), headers=headers)
        for _ in range(3):
            client.async_stream_infer("double", inputs)
            assert answers.get(timeout=WAIT_S)[1] is None
        client.stop_stream()
