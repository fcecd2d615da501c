"""Pictures at the edges: replies that need room, clients that leave, bodies that hide their size,
batches, forms, and memory after thousands of pictures.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import graphs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from graphs import FLOAT
from harness import Server, eventually
from onnx import TensorProto, helper
from test_e2e_pictures import CROP, FILES, SIDE, packed, photograph, plan, same, stored
from web import Http

from lumen_uring.pictures import files as pictures
from lumen_uring.ring import stats

pytestmark = pytest.mark.once  # what runs models is the same on both backends

SMALL = FILES["jpeg"]
ONE_WORKER = {"thread_count": 1, "queue_type": "mpmc"}


@pytest.fixture(scope="module")
def large() -> bytes:
    """Takes some hundred slices."""
    return stored(photograph(6000, 4000), "PNG", compress_level=1)


def behind_json(file: bytes, pad: int) -> bytes:
    """A request whose picture comes behind JSON of more than so many bytes."""
    source = {"binary_data_size": 4 + len(file)}
    document = {
        "inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "parameters": source}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        "parameters": {"pad": "p" * pad},
    }
    text = json.dumps(document).encode()
    header = f"Inference-Header-Content-Length: {len(text)}"
    return web.post(web.path("m"), text + packed([file]), header)


def picture(server: Server, file: bytes, **how: int) -> bytes:
    return wire.frame(packed([file]), model=server.models["m"], encoding=2, **how)


# ---- replies ----


def test_outputs_that_json_cannot_say(serve: Serve, tmp_path: Path) -> None:
    path = str(same(tmp_path / "same.onnx", TensorProto.FLOAT16))
    server = serve({"models": [{"name": "m", "path": path, "image": CROP}]})
    right = pictures.tensor(plan(CROP, "FP16"), SMALL)
    with Http(server.port) as http:
        answer = http.query(web.post(web.path("m"), SMALL))
        assert answer.array("y").tobytes() == right.tobytes()


def test_the_longest_list_of_classes(serve: Serve, tmp_path: Path) -> None:
    """It has room, however large its labels are beside the tensors."""
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(f"{n} " + 'say "' * 200 for n in range(3 * SIDE * SIDE)))
    path = str(same(tmp_path / "same.onnx"))
    model = {"name": "m", "path": path, "image": CROP, "labels": str(labels)}
    server = serve({"models": [model]})
    with Http(server.port) as http:
        for file in (SMALL, SMALL + bytes(50_000)):
            listed = http.query(web.request("PUT", web.path("m") + "?top=255", file)).json()
            assert len(listed) == 255
            assert all(entry["label"].startswith(f"{entry['index']} say") for entry in listed)


# ---- clients that leave ----


def test_a_picture_that_nobody_waits_for_is_dropped(
    serve: Serve, tmp_path: Path, large: bytes
) -> None:
    """Its client leaves while it is decoded: it is gone, and no error."""
    path = str(same(tmp_path / "same.onnx"))
    server = serve({"engine": ONE_WORKER, "models": [{"name": "m", "path": path, "image": CROP}]})
    before = server.figures()
    with server.connect() as other, server.connect() as leaver:
        leaver.send(picture(server, large))
        eventually(lambda: server.figures().io["bytes_in"] > len(large), "the whole picture")
        assert other.ask(picture(server, SMALL)).status == wire.OK  # between two slices
        leaver.reset()
    server.wait_until_idle()
    changes = server.figures().since(before)
    assert changes.get("worker.requests_error", 0) == 0, changes
    assert changes.get("worker.requests_gone", 0) == 1, changes


# ---- one picture and others ----


def test_a_picture_behind_much_json_keeps_nobody_waiting(
    serve: Serve, tmp_path: Path, large: bytes
) -> None:
    """Its size is known to the worker alone: it is not decoded between two slices of another."""
    path = str(same(tmp_path / "same.onnx"))
    server = serve({"engine": ONE_WORKER, "models": [{"name": "m", "path": path, "image": CROP}]})
    with server.connect() as one, Http(server.port) as http, server.connect() as other:
        one.send(picture(server, large, id=1))
        http.send(behind_json(large, 9000))
        eventually(lambda: server.figures().io["bytes_in"] > 2 * len(large), "both")
        for number in range(20):
            assert other.ask(picture(server, SMALL, id=number)).status == wire.OK
        assert server.figures().worker["requests_ok"] == 20  # neither of the large ones
        assert one.reply().status == wire.OK
        assert http.answer().code == 200


def test_many_small_pictures_keep_nobody_waiting(serve: Serve, tmp_path: Path) -> None:
    """A slice ends between two pictures of a request, too."""
    path = str(same(tmp_path / "same.onnx"))
    server = serve({"engine": ONE_WORKER, "models": [{"name": "m", "path": path, "image": CROP}]})
    files = packed([stored(photograph(300, 200))] * 600)
    with server.connect() as one, server.connect() as other:
        one.send(wire.frame(files, model=0, encoding=2, rows=600))
        eventually(lambda: server.figures().io["bytes_in"] > len(files), "all pictures")
        assert other.ask(picture(server, SMALL)).status == wire.OK
        assert server.figures().worker["requests_ok"] == 1
        assert one.reply().status == wire.OK


def runs_of_io_threads(server: Server) -> int:
    """By the worker without a thread that each has."""
    return sum(
        thread.counters["runs"]
        for thread in stats.read(server.stats_path).threads
        if thread.role == "worker" and thread.index > 0
    )


def heavy(path: Path) -> str:
    """Convolutions of 0.8 GFLOP: no machine takes less than 50 us for them."""
    random = np.random.default_rng(0)
    nodes, weights, at = [], {}, "x"
    for n in range(4):
        weights[f"w{n}"] = random.standard_normal((64, 64 if n else 3, 5, 5)).astype("<f4") / 100
        nodes.append(helper.make_node("Conv", [at, f"w{n}"], [f"c{n}"], pads=[2, 2, 2, 2]))
        at = f"c{n}"
    nodes.append(helper.make_node("ReduceMean", [at], ["y"], axes=[2, 3], keepdims=0))
    x = graphs.tensor("x", FLOAT, ["n", 3, SIDE, SIDE])
    return str(graphs.save(path, nodes, [x], [graphs.tensor("y", FLOAT, ["n", 64])], weights))


def test_io_threads_run_no_long_picture(serve: Serve, tmp_path: Path, large: bytes) -> None:
    """However small the picture is beside the largest, and however its size is hidden."""
    path = str(same(tmp_path / "same.onnx"))
    models = [
        {"name": "m", "path": path, "image": CROP},
        {"name": "heavy", "path": heavy(tmp_path / "heavy.onnx"), "image": CROP},
    ]
    server = serve({"engine": {"thread_count": 1}, "models": models})
    dot = packed([stored(photograph(1, 1))])
    with server.connect() as native, Http(server.port) as http:
        for _ in range(3):
            frame = wire.frame(dot, model=server.models["heavy"], encoding=2)
            assert native.ask(frame).status == wire.OK
        assert http.query(behind_json(large, 9000)).code == 200
        assert runs_of_io_threads(server) == 0
        for _ in range(20):
            assert native.ask(picture(server, SMALL)).status == wire.OK


def test_a_batch_does_not_wait_for_a_large_picture(
    serve: Serve, tmp_path: Path, large: bytes
) -> None:
    path = str(same(tmp_path / "same.onnx"))
    model = {"name": "m", "path": path, "image": CROP, "batch_size": 4, "batch_delay_us": 1000000}
    server = serve({"engine": ONE_WORKER, "models": [model]})
    with server.connect() as native:
        native.send(picture(server, SMALL, id=1) + picture(server, large, id=2))
        assert native.reply().id == 1
        assert server.figures().worker["requests_ok"] == 1
        assert native.reply().id == 2


def test_what_comes_behind_a_picture_on_its_connection(
    serve: Serve, tmp_path: Path, large: bytes
) -> None:
    path = str(same(tmp_path / "same.onnx"))
    server = serve({"engine": ONE_WORKER, "models": [{"name": "m", "path": path, "image": CROP}]})
    with Http(server.port) as http:
        put = web.request("PUT", web.path("m"), large)
        http.send(put + web.get("/v2/health/ready") + web.post(web.path("m"), SMALL))
        first, second, third = http.answers(3)
    assert (first.code, second.code, third.code) == (200, 200, 200)
    assert (second.json(), third.array("y").size) == ({"ready": True}, 3 * SIDE * SIDE)


# ---- forms ----


def part(head: str, body: bytes, boundary: str = "b") -> bytes:
    return f"--{boundary}\r\n{head}\r\n\r\n".encode() + body + b"\r\n"


TEXT_PART = part('Content-Disposition: form-data; name="t"', b"some text")
FILE_HEAD = 'Content-Disposition: form-data; name="f"; filename="f.jpg"'
FILE_PART = part(FILE_HEAD, SMALL)
FORMS = {
    "another part behind it": (FILE_PART + TEXT_PART + b"--b--\r\n", None),
    "bytes behind the end": (FILE_PART + b"--b--\r\nepilogue", None),
    "a boundary that begins as another": (
        FILE_PART.replace(b"\r\n--b", b"\r\n--bc") + b"--b--\r\n",
        None,
    ),
    "text first": (TEXT_PART + FILE_PART + b"--b--\r\n", None),
    "a field left empty first": (part(FILE_HEAD, b"") + FILE_PART + b"--b--\r\n", None),
    "another file first": (part(FILE_HEAD, b"BM") + FILE_PART + b"--b--\r\n", None),
    "no content": (part(FILE_HEAD, b"") + b"--b--\r\n", "found no bytes"),
    "no picture": (TEXT_PART + part(FILE_HEAD, b"BM") + b"--b--\r\n", "file, found a BMP"),
    "text alone": (TEXT_PART + b"--b--\r\n", "form: expected a picture's file (JPEG or PNG)"),
    "long text first": (part("A: b", b"a" * 4096) + FILE_PART + b"--b--\r\n", "4096 bytes"),
    "a long head": (part("A: " + "a" * 5000, SMALL) + b"--b--\r\n", "form"),
    "lines without CR": ((FILE_PART + b"--b--\r\n").replace(b"\r\n", b"\n"), "form"),
    "no boundary at all": (b"--\r\n\r\n" + SMALL, "form"),
    "a line alone": (b"--b\r\n", "form"),
    "nothing": (b"--", "form"),
}


def test_forms(serve: Serve, tmp_path: Path) -> None:
    path = str(same(tmp_path / "same.onnx"))
    server = serve({"models": [{"name": "m", "path": path, "image": CROP}]})
    right = pictures.tensor(plan(CROP), SMALL).tobytes()
    with Http(server.port) as http:
        for kind, (body, sentence) in FORMS.items():
            answer = http.query(web.post(web.path("m"), body))
            if sentence is None:
                assert answer.code == 200, (kind, answer.error)
                assert answer.array("y").tobytes() == right, kind
            else:
                assert answer.code == 400, kind
                assert sentence in answer.error, (kind, answer.error)


# ---- memory ----


def test_memory_stays(serve: Serve, tmp_path: Path) -> None:
    path = str(same(tmp_path / "same.onnx"))
    server = serve({"models": [{"name": "m", "path": path, "image": CROP}]})
    chance = random.Random(5)
    files = []
    for seed in range(60):
        image = photograph(chance.randint(1, 400), chance.randint(1, 400), seed)
        kind = chance.choice(("JPEG", "PNG"))
        files.append(stored(image, kind, **({"progressive": seed % 2} if kind == "JPEG" else {})))
    files += [file[: len(file) // 2] for file in files[:20]]

    def send(count: int) -> None:
        with server.connect() as native, Http(server.port) as http:
            for _ in range(0, count, 20):
                chosen = chance.choices(files, k=20)
                native.send(b"".join(picture(server, file) for file in chosen[:15]))
                for file in chosen[15:]:
                    assert http.query(web.post(web.path("m"), file)).code in (200, 400)
                for _ in range(15):
                    assert native.reply().status in (wire.OK, wire.BAD_REQUEST)

    send(1000)
    before = server.rss_bytes
    send(4000)
    assert server.rss_bytes - before < 16 << 20  # some huge pages


def test_memory_for_pictures_is_taken_on_demand(serve: Serve, tmp_path: Path) -> None:
    path = str(same(tmp_path / "same.onnx"))
    used = []
    for settings in ({}, {"image": CROP}):
        server = serve({"models": [{"name": "m", "path": path, **settings}]})
        used.append(server.rss_bytes)
    assert used[1] - used[0] < 8 << 20, used  # no huge pages, of which little is used
