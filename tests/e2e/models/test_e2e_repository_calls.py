"""Calls that the control program answers: who may make them, what they may look like, and that any
number of them, and of clients that leave, disturbs nobody else."""

from __future__ import annotations

import base64
import hashlib
import json
import signal
import socket
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import graphs
import numpy as np
import pytest
import tritonclient.http as http_client
import web
from conftest import Serve
from graphs import times
from harness import START_S, Server, eventually
from onnx import helper
from tritonclient.utils import InferenceServerException
from web import Http, get, infer, post

from lumen_uring import Client

INDEX, LOAD, UNLOAD = (
    "/v2/repository/index",
    "/v2/repository/models/%s/load",
    "/v2/repository/models/%s/unload",
)
ROOT, ADA = b"root-token", b"ada-token"
X = np.arange(16, dtype=np.float32)[None]

# Tests marked `once` are of what a call does to models, which is the same on both backends.


def bearer(token: bytes) -> str:
    return f"Authorization: Bearer {token.decode()}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models double, which is loaded at start, and bad, which is no model."""
    for name in ("double", "bad"):
        (tmp_path / f"models/{name}/1").mkdir(parents=True)
    graphs.double(tmp_path / "models/double/1/model.onnx")
    (tmp_path / "models/bad/1/model.onnx").write_bytes(b"no model at all")
    return tmp_path / "models"


def settings(folder: Path, **server: object) -> dict[str, object]:
    repository = {"paths": [str(folder)], "control": "explicit", "load": ["double"]}
    return {"server": server, "repository": repository}


def ask(server: Server, target: str, body: bytes = b"", *headers: str) -> web.Answer:
    with Http(server.port) as http:
        return http.query(post(target, body, *headers))


def check_settings(client: http_client.InferenceServerClient, server: Server) -> None:
    """Triton's calls about logging and tracing, as its client makes them."""
    assert client.get_log_settings()["log_verbose_level"] == 0
    quiet = {"log_info": False, "log_warning": False}
    assert client.update_log_settings(quiet)["log_warning"] is False
    client.load_model("double")
    assert "version 1 is loaded" not in server.errors
    loud = {"log_verbose_level": 3, "log_info": True, "log_warning": True}
    assert client.update_log_settings(loud)["log_verbose_level"] == 3
    client.load_model("double")
    eventually(lambda: "model double: version 1 is loaded" in server.errors, "the line of the log")
    assert client.get_trace_settings("double")["trace_level"] == ["OFF"]
    with pytest.raises(InferenceServerException, match=r"engine\.telemetry_csv_path"):
        client.update_trace_settings(None, {"trace_level": ["TIMESTAMPS"]})
    with pytest.raises(InferenceServerException, match="none is not found"):
        client.get_trace_settings("none")


@pytest.mark.once
def test_ensembles_come_by_calls(serve: Serve, folder: Path) -> None:
    """Of a folder and of the settings, with the steps that are not served; they go, come again, and
    stay when the settings are read anew."""
    steps = [
        'step { model_name: "double" model_version: -1 input_map { key: "x" value: "x" } '
        'output_map { key: "y" value: "between" } }',
        'step { model_name: "triple" model_version: -1 input_map { key: "x" value: "between" } '
        'output_map { key: "y" value: "y" } }',
    ]
    tensors = 'name: "{}" data_type: TYPE_FP32 dims: [ 16 ]'
    (folder / "six/1").mkdir(parents=True)
    (folder / "six/config.pbtxt").write_text(
        f"max_batch_size: 8 input {{ {tensors.format('x')} }} output {{ {tensors.format('y')} }} "
        f"ensemble_scheduling {{ {' '.join(steps)} }}"
    )
    times(folder / "triple/1/model.onnx", 3)
    asked = settings(folder)
    wire = {"inputs": {"x": "x"}, "outputs": {"y": "between"}}
    last = {"inputs": {"x": "between"}, "outputs": {"y": "y"}}
    asked["ensembles"] = [
        {"name": "four", "steps": [{"model": "double", **wire}, {"model": "double", **last}]}
    ]
    server = serve(asked)
    client = http_client.InferenceServerClient(f"127.0.0.1:{server.port}")

    def factor(name: str) -> float:
        given = http_client.InferInput("x", [1, 16], "FP32")
        given.set_data_from_numpy(np.ones((1, 16), np.float32))
        return float(client.infer(name, [given]).as_numpy("y")[0, 1])

    assert factor("four") == 4
    client.load_model("six")
    assert (factor("six"), factor("triple")) == (6, 3)
    with pytest.raises(InferenceServerException, match="is run by 'six', a virtual model"):
        client.unload_model("triple")
    for name in ("four", "six"):
        client.unload_model(name)
        with pytest.raises(InferenceServerException, match="is not found"):
            factor(name)
        client.load_model(name)
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: "Reloaded" in server.errors, "the reload", found=lambda: server.errors)
    assert (factor("four"), factor("six")) == (4, 6)
    client.unload_model("six", unload_dependents=True)
    ready = {
        one["name"] for one in client.get_model_repository_index() if one.get("state") == "READY"
    }
    assert ready == {"double", "four"}
    (folder / "six/config.pbtxt").write_text("ensemble_scheduling { step [ ] }")
    with pytest.raises(InferenceServerException, match="expected at least one step"):
        client.load_model("six")
    client.close()


@pytest.mark.once
def test_an_ensemble_and_its_steps_are_unloaded(serve: Serve, folder: Path) -> None:
    """unload_dependents: those of its steps that nobody else runs."""
    asked = settings(folder)
    path = str(folder / "double/1/model.onnx")
    asked["models"] = [{"name": name, "path": path} for name in ("first", "second")]
    wire = {"inputs": {"x": "x"}, "outputs": {"y": "between"}}
    last = {"inputs": {"x": "between"}, "outputs": {"y": "y"}}
    asked["ensembles"] = [
        {"name": "whole", "steps": [{"model": "first", **wire}, {"model": "second", **last}]},
        {"name": "other", "steps": [{"model": "second", **wire}, {"model": "double", **last}]},
    ]
    server = serve(asked)
    client = http_client.InferenceServerClient(f"127.0.0.1:{server.port}")
    extensions = client.get_server_metadata()["extensions"]
    assert {"model_repository", "model_repository(unload_dependents)"} <= set(extensions)
    client.unload_model("whole", unload_dependents=True)
    ready = {
        one["name"] for one in client.get_model_repository_index() if one.get("state") == "READY"
    }
    assert ready == {"second", "double", "other"}
    client.unload_model("other")
    ready = {
        one["name"] for one in client.get_model_repository_index() if one.get("state") == "READY"
    }
    assert ready == {"second", "double"}
    client.close()


@pytest.mark.once
@pytest.mark.parametrize("queue", ["auto", "mpmc", "inline"])
def test_a_start_without_models(serve: Serve, folder: Path, queue: str) -> None:
    """As Triton starts where no model to load is named."""
    (folder / "large/1").mkdir(parents=True)
    graphs.double(folder / "large/1/model.onnx", 200_000, rows=1)
    repository = {"paths": [str(folder)], "control": "explicit"}
    memory = {"arena_bytes": "256MiB", "max_request_bytes": "8MiB"}  # the defaults
    server = serve({"server": memory, "repository": repository, "engine": {"queue_type": queue}})
    client = http_client.InferenceServerClient(f"127.0.0.1:{server.port}")
    assert client.is_server_ready()
    assert {one.get("state") for one in client.get_model_repository_index()} == {None}
    assert not client.is_model_ready("double")
    with Http(server.port) as http:
        assert http.query(infer("double", {"x": X})).code == 404
        assert http.query(get("/v2/models/stats")).json() == {"model_stats": []}
        assert http.query(get("/")).code == 200
        for name, columns in (("double", 16), ("large", 200_000), ("double", 16)):
            client.load_model(name)
            x = np.arange(columns, dtype=np.float32)[None]
            for binary in (True, False):
                answer = http.query(infer(name, {"x": x}, binary=binary, binary_outputs=True))
                np.testing.assert_array_equal(answer.array("y"), x + x)
            client.unload_model(name)
            assert http.query(infer(name, {"x": x})).code == 404
        client.load_model("double")
        both = np.concatenate([X, X])
        np.testing.assert_array_equal(
            http.query(infer("double", {"x": both})).array("y"), both + both
        )
    with Client("127.0.0.1", server.port) as native:
        np.testing.assert_array_equal(native.infer("double", {"x": X}).outputs["y"], X + X)
    client.close()
    server.check_idle()


@pytest.mark.once
def test_the_index_says_what_was_tried(serve: Serve, folder: Path) -> None:
    server = serve(settings(folder))
    client = http_client.InferenceServerClient(f"127.0.0.1:{server.port}")
    assert client.get_model_repository_index() == [
        {"name": "double", "version": "1", "state": "READY", "reason": ""},
        {"name": "bad"},
    ]
    assert ask(server, "/v2/repository/models/none/load").code == 400
    check_settings(client, server)
    assert client.is_server_ready()
    answer = ask(server, LOAD % "bad")
    assert (answer.code, "failed to load 'bad'" in answer.error) == (400, True)
    index = {one["name"]: one for one in client.get_model_repository_index()}
    assert index["bad"]["state"] == "UNAVAILABLE"
    assert "model.onnx" in index["bad"]["reason"]
    assert client.is_server_ready()  # its caller was told
    assert client.is_model_ready("double")
    assert ask(server, INDEX, b'{"ready": true}').json() == [index["double"]]
    client.unload_model("bad")  # forgets it
    assert client.get_model_repository_index()[-1] == {"name": "bad"}
    client.close()


def test_who_may_call(serve: Serve, folder: Path) -> None:
    """Row 45."""
    keys = [
        {"name": "root", "sha256": hashlib.sha256(ROOT).hexdigest(), "admin": True},
        {"name": "ada", "sha256": hashlib.sha256(ADA).hexdigest()},
    ]
    server = serve(settings(folder, keys=keys))
    for target in (LOAD % "none", UNLOAD % "none"):
        assert ask(server, target).code == 401
        assert ask(server, target, b"", bearer(ADA)).code == 403
        assert ask(server, target, b"", bearer(ROOT)).code in (400, 404)
    assert [one["name"] for one in ask(server, INDEX, b"", bearer(ADA)).json()] == ["double"]
    assert len(ask(server, INDEX, b"", bearer(ROOT)).json()) == 2


# ---- files that a call brings ----


def uploading(folder: Path, **rest: object) -> dict[str, object]:
    document = settings(folder)
    document["repository"]["upload_bytes"] = "4MiB"  # type: ignore[index]
    document["server"]["max_request_bytes"] = "64KiB"  # type: ignore[index]
    return {**document, **rest}


def bringing(files: dict[str, bytes], config: dict[str, object] | None = None) -> bytes:
    parameters = {
        f"file:{name}": base64.b64encode(content).decode() for name, content in files.items()
    }
    if config is not None:
        parameters["config"] = json.dumps(config)
    return json.dumps({"parameters": parameters}).encode()


def scaling(path: Path, factor: int, ballast: int = 0) -> bytes:
    """y = factor x + what a table of so many numbers has first, which is 0."""
    nodes = [
        helper.make_node("Mul", ["x", "f"], ["scaled"]),
        helper.make_node("Gather", ["table", "first"], ["zero"]),
        helper.make_node("Add", ["scaled", "zero"], ["y"]),
    ]
    table = np.random.default_rng(1).normal(size=1 + ballast).astype(np.float32)
    table[0] = 0
    constants = {"f": np.array(factor, "<f4"), "table": table, "first": np.array(0)}
    inputs, outputs = ([graphs.tensor(name, graphs.FLOAT, ["n", 2])] for name in "xy")
    graphs.save(path, nodes, inputs, outputs, constants)
    return path.read_bytes()


def scaled_by(http: Http, name: str) -> float:
    answer = http.query(infer(name, {"x": np.array([[1, 1]], "<f4")}))
    return float(answer.outputs["y"].data[0])


@pytest.mark.parametrize("ballast", [0, 200_000])
def test_a_call_brings_its_model(serve: Serve, folder: Path, tmp_path: Path, ballast: int) -> None:
    """tritonclient's load_model with files: in memory of its own where it is long."""
    place = tmp_path / "temporary"
    place.mkdir()
    server = serve(uploading(folder), extra_environment={"TMPDIR": str(place)})
    with (
        Http(server.port) as http,
        http_client.InferenceServerClient(f"127.0.0.1:{server.port}") as client,
    ):
        for factor in (2, 3):
            content = scaling(tmp_path / "m.onnx", factor, ballast)
            client.load_model("sent", config="{}", files={"file:1/model.onnx": content})
            assert client.is_model_ready("sent")
            assert scaled_by(http, "sent") == factor
            assert len(list(place.glob("lumen-models-*/*"))) == 1  # the one before has gone
        versions = {"1/model.onnx": content, "7/model.onnx": scaling(tmp_path / "m.onnx", 5)}
        config = {"version_policy": {"all": {}}}
        assert http.query(post(LOAD % "sent", bringing(versions, config))).code == 200
        assert scaled_by(http, "sent") == 5  # the highest
        config = {"version_policy": {"all": {}}}
        for _ in range(2):  # one of two: it is served, and what it takes the place of goes
            half = {"1/model.onnx": content, "2/model.onnx": b"no model"}
            assert http.query(post(LOAD % "sent", bringing(half, config))).code == 400
            assert len(list(place.glob("lumen-models-*/*"))) == 2
        reasons = [one.get("reason", "") for one in client.get_model_repository_index()]
        assert any("the call's files/2" in reason for reason in reasons)
        assert not any(str(place) in reason for reason in reasons)
        client.unload_model("sent")
        assert list(place.glob("lumen-models-*/*")) == []
        assert http.query(post(LOAD % "sent")).code == 400  # no folder holds it
        assert client.is_model_ready("double")  # the others are as before
    server.stop()
    assert list(place.iterdir()) == []


def test_what_a_call_may_bring(serve: Serve, folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    server = serve(uploading(folder), extra_environment={"TMPDIR": str(place)})
    good = scaling(tmp_path / "m.onnx", 2)
    with Http(server.port) as http:
        for files, config, says in (
            ({"1/model.onnx": good}, None, "expected config beside files"),
            ({"../model.onnx": good}, {}, "expected file:VERSION/NAME"),
            ({"1/../../x": good}, {}, "expected file:VERSION/NAME"),
            ({"/etc/passwd": good}, {}, "expected file:VERSION/NAME"),
            ({"1/.hidden": good}, {}, "expected file:VERSION/NAME"),
            ({"01/model.onnx": good}, {}, "expected file:VERSION/NAME"),
            ({"1/model.onnx": b"no model"}, {}, "failed to load 'sent'"),
            ({"1": b"", "1/model.onnx": good}, {}, "a file and a folder of one name"),
            ({"1/model.onnx": b"j\x0e\n\x08location\x12\x02/x"}, {}, "found another place"),
            ({"1/other.onnx": good, "1/second.onnx": good}, {}, "the call's files/1"),
            ({"1/model.onnx": good}, {"name": "else"}, "config name: expected 'sent'"),
            ({"1/model.onnx": good}, {"backend": "python"}, "Lumen serves ONNX alone"),
            ({"1/model.onnx": good}, {"input": [{"name": "z", "dims": [1]}]}, "failed to load"),
        ):
            answer = http.query(post(LOAD % "sent", bringing(files, config)))
            assert answer.code == 400, (files, answer)
            assert says in answer.error
            assert str(place) not in answer.error
        answer = http.query(post(LOAD % "sent:3", bringing({"3/model.onnx": good}, {})))
        assert "expected none with ':'" in answer.error
        broken = b'{"parameters":{"config":"{}","file:1/model.onnx":"no base64!"}}'
        assert "expected base64" in http.query(post(LOAD % "sent", broken)).error
        assert list(place.glob("lumen-models-*/*")) == []
        assert http.query(post(UNLOAD % "sent", b" " * 9000)).code == 400
        with Http(server.port) as longer:
            longer.send(post(LOAD % "sent", b"", length=(4 << 20) + 1))
            assert longer.answer("POST").code == 413
        # One that leaves in the middle of it, and another one afterwards.
        body = bringing({"1/model.onnx": scaling(tmp_path / "m.onnx", 4, 200_000)}, {})
        with Http(server.port) as leaving:
            leaving.send(post(LOAD % "sent", body)[: len(body) // 2])
        eventually(
            lambda: http.query(post(LOAD % "sent", body)).code == 200, "memory for another one"
        )
        assert scaled_by(http, "sent") == 4


def test_heads_in_pieces_do_not_end_a_call_with_files(
    serve: Serve, folder: Path, tmp_path: Path
) -> None:
    """They have 1024 places for each I/O thread, and the oldest one gives way."""
    server = serve(uploading(folder, engine={"queue_type": "mpmc"}))
    body = bringing({"1/model.onnx": scaling(tmp_path / "m.onnx", 4, 200_000)}, {})
    call = post(LOAD % "sent", body)
    with ExitStack() as stack:
        http = stack.enter_context(Http(server.port))
        http.send(call[:-1])
        for _ in range(1100):
            other = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            other.sendall(b"GET / HTTP/1.1\r\nX: ")
        eventually(lambda: server.figures().io["connections_evicted"] > 0, "one to give way")
        http.send(call[-1:])
        assert http.answer("POST").code == 200
        assert scaled_by(http, "sent") == 4


def test_what_a_call_may_look_like(serve: Serve, folder: Path) -> None:
    """Row 45."""
    server = serve(settings(folder))
    upload = b'{"parameters":{"config":"{}","file:1/model.onnx":"AAAA"}}'
    with Http(server.port) as http:
        for target, body, says in (
            (LOAD % "double", b" " * 8193, "at most 8192 bytes"),
            (LOAD % "none", b"{}" + b" " * 8190, "no repository holds a model 'none'"),
            (LOAD % "double", upload, "a call brings no files"),
            (LOAD % "..%2Fdouble", b"", "path: expected an absolute path"),
            (LOAD % "..", b"", "no repository holds a model '..'"),
            (LOAD % "double", b"\0", "expected JSON"),
            (UNLOAD % "none", b"{}", "it is not loaded"),
            (INDEX, b'{"ready": "yes"}', "expected true or false"),
        ):
            answer = http.query(post(target, body))
            assert answer.code in (400, 404), (target, answer)
            assert says in answer.error
        data = post(LOAD % "none", b"{}")
        for at in range(1, len(data), 7):  # in pieces
            http.send(data[:at])
            http.send(data[at:])
            assert http.answer("POST").code == 400
        chunked = "Transfer-Encoding: chunked"
        http.send(post(LOAD % "double", b"2\r\n{}\r\n0\r\n\r\n", chunked, length=None))
        assert http.answer("POST").code == 400


@pytest.mark.once
def test_a_model_of_larger_tensors(serve: Serve, folder: Path) -> None:
    """It brings its slots along, for tensors and for JSON; where they do not fit, it says so."""
    columns = 2_000_000
    graphs.double(folder / "double/1/model.onnx", rows=1)
    for name, wide in (("wide", columns), ("widest", 20 * columns)):
        (folder / name / "1").mkdir(parents=True)
        graphs.large(folder / name / "1/model.onnx", wide)
    server = serve(settings(folder, arena_bytes=256 << 20, max_request_bytes=1 << 20))
    body = b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[7]}],'
    binary = b'"parameters":{"binary_data_output":true}}'
    with Http(server.port) as http, Client(port=server.port) as client:
        target = "/v2/models/wide/infer"
        assert http.query(post(target)).code == 404
        for _ in range(2):
            assert http.query(post(LOAD % "wide")).code == 200
            answer = http.query(post(target, body + binary))
            assert answer.code == 200
            assert len(answer.body) > 4 * columns
            found = client.infer("wide", {"x": [3]}).outputs["y"]
            np.testing.assert_array_equal(found, np.full((1, columns), 3, np.float32))
            answer = http.query(post(LOAD % "widest"))
            assert answer.code == 400
            assert "server.arena_bytes" in answer.error
            assert http.query(post(UNLOAD % "wide")).code == 200
    server.check_idle()


def test_hundreds_of_calls_at_once(serve: Serve, folder: Path) -> None:
    """Row 45: each is answered; those beyond the table at once. Inference and the index go on."""
    server = serve(settings(folder))
    codes: Counter[int] = Counter()

    def call() -> None:
        with Http(server.port) as http:
            http.socket.settimeout(START_S)
            for _ in range(20):
                code = http.query(post(LOAD % "bad")).code
                codes[code] += 1
                if code == 400:
                    return

    threads = [threading.Thread(target=call) for _ in range(50)]
    for thread in threads:
        thread.start()
    with Http(server.port) as http:
        for _ in range(200):
            answer = http.query(web.infer("double", {"x": X}))
            np.testing.assert_array_equal(answer.array("y"), X + X)
    for thread in threads:
        thread.join()
    assert set(codes) == {400, 503}
    assert codes[400] >= 8
    server.check_idle()


def test_clients_that_leave(serve: Serve, folder: Path) -> None:
    """Row 45."""
    server = serve(settings(folder))
    for number in range(1, 12):
        with Http(server.port) as http:
            http.send(post(LOAD % "bad"))
            # Not before: a call that was never read is nobody's.
            eventually(
                lambda n=number: server.figures().io["http_requests"] >= n, "the call to be there"
            )
            http.reset()
    # It waits for none of them; where all places are taken, for the first of these to be free.
    unload = "/v2/repository/models/double/unload"
    eventually(lambda: ask(server, unload).code == 200, "an unload is taken", 120)
    eventually(lambda: ask(server, LOAD % "bad").code == 400, "a call is taken again", 120)
    eventually(lambda: server.figures().io["requests_gone"] > 0, "a client that has left")
    server.check_idle()


def test_the_end_during_a_load(serve: Serve, folder: Path) -> None:
    """Row 45."""
    server = serve(settings(folder, drain_seconds=20))
    with Http(server.port) as http:
        http.send(post(LOAD % "bad"))
        eventually(lambda: server.figures().io["http_requests"] == 1, "the call is there")
        server.terminate()
        assert http.answer("POST").code in (400, 503)
    server.expect_clean_end()
