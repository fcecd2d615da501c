"""Requests of the Open Inference Protocol over HTTP/1.1, as the measuring tools send them.

Used by peers/servers.py, compare.py, http_overhead.py and http_live.py. Binary tensors: JSON, then
the tensor's bytes, and the answer the same way. It knows as much as one input needs, no more.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Final

LIVE: Final = "/v2/health/live"
LIVE_BODY: Final = b'{"live":true}'  # what it is answered with
_JSON_BYTES: Final = "Inference-Header-Content-Length"


def infer_path(model: str) -> str:
    """Where a model's requests go."""
    return f"/v2/models/{model}/infer"


def infer_json(name: str, shape: Sequence[int], datatype: str, tensor_bytes: int) -> bytes:
    """The JSON before the input's bytes; asks for all outputs as binary tensors.

    Args:
        name: of the input.
        shape: of the input, its first dimension included.
        datatype: as the protocol names it, such as FP32.
        tensor_bytes: size of the input.
    """
    tensor = {
        **{"name": name, "shape": list(shape), "datatype": datatype},
        "parameters": {"binary_data_size": tensor_bytes},
    }
    document = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    return json.dumps(document, separators=(",", ":")).encode()


def headers(json_bytes: int) -> dict[str, str]:
    """A request's headers; 0: the body is the one input, raw."""
    return {"Content-Type": "application/octet-stream", _JSON_BYTES: str(json_bytes)}


def ask(
    port: int, method: str, path: str, body: bytes = b"", fields: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """One request over a connection of its own.

    Returns:
        Status, headers with names in lower case, and body.

    Raises:
        OSError: no answer, or none that is HTTP.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body or None, dict(fields or {}))
        answer = connection.getresponse()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, names, answer.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from None
    finally:
        connection.close()


def output_bytes(port: int, path: str, body: bytes, fields: Mapping[str, str]) -> bytes:
    """Asks for one inference; returns the bytes after the answer's JSON.

    Raises:
        RuntimeError: it was refused.
        OSError: no answer, or none that is HTTP.
    """
    status, names, answer = ask(port, "POST", path, body, fields)
    if status != 200:
        raise RuntimeError(f"port {port}{path} answered {status}: {answer[:200]!r}")
    return answer[int(names.get(_JSON_BYTES.lower(), "0")) :]


def whole_reply(port: int, path: str, body: bytes) -> bytes:
    """The reply to a GET as it comes over the wire, when its body is this one.

    Raises:
        RuntimeError: the answer is another one.
        OSError: no answer.
    """
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        while not found.endswith(b"\r\n\r\n" + body):
            piece = link.recv(4096)
            if not piece:
                break
            found += piece
    if not (found.startswith(b"HTTP/1.1 200") and found.endswith(b"\r\n\r\n" + body)):
        raise RuntimeError(f"port {port}{path}: expected 200 and {body!r}, found {found[:200]!r}")
    return found
