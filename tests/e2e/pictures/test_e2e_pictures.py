"""Files of pictures as requests, over every dialect: the tensor is Pillow's to the bit. What is no
picture, or too much of one, is refused by a sentence; a large one keeps nobody waiting.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import graphs
import needs
import numpy as np
import pytest
import web
import wire
from conftest import Serve
from graphs import FLOAT, UINT8, tensor
from harness import Canary, Server, eventually
from onnx import helper
from PIL import Image
from web import Http

from lumen_uring import AsyncClient, Client
from lumen_uring.errors import BadRequest, DeadlinePassed
from lumen_uring.pictures import files as pictures
from lumen_uring.pictures import image_input

pytestmark = pytest.mark.once  # what runs models is the same on both backends

SIDE = 32
LABELS = ["", *(f"class {number} of it" for number in range(1, 3 * SIDE * SIDE))]
CROP: dict[str, Any] = {"preset": "imagenet", "resize": 40}
GREY, GREY_LAST = (1, SIDE, SIDE), (24, SIDE, 1)


def same(
    path: Path,
    dtype: int = FLOAT,
    rows: str | int = "n",
    shape: tuple[int, ...] = (3, SIDE, SIDE),
) -> Path:
    """y = x, an image of SIDE x SIDE."""
    return graphs.save(
        path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [tensor("x", dtype, [rows, *shape])],
        [tensor("y", dtype, [rows, *shape])],
    )


def photograph(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth colours, as a photograph has them."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (7, 9, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def stored(image: Image.Image, kind: str = "JPEG", **how: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def turned(image: Image.Image, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return stored(image, exif=exif.tobytes())


FILES = {
    "jpeg": stored(photograph(200, 120)),
    "progressive": stored(photograph(90, 130, 1), progressive=True),
    "grey": stored(photograph(64, 64, 2).convert("L")),
    "cmyk": stored(photograph(77, 50, 3).convert("CMYK")),
    "turned": turned(photograph(120, 80, 4), 6),
    "png": stored(photograph(41, 33, 5), "PNG"),
    "alpha": stored(photograph(50, 60, 6).convert("RGBA"), "PNG"),
    "palette": stored(photograph(60, 50, 7).quantize(17), "PNG"),
}


def plan(
    image: dict[str, Any],
    datatype: str = "FP32",
    shape: tuple[int, ...] = (3, SIDE, SIDE),
    **how: Any,
) -> image_input.Preprocessing:
    settings = image_input.ImageConfig(**image)
    return image_input.resolve(settings, "x", datatype, [-1, *shape], **how)


@pytest.fixture(scope="module")
def gallery(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("gallery")
    labels = folder / "labels.txt"
    labels.write_text("\n".join(LABELS))
    path = str(same(folder / "same.onnx"))
    models = [
        {"name": "crop", "path": path, "image": CROP},
        {"name": "named", "path": path, "image": CROP, "labels": str(labels)},
        {"name": "stretch", "path": path, "image": {}, "mean": 3, "scale": 0.25},
        {"name": "letterbox", "path": path, "image": {"fit": "letterbox", "filter": "bicubic"}},
        {
            "name": "bytes",
            "path": str(same(folder / "bytes.onnx", UINT8, 1)),
            "image": {"filter": "box", "max_pixels": 40_000, "max_whole_pixels": 10_000},
        },
        {
            "name": "grey",
            "path": str(same(folder / "grey.onnx", shape=GREY)),
            "image": {"fit": "letterbox"},
            "mean": 255,
            "scale": -1,
        },
        {
            "name": "grey_bytes",
            "path": str(same(folder / "grey_bytes.onnx", UINT8, shape=GREY_LAST)),
            "image": {"filter": "box", "fit": "shorter_side_and_crop"},
        },
        {"name": "batched", "path": path, "image": CROP, "batch_size": 4, "batch_delay_us": 2000},
        {"name": "plain", "path": path},
        {"name": "double", "path": str(graphs.double(folder / "double.onnx"))},
    ]
    engine = {"queue_type": "mpmc", "thread_count": 1}
    with Server({"engine": engine, "models": models}, cache) as server:
        yield server


PLANS = {
    "crop": plan(CROP),
    "stretch": plan({}, mean=(3.0,) * 3, scale=(0.25,) * 3),
    "letterbox": plan({"fit": "letterbox", "filter": "bicubic"}),
    "bytes": plan({"filter": "box"}, "UINT8"),
    "grey": plan({"fit": "letterbox"}, shape=GREY, mean=(255.0,) * 3, scale=(-1.0,) * 3),
    "grey_bytes": plan({"filter": "box", "fit": "shorter_side_and_crop"}, "UINT8", shape=GREY_LAST),
}


def expected(model: str, file: bytes) -> np.ndarray:
    return pictures.tensor(PLANS[model], file)


# ---- every way in ----


@pytest.mark.parametrize("model", list(PLANS))
def test_tensors_are_pillows(gallery: Server, model: str) -> None:
    with Client("127.0.0.1", gallery.port) as client, Http(gallery.port) as http:
        for kind, file in FILES.items():
            if model == "bytes" and kind == "progressive":
                continue
            right = expected(model, file).tobytes()
            result = client.infer_images(model, file)
            assert result.outputs["y"].tobytes() == right, kind
            answer = http.query(web.post(web.path(model), file))
            assert answer.array("y").tobytes() == right, kind


def test_a_grey_model_says_so(gallery: Server) -> None:
    with Client("127.0.0.1", gallery.port) as client:
        for name in ("grey", "grey_bytes"):
            model = client.models()[name]
            assert model.image is not None
            assert (
                image_input.described(model.inputs[0].datatype, asdict(model.image))
                == (PLANS[name])
            )
            assert model.rgb8 is None
            with pytest.raises(BadRequest, match="takes no rgb8 images"):
                client.infer_rgb8(name, FILES["jpeg"])


def form(file: bytes, boundary: str = "----x", head: str = "") -> bytes:
    return (
        f"--{boundary}\r\nContent-Disposition: form-data; name=a; filename=b.jpg\r\n{head}\r\n"
    ).encode() + file + f"\r\n--{boundary}--\r\n".encode()  # fmt: skip


def test_every_form_of_a_body(gallery: Server) -> None:
    file = FILES["jpeg"]
    right = expected("crop", file).tobytes()
    path = web.path("crop")
    with Http(gallery.port) as http:
        for request in (
            web.request("PUT", path, file),
            web.post(path, file, "Content-Type: image/jpeg"),
            web.post(path, file, "Content-Type: application/json"),
            web.post(path, form(file), "Content-Type: multipart/form-data; boundary=----x"),
            web.post(path, form(file, "b" * 70, "Content-Type: image/jpeg\r\n")),
            web.request("PUT", path, file, ["Expect: 100-continue"]),
        ):
            http.send(request)
            http.skip_continue()
            assert http.answer().array("y").tobytes() == right
        http.send(
            web.request(
                "PUT", path, web.chunked(file, 1000), ["Transfer-Encoding: chunked"], length=None
            )
        )
        assert http.answer().array("y").tobytes() == right


def coded(file: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(file).decode()}


def in_rows(model: str, body: object) -> bytes:
    return web.post(f"/v1/models/{model}:predict", json.dumps(body).encode())


@pytest.mark.parametrize("model", ["crop", "batched"])
def test_rows_of_files_in_base64(gallery: Server, model: str) -> None:
    """As TensorFlow Serving's clients send pictures, one or several, with the input's name or
    without it; compressed too."""
    files = list(FILES.values())[:3]
    right = [expected("crop", file) for file in files]
    with Http(gallery.port) as http:
        for body, rows in (
            ({"instances": [coded(files[0])]}, 1),
            ({"instances": [coded(file) for file in files]}, 3),
            ({"instances": [{"x": coded(file)} for file in files]}, 3),
            ({"inputs": [coded(file) for file in files]}, 3),
            ({"inputs": {"x": [coded(file) for file in files]}}, 3),
        ):
            answer = json.loads(http.query(in_rows(model, body)).body)
            (values,) = answer.values()
            for row in range(rows):
                assert np.array(values[row], "<f4").tobytes() == right[row].tobytes()
        body = gzip.compress(json.dumps({"instances": [coded(files[0])]}).encode())
        request = web.post(f"/v1/models/{model}:predict", body, "Content-Encoding: gzip")
        (values,) = json.loads(http.query(request).body).values()
        assert np.array(values[0], "<f4").tobytes() == right[0].tobytes()


def test_rows_of_files_that_are_none(gallery: Server) -> None:
    file = coded(FILES["jpeg"])
    with Http(gallery.port) as http:
        for rows, sentence in (
            ([{"b64": "AAAA"}], "expected a JPEG or PNG file"),
            ([{"b64": "!"}], "b64: expected base64, found something else"),
            ([file, 3], "instances[1]: expected a string"),
            ([file, {"b64": "AAAA"}], "picture 1: expected a JPEG or PNG file"),
            ([file] * 1500, "rows"),
        ):
            answer = http.query(in_rows("crop", {"instances": rows}))
            assert answer.code == 400
            assert sentence in answer.error
        answer = http.query(in_rows("plain", {"instances": [file]}))
        assert answer.code == 400


def packed(files: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(file)) + file for file in files)


@pytest.mark.parametrize("model", ["crop", "batched"])
def test_several_files_are_rows(gallery: Server, model: str) -> None:
    files = list(FILES.values())[:3]
    right = b"".join(expected("crop", file).tobytes() for file in files)

    async def both() -> None:
        async with AsyncClient("127.0.0.1", gallery.port) as client:
            results = await asyncio.gather(
                *(client.infer_images(model, files) for _ in range(5)),
                *(client.infer_images(model, file) for file in files),
            )
        for result in results[:5]:
            assert result.outputs["y"].tobytes() == right
        assert b"".join(result.outputs["y"].tobytes() for result in results[5:]) == right

    asyncio.run(both())
    with Http(gallery.port) as http:
        # The JSON is read by the I/O thread, or by the worker.
        for pad, shape in ((0, [3]), (9000, [3]), (0, [3, 1]), (9000, [3, 1])):
            document = {
                "inputs": [
                    {
                        "name": "x",
                        "datatype": "BYTES",
                        "shape": shape,
                        "parameters": {"binary_data_size": len(packed(files))},
                    }
                ],
                "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
                "parameters": {"pad": "p" * pad},
            }
            text = json.dumps(document).encode()
            header = f"Inference-Header-Content-Length: {len(text)}"
            answer = http.query(web.post(web.path(model), text + packed(files), header))
            assert answer.array("y").tobytes() == right


def test_a_pillow_image_and_a_path(gallery: Server, tmp_path: Path) -> None:
    image = photograph(55, 44, 8)
    path = tmp_path / "picture.png"
    image.save(path)
    with Client("127.0.0.1", gallery.port) as client:
        for given in (image, path, str(path), [path]):
            result = client.infer_images("crop", given)
            right = expected("crop", path.read_bytes())
            assert result.outputs["y"].tobytes() == right.tobytes()


def test_labels_answer_with_classes(gallery: Server) -> None:
    file = FILES["jpeg"]
    values = expected("crop", file).reshape(-1)
    best = np.argsort(-values, kind="stable")
    with Http(gallery.port) as http:
        for query, count in (("", 5), ("?top=1", 1), ("?a=b&top=255", 255)):
            listed = http.query(web.request("PUT", web.path("named") + query, file)).json()
            assert [entry["index"] for entry in listed] == best[:count].tolist()
            for entry in listed:
                assert np.float32(entry["score"]) == values[entry["index"]]
                assert entry.get("label", "") == LABELS[entry["index"]]
        listed = http.query(web.request("PUT", web.path("crop") + "?top=2", file)).json()
        assert [entry["index"] for entry in listed] == best[:2].tolist()
        assert all(set(entry) == {"score", "index"} for entry in listed)
        for wrong in ("top=0", "top=256", "top=", "top=1&top=1", "top=x", "top=0001"):
            answer = http.query(web.request("PUT", web.path("named") + f"?{wrong}", file))
            assert answer.code == 400
            assert "top=: expected one number from 1 to 255" in answer.error


# ---- what is refused ----


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(width: int, height: int) -> bytes:
    """A PNG of many pixels in few bytes."""
    rows = zlib.compress(bytes((width + 1) * min(height, 1000)), 9)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


BAD = {
    "cut": (FILES["jpeg"][: len(FILES["jpeg"]) // 2], "the JPEG ends after"),
    "head alone": (FILES["jpeg"][:30], "JPEG"),
    "cut png": (FILES["png"][:100], "PNG"),
    "bomb": (bomb(30_000, 30_000), "at most"),
    "text": (b"\xff\xd8\xff but no picture", "JPEG"),
}


@pytest.mark.parametrize("kind", list(BAD))
def test_what_is_no_picture_is_refused(gallery: Server, kind: str) -> None:
    file, sentence = BAD[kind]
    with Canary(gallery), Http(gallery.port) as http, Client("127.0.0.1", gallery.port) as client:
        answer = http.query(web.post(web.path("crop"), file))
        assert answer.code == 400
        assert sentence in answer.error
        with pytest.raises(BadRequest, match="picture 1: ") as caught:
            client.infer_images("crop", [FILES["jpeg"], file])
        assert sentence in str(caught.value)
        right = expected("crop", FILES["jpeg"]).tobytes()
        assert client.infer_images("crop", FILES["jpeg"]).outputs["y"].tobytes() == right
        assert http.query(web.post(web.path("crop"), FILES["jpeg"])).array("y").tobytes() == right


def test_limits_of_a_model(gallery: Server) -> None:
    large = stored(photograph(300, 200))
    whole = stored(photograph(110, 100), progressive=True)
    with Http(gallery.port) as http:
        for file, most in ((large, 40_000), (whole, 10_000)):
            answer = http.query(web.post(web.path("bytes"), file))
            assert answer.code == 400
            assert str(most) in answer.error


def test_bodies_that_do_not_fit(gallery: Server) -> None:
    file = FILES["jpeg"]
    model = gallery.models["crop"]
    with gallery.connect() as native:
        for payload, rows, sentence in (
            (struct.pack("<I", len(file) + 1) + file, 1, "expected its length and"),
            (packed([file]) + b"x", 1, "found 1 bytes behind them"),
            (packed([file]) + b"xxx", 2, "expected its length and"),
            (struct.pack("<I", 0), 1, ""),
            (struct.pack("<I", 2**32 - 1) + file, 1, "expected its length and"),
        ):
            reply = native.ask(wire.frame(payload, model=model, rows=rows, encoding=2))
            assert reply.status == wire.BAD_REQUEST
            assert sentence in reply.text
        reply = native.ask(wire.frame(packed([file]), model=gallery.models["plain"], encoding=2))
        assert reply.status == wire.BAD_REQUEST
        assert "has no setting `image`" in reply.text
    with Http(gallery.port) as http:
        for body, sentence in (
            (form(file)[: -len("\r\n------x--\r\n")], "expected its boundary behind the file"),
            (
                form(file)[: -len("--\r\n")] + b"\r\n" + form(file).partition(b"\r\n")[2],
                "expected one picture, found another behind it",
            ),
            (form(file, "b" * 90), "a boundary of 1 to 70 bytes"),
            (stored(photograph(9, 9), "BMP"), "expected a JPEG or PNG file, found a BMP"),
            (b"", "expected a JPEG or PNG file, found no bytes"),
            (b" {", "the body is not JSON: "),
        ):
            answer = http.query(web.post(web.path("crop"), body))
            assert answer.code == 400
            assert sentence in answer.error
        answer = http.query(web.post(web.path("plain"), file))
        assert answer.code == 400
        assert "give it the setting `image`" in answer.error
        text = web.infer("crop", {"x": web.strings([b"abc"])}, binary=False)
        assert "files of pictures have no form in this JSON" in http.query(text).error


def test_a_model_that_cannot_take_pictures(serve: Serve, tmp_path: Path) -> None:
    path = str(graphs.double(tmp_path / "m.onnx"))
    with pytest.raises(AssertionError, match="expected one input of 3 channels, or of 1, and"):
        serve({"models": [{"name": "m", "path": path, "image": {"preset": "imagenet"}}]})


# ---- who else is served ----


def busy(server: Server) -> bool:
    """Both large bodies have arrived."""
    return server.figures().slots_in_use == 2 and server.figures().io["bytes_in"] > 2 << 20


def test_a_large_picture_keeps_nobody_waiting(serve: Serve, tmp_path: Path) -> None:
    """One worker: what comes while a large picture is decoded is answered before it."""
    path = str(same(tmp_path / "same.onnx"))
    server = serve(
        {
            "engine": {"thread_count": 1, "queue_type": "mpmc"},
            "models": [
                {"name": "m", "path": path, "image": CROP},
                {"name": "double", "path": str(graphs.double(tmp_path / "double.onnx"))},
            ],
        }
    )
    large = stored(photograph(6000, 4000), "PNG", compress_level=1)
    small = FILES["jpeg"]
    x = np.ones(16, "<f4")
    m, double = server.models["m"], server.models["double"]
    with server.connect() as one, server.connect() as other:
        one.send(wire.frame(packed([large]), model=m, encoding=2, id=1))
        one.send(wire.frame(packed([large]), model=m, encoding=2, id=2))
        eventually(lambda: server.figures().worker["requests_ok"] == 0 and busy(server), "both")
        assert other.ask(wire.frame(x.tobytes(), model=double)).status == wire.OK
        assert other.ask(wire.frame(packed([small]), model=m, encoding=2)).status == wire.OK
        done = server.figures().worker["requests_ok"]
        replies = one.replies(2)
    assert done == 2  # neither of the large ones was finished by then
    right = expected("crop", large).tobytes()
    assert replies[1].payload == replies[2].payload == right


def test_a_deadline_ends_a_picture(gallery: Server) -> None:
    large = stored(photograph(5000, 4000), "PNG", compress_level=1)
    with Client("127.0.0.1", gallery.port) as client, pytest.raises(DeadlinePassed):
        client.infer_images("crop", large, timeout_us=20_000)
    gallery.wait_until_idle()


def test_a_client_that_leaves(gallery: Server) -> None:
    large = stored(photograph(5000, 4000), "PNG", compress_level=1)
    for _ in range(3):
        with gallery.connect() as native:
            payload = packed([large])
            native.send(wire.frame(payload, model=gallery.models["crop"], encoding=2))
    gallery.wait_until_idle()


# ---- real ones ----


def test_photographs(serve: Serve) -> None:
    model = needs.shared_file("models/squeezenet/model.onnx")
    labels = needs.shared_file("models/squeezenet/labels.txt")
    folder = needs.shared_file("images/coffee.jpg").parent
    image = {"preset": "squeezenet"}
    server = serve(
        {
            "models": [
                {"name": "m", "path": str(model), "labels": str(labels), "image": image},
            ]
        }
    )
    settings = image_input.ImageConfig(preset="squeezenet")
    preprocessing = image_input.resolve(settings, "data_0", "FP32", [-1, 3, 224, 224])
    with Client("127.0.0.1", server.port) as client, Http(server.port) as http:
        for path in sorted(folder.glob("*.jpg")):
            if "truncated" in path.name:
                with pytest.raises(BadRequest, match="the JPEG ends after 206 of 400 rows"):
                    client.infer_images("m", path)
                continue
            result = client.infer_images("m", path).outputs["softmaxout_1"]
            made = pictures.tensor(preprocessing, path)
            right = client.infer("m", {"data_0": made}).outputs["softmaxout_1"]
            assert result.tobytes() == right.tobytes(), path.name
            listed = http.query(web.request("PUT", web.path("m"), path.read_bytes())).json()
            best = np.argsort(-right.reshape(-1), kind="stable")[:5].tolist()
            assert [entry["index"] for entry in listed] == best
            if path.name == "chelsea.jpg":
                assert any("tabby" in entry["label"] for entry in listed)
