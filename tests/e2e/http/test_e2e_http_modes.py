"""HTTP on servers of their own: real models, classes, every kind of engine, the end of a server."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import needs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from harness import ROOT, Canary, Server, eventually
from PIL import Image
from web import Http, get

pytestmark = pytest.mark.once  # what runs models is the same on both backends

DIGITS = ROOT / "tests" / "data" / "digits"
LABELS = ["zero", "", 'the "one"', "zwei \\ drei", "日本", *(f"class {n}" for n in range(5, 16))]
LABELS[14] = ""


TRAINED = needs.SHARED / "models" / "squeezenet"


@pytest.fixture(scope="module")
def gallery(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Real models, and one whose classes have names that JSON must escape."""
    folder = tmp_path_factory.mktemp("gallery")
    (folder / "labels.txt").write_text("\n".join(LABELS), "utf-8")
    trained = TRAINED / "model.onnx"
    settings: dict[str, object] = {
        "server": {"arena_bytes": "192MiB"},
        "models": [
            {"name": "digits", "path": "builtin:digits"},
            {
                "name": "squeezenet",
                # The same architecture, so the same sizes; only what it sees there is nothing.
                "path": str(trained) if trained.exists() else "builtin:squeezenet",
                "channel_order": "bgr",
                "max_rows": 2,
            },
            {
                "name": "named",
                "path": str(graphs.double(folder / "named.onnx", 16)),
                "labels": str(folder / "labels.txt"),
                "max_rows": 32,
            },
            {"name": "tag", "path": str(graphs.tag(folder / "tag.onnx"))},
            {"name": "flags", "path": str(graphs.dtypes(folder / "flags.onnx")), "max_rows": 4},
        ],
    }
    with Server(settings, cache) as server:
        yield server


@pytest.fixture(autouse=True)
def _idle_again(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "gallery" in request.fixturenames:
        request.getfixturevalue("gallery").check_idle()


# ---- real models ----


def signature(server: Server, model: str) -> tuple[str, str]:
    """The names of a model's only input and its only output."""
    with Http(server.port) as http:
        found = http.query(get(f"/v2/models/{model}")).json()
    (given,), (taken,) = found["inputs"], found["outputs"]
    return given["name"], taken["name"]


def test_squeezenet_by_every_way_in(gallery: Server) -> None:
    """Pixels over HTTP give what pixels over the native protocol give, bit for bit."""
    pixels = np.random.default_rng(2).integers(0, 256, (224, 224, 3)).astype("u1")
    x = pixels[:, :, ::-1].transpose(2, 0, 1).astype("<f4")[None]
    given, taken = signature(gallery, "squeezenet")
    index = gallery.models["squeezenet"]
    with gallery.connect() as native, Http(gallery.port) as http:
        reply = native.ask(wire.frame(pixels.tobytes(), encoding=wire.RGB8, model=index))
        assert reply.status == wire.OK
        expected = reply.payload[-4000:]  # behind the shape block
        for data in (
            web.raw("squeezenet", pixels.tobytes()),
            web.raw("squeezenet", x.tobytes()),
            web.infer("squeezenet", {given: x}),
            web.infer("squeezenet", {given: x}, pad_bytes=20_000),
            web.infer("squeezenet", {given: x}, chunk_bytes=50_000),
            web.infer("squeezenet", {given: x}, binary=False),
            web.infer("squeezenet", {given: x}, binary=False, nested=True),
            web.infer("squeezenet", {given: x}, binary_outputs=False),
        ):
            for piece in (len(data), 30_011):
                for at in range(0, len(data), piece):
                    http.send(data[at : at + piece])
                with Canary(gallery, "named"):
                    answer = http.answer()
                assert answer.code == 200, answer
                assert answer.outputs[taken].data.tobytes() == expected


@pytest.mark.parametrize("name", ["fish", "kitten"])
def test_squeezenet_gives_the_stored_answers(gallery: Server, name: str) -> None:
    needs.shared_file("models/squeezenet/model.onnx")
    x = np.load(TRAINED / f"{name}_input.npy").astype("<f4")
    expected = np.load(TRAINED / f"{name}_output.npy")
    given, taken = signature(gallery, "squeezenet")
    with Http(gallery.port) as http:
        for binary in (True, False):
            found = http.query(web.infer("squeezenet", {given: x}, binary=binary)).array(taken)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_two_pictures_in_one_request(gallery: Server) -> None:
    x = np.random.default_rng(3).random((2, 3, 224, 224), np.float32)
    given, taken = signature(gallery, "squeezenet")
    with Http(gallery.port) as http:
        alone = [
            http.query(web.infer("squeezenet", {given: x[row : row + 1]})).array(taken)
            for row in range(2)
        ]
        for binary in (True, False):
            found = http.query(web.infer("squeezenet", {given: x}, binary=binary)).array(taken)
            np.testing.assert_allclose(found, np.concatenate(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("digit", range(10))
def test_digits_are_read(gallery: Server, digit: int) -> None:
    picture = Image.open(DIGITS / f"digit_{digit}.png").convert("L")
    x = np.asarray(picture.resize((8, 8), Image.Resampling.BOX), "<f4")
    with Http(gallery.port) as http:
        answer = http.query(web.raw("digits", x.tobytes()))
        assert int(answer.array("probabilities").argmax()) == digit
        answer = http.query(web.infer("digits", {"image": x[None, None]}, binary=False))
        assert int(answer.array("probabilities").argmax()) == digit


# ---- classification ----


def classes(
    model: str, x: np.ndarray, count: Any, *, binary: bool = True, output: str = "y"
) -> bytes:
    requested = {"name": output, "parameters": {"classification": count, "binary_data": binary}}
    return web.infer(model, {"x": x}, outputs=[requested], binary_outputs=False)


def expected_classes(y: np.ndarray, count: int, labels: list[str]) -> list[bytes]:
    """As Triton says them: "value:index", and ":label" where there is one; ties by index."""
    order = np.argsort(-y.astype("<f8"), kind="stable")[:count]
    names = [*labels, *[""] * len(y)]
    return [(f"{y[at]:.6f}:{at}" + (f":{names[at]}" if names[at] else "")).encode() for at in order]


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("rows", [1, 3, 32])
def test_classes_with_labels(gallery: Server, rows: int, binary: bool) -> None:
    random = np.random.default_rng(rows)
    x = random.standard_normal((rows, 16)).astype("<f4")
    with Http(gallery.port) as http:
        for count in (1, 2, 16):
            found = http.query(classes("named", x, count, binary=binary)).outputs["y"]
            assert (found.datatype, found.shape, found.binary) == ("BYTES", (rows, count), binary)
            wanted = [one for row in x + x for one in expected_classes(row, count, LABELS)]
            assert found.data == wanted


def test_classes_of_equal_values_and_of_none(gallery: Server) -> None:
    with Http(gallery.port) as http:
        x = np.zeros((1, 16), "<f4")
        found = http.query(classes("named", x, 16)).outputs["y"]
        assert [int(one.split(b":")[1]) for one in found.data] == list(range(16))
        x[0, 3], x[0, 5], x[0, 9] = np.nan, np.inf, -np.inf
        for binary in (True, False):
            found = http.query(classes("named", x, 16, binary=binary)).outputs["y"]
            order = [int(one.split(b":")[1]) for one in found.data]
            assert (order[0], order[-2:]) == (5, [9, 3])


def test_classes_without_labels(gallery: Server) -> None:
    t = np.array([5, -7, 9, 2**40], "<i8")
    with Http(gallery.port) as http:
        for binary in (True, False):
            found = http.query(classes("tag", t, 3, binary=binary)).outputs["y"]
            assert (found.datatype, found.shape) == ("BYTES", (3,))
            y = 3 * t + 1
            assert found.data == [f"{y[at]}:{at}".encode() for at in (3, 2, 0)]


def test_classes_of_every_type(gallery: Server) -> None:
    inputs = {
        f"in_{name}": web.Tensor(name, (1, 3), np.array([0, 1, 0], web.NUMPY[name]))
        for name in web.NUMPY
    }
    with Http(gallery.port) as http:
        for name in web.NUMPY:
            requested = {"name": f"out_{name}", "parameters": {"classification": 1}}
            answer = http.query(web.infer("flags", inputs, outputs=[requested]))
            if name in ("BOOL", "FP16", "BF16"):
                assert answer.code in (200, 400), answer
                assert answer.code == 400 or answer.outputs
                continue
            (found,) = answer.outputs[f"out_{name}"].data
            value, index = found.split(b":")[:2]
            assert (float(value), index) == (1, b"1"), found


def test_the_builtin_digits_have_names(gallery: Server) -> None:
    x = np.asarray(Image.open(DIGITS / "digit_7.png").convert("L").resize((8, 8)), "<f4")
    requested = {"name": "probabilities", "parameters": {"classification": 1}}
    request = web.infer(
        "digits", {"image": x[None, None]}, outputs=[requested], binary_outputs=False
    )
    with Http(gallery.port) as http:
        (found,) = http.query(request).outputs["probabilities"].data
    assert found.split(b":")[1:] == [b"7", b"7"]


@pytest.mark.parametrize("count", [17, 2**31, 2**64 - 1])
def test_more_classes_than_there_are(gallery: Server, count: int) -> None:
    """As in Triton: all there are."""
    x = np.arange(16, dtype="<f4").reshape(1, 16)
    with Http(gallery.port) as http:
        found = http.query(classes("named", x, count)).outputs["y"]
        assert (found.shape, found.data) == ((1, 16), expected_classes((x + x)[0], 16, LABELS))


@pytest.mark.parametrize("count", [0, -1, 2**64, 1.5, "1", None, [1]])
def test_how_many_classes_there_may_be(gallery: Server, count: Any) -> None:
    with Http(gallery.port) as http:
        answer = http.query(classes("named", np.zeros((1, 16), "<f4"), count))
        assert answer.code == 400, answer
        assert http.query(get("/v2/health/live")).code == 200


# ---- engines ----


def engine(folder: Path, **rest: object) -> dict[str, object]:
    return {
        "server": {"arena_bytes": "32MiB", "max_request_bytes": "256KiB"},
        "engine": rest,
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx")), "max_rows": 64},
            {"name": "echo", "path": str(graphs.echo(folder / "echo.onnx")), "max_rows": 65536},
            {
                "name": "several",
                "path": str(graphs.several(folder / "several.onnx")),
                "max_rows": 8,
                "batch_size": 1,
            },
        ],
    }


# The first two are enough on the other backend.
ENGINES: dict[str, dict[str, object]] = {
    "mpmc": {"thread_count": 2},
    "inline": {"queue_type": "inline"},
    "batched": {
        "queue_type": "batched", "thread_count": 2, "batch_size": 8, "batch_delay_us": 500,
    },
    "batches through mpmc": {"thread_count": 1, "batch_size": 8, "batch_delay_us": 500},
    "batches inline": {"queue_type": "inline", "batch_size": 8},
    "standard": {"allocator_type": "standard", "thread_count": 2},
    "standard, batched": {
        "allocator_type": "standard", "queue_type": "batched", "thread_count": 2, "batch_size": 8,
        "batch_delay_us": 500,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.once] * (at > 1)) for at, name in enumerate(ENGINES)],
)
def test_the_same_answers_through_every_engine(serve: Serve, tmp_path: Path, name: str) -> None:
    server = serve(engine(tmp_path, **ENGINES[name]))
    ask_everybody(server)
    if "batch_size" in ENGINES[name]:
        assert server.figures().worker["batches"] > 0, "nothing was batched"


def test_several_io_threads(serve: Serve, tmp_path: Path) -> None:
    chosen = engine(tmp_path, thread_count=2)
    chosen["server"]["io_threads"] = 2  # type: ignore[index]
    ask_everybody(serve(chosen))


def ask_everybody(server: Server) -> None:
    """Clients of both protocols at once, each with requests that no other one resembles."""
    random = np.random.default_rng(5)
    webs = [Http(server.port) for _ in range(16)]
    natives = [server.connect() for _ in range(8)]
    try:
        for lap in range(6):
            wanted: list[dict[str, np.ndarray]] = []
            for index, http in enumerate(webs):
                request, outputs = http_request(random, lap * 100 + index)
                http.send(request)
                wanted.append(outputs)
            xs = []
            for index, native in enumerate(natives):
                x = random.standard_normal((index % 3 + 1, 16)).astype("<f4")
                native.send(wire.frame(x.tobytes(), id=index, rows=len(x)))
                xs.append(x)
            for http, outputs in zip(webs, wanted, strict=True):
                answer = http.answer()
                assert answer.code == 200, answer
                for name, y in outputs.items():
                    np.testing.assert_allclose(answer.array(name), y, rtol=1e-6)
            for index, (native, x) in enumerate(zip(natives, xs, strict=True)):
                reply = native.reply()
                assert (reply.id, reply.payload) == (index, (x + x).tobytes())
    finally:
        for connection in (*webs, *natives):
            connection.close()


def http_request(random: np.random.Generator, number: int) -> tuple[bytes, dict[str, np.ndarray]]:
    rows = number % 4 + 1
    if number % 4 == 0:
        body = np.frombuffer(random.bytes(int(random.integers(1, 20_000))), "u1")
        return web.infer("echo", {"x": body}, binary=number % 8 == 0), {"y": body}
    if number % 4 == 1:
        a = random.standard_normal((rows, 4)).astype("<f4")
        k, b = np.ones(3, "<f4"), random.integers(-9, 9, rows).astype("<i8")
        request = web.infer("several", {"a": a, "k": k, "b": b}, binary=["a"])
        return request, {"sum": a + b[:, None].astype("<f4"), "same": b}
    x = random.standard_normal((rows, 16)).astype("<f4")
    request = web.infer(
        "double", {"x": x}, binary=number % 4 == 2, chunk_bytes=77 if number % 3 == 0 else 0
    )
    return request, {"y": x + x}


def test_a_batch_of_both_protocols(serve: Serve, tmp_path: Path) -> None:
    """One worker that waits long for more: all of these go in one Run, and each gets its rows."""
    server = serve(engine(tmp_path, thread_count=1, batch_size=8, batch_delay_us=200_000))
    webs = [Http(server.port) for _ in range(4)]
    natives = [server.connect() for _ in range(4)]
    for lap in range(3):
        made = np.random.default_rng(lap).standard_normal((8, 1, 16)).astype("<f4")
        for index, http in enumerate(webs):
            http.send(web.infer("double", {"x": made[index]}, binary=index % 2 == 0))
        for index, native in enumerate(natives):
            native.send(wire.frame(made[4 + index].tobytes(), id=index))
        for index, http in enumerate(webs):
            np.testing.assert_array_equal(http.answer().array("y"), 2 * made[index])
        for index, native in enumerate(natives):
            assert native.reply().payload == (2 * made[4 + index]).tobytes()
    for connection in (*webs, *natives):
        connection.close()
    figures = server.figures()
    assert figures.worker["batches"] >= 1
    assert figures.worker["runs"] < figures.worker["requests_ok"]


def test_a_row_of_the_trace_per_request(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    server = serve(engine(tmp_path, thread_count=2, telemetry_csv_path=str(file)))
    ask_everybody(server)
    ok = server.figures().worker["requests_ok"]
    server.stop()
    found = list(csv.DictReader(file.open()))
    assert len(found) == ok
    for row in found:
        stages = ("receive_ns", "queue_ns", "preprocess_ns", "infer_ns", "send_ns")
        assert sum(int(row[stage]) for stage in stages) == int(row["total_ns"])
        assert row["status"] == "0"
    assert {row["model"] for row in found} == {"double", "echo", "several"}


def test_a_bad_request_does_not_fail_its_batch(serve: Serve, tmp_path: Path) -> None:
    path = graphs.gather_rows(tmp_path / "gather.onnx")
    server = serve(
        {
            "engine": {"thread_count": 1, "batch_size": 8, "batch_delay_us": 100_000},
            "models": [{"name": "gather", "path": str(path)}],
        }
    )
    clients = [Http(server.port) for _ in range(5)]
    for index, http in zip((0, 1, 99, 2, 3), clients, strict=True):
        http.send(web.infer("gather", {"x": np.array([index], "<i8")}, binary=index % 2 == 0))
    for index, http in zip((0, 1, 99, 2, 3), clients, strict=True):
        answer = http.answer()
        if index == 99:
            assert answer.code == 400  # its own fault, and it alone
        else:
            assert answer.array("y").tolist() == [10 + index]
        http.close()


# ---- the end ----


def drained(folder: Path, **server: object) -> dict[str, object]:
    return {
        "server": {"arena_bytes": "16MiB", "max_request_bytes": "64KiB", **server},
        "engine": {"thread_count": 1},
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx"))},
            {"name": "slow", "path": str(graphs.slow(folder / "slow.onnx"))},
        ],
    }


def test_what_is_in_flight_is_answered_and_readiness_ends(serve: Serve, tmp_path: Path) -> None:
    server = serve(drained(tmp_path, drain_seconds=60))
    trips = np.array([60_000], "<i8")  # a second
    x = np.ones((1, 16), "<f4")
    with Http(server.port) as http, Http(server.port) as idle:
        assert http.query(get("/v2/health/ready")).code == 200
        assert idle.query(get("/v2/health/ready")).code == 200
        before = server.figures().requests
        http.send(web.infer("slow", {"x": trips}))
        eventually(lambda: server.figures().requests == before + 1, "the load")
        server.terminate()
        eventually(lambda: "Draining" in server.output, "the drain")
        idle.expect_end()
        http.send(get("/v2/health/ready") + web.infer("double", {"x": x}))
        answer = http.answer()
        np.testing.assert_array_equal(answer.array("y"), 2 * trips)
        # It says that it is the last one: what is behind it goes to another server.
        assert answer.closes
        assert http.rest() == []
    server.expect_clean_end()


def test_sigterm_under_load(serve: Serve, tmp_path: Path) -> None:
    """Every request gets its right answer, a 503, or sees its connection end without a byte."""
    server = serve(drained(tmp_path))
    failures: list[BaseException] = []
    counts = {200: 0, 503: 0}
    lock = threading.Lock()

    def act(client: int) -> None:
        x = np.full((1, 16), client, "<f4")
        try:
            with Http(server.port) as http:
                while True:
                    answer = http.query(web.infer("double", {"x": x}, binary=client % 2 == 0))
                    with lock:
                        counts[answer.code] += 1
                    if answer.code == 200:
                        np.testing.assert_array_equal(answer.array("y"), x + x)
        except (wire.Closed, ConnectionError):
            pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=act, args=(n,), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: server.figures().worker["requests_ok"] > 300, "the load")
    server.terminate()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive(), "a client still waits for a server that has ended"
    server.expect_clean_end()
    assert not failures, failures
    assert counts[200] > 300, counts
