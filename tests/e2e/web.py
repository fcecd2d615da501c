"""HTTP/1.1 and the Open Inference Protocol, written from RFC 9112 and the protocol's document.

Used by the end-to-end tests of HTTP, on the test's threads. Like wire.py it shares no code with
lumen_uring. It reads strictly: an answer that a client somewhere could frame or decode differently
fails here, whatever the test was about. Every wait is bounded by the socket's timeout.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import wire

JSON_LENGTH = "Inference-Header-Content-Length"
BINARY_TYPE = "application/octet-stream"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# BF16 travels as its bits, which numpy knows as uint16: its name has to be said.
NUMPY = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1",
    "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
    "BF16": "<u2",
}  # fmt: skip
_NAMES = {np.dtype(code): name for name, code in NUMPY.items() if name != "BF16"}
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) ([ -~]+)")
# RFC 9110 5.6.7; the only form that may be sent.
_DATE = re.compile(
    "(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-3][0-9] "
    "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
    "[0-9]{4} [0-2][0-9]:[0-5][0-9]:[0-6][0-9] GMT"
)
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([!-~](?:[ -~]*[!-~])?)")


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _value in pairs}) == len(pairs), f"a field twice in {pairs}"
    return dict(pairs)


def read_json(text: bytes) -> Any:
    """A JSON document, strictly: no NaN, no field twice, valid UTF-8."""
    return json.loads(
        text.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_fields_once
    )


@dataclass(frozen=True)
class Tensor:
    """One tensor of a request or an answer; BYTES hold a list of bytes."""

    datatype: str
    shape: tuple[int, ...]
    data: Any
    binary: bool = False

    @property
    def array(self) -> np.ndarray:
        assert isinstance(self.data, np.ndarray)
        return self.data.reshape(self.shape)


@dataclass(frozen=True)
class Answer:
    """One answer as it came; names of headers are in lower case."""

    code: int
    reason: str
    headers: dict[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"

    @property
    def error(self) -> str:
        """The sentence of a refusal, in the form of the route's clients."""
        assert self.code >= 400, self
        said = read_json(self.body)
        if isinstance(said.get("error"), dict):  # OpenAI's
            said = {"error": said["error"]["message"]}
        assert list(said) in (["error"], ["error", "error_type"]), said
        assert isinstance(said["error"], str)
        return str(said["error"])

    def json(self) -> Any:
        """The document that is the whole body."""
        assert self.code == 200, self
        assert self.headers["content-type"] == "application/json"
        return read_json(self.body)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON of an inference's answer."""
        assert self.code == 200, self
        size = int(self.headers.get(JSON_LENGTH.lower(), len(self.body)))
        document = read_json(self.body[:size])
        assert isinstance(document, dict)
        return document

    @property
    def outputs(self) -> dict[str, Tensor]:
        """An inference's outputs, in their order."""
        document = self.document
        assert set(document) <= {"id", "model_name", "model_version", "outputs"}, document
        assert document["model_version"].isdecimal()
        assert isinstance(document["model_name"], str)
        at = int(self.headers.get(JSON_LENGTH.lower(), len(self.body)))
        found: dict[str, Tensor] = {}
        for output in document["outputs"]:
            size = _blob_bytes(output)
            blob = None if size is None else self.body[at : at + size]
            at += size or 0
            assert output["name"] not in found
            found[output["name"]] = _tensor(output, blob)
        assert at == len(self.body), f"{len(self.body) - at} bytes behind the last output"
        has_blobs = any(tensor.binary for tensor in found.values())
        assert has_blobs == (JSON_LENGTH.lower() in self.headers)
        assert (
            self.headers["content-type"] == BINARY_TYPE
            if has_blobs
            else self.headers["content-type"] == "application/json"
        )
        return found

    def array(self, name: str) -> np.ndarray:
        return self.outputs[name].array


def _blob_bytes(output: Mapping[str, Any]) -> int | None:
    """An output's bytes behind the JSON. C++ clients break on any other parameter, or on none."""
    if "parameters" not in output:
        assert set(output) == {"name", "datatype", "shape", "data"}, output
        return None
    assert set(output) == {"name", "datatype", "shape", "parameters"}, output
    assert list(output["parameters"]) == ["binary_data_size"], output
    size = output["parameters"]["binary_data_size"]
    assert type(size) is int
    assert size >= 0
    return size


def _tensor(output: Mapping[str, Any], blob: bytes | None) -> Tensor:
    datatype, shape = output["datatype"], tuple(output["shape"])
    assert all(type(dim) is int and dim >= 0 for dim in shape)
    count = int(np.prod(shape, dtype=np.int64))
    data: Any
    if datatype == "BYTES":
        data = [text.encode() for text in output["data"]] if blob is None else list(_split(blob))
    elif blob is None:
        data = _values(datatype, output["data"])
    else:
        data = np.frombuffer(blob, NUMPY[datatype])
    assert len(data) == count, f"shape {shape} with {len(data)} elements"
    return Tensor(datatype, shape, data, blob is not None)


def _values(datatype: str, values: list[Any]) -> np.ndarray:
    """JSON numbers as the tensor they stand for; whole numbers must be written as such."""
    kind = np.dtype(NUMPY[datatype]).kind
    wanted = {"b": (bool,), "f": (int, float)}.get(kind, (int,))
    assert all(type(value) in wanted for value in values), values[:20]
    return np.array(values, NUMPY[datatype])


def _split(blob: bytes) -> Iterator[bytes]:
    """The elements of a BYTES tensor."""
    at = 0
    while at < len(blob):
        (size,) = struct.unpack_from("<I", blob, at)
        yield blob[at + 4 : at + 4 + size]
        at += 4 + size
    assert at == len(blob)


class Http(wire.Wire):
    """One connection of the test that speaks HTTP."""

    def answer(self, to: str = "GET") -> Answer:
        """The next answer, to a request of that method; raises wire.Closed where there is none."""
        head = self._head()
        lines = head.split(b"\r\n")
        found = _STATUS_LINE.fullmatch(lines[0])
        assert found is not None, f"expected a status line, found {lines[0]!r}"
        code = int(found.group(1))
        assert code >= 200, f"an interim answer that nobody asked for: {head!r}"
        headers = _headers(lines[1:])
        size = headers["content-length"]
        assert re.fullmatch("0|[1-9][0-9]*", size), size
        body = b"" if to == "HEAD" else self._exactly(int(size))
        answer = Answer(code, found.group(2).decode(), headers, body)
        with self.tally.lock:
            self.tally.http[code] += 1
        if code >= 400 and to != "HEAD":
            assert headers["content-type"] == "application/json"
            assert answer.error
        # An answer that says "later" also says when.
        assert ("retry-after" in headers) == (code in (429, 503)), (code, headers)
        assert _DATE.fullmatch(headers["date"]), headers
        if "retry-after" in headers:
            assert re.fullmatch("[1-9][0-9]*", headers["retry-after"])
        return answer

    def answers(self, count: int) -> list[Answer]:
        return [self.answer() for _ in range(count)]

    def rest(self) -> list[Answer]:
        """Every answer until the server ends the connection."""
        found = []
        try:
            while True:
                found.append(self.answer())
        except (wire.Closed, ConnectionError):
            return found

    def query(self, request: bytes, to: str = "GET") -> Answer:
        self.send(request)
        return self.answer(to)

    def expect_continue(self) -> None:
        """The interim answer that lets a waiting client send its body."""
        assert self._head() == CONTINUE

    def skip_continue(self) -> bool:
        """Takes an interim answer where there is one, and waits for what follows."""
        while len(self._have) < len(CONTINUE):
            part = self.socket.recv(len(CONTINUE) - len(self._have))
            assert part, bytes(self._have)
            self._have += part
        if bytes(self._have) != CONTINUE:
            return False
        self._have.clear()
        return True

    def expect_refusal(self, *codes: int) -> Answer:
        """One answer that refuses and ends the connection; nothing behind it."""
        answer = self.answer()
        assert answer.code in codes, answer
        assert answer.closes, answer
        assert self.expect_closed() == b""
        return answer

    def _head(self) -> bytes:
        while (end := self._have.find(b"\r\n\r\n")) < 0:
            part = self.socket.recv(1 << 16)
            if not part:
                if not self._have:
                    raise wire.Closed
                raise AssertionError(f"the stream ended in a head: {bytes(self._have[:200])!r}")
            self._have += part
            assert len(self._have) < 1 << 24 or b"\r\n\r\n" in self._have
        return self._exactly(end + 4)


def _headers(lines: Sequence[bytes]) -> dict[str, str]:
    """The fields of a head, whose last two lines are empty."""
    headers: dict[str, str] = {}
    assert list(lines[-2:]) == [b"", b""]
    for line in lines[:-2]:
        field = _FIELD.fullmatch(line)
        assert field is not None, f"expected a header, found {line!r}"
        name = field.group(1).decode().lower()
        assert name not in headers, f"{name} twice"
        # No page of another site may ever read an answer, and no answer needs chunks.
        assert not name.startswith("access-control-")
        assert name != "transfer-encoding"
        headers[name] = field.group(2).decode()
    return headers


# ---- requests ----


def request(
    method: str, target: str, body: bytes = b"", headers: Sequence[str] = (), **how: Any
) -> bytes:
    """One request; `host`, `version` and `length` say something else than they should, or None."""
    lines = [f"{method} {target} {how.get('version', 'HTTP/1.1')}"]
    host, length = how.get("host", "127.0.0.1"), how.get("length", len(body) or None)
    if method == "POST" and "length" not in how:
        length = len(body)
    if host is not None:
        lines.append(f"Host: {host}")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1") + body


def get(target: str, *headers: str, **how: Any) -> bytes:
    return request("GET", target, b"", headers, **how)


def post(target: str, body: bytes = b"", *headers: str, **how: Any) -> bytes:
    return request("POST", target, body, headers, **how)


def path(model: str) -> str:
    return f"/v2/models/{model}/infer"


def raw(model: str, body: bytes, *headers: str, **how: Any) -> bytes:
    """A raw binary request: the body is the tensor's bytes, or a picture's pixels."""
    return post(path(model), body, f"{JSON_LENGTH}: 0", *headers, **how)


def tensor(array: np.ndarray, datatype: str | None = None) -> Tensor:
    datatype = datatype or _NAMES[array.dtype]
    return Tensor(datatype, array.shape, np.ascontiguousarray(array).reshape(-1))


def _input(name: str, given: Tensor, binary: bool, nested: bool) -> dict[str, Any]:
    head = {"name": name, "shape": list(given.shape), "datatype": given.datatype}
    if binary:
        return {**head, "parameters": {"binary_data_size": len(_blob(given))}}
    if given.datatype == "BYTES":
        texts = np.array([item.decode() for item in given.data], object)
        return {**head, "data": (texts.reshape(given.shape) if nested else texts).tolist()}
    return {**head, "data": (given.array if nested else given.data).tolist()}


def _blob(given: Tensor) -> bytes:
    if given.datatype == "BYTES":
        return b"".join(struct.pack("<I", len(item)) + item for item in given.data)
    return bytes(given.data.tobytes())


def strings(items: Sequence[str | bytes], shape: Sequence[int] | None = None) -> Tensor:
    """A BYTES tensor; of one dimension where no shape is given."""
    data = [item.encode() if isinstance(item, str) else item for item in items]
    return Tensor("BYTES", (len(data),) if shape is None else tuple(shape), data)


def infer(
    model: str,
    inputs: Mapping[str, Tensor | np.ndarray],
    *,
    binary: bool | Collection[str] = True,
    binary_outputs: bool | None = None,
    nested: bool = False,
    headers: Sequence[str] = (),
    pad_bytes: int = 0,
    chunk_bytes: int = 0,
    version: str = "HTTP/1.1",
    **fields: Any,
) -> bytes:
    """An inference request.

    Args:
        model: its name.
        inputs: by name, in the order of the request.
        binary: which inputs are blobs: all, none, or those named; the others are JSON data.
        binary_outputs: None leaves it to the inputs: binary if there are blobs.
        nested: JSON data in arrays of the tensor's shape.
        headers: further lines.
        pad_bytes: blanks behind the JSON, which are part of it.
        chunk_bytes: sends the body in chunks of that size.
        version: of HTTP.
        fields: further fields of the request: id, parameters, outputs.
    """
    tensors = {
        name: tensor(one) if isinstance(one, np.ndarray) else one for name, one in inputs.items()
    }
    if isinstance(binary, bool):
        blobs = list(tensors) if binary else []
    else:
        blobs = [name for name in tensors if name in binary]
    document: dict[str, Any] = dict(fields)
    document["inputs"] = [_input(name, one, name in blobs, nested) for name, one in tensors.items()]
    if binary_outputs if binary_outputs is not None else blobs:
        document["parameters"] = {**document.get("parameters", {}), "binary_data_output": True}
    text = json.dumps(document).encode() + b" " * pad_bytes
    lines = [*headers, *([f"{JSON_LENGTH}: {len(text)}"] if blobs else [])]
    body = text + b"".join(_blob(tensors[name]) for name in blobs)
    if chunk_bytes:
        lines.append("Transfer-Encoding: chunked")
        return post(path(model), chunked(body, chunk_bytes), *lines, length=None, version=version)
    return post(path(model), body, *lines, version=version)


def chunked(body: bytes, chunk_bytes: int, extension: str = "", trailers: str = "") -> bytes:
    """A body in chunks, with its end."""
    parts = []
    for at in range(0, len(body), chunk_bytes):
        part = body[at : at + chunk_bytes]
        parts.append(f"{len(part):x}{extension}\r\n".encode() + part + b"\r\n")
    return b"".join(parts) + f"0\r\n{trailers}\r\n".encode()


def compressed(data: bytes, coding: str) -> bytes:
    """A request whose body is compressed: "gzip" or "deflate"."""
    head, body = cut(data)
    body = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    length = f"Content-Length: {len(body)}\r\nContent-Encoding: {coding}\r\n".encode()
    head, count = re.subn(rb"(?<=\r\n)Content-Length: [0-9]+\r\n", length, head)
    assert count == 1
    return head + body


def cut(data: bytes) -> tuple[bytes, bytes]:
    """A request's head, and its body."""
    at = data.index(b"\r\n\r\n") + 4
    return data[:at], data[at:]
