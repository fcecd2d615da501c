"""The response cache: the second answer to a request is the first one, in every dialect and form,
and no worker has seen it; what must not be mixed is not; memory is bounded; limits hold.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import test_e2e_experts as experts
import test_e2e_pictures as pictures
import test_e2e_rows as rows
import test_e2e_strings as strings
import web
import wire
from conftest import Serve
from harness import Server, eventually
from onnx import helper
from operating import key
from web import Http

from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # what looks answers up is the same on both backends

RANDOM = np.random.default_rng(11)
LABELS = [f"class {at}" for at in range(16)]


@pytest.fixture(scope="module")
def server(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each model twice: NAME with a cache, and plain.NAME without."""
    folder = tmp_path_factory.mktemp("cached")
    labels = folder / "labels.txt"
    labels.write_text("\n".join(LABELS))
    picture = str(pictures.same(folder / "picture.onnx"))
    table = strings.table(folder / "table.onnx")
    entries: list[dict[str, Any]] = [
        {"name": "double", "path": str(graphs.double(folder / "double.onnx")), "max_rows": 64},
        {"name": "several", "path": str(graphs.several(folder / "several.onnx")), "max_rows": 64},
        {"name": "nonzero", "path": str(graphs.nonzero(folder / "nonzero.onnx", 6))},
        {"name": "dtypes", "path": str(graphs.dtypes(folder / "dtypes.onnx")), "max_rows": 8},
        {"name": "table", "path": str(table)},
        {"name": "pipeline", "path": str(rows.pipeline(folder / "pipeline.onnx"))},
        {"name": "picture", "path": picture, "image": pictures.CROP},
        {"name": "named", "path": str(graphs.double(folder / "named.onnx")), "labels": str(labels)},
        *experts.pair(folder, ["n", 16]),
    ]
    models = [{**entry, "response_cache": True} for entry in entries]
    models += [{**entry, "name": f"plain.{entry['name']}"} for entry in entries]
    server = {"response_cache_bytes": "4MiB", "io_threads": 1, "max_request_bytes": "1MiB"}
    settings = {
        "server": server,
        "engine": {"thread_count": 2},
        "models": models,
        "experts": [{**experts.rule("variance", 2.0)[0], "response_cache": True}],
    }
    with Server(settings, cache) as started:
        yield started


def counted(server: Server) -> tuple[int, int]:
    io = server.figures().io
    return io["cache_hits"], io["cache_misses"]


def counts(server: Server, hits: int, misses: int) -> None:
    """A reply is sent before it is counted."""
    eventually(
        lambda: counted(server) == (hits, misses),
        f"{hits} hits, {misses} misses",
        found=lambda: counted(server),
    )


def settle(server: Server) -> None:
    """Every answer that a worker gave is kept: that happens after its reply."""

    def kept() -> bool:
        snapshot = read(server.stats_path)
        entries = snapshot.gauges["io"]["cache_entries"]
        return entries == snapshot.counters["io"]["cache_misses"]

    eventually(kept, "an entry for each miss")


def before(server: Server) -> tuple[int, int]:
    """What is counted once every earlier request is."""

    def all_settled() -> bool:
        figures = server.figures()
        return figures.settled == figures.requests

    eventually(all_settled, "the end of every request", found=server.figures)
    return counted(server)


def twice(server: Server, ask: Callable[[], Any]) -> Any:
    """The answer, which the second time comes from the cache."""
    hits, misses = before(server)
    first = ask()
    settle(server)
    counts(server, hits, misses + 1)
    second = ask()
    counts(server, hits + 1, misses + 1)
    assert first == second
    return first


def over_http(server: Server, data: bytes) -> Callable[[], Any]:
    def ask() -> Any:
        with Http(server.port) as http:
            answer = http.query(data)
        assert answer.code == 200, answer
        return answer.body, {**answer.headers, "date": ""}

    return ask


def x(count: int = 3, columns: int = 16) -> np.ndarray:
    return RANDOM.standard_normal((count, columns)).astype("<f4")


HOW: dict[str, dict[str, Any]] = {
    "binary": {},
    "json": {"binary": False},
    "nested": {"binary": False, "nested": True, "id": "a"},
    "chunked": {"chunk_bytes": 70},
    "mixed": {"binary": True, "binary_outputs": False, "id": "an \u00e9"},
    "long": {"binary": False, "pad_bytes": 20000},
}


@pytest.mark.parametrize("how", [*HOW, "gzip", "deflate", "raw", "nonzero", "several"])
def test_the_second_answer_is_the_first(server: Server, how: str) -> None:
    a = x()
    data = web.infer("double", {"x": a}, **HOW.get(how, {}))
    if how == "raw":
        data = web.raw("double", a[:1].tobytes())
    if how in ("gzip", "deflate"):
        data = web.compressed(web.infer("double", {"x": a}, binary=False), how)
    if how == "nonzero":
        data = web.infer("nonzero", {"x": np.sign(x(1, 6))})
    if how == "several":
        inputs = {"a": x(2, 2), "b": x(2, 3)}
        found = json.loads(over_http(server, web.get("/v2/models/several"))()[0])
        inputs = {
            one["name"]: RANDOM.integers(
                0, 9, [2 if size < 0 else size for size in one["shape"]]
            ).astype(web.NUMPY[one["datatype"]])
            for one in found["inputs"]
        }
        data = web.infer("several", inputs)
    twice(server, over_http(server, data))
    plain = data.replace(b"/v2/models/", b"/v2/models/plain.", 1)
    hits = before(server)
    body, _ = over_http(server, data)()
    other, _ = over_http(server, plain)()
    assert other.replace(b"plain.", b"", 1) == body
    counts(server, hits[0] + 1, hits[1])


def test_native_requests_and_http_share_answers(server: Server) -> None:
    a = x()
    frame = wire.frame(a.tobytes(), model=server.models["double"], rows=3, id=7)

    def ask() -> Any:
        with server.connect() as client:
            reply = client.ask(frame)
        return reply.status, reply.flags, reply.id, reply.rows, reply.payload, reply.expert

    assert twice(server, ask)[4] == (2 * a).tobytes()
    hits, misses = before(server)
    with Http(server.port) as http:
        for form in ({}, {"binary_outputs": False}, {"id": "b"}):
            answer = http.query(web.infer("double", {"x": a}, **form))
            assert np.array_equal(answer.outputs["y"].array, 2 * a)
            assert (b'"id":"b"' in answer.body) == ("id" in form)
    counts(server, hits + 3, misses)


def test_what_is_asked_of_the_same_tensors_is_not_mixed(server: Server) -> None:
    """Row by row: outputs, their form, classes; the tensors' answer is one entry."""
    a = x(2)
    forms: list[dict[str, Any]] = [
        {},
        {"outputs": [{"name": "y", "parameters": {"classification": 3}}]},
        {"outputs": [{"name": "y", "parameters": {"classification": 1, "binary_data": True}}]},
        {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]},
        {"binary_outputs": False},
    ]
    hits, misses = before(server)
    with Http(server.port) as http:
        for form in [*forms, *reversed(forms)]:
            plain = http.query(web.infer("plain.named", {"x": a}, **form))
            cached = http.query(web.infer("named", {"x": a}, **form))
            assert cached.body == plain.body.replace(b"plain.", b"", 1)
            settle(server)
    counts(server, hits + 2 * len(forms) - 1, misses + 1)
    other = a.copy()
    other[1, 3] += 1
    for changed in (other, a[:1], np.concatenate([a, a])):  # a value, the sizes
        answer, _ = over_http(server, web.infer("named", {"x": changed}))()
        assert (2 * changed).tobytes() in answer
    counts(server, hits + 2 * len(forms) - 1, misses + 4)
    # A form that cannot be: FP16 has no words in JSON. The next one is answered all the same.
    inputs = {
        f"in_{name}": web.Tensor(name, (1, 3), np.ones(3, web.NUMPY[name])) for name in web.NUMPY
    }
    good = web.infer("dtypes", inputs)
    with Http(server.port) as http:
        assert http.query(good).code == 200
        settle(server)
        assert http.query(web.infer("dtypes", inputs, binary_outputs=False)).code == 400
        assert http.query(good).code == 200


def test_strings_and_rows_with_names(server: Server) -> None:
    arrays = strings.columns(RANDOM, 3)
    inputs = {
        name: web.strings(list(array.reshape(-1)), array.shape)
        if array.dtype.kind in "OUS"
        else array
        for name, array in arrays.items()
    }
    twice(server, over_http(server, web.infer("table", inputs)))
    twice(server, over_http(server, web.infer("table", inputs, binary=False)))
    row = {"age": 1.5, "fare": 7.25, "siblings": 1, "is_child": True}
    instances = json.dumps({"instances": [row, row]}).encode()
    records = json.dumps({"dataframe_records": [row]}).encode()
    for target, body in (
        ("/v1/models/pipeline:predict", instances),
        ("/invocations?model=pipeline", records),
    ):
        answer, _ = twice(server, over_http(server, web.post(target, body)))
        assert b"predictions" in answer


def test_pictures_by_their_files(server: Server) -> None:
    file = pictures.FILES["jpeg"]
    whole = web.post(web.path("picture"), file)
    first, _ = twice(server, over_http(server, whole))
    hits, misses = before(server)
    for boundary in ("----x", "----another"):  # what is around the file is no part of it
        body = pictures.form(file, boundary)
        data = web.post(
            web.path("picture"), body, f"Content-Type: multipart/form-data; boundary={boundary}"
        )
        assert over_http(server, data)()[0] == first
    counts(server, hits + 2, misses)
    frame = wire.frame(
        struct.pack("<I", len(file)) + file, model=server.models["picture"], encoding=2, rows=1
    )

    def ask() -> Any:
        with server.connect() as client:
            reply = client.ask(frame)
        return reply.status, reply.payload

    assert twice(server, ask)[0] == wire.OK


def test_a_compressed_picture_is_answered_with_its_classes_again(server: Server) -> None:
    """What a compressed body holds, its worker finds: the cache remembers it."""
    target = web.path("picture") + "?top=2"
    data = web.post(target, gzip.compress(pictures.FILES["png"]), "Content-Encoding: gzip")
    answer, _ = twice(server, over_http(server, data))
    assert len(json.loads(answer)) == 2


def test_the_expert_that_answered_is_named_again(server: Server) -> None:
    for spread, name in ((0.1, "light"), (9.0, "dense")):
        data = web.infer("both", {"x": (x(1) * spread).astype("<f4")})
        _, headers = twice(server, over_http(server, data))
        assert headers["lumen-expert"] == name


def test_figures_say_what_was_cached(server: Server) -> None:
    data = web.infer("light", {"x": x(2)})
    twice(server, over_http(server, data))
    with Http(server.port) as http:
        (stats,) = http.query(web.get("/v2/models/light/stats")).json()["model_stats"]
        config = http.query(web.get("/v2/models/light/config")).json()
        plain = http.query(web.get("/v2/models/plain.light/config")).json()
    of = stats["inference_stats"]
    assert (of["cache_hit"]["count"], of["cache_miss"]["count"]) == (1, 1)
    assert of["cache_hit"]["ns"] > 0
    assert of["cache_miss"]["ns"] > 0
    assert (of["success"]["count"], of["compute_infer"]["count"]) == (2, 1)
    (batch,) = stats["batch_stats"]
    assert (batch["batch_size"], batch["compute_infer"]["count"]) == (2, 1)
    assert batch["compute_infer"]["ns"] == of["compute_infer"]["ns"]
    assert (stats["inference_count"], stats["execution_count"]) == (2, 1)  # what was computed
    assert config["response_cache"] == {"enable": True}
    assert plain["response_cache"] == {"enable": False}


def test_memory_is_bounded(serve: Serve, tmp_path: Path) -> None:
    """Random keys fill the cache many times: the oldest leave, and every answer is right."""
    entry = {"name": "double", "path": str(graphs.double(tmp_path / "d.onnx")), "max_rows": 256}
    server = serve(
        {
            "server": {"response_cache_bytes": "64KiB", "io_threads": 1},
            "models": [{**entry, "response_cache": True}],
        }
    )
    with server.connect() as client:
        for at in range(600):
            count = int(RANDOM.integers(1, 257 if at % 10 == 0 else 9))
            a = np.full((count, 16), RANDOM.integers(0, 40), "<f4")
            reply = client.ask(wire.frame(a.tobytes(), rows=count))
            assert reply.payload == (2 * a).tobytes()
    server.wait_until_idle()
    snapshot = read(server.stats_path)
    io, gauges = snapshot.counters["io"], snapshot.gauges["io"]
    assert io["cache_hits"] > 0
    assert io["cache_evictions"] > 0
    assert 0 < gauges["cache_entries"] <= gauges["cache_bytes"] / 256
    assert gauges["cache_bytes"] <= 64 << 10


def test_limits_hold_for_cached_answers(serve: Serve, tmp_path: Path) -> None:
    entry = {"name": "double", "path": str(graphs.double(tmp_path / "d.onnx"))}
    server = serve(
        {
            "server": {"keys": [key("one"), key("two", models=["other"])]},
            "models": [
                {**entry, "response_cache": True, "rate": 0.001, "burst": 3},
                {**entry, "name": "other"},
            ],
        }
    )
    data = web.infer("double", {"x": x(1)})

    def ask(token: str) -> int:
        allowed = data.replace(
            b"\r\n\r\n", f"\r\nAuthorization: Bearer {token}\r\n\r\n".encode(), 1
        )
        with Http(server.port) as http:
            return http.query(allowed).code

    assert [ask("one"), ask("one"), ask("two"), ask("none"), ask("one"), ask("one")] == [
        200, 200, 403, 401, 200, 429,
    ]  # fmt: skip
    assert server.figures().io["cache_hits"] >= 1


def test_a_model_that_replaced_another_answers_itself(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "net"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text("response_cache { enable: true }")
    data = web.infer("net", {"x": (a := x(2))})
    repository = {"paths": [str(folder.parent)], "control": "explicit", "load": ["net"]}
    experts.scaled(folder / "1" / "model.onnx", 3, ["n", 16])
    server = serve({"repository": repository})
    for factor in (3, -5, 3):  # the last one is the first one's file again
        experts.scaled(folder / "1" / "model.onnx", factor, ["n", 16])
        with Http(server.port) as http:
            assert http.query(web.post("/v2/repository/models/net/load")).code == 200
            for _ in range(3):
                assert np.array_equal(http.query(data).outputs["y"].array, np.float32(factor) * a)
    assert counted(server)[0] > 0


def test_without_memory_nothing_is_cached(serve: Serve, tmp_path: Path) -> None:
    entry = {"name": "double", "path": str(graphs.double(tmp_path / "d.onnx"))}
    server = serve(
        {
            "server": {"response_cache_bytes": 0},
            "models": [{**entry, "response_cache": True}],
        }
    )
    data = web.infer("double", {"x": x(1)})
    assert over_http(server, data)() == over_http(server, data)()
    counts(server, 0, 0)


def test_outputs_of_unknown_shapes_in_a_batch(serve: Serve, tmp_path: Path) -> None:
    """They have no place of their own in the slot, and are kept where the worker put them. The
    model leaves out the columns without a number above a half."""
    path = graphs.save(
        tmp_path / "same.onnx",
        [
            helper.make_node("ReduceMax", ["x"], ["most"], axes=[0], keepdims=0),
            helper.make_node("Greater", ["most", "half"], ["large"]),
            helper.make_node("Compress", ["x", "large"], ["y"], axis=1),
        ],
        [graphs.tensor("x", graphs.FLOAT, ["n", 4])],
        [graphs.tensor("y", graphs.FLOAT, ["n", "k"])],
        {"half": np.float32(0.5)},
    )
    entry = {"name": "same", "path": str(path), "response_cache": True, "batch_delay_us": 20_000}
    server = serve(
        {
            "server": {"response_cache_bytes": "4MiB", "io_threads": 1},
            "engine": {"thread_count": 1, "batch_size": 8, "queue_type": "mpmc"},
            "models": [entry],
        }
    )
    rows = 1 + RANDOM.random((4, 1, 4), np.float32)
    links = [Http(server.port) for _ in rows]
    for _ in range(2):
        for link, row in zip(links, rows, strict=True):
            link.send(web.infer("same", {"x": row}))
        for link, row in zip(links, rows, strict=True):
            np.testing.assert_array_equal(link.answer().outputs["y"].array, row)
    for link in links:
        link.close()
    assert server.figures().worker["batches"] > 0
    assert server.figures().io["cache_hits"] == len(rows)
