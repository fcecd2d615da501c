"""Every route of the Open Inference Protocol, its verbs and its refusals, on the shared server."""

from __future__ import annotations

import contextlib
import json
import ssl
import time
from typing import Any

import numpy as np
import pytest
import web
from harness import Server, eventually
from web import Answer, Http, get, post

from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # what answers them: the same on both backends

X = np.arange(16, dtype="<f4").reshape(1, 16)
DURATIONS = (
    "success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit",
    "cache_miss",
)  # fmt: skip


def one(zoo: Server, request: bytes) -> Answer:
    """One request on a connection of its own, which goes on working afterwards."""
    with Http(zoo.port) as http:
        answer = http.query(request)
        if not answer.closes:
            assert http.query(get("/v2/health/live")).code == 200
        return answer


def described(zoo: Server) -> dict[str, dict[str, Any]]:
    """The models as the native protocol describes them."""
    models = zoo.description["models"]
    assert isinstance(models, list)
    return {entry["name"]: entry for entry in models}


HEALTH: dict[str, dict[str, Any]] = {
    "/v2/health/live": {"live": True},
    "/v2/health/ready": {"ready": True},
    "/v2/models/double/ready": {"name": "double", "ready": True},
    "/v2/models/double/versions/1/ready": {"name": "double", "ready": True},
}


@pytest.mark.parametrize("target", HEALTH)
def test_health_is_said_in_code_and_body(zoo: Server, target: str) -> None:
    """Triton's clients look at the code alone, KServe's at the body's one field."""
    assert one(zoo, get(target)).json() == HEALTH[target]


def test_the_servers_metadata(zoo: Server) -> None:
    found = one(zoo, get("/v2")).json()
    assert found["name"] == "lumen"
    assert found["version"] == zoo.description["server"]["version"]  # type: ignore[index]
    assert found["extensions"] == [
        "classification", "sequence", "model_configuration", "binary_tensor_data", "parameters",
        "statistics", "trace", "logging",
    ]  # fmt: skip


def test_every_models_metadata(zoo: Server) -> None:
    for name, entry in described(zoo).items():
        found = one(zoo, get(f"/v2/models/{name}")).json()
        assert found == one(zoo, get(f"/v2/models/{name}/versions/1")).json()
        assert (found["name"], found["versions"]) == (name, ["1"])
        assert found["platform"] == "onnxruntime_onnx"
        for side in ("inputs", "outputs"):
            assert [list(tensor) for tensor in found[side]] == [
                ["name", "datatype", "shape"] for _ in found[side]
            ]
            assert [tensor["name"] for tensor in found[side]] == [
                tensor["name"] for tensor in entry[side]
            ]
            for tensor, native in zip(found[side], entry[side], strict=True):
                assert tensor["datatype"] == native["datatype"]
                # Of no rank that is known: a scalar is told from the rest only in the run.
                is_open = not native["shape"] and not native.get("shape_known", True)
                assert tensor["shape"] == ([-1] if is_open else native["shape"])


def test_every_models_config_agrees_with_its_metadata(zoo: Server) -> None:
    for name in described(zoo):
        metadata = one(zoo, get(f"/v2/models/{name}")).json()
        config = one(zoo, get(f"/v2/models/{name}/config")).json()
        assert config == one(zoo, get(f"/v2/models/{name}/versions/1/config")).json()
        assert config["name"] == name
        batch = config["max_batch_size"]
        assert type(batch) is int
        for ours, theirs in (("inputs", "input"), ("outputs", "output")):
            shapes = {tensor["name"]: tensor for tensor in metadata[ours]}
            assert [entry["name"] for entry in config[theirs]] == list(shapes)
            for entry in config[theirs]:
                tensor = shapes[entry["name"]]
                assert entry["data_type"] == f"TYPE_{tensor['datatype']}"
                rows = tensor["shape"][:1] if batch > 0 and tensor["shape"][:1] == [-1] else []
                assert rows + entry["dims"] == tensor["shape"]
                if batch > 0 and theirs == "input":
                    assert rows == [-1]


def test_what_batches_a_model_takes(zoo: Server) -> None:
    for name, batch in (("double", 256), ("dtypes", 64), ("tag", 0), ("several", 0), ("scalar", 0)):
        config = one(zoo, get(f"/v2/models/{name}/config")).json()
        assert config["max_batch_size"] == batch, name


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready":true}'])
def test_the_repositorys_index(zoo: Server, body: bytes) -> None:
    assert one(zoo, post("/v2/repository/index", body)).json() == [
        {"name": name, "version": "1", "state": "READY", "reason": ""}
        for name in sorted(zoo.models)
    ]


def statistics(zoo: Server, target: str = "/v2/models/tag/stats") -> list[dict[str, Any]]:
    found = one(zoo, get(target)).json()
    assert list(found) == ["model_stats"]
    for entry in found["model_stats"]:
        assert entry["version"] == "1"
        assert set(entry["inference_stats"]) == set(DURATIONS)
        counts = entry["inference_stats"]
        for name in DURATIONS:
            assert all(type(counts[name][key]) is int for key in ("count", "ns"))
        assert (
            counts["compute_input"]["count"]
            == counts["compute_infer"]["count"]
            == counts["compute_output"]["count"]
            == counts["queue"]["count"]
            == counts["success"]["count"]
        )
        assert isinstance(entry["batch_stats"], list)
    return list(found["model_stats"])


def test_statistics_of_all_models_and_of_one(zoo: Server) -> None:
    everybody = statistics(zoo, "/v2/models/stats")
    assert [entry["name"] for entry in everybody] == list(zoo.models)
    for target in ("/v2/models/tag/stats", "/v2/models/tag/versions/1/stats"):
        assert [entry["name"] for entry in statistics(zoo, target)] == ["tag"]


def test_statistics_count_what_was_done(zoo: Server) -> None:
    (before,) = statistics(zoo, "/v2/models/double/stats")
    x = np.ones((3, 16), "<f4")
    with Http(zoo.port) as http:
        for _ in range(5):
            assert http.query(web.infer("double", {"x": x})).code == 200
        assert http.query(web.infer("double", {"x": x[:0]})).code == 400

    def change() -> dict[str, int]:
        (after,) = statistics(zoo, "/v2/models/double/stats")
        then, now = before["inference_stats"], after["inference_stats"]
        return {
            "rows": after["inference_count"] - before["inference_count"],
            "runs": after["execution_count"] - before["execution_count"],
            **{name: now[name]["count"] - then[name]["count"] for name in ("success", "queue")},
        }

    # The worker counts after it has answered, so the last one may be on its way.
    eventually(
        lambda: change() == {"rows": 15, "runs": 5, "success": 5, "queue": 5},
        "five requests of three rows",
        found=change,
    )
    (after,) = statistics(zoo, "/v2/models/double/stats")
    zoo.wait_until_idle()
    file = read(zoo.stats_path).models["double"]
    (after,) = statistics(zoo, "/v2/models/double/stats")
    durations = after["inference_stats"]
    for name, count, ns in (
        ("success", "ok", "ok_ns"),
        ("fail", "failed", "failed_ns"),
        ("queue", "ok", "queue_ns"),
        ("compute_input", "ok", "preprocess_ns"),
        ("compute_infer", "ok", "infer_ns"),
        ("compute_output", "ok", "send_ns"),
    ):
        assert durations[name] == {"count": file[count], "ns": file[ns]}, name
    assert (after["inference_count"], after["execution_count"]) == (file["rows"], file["runs"])
    # Milliseconds since 1970; within the hour, whatever the clock does meanwhile.
    assert abs(after["last_inference"] - 1000 * time.time()) < 3_600_000
    for name in ("success", "compute_infer"):
        assert after["inference_stats"][name]["ns"] > before["inference_stats"][name]["ns"]


CONTROL = [
    post("/v2/repository/models/double/load"),
    post("/v2/repository/models/double/load", b"{}"),
    post("/v2/repository/models/double/load", b'{"parameters":{"config":"{}"}}'),
    post(
        "/v2/repository/models/double/load",
        b'{"parameters":{"config":"{}","file:../../../tmp/x/1/model.onnx":"AA=="}}',
    ),
    post("/v2/repository/models/double/unload", b'{"parameters":{"unload_dependents":false}}'),
    get("/v2/systemsharedmemory/region/r/status"),
    post("/v2/systemsharedmemory/region/r/register", b'{"key":"/k","offset":0,"byte_size":8}'),
    get("/v2/cudasharedmemory/region/r/status"),
    post("/v2/cudasharedmemory/region/r/register", b'{"raw_handle":{"b64":"AA=="}}'),
]


@pytest.mark.parametrize(
    "request_bytes", CONTROL, ids=lambda data: data.split(b" HTTP")[0].decode().replace("/", ":")
)
def test_what_is_not_there_says_so(zoo: Server, request_bytes: bytes) -> None:
    """Row 45."""
    answer = one(zoo, request_bytes)
    assert answer.code == 501, answer
    assert "not" in answer.error


@pytest.mark.parametrize("which", ["", "/region/r"])
@pytest.mark.parametrize("kind", ["systemsharedmemory", "cudasharedmemory"])
def test_unregistering_regions_is_fine_without_any(zoo: Server, kind: str, which: str) -> None:
    """perf_analyzer does that first of all, and so do many clients."""
    answer = one(zoo, post(f"/v2/{kind}{which}/unregister"))
    assert (answer.code, answer.body) == (200, b"")
    assert one(zoo, get(f"/v2/{kind}/status")).json() == []


def test_settings_of_traces_and_of_the_log(zoo: Server) -> None:
    """They are answered whatever `repository.control` is."""
    at_start = one(zoo, get("/v2/logging")).json()
    assert (at_start["log_info"], at_start["log_verbose_level"]) == (True, 0)
    assert one(zoo, post("/v2/logging", b'{"log_verbose_level":1}')).json() == {
        **at_start, "log_verbose_level": 1,
    }  # fmt: skip
    assert one(zoo, post("/v2/logging", json.dumps(at_start).encode())).json() == at_start
    for target in ("/v2/trace/setting", "/v2/models/double/trace/setting"):
        traces = one(zoo, get(target)).json()
        assert (traces["trace_level"], traces["trace_rate"]) == (["OFF"], "1")
        assert one(zoo, post(target, b"{}")).json() == traces
        refused = one(zoo, post(target, b'{"trace_level":["TIMESTAMPS"]}'))
        assert (refused.code, "engine.telemetry_csv_path" in refused.error) == (400, True)
    unknown = one(zoo, get("/v2/models/nobody/trace/setting"))
    assert (unknown.code, "nobody" in unknown.error) == (400, True)


UNKNOWN = [
    get("/v2/models/{}"), get("/v2/models/{}/ready"), get("/v2/models/{}/config"),
    get("/v2/models/{}/stats"), get("/v2/models/{}/versions/1"), post("/v2/models/{}/infer", b"{}"),
    post("/v2/models/{}/versions/1/infer", b"{}"),
]  # fmt: skip


@pytest.mark.parametrize("request_bytes", UNKNOWN, ids=lambda data: data.split()[1].decode()[13:])
@pytest.mark.parametrize("name", ["nobody", "doubl", "double2", "Double", "..", "a" * 63])
def test_an_unknown_model_is_named(zoo: Server, request_bytes: bytes, name: str) -> None:
    """Row 12."""
    answer = one(zoo, request_bytes.replace(b"{}", name.encode(), 1))
    assert answer.code == 404
    assert answer.error == f"Request for unknown model: '{name}' is not found"


@pytest.mark.parametrize("tail", ["", "/ready", "/config", "/stats"])
@pytest.mark.parametrize(
    "version", ["0", "2", "latest", "9223372036854775808", "18446744073709551617"]
)
def test_a_version_that_is_not_there(zoo: Server, version: str, tail: str) -> None:
    """Row 13."""
    answer = one(zoo, get(f"/v2/models/double/versions/{version}{tail}"))
    assert answer.code in (400, 404), answer
    assert answer.error


NOT_FOUND = [
    "/v3", "/v2/", "/v1/models/", "/v1", "/v1/models/double/", "/v2/health", "/v2/health/live/",
    "/v2/models",
    "/v2/models/", "/v2/models/double/", "/v2/models/double/infer/", "/v2/models/double/x",
    "/v2/models/double/versions/x/ready", "/v2/models/double/versions/1.0/infer",
    "/v2/models/double/versions/-1/ready", "/v2/models/double/versions//ready",
    "/v2/models/double/versions", "/v2/repository", "/V2", "/favicon.ico", "/metrics",
]  # fmt: skip


@pytest.mark.parametrize("target", NOT_FOUND)
def test_a_path_that_is_no_route(zoo: Server, target: str) -> None:
    """Row 13."""
    answer = one(zoo, get(target))
    assert (answer.code, answer.error) == (404, "Not Found")


WRONG_VERBS = [
    ("POST", "/v2/health/live"), ("POST", "/v2"), ("POST", "/v2/models/double"),
    ("POST", "/v2/models/double/config"), ("POST", "/v2/models/double/stats"),
    ("GET", "/v2/models/double/infer"), ("GET", "/v2/repository/index"),
    ("GET", "/v2/repository/models/double/load"), ("PUT", "/v2/models/double"),
    ("DELETE", "/v2/models/double"), ("PATCH", "/v2/logging"), ("OPTIONS", "/v2"),
    ("POST", "/v2/systemsharedmemory/status"), ("GET", "/v2/systemsharedmemory/unregister"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "target"), WRONG_VERBS)
def test_a_verb_that_the_route_does_not_have(zoo: Server, method: str, target: str) -> None:
    """RFC 9110 15.5.6: 405 says what is allowed."""
    answer = one(zoo, web.request(method, target))
    assert (answer.code, answer.error) == (405, "Method Not Allowed")
    allowed = answer.headers["allow"].split(", ")
    assert method not in allowed
    assert allowed


@pytest.mark.parametrize(
    "target",
    [
        "/v2/health/live", "/v2/health/ready", "/v2", "/v2/models/double",
        "/v2/models/double/ready", "/v2/models/double/config", "/v2/nothing",
        "/v2/models/nobody",
    ],
)  # fmt: skip
def test_head_is_get_without_the_body(zoo: Server, target: str) -> None:
    """RFC 9110 9.3.2."""
    with Http(zoo.port) as http:
        got = http.query(get(target))
        head = http.query(web.request("HEAD", target), to="HEAD")
        for answer in (got, head):
            del answer.headers["date"]  # of the second in which each was written
        assert (head.code, head.headers) == (got.code, got.headers)
        assert http.query(get("/v2")).code == 200


@pytest.mark.parametrize(
    "target",
    [
        "/v2/models/%64ouble/infer", "/v2/models/%64%6F%75%62%6c%65/infer",
        "/v2/models/double/infer?", "/v2/models/double/infer?a=b&c=%ZZ",
        "/v2/models/double/versions/1/infer",
    ],
)  # fmt: skip
def test_escapes_and_queries(zoo: Server, target: str) -> None:
    answer = one(zoo, post(target, X.tobytes(), f"{web.JSON_LENGTH}: 0"))
    assert answer.outputs["y"].array.tobytes() == (X + X).tobytes()


@pytest.mark.parametrize(
    "line",
    [
        "Content-Type: application/x-www-form-urlencoded", "Content-Type: text/plain",
        "Content-Type: application/json", "Accept: text/html", "Accept-Encoding: gzip, deflate, br",
        "Content-Encoding: identity", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-01-01",
        "X-Anything: a,b;c=\"d e\"\tf", "Range: bytes=0-1", "If-None-Match: *", "TE: trailers",
    ],
)  # fmt: skip
def test_headers_that_change_nothing(zoo: Server, line: str) -> None:
    document = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 16], "data": X.tolist()}]}
    )
    answer = one(zoo, post(web.path("double"), document.encode(), line))
    np.testing.assert_array_equal(answer.array("y"), X + X)
    assert "content-encoding" not in answer.headers


# ---- clients of other protocols ----


@pytest.mark.parametrize("path", ["/embed_sparse", "/generate", "/v2/embed"])
def test_clients_that_bring_text_are_told_what_is_here(zoo: Server, path: str) -> None:
    for request in (get(path), post(path, b"{}")):
        answer = one(zoo, request)
        assert answer.code == 404
        assert answer.error.startswith("Not Found: expected /v1/embeddings, /v1/rerank, ")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embed", "/rerank", "/tokenize"])
def test_a_server_without_text_models_says_so(zoo: Server, path: str) -> None:
    answer = one(zoo, post(path, b"{}"))
    assert answer.code == 404
    assert b"the server has no model of texts that this path is for" in answer.body
    assert one(zoo, get(path)).code == 405


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_a_server_without_upstreams_says_so(zoo: Server, path: str) -> None:
    answer = one(zoo, post(path, b"{}"))
    assert answer.code == 404
    assert b"the server has no model of an upstream, which this path is for" in answer.body
    assert one(zoo, get(path)).code == 405


def test_clients_of_tls_are_told_so(zoo: Server) -> None:
    """A TLS client's own hello."""
    out = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    with Http(zoo.port) as http:
        http.send(out.read())
        answer = http.answer()
        assert (answer.code, answer.closes) == (400, True)
        assert "hello of TLS" in answer.error
