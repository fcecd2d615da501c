"""Every content coding, every way to frame a body, every form of a body, every kind of model: the
answer is that of the plain body, or the refusal says what is not taken."""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import graphs
import numpy as np
import pytest
import web
from graphs import FLOAT, tensor
from harness import Server
from onnx import TensorProto, helper
from PIL import Image
from web import Http

pytestmark = pytest.mark.once  # what reads bodies is the same on both backends

X = np.arange(48, dtype=np.float32).reshape(3, 16)
LONG = np.round(np.random.default_rng(3).standard_normal((2, 4000)), 3).astype(np.float32)
WORDS = ["", "é", "words " * 50]
SIDE = 8
MOST_BYTES = 8 << 20


def picture() -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


PICTURE = picture()
FORM = (
    b'--x\r\nContent-Disposition: form-data; name="a"; filename="b.png"\r\n\r\n'
    + PICTURE
    + b"\r\n--x--\r\n"
)


@dataclass(frozen=True)
class Body:
    """A body of some form, and the header lines that belong to it."""

    target: str
    content: bytes
    lines: tuple[str, ...] = field(default=())


def taken_apart(request: bytes) -> Body:
    head, content = web.cut(request)
    first, *lines = head.decode().split("\r\n")[:-2]
    kept = [line for line in lines if not line.startswith(("Host:", "Content-Length:"))]
    return Body(first.split()[1], content, tuple(kept))


def rows(model: str, **body: object) -> Body:
    return Body(f"/v1/models/{model}:predict", json.dumps(body).encode())


def numbers(model: str, x: np.ndarray) -> dict[str, Body]:
    return {
        "json": taken_apart(web.infer(model, {"x": x}, binary=False)),
        "nested": taken_apart(web.infer(model, {"x": x}, binary=False, nested=True)),
        "binary": taken_apart(web.infer(model, {"x": x})),
        "binary in, json out": taken_apart(web.infer(model, {"x": x}, binary_outputs=False)),
        "instances": rows(model, instances=x.tolist()),
        "inputs": rows(model, inputs=x.tolist()),
    }


def bodies() -> dict[str, dict[str, Body]]:
    """By kind of model, and form."""
    found = {name: numbers(name, X) for name in ("plain", "batched", "cached", "apart", "both")}
    found["free"] = numbers("free", LONG)
    found["expert"] = numbers("expert", X)
    words = {"words": web.strings(WORDS)}
    found["words"] = {
        "json": taken_apart(web.infer("words", words, binary=False)),
        "binary": taken_apart(web.infer("words", words)),
        "instances": rows("words", instances=WORDS),
    }
    pixels = np.random.default_rng(2).random((2, 3, SIDE, SIDE), np.float32)
    file = {"b64": base64.b64encode(PICTURE).decode()}
    found["picture"] = {
        **numbers("picture", pixels),
        "file": Body(web.path("picture"), PICTURE),
        "form": Body(web.path("picture"), FORM),
        "files": taken_apart(web.infer("picture", {"x": web.strings([PICTURE, PICTURE])})),
        "rows of files": rows("picture", instances=[file, file]),
    }
    return found


BODIES = bodies()
CODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("codings")
    double = str(graphs.double(folder / "double.onnx"))
    free = graphs.save(
        folder / "free.onnx",
        [helper.make_node("Neg", ["x"], ["y"])],
        [tensor("x", FLOAT, ["n", "k"])],
        [tensor("y", FLOAT, ["n", "k"])],
    )
    words = graphs.save(
        folder / "words.onnx",
        [helper.make_node("Identity", ["words"], ["same"])],
        [tensor("words", TensorProto.STRING, ["n"])],
        [tensor("same", TensorProto.STRING, ["n"])],
    )
    image = graphs.image(folder / "image.onnx", FLOAT, ["n", 3, SIDE, SIDE])
    models = [
        {"name": "plain", "path": double},
        {"name": "batched", "path": double, "batch_size": 8},
        {"name": "cached", "path": double, "response_cache": True},
        {"name": "apart", "path": double, "isolation": "process"},
        {"name": "free", "path": str(free)},
        {"name": "words", "path": str(words)},
        {"name": "picture", "path": str(image), "image": {}},
    ]
    settings = {
        "server": {"max_request_bytes": MOST_BYTES},
        "engine": {"thread_count": 2},
        "models": models,
        "ensembles": [
            {
                "name": "both",
                "steps": [
                    {"model": "plain", "inputs": {"x": "x"}, "outputs": {"y": "z"}},
                    {"model": "batched", "inputs": {"x": "z"}, "outputs": {"y": "y"}},
                ],
            }
        ],
        "experts": [
            {
                "name": "expert",
                "feature": "mean",
                "experts": [{"model": "plain", "below": 2.0}, {"model": "batched"}],
            }
        ],
    }
    with Server(settings, cache) as one:
        yield one


def sent(body: Body, coding: str, framing: str) -> bytes:
    content = CODINGS[coding](body.content) if coding else body.content
    lines = [*body.lines, *([f"Content-Encoding: {coding}"] if coding else [])]
    if framing == "length":
        return web.post(body.target, content, *lines)
    lines.append("Transfer-Encoding: chunked")
    size = 7 if framing == "small chunks" else 1 << 20
    return web.post(body.target, web.chunked(content, size), *lines, length=None)


@pytest.mark.parametrize("kind", list(BODIES))
@pytest.mark.parametrize("coding", ["", *CODINGS])
@pytest.mark.parametrize("framing", ["length", "one chunk", "small chunks"])
def test_the_answer_is_that_of_the_plain_body(
    server: Server, kind: str, coding: str, framing: str
) -> None:
    with Http(server.port) as http:
        for form, body in BODIES[kind].items():
            plain = http.query(sent(body, "", "length"))
            assert plain.code == 200, (form, plain.error)
            for _ in range(2):
                answer = http.query(sent(body, coding, framing))
                assert answer.code == 200, (form, answer.error)
                assert answer.body == plain.body, form


@pytest.mark.parametrize("coding", list(CODINGS))
@pytest.mark.parametrize("framing", ["length", "small chunks"])
def test_a_raw_tensor_is_taken_as_it_is(server: Server, coding: str, framing: str) -> None:
    body = Body(web.path("plain"), X[:1].tobytes(), (f"{web.JSON_LENGTH}: 0",))
    with Http(server.port) as http:
        assert http.query(sent(body, "", "length")).code == 200
        answer = http.query(sent(body, coding, framing))
        assert answer.code == 400
        assert "a raw binary request is taken as it is" in answer.error


@pytest.mark.parametrize("coding", list(CODINGS))
def test_compressed_chunks_have_a_bound(server: Server, coding: str) -> None:
    """They may not hold more than an eighth of max_request_bytes, nor become more than fits."""
    noise = np.random.default_rng(0).bytes(MOST_BYTES // 8 + 1000)
    packed = CODINGS[coding](noise)
    request = web.post(
        web.path("plain"), web.chunked(packed, 1 << 16), f"Content-Encoding: {coding}",
        "Transfer-Encoding: chunked", length=None,
    )  # fmt: skip
    with Http(server.port) as http:
        http.send(request)
        assert http.answer().code == 413
    bomb = Body(web.path("plain"), b" " * (64 << 20))
    with Http(server.port) as http:
        http.send(sent(bomb, coding, "one chunk"))
        assert http.answer().code in (400, 413)
        assert http.query(sent(BODIES["plain"]["json"], coding, "one chunk")).code == 200
    server.check_idle()
