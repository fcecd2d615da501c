"""NVIDIA's own client for Python, unmodified: every method, both of its HTTP clients.

What it computes is compared with ONNX Runtime. A client that fails here is a bug of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnxruntime as ort
import pytest
import tritonclient.http as http_client
import tritonclient.http.aio as aio_client
import tritons
import web
from harness import ROOT, Server, eventually
from ml_dtypes import bfloat16  # onnx brings it
from tritonclient import utils

pytestmark = pytest.mark.once  # what clients say is received by the same code on both

LABELS = [f"class {number}" for number in range(16)]
PICTURE = 3 * 224 * 224  # SqueezeNet's input
SETTLE_S = 30


class Aio:
    """The asyncio client, called as the other one is."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = self.loop.run_until_complete(self._make(url))

    async def _make(self, url: str) -> Any:
        return aio_client.InferenceServerClient(url)  # it takes the running loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)
        return lambda *given, **named: self.loop.run_until_complete(method(*given, **named))

    def finish(self) -> None:
        self.close()
        self.loop.close()


class Sync:
    """The client on gevent."""

    def __init__(self, url: str) -> None:
        self.client = http_client.InferenceServerClient(url, concurrency=4)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(self.client, name)  # type: ignore[no-any-return]

    def finish(self) -> None:
        self.client.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("triton")
    return {
        "double": graphs.double(folder / "double.onnx"),
        "several": graphs.several(folder / "several.onnx"),
        "dtypes": graphs.dtypes(folder / "dtypes.onnx"),
        "echo": graphs.echo(folder / "echo.onnx"),
        "picture": graphs.double(folder / "picture.onnx", PICTURE),
        "slow": graphs.slow(folder / "slow.onnx"),
        "nonzero": graphs.nonzero(folder / "nonzero.onnx", 6),
        "digits": ROOT / "lumen_uring" / "models" / "digits.onnx",
    }


@pytest.fixture(scope="module")
def server(files: dict[str, Path], cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    labels = tmp_path_factory.mktemp("labels") / "labels.txt"
    labels.write_text("\n".join(LABELS))
    models = [{"name": name, "path": str(path)} for name, path in files.items()]
    models[0] |= {"labels": str(labels), "max_rows": 64}  # type: ignore[dict-item]
    settings: dict[str, object] = {
        "server": {"name": "triton", "arena_bytes": "128MiB", "max_request_bytes": "4MiB"},
        "engine": {"thread_count": 2},
        "models": models,
    }
    with Server(settings, cache) as running:
        yield running


@pytest.fixture(params=[Sync, Aio], ids=["sync", "aio"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param(f"127.0.0.1:{server.port}")
    yield made
    made.finish()
    server.check_idle()


def inputs_of(arrays: Mapping[str, np.ndarray], binary: bool = True) -> list[Any]:
    return tritons.inputs_of(http_client, arrays, binary_data=binary)


def requested_outputs(*names: str, binary: bool = True, classes: int = 0) -> list[Any]:
    return [
        http_client.InferRequestedOutput(name, binary_data=binary, class_count=classes)
        for name in names
    ]


def expected(path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(arrays)), strict=True))


def refused(client: Any, what: str, *given: Any, **named: Any) -> str:
    return str(tritons.refused(client, what, *given, **named))


X = np.arange(32, dtype="<f4").reshape(2, 16)


# ---- what it asks of the server ----


def test_health(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert client.is_model_ready("double", "1")
    assert not client.is_model_ready("double", "2")
    assert not client.is_model_ready("nobody")


def test_metadata(client: Any, server: Server) -> None:
    found = client.get_server_metadata()
    assert found["name"] == "triton"
    assert "statistics" in found["extensions"]
    found = client.get_model_metadata("several", "1")
    assert [one["name"] for one in found["inputs"]] == ["a", "k", "b"]
    assert found["inputs"][0] == {"name": "a", "datatype": "FP32", "shape": [-1, 4]}
    assert "nobody" in refused(client, "get_model_metadata", "nobody")


def test_config(client: Any) -> None:
    found = client.get_model_config("double")
    assert (found["name"], found["max_batch_size"]) == ("double", 64)
    assert found["input"][0]["dims"] == [16]
    assert found["input"][0]["data_type"] == "TYPE_FP32"
    assert "nobody" in refused(client, "get_model_config", "nobody")


def test_the_repository(client: Any, server: Server) -> None:
    found = client.get_model_repository_index()
    assert [entry["name"] for entry in found] == sorted(server.models)
    assert {entry["state"] for entry in found} == {"READY"}
    assert "not supported" in refused(client, "load_model", "double")
    assert "not supported" in refused(client, "load_model", "double", config="{}")
    said = refused(client, "unload_model", "double", unload_dependents=True)
    assert "not supported" in said
    assert "explicit model load / unload is not allowed if polling is enabled" in said
    assert client.is_model_ready("double")


def test_statistics(client: Any) -> None:
    assert len(client.get_inference_statistics()["model_stats"]) == 8
    (before,) = client.get_inference_statistics("echo")["model_stats"]
    client.infer("echo", inputs_of({"x": np.ones(5, "u1")}))

    def grown() -> bool:
        (now,) = client.get_inference_statistics("echo", "1")["model_stats"]
        return bool(now["execution_count"] == before["execution_count"] + 1)

    eventually(grown, "one more execution")
    assert "nobody" in refused(client, "get_inference_statistics", "nobody")


def test_shared_memory_is_not_there(client: Any) -> None:
    """Row 20."""
    for kind in ("system", "cuda"):
        assert getattr(client, f"get_{kind}_shared_memory_status")() == []
        said = refused(client, f"get_{kind}_shared_memory_status", "region")
        assert "not supported" in said
        getattr(client, f"unregister_{kind}_shared_memory")()
        getattr(client, f"unregister_{kind}_shared_memory")("region")
    assert refused(client, "register_system_shared_memory", "region", "/key", 64)
    assert refused(client, "register_cuda_shared_memory", "region", b"handle", 0, 64)
    given = http_client.InferInput("x", [2, 16], "FP32")
    given.set_shared_memory("region", 128)
    assert "shared memory" in refused(client, "infer", "double", [given])
    requested = http_client.InferRequestedOutput("y")
    requested.set_shared_memory("region", 128)
    said = refused(client, "infer", "double", inputs_of({"x": X}), outputs=[requested])
    assert "shared memory" in said


def test_settings_of_traces(client: Any) -> None:
    at_start = client.get_trace_settings()
    assert at_start["trace_level"] == ["OFF"]
    assert client.get_trace_settings("double") == at_start
    cleared = dict.fromkeys(("trace_file", "trace_level", "trace_rate", "trace_count"))
    assert client.update_trace_settings("double", cleared) == at_start
    assert "nobody" in refused(client, "get_trace_settings", "nobody")
    said = refused(client, "update_trace_settings", settings={"trace_level": ["TIMESTAMPS"]})
    assert "engine.telemetry_csv_path" in said


def test_settings_of_the_log(client: Any) -> None:
    at_start = client.get_log_settings()
    assert at_start == {
        "log_file": "", "log_info": True, "log_warning": True, "log_error": True,
        "log_verbose_level": 0, "log_format": "default",
    }  # fmt: skip
    for changed in (
        {"log_info": False}, {"log_warning": False}, {"log_error": False},
        {"log_verbose_level": 1}, {"log_format": "ISO8601"},
    ):  # fmt: skip
        before = client.get_log_settings()
        assert client.update_log_settings(changed) == {**before, **changed}
    said = refused(client, "update_log_settings", {"log_file": "other.log", "log_info": True})
    assert "log file location can not be updated through network protocol" in said
    assert client.update_log_settings(at_start) == at_start


# ---- inference ----

WAYS = pytest.mark.parametrize(
    ("binary_in", "binary_out"), [(True, True), (True, False), (False, True), (False, False)]
)


@WAYS
def test_digits(client: Any, files: dict[str, Path], binary_in: bool, binary_out: bool) -> None:
    image = np.random.default_rng(1).integers(0, 17, (3, 1, 8, 8)).astype("<f4")
    result = client.infer(
        "digits", inputs_of({"image": image}, binary_in),
        outputs=requested_outputs("probabilities", binary=binary_out),
    )  # fmt: skip
    answer = result.as_numpy("probabilities")
    wanted = expected(files["digits"], {"image": image})["probabilities"]
    np.testing.assert_allclose(answer, wanted, rtol=1e-5, atol=1e-6)
    assert result.get_response()["model_name"] == "digits"


@WAYS
def test_several_tensors(
    client: Any, files: dict[str, Path], binary_in: bool, binary_out: bool
) -> None:
    random = np.random.default_rng(2)
    arrays = {
        "b": random.integers(-9, 9, 5), "a": random.random((5, 4), np.float32),
        "k": random.random(3, np.float32),
    }  # fmt: skip
    wanted = expected(files["several"], arrays)
    names = ("same", "total", "sum")
    result = client.infer(
        "several",
        inputs_of(arrays, binary_in),
        outputs=requested_outputs(*names, binary=binary_out),
    )
    assert [one["name"] for one in result.get_response()["outputs"]] == list(names)
    for name in names:
        np.testing.assert_allclose(result.as_numpy(name), wanted[name], rtol=1e-6)
    # Without requested outputs: all outputs, as this client prefers them.
    result = client.infer("several", inputs_of(arrays, binary_in))
    for name, array in wanted.items():
        np.testing.assert_allclose(result.as_numpy(name), array, rtol=1e-6)


def test_every_type(client: Any) -> None:
    inputs, arrays = [], {}
    for name, kind in web.NUMPY.items():
        one = http_client.InferInput(f"in_{name}", [2, 3], name)
        array = np.arange(6).reshape(2, 3).astype(bfloat16 if name == "BF16" else kind)
        one.set_data_from_numpy(array)
        inputs.append(one)
        arrays[name] = array
    result = client.infer("dtypes", inputs)
    for name, array in arrays.items():
        np.testing.assert_array_equal(result.as_numpy(f"out_{name}"), array)


def test_shapes_known_only_after_the_run(client: Any, files: dict[str, Path]) -> None:
    x = np.array([[0, 1, 0, 2, 3, 0]], "<f4")
    wanted = expected(files["nonzero"], {"x": x})
    for binary in (True, False):
        outputs = requested_outputs("where", "twice", binary=binary)
        result = client.infer("nonzero", inputs_of({"x": x}), outputs=outputs)
        for name in wanted:
            np.testing.assert_array_equal(result.as_numpy(name), wanted[name])


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_classification(client: Any, binary: bool) -> None:
    x = np.random.default_rng(3).random((2, 16), np.float32)
    result = client.infer(
        "double", inputs_of({"x": x}), outputs=requested_outputs("y", binary=binary, classes=3)
    )
    found = result.as_numpy("y")
    assert found.shape == (2, 3)
    for row, ranked in zip(x + x, found, strict=True):
        order = row.argsort()[::-1][:3]
        for at, said in zip(order, ranked, strict=True):
            text = said.decode() if isinstance(said, bytes) else said
            assert text == f"{row[at]:.6f}:{at}:{LABELS[at]}"


def test_ids_and_parameters(client: Any) -> None:
    for binary in (True, False):
        result = client.infer(
            "double", inputs_of({"x": X}, binary), request_id="an id/1", priority=1,
            parameters={"of_mine": 3}, timeout=60_000_000, headers={"X-Mine": "1"},
            query_params={"a": "b c"},
        )  # fmt: skip
        assert result.get_response()["id"] == "an id/1"
        np.testing.assert_array_equal(result.as_numpy("y"), X + X)
    said = refused(client, "infer", "double", inputs_of({"x": X}), sequence_id=7)
    assert "sequence" in said


def test_a_timeout(client: Any, server: Server) -> None:
    before = server.figures().requests
    busy = [web.Http(server.port) for _ in range(4)]
    for one in busy:
        one.send(web.infer("slow", {"x": np.array([3000], "<i8")}))
    eventually(lambda: server.figures().requests >= before + 4, "the load")
    said = refused(client, "infer", "double", inputs_of({"x": X}), timeout=1)
    assert "deadline" in said
    for one in busy:
        assert one.answer().code == 200
        one.close()


def test_errors_are_its_exceptions(client: Any) -> None:
    for arrays, what in (
        ({"x": X[:, :8].copy()}, "shape"), ({"z": X}, "'z'"), ({"x": X.astype("<f8")}, "FP32"),
    ):  # fmt: skip
        for binary in (True, False):
            assert what in refused(client, "infer", "double", inputs_of(arrays, binary))
    assert "nobody" in refused(client, "infer", "nobody", inputs_of({"x": X}))
    requested = requested_outputs("z")
    assert "'z'" in refused(client, "infer", "double", inputs_of({"x": X}), outputs=requested)


def test_large_bodies(client: Any) -> None:
    x = np.random.default_rng(4).random((1, PICTURE), np.float32)
    for binary_in, binary_out in ((True, True), (True, False), (False, True)):
        result = client.infer(
            "picture",
            inputs_of({"x": x}, binary_in),
            outputs=requested_outputs("y", binary=binary_out),
        )
        np.testing.assert_array_equal(result.as_numpy("y"), x + x)


def test_compression(client: Any) -> None:
    """Of requests; answers never are, which is always right."""
    for algorithm in ("gzip", "deflate"):
        for binary in (True, False):
            result = client.infer(
                "double",
                inputs_of({"x": X}, binary),
                request_compression_algorithm=algorithm,
                response_compression_algorithm=algorithm,
            )
            np.testing.assert_array_equal(result.as_numpy("y"), X + X)


def test_connections_are_kept(client: Any, server: Server) -> None:
    client.is_server_live()
    before = server.figures()
    for number in range(20):
        x = X + np.float32(number)
        np.testing.assert_array_equal(
            client.infer("double", inputs_of({"x": x})).as_numpy("y"), x + x
        )
    assert server.figures().since(before).get("io.connections_accepted", 0) <= 4


def test_many_at_once_on_gevent(server: Server) -> None:
    client = http_client.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=8)
    try:
        pending = []
        for number in range(64):
            x = X + np.float32(number)
            pending.append(
                client.async_infer("double", inputs_of({"x": x}, number % 2 == 0),
                                   request_id=f"n{number}")
            )  # fmt: skip
        for number, handle in enumerate(pending):
            result = handle.get_result(timeout=SETTLE_S)
            assert result.get_response()["id"] == f"n{number}"
            np.testing.assert_array_equal(result.as_numpy("y"), 2 * (X + np.float32(number)))
        late = client.async_infer("nobody", inputs_of({"x": X}))
        with pytest.raises(utils.InferenceServerException, match="nobody"):
            late.get_result(timeout=SETTLE_S)
    finally:
        client.close()
    server.check_idle()


def test_many_at_once_on_asyncio(server: Server) -> None:
    ways = [{"binary_data": number % 2 == 0} for number in range(64)]
    tritons.ask_many(aio_client, server.port, X, ways, itemgetter("id"))
    server.check_idle()


def test_bodies_made_by_hand(server: Server) -> None:
    """What generate_request_body makes, and parse_response_body reads: for other HTTP libraries."""
    body, size = http_client.InferenceServerClient.generate_request_body(
        inputs_of({"x": X}), outputs=requested_outputs("y")
    )
    with web.Http(server.port) as http:
        answer = http.query(web.post(web.path("double"), body, f"{web.JSON_LENGTH}: {size}"))
    result = http_client.InferenceServerClient.parse_response_body(
        answer.body, header_length=int(answer.headers[web.JSON_LENGTH.lower()])
    )
    np.testing.assert_array_equal(result.as_numpy("y"), X + X)
