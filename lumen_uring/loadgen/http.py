"""`lumen bench` over HTTP: asks a server for its model, and writes whole requests of the Open
Inference Protocol.

Used by commands/bench.py, on the main thread, before the load starts. The load generator sends
these bytes as they are. Each is a whole HTTP/1.1 request, and all have the same size.
"""

from __future__ import annotations

import dataclasses
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lumen_uring.client.connection import unix_path
from lumen_uring.client.tls import connect_sentence
from lumen_uring.errors import ConfigError, ConnectionFailed, LumenError, ProtocolError, from_status
from lumen_uring.loadgen.sizes import with_names
from lumen_uring.loadgen.target import Target

if TYPE_CHECKING:
    from lumen_uring.protocol.describe import Model, TensorInfo

_TIMEOUT_S: Final = 10.0
_PROBE_S: Final = 2.0
# HTTP statuses, and the native status of the same meaning.
_STATUSES: Final = {401: 6, 404: 2}
# JSON holds these as numbers; the protocol sends 16-bit floats as bytes only.
_NO_JSON: Final = frozenset({"FP16", "BF16"})


def fetch_model(server: Target, name: str | None) -> Model:
    """Asks for a model's inputs and outputs.

    Args:
        server: to ask.
        name: of the model; None where the server has one only.

    Returns:
        The model; its rgb8 is None, since the protocol has no pictures.

    Raises:
        LumenError: no server, no such model, or a model that takes no random values.
    """
    from lumen_uring.protocol.describe import DTYPES, Model, TensorInfo

    if name is None:
        name = _only_model(server)
    document = _ask(server, "GET", f"/v2/models/{quote(name, safe='')}")

    def tensor(entry: Any) -> TensorInfo:
        shape = tuple(int(size) for size in entry["shape"])
        return TensorInfo(str(entry["name"]), str(entry["datatype"]), shape, -1 not in shape)

    try:
        inputs = tuple(tensor(entry) for entry in document["inputs"])
        outputs = tuple(tensor(entry) for entry in document["outputs"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"The server's metadata of model {name!r} is not the document expected: {error!r}."
        ) from None
    for entry in inputs:
        if entry.datatype not in DTYPES and entry.datatype != "BYTES":
            raise ConfigError(
                f"Input {entry.name!r} of model {name!r} holds {entry.datatype}: there are no "
                "random values of it."
            )
    model = Model(0, name, 2**32 - 1, inputs, outputs, None)
    if all(-1 not in entry.shape[1:] for entry in inputs):
        return model
    return _named_by_describe(server, model) or with_names(model)


def _named_by_describe(server: Target, model: Model) -> Model | None:
    """The names of free dimensions, which HTTP does not tell: a Lumen server's describe does."""
    from lumen_uring.client.client import Client
    from lumen_uring.errors import ClientError

    try:
        port = server.port or 1  # unused with a unix socket
        host, is_tls = server.tls_host or server.address, server.tls_host is not None
        with Client(host, port, timeout_s=_PROBE_S, token=server.token, tls=is_tls) as client:
            told = client.models().get(model.name)
    except (ClientError, ValueError):  # another server, or a token for HTTP alone
        return None
    if told is None or [entry.shape for entry in told.inputs] != [
        entry.shape for entry in model.inputs
    ]:
        return None
    return dataclasses.replace(model, inputs=told.inputs, free_dims=told.free_dims)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, host: str, timeout: float) -> None:
        super().__init__(host, timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _UnixHandler(urllib.request.HTTPHandler):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        reply: http.client.HTTPResponse = self.do_open(partial(_UnixConnection, self._path), req)
        return reply


def _only_model(server: Target) -> str:
    from lumen_uring.errors import UnknownModel

    index = _ask(server, "POST", "/v2/repository/index")
    try:
        names = sorted({str(entry["name"]) for entry in index})
    except (KeyError, TypeError):
        raise ProtocolError("The server's index of models is not the list expected.") from None
    if len(names) != 1:
        raise UnknownModel(f"The server has {names}: choose one with --model NAME.")
    return names[0]


def _ask(server: Target, method: str, path: str) -> Any:
    import orjson

    scheme = "https" if server.tls_host else "http"
    request = urllib.request.Request(
        f"{scheme}://{server.authority}{path}", headers=server.fields, method=method
    )
    # No proxy of the environment: the load measures the server itself.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if path_of_socket := unix_path(server.address):
        handlers.append(_UnixHandler(path_of_socket))
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(request, b"" if method == "POST" else None, _TIMEOUT_S) as reply:
            body = reply.read()
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(f"{method} {path}", error.code, error.read()) from None
    except OSError as error:  # URLError is one
        reason = getattr(error, "reason", error)
        if server.tls_host and isinstance(reason, ssl.SSLError):
            sentence = connect_sentence(server.tls_host, server.port, reason)
            raise ConnectionFailed(sentence) from None
        raise ConnectionFailed(f"No answer from {server.name}: {reason}.") from None
    except http.client.HTTPException as error:
        raise ProtocolError(f"{server.name} does not speak HTTP: {error!r}.") from None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(f"The answer to {method} {path} is no JSON: {error}.") from None


def _refusal(what: str, code: int, body: bytes) -> LumenError:
    import orjson

    try:
        text = str(orjson.loads(body)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = "no reason given"
    message = f"The server answered {what} with {code}: {text}"
    status = _STATUSES.get(code)
    return ProtocolError(message) if status is None else from_status(status, message)


def with_rgb8(model: Model) -> Model:
    """The same model, with the size of the picture that its one input holds.

    Args:
        model: as fetch_model gives it.

    Returns:
        A copy whose rgb8 is set.

    Raises:
        ConfigError: its input is no picture of three colours and known size.
    """
    from lumen_uring.protocol.describe import Rgb8Info

    shape = model.inputs[0].shape if len(model.inputs) == 1 else ()
    size: tuple[int, ...] = ()
    if len(shape) == 4 and shape[0] in (-1, 1):
        size = shape[2:] if shape[1] == 3 else shape[1:3] if shape[3] == 3 else ()
    if not size or min(size) < 1:
        raise ConfigError(f"Model {model.name!r} takes no rgb8: use --encoding tensors.")
    return dataclasses.replace(model, rgb8=Rgb8Info(size[0], size[1]))


def get_request(server: Target, path: str) -> bytes:
    """One GET.

    Args:
        server: its Host header.
        path: of the URL, with its query; visible ASCII.

    Returns:
        The whole request.

    Raises:
        ConfigError: not a path.
    """
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise ConfigError(f"--get: expected a path as in /v2/health/live, found {path!r}.")
    fields = "".join(f"{name}: {value}\r\n" for name, value in server.fields.items())
    return f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode()


def raw_requests(server: Target, model: Model, bodies: Sequence[bytes]) -> list[bytes]:
    """Raw binary requests: each body is the model's one input, with no JSON before it."""
    return [_post(server, model, body, 0) for body in bodies]


def binary_requests(
    server: Target, model: Model, rows: int, timeout_us: int, bodies: Sequence[bytes]
) -> list[bytes]:
    """Requests with JSON before the bytes of all inputs, that ask for outputs as bytes.

    Args:
        server: its Host header.
        model: its name and inputs.
        rows: what free dimensions are.
        timeout_us: the request's parameter `timeout`; 0: none.
        bodies: all inputs of a request, packed in the model's order.

    Returns:
        A whole request per body.
    """
    import orjson

    inputs = [
        {
            "name": tensor.name,
            "shape": shape,
            "datatype": tensor.datatype,
            "parameters": {"binary_data_size": size},
        }
        for tensor, shape, size in _layout(model, rows, bodies[0])
    ]
    parameters: dict[str, Any] = {"binary_data_output": True}
    if timeout_us:
        parameters["timeout"] = timeout_us
    head = orjson.dumps({"inputs": inputs, "parameters": parameters})
    return [_post(server, model, head + body, len(head)) for body in bodies]


def json_requests(
    server: Target, model: Model, rows: int, timeout_us: int, bodies: Sequence[bytes]
) -> list[bytes]:
    """Requests whose values are numbers in JSON; arguments as for binary_requests.

    Raises:
        ConfigError: an input's type has no numbers in JSON.
    """
    import orjson

    for tensor in model.inputs:
        if tensor.datatype in _NO_JSON:
            raise ConfigError(
                f"--http-json: input {tensor.name!r} holds {tensor.datatype}, which the protocol "
                "sends as bytes only."
            )
    documents = []
    for body in bodies:
        inputs = []
        offset = 0
        for tensor, shape, size in _layout(model, rows, body):
            inputs.append(
                {
                    "name": tensor.name,
                    "shape": shape,
                    "datatype": tensor.datatype,
                    "data": _values(tensor, body[offset : offset + size]),
                }
            )
            offset += size
        document: dict[str, Any] = {"inputs": inputs}
        if timeout_us:
            document["parameters"] = {"timeout": timeout_us}
        documents.append(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY))
    # Blanks after a document mean nothing; they make all requests equally long.
    longest = max(map(len, documents))
    return [_post(server, model, document.ljust(longest), None) for document in documents]


def _layout(model: Model, rows: int, body: bytes) -> list[tuple[TensorInfo, list[int], int]]:
    """Each input with its shape for this number of rows, and its size in this body."""
    import math

    from lumen_uring.protocol import strings
    from lumen_uring.protocol.describe import DTYPES

    found = []
    at = 0
    for tensor in model.inputs:
        shape = [rows if size < 0 else size for size in tensor.shape]
        if tensor.datatype == strings.DATATYPE:
            _, size = strings.unpack(memoryview(body)[at:], math.prod(shape))
        else:
            size = math.prod(shape) * DTYPES[tensor.datatype].itemsize
        found.append((tensor, shape, size))
        at += size
    return found


def _values(tensor: TensorInfo, data: bytes) -> Any:
    import numpy as np

    from lumen_uring.protocol import strings
    from lumen_uring.protocol.describe import DTYPES

    if tensor.datatype == strings.DATATYPE:
        count = 0
        at = 0
        while at < len(data):
            at += 4 + int.from_bytes(data[at : at + 4], "little")
            count += 1
        return strings.unpack(data, count)[0].tolist()
    return np.frombuffer(data, DTYPES[tensor.datatype])


def _post(server: Target, model: Model, body: bytes, json_bytes: int | None) -> bytes:
    """One POST; json_bytes None: the body is only JSON."""
    kind = "application/json" if json_bytes is None else "application/octet-stream"
    lines = [
        f"POST /v2/models/{quote(model.name, safe='')}/infer HTTP/1.1",
        *(f"{name}: {value}" for name, value in server.fields.items()),
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
    ]
    if json_bytes is not None:
        lines.append(f"Inference-Header-Content-Length: {json_bytes}")
    return "\r\n".join([*lines, "", ""]).encode() + body
