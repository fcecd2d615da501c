"""gRPC as two other stacks speak it: grpclib (Python's h2) and grpc-js (Node), unmodified, in the
clear and over TLS. NVIDIA's clients and Google's own stack are test_e2e_grpc.py's."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import graphs
import needs
import numpy as np
import pytest
import tls
from grpclib.client import Channel, StreamStreamMethod, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from harness import Canary, Server
from tritonclient.grpc import service_pb2 as pb

pytestmark = pytest.mark.once  # what streams say is received by the same code on both

INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
STREAM: Final = "/inference.GRPCInferenceService/ModelStreamInfer"
LIVE: Final = "/inference.GRPCInferenceService/ServerLive"
WIDTH: Final = 70_000
WAIT_S: Final = 30.0
LATE: Final = np.array([20_000])  # products, which take much longer than a call may


@pytest.fixture(scope="module")
def server(
    cache: Path, files: tls.Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    settings: dict[str, object] = {
        "server": {"tls": files.settings(), "max_request_bytes": "2MiB"},
        "models": [
            {"name": "double", "path": str(graphs.double(folder / "double.onnx", 16))},
            {"name": "block", "path": str(graphs.double(folder / "block.onnx", WIDTH, rows=1))},
            {"name": "slow", "path": str(graphs.slow(folder / "slow.onnx"))},
        ],
    }
    with Server(settings, cache) as running:
        yield running


@pytest.fixture(params=["clear", "TLS"])
def address(server: Server, request: pytest.FixtureRequest) -> Iterator[tuple[int, bool]]:
    """A port, and whether it speaks TLS."""
    is_tls = request.param == "TLS"
    yield tls.port_of(server) if is_tls else server.port, is_tls
    server.wait_until_idle()


def values(number: int, width: int = 16) -> np.ndarray:
    return np.arange(width, dtype="<f4").reshape(1, width) + np.float32(number)


def asking(model: str, x: np.ndarray, id: str = "") -> Any:
    datatype = "INT64" if x.dtype == np.int64 else "FP32"
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=x.shape)
    return pb.ModelInferRequest(
        model_name=model, id=id, inputs=[tensor], raw_input_contents=[x.tobytes()]
    )


def said(answer: Any) -> np.ndarray:
    found = np.frombuffer(answer.raw_output_contents[0], "<f4")
    return found.reshape(answer.outputs[0].shape)


# ---- grpclib ----


@contextlib.asynccontextmanager
async def channel(address: tuple[int, bool], files: tls.Files) -> AsyncIterator[Channel]:
    port, is_tls = address
    trusted = tls.context(files, ["h2"]) if is_tls else None
    made = Channel("localhost" if is_tls else "127.0.0.1", port, ssl=trusted)
    try:
        yield made
    finally:
        made.close()


def infer_method(made: Channel) -> Any:
    return UnaryUnaryMethod(made, INFER, pb.ModelInferRequest, pb.ModelInferResponse)


def test_grpclib(server: Server, address: tuple[int, bool], files: tls.Files) -> None:
    """Many at once on one connection, larger than its windows; errors; a call that is late."""

    async def everything() -> None:
        async with channel(address, files) as made:
            infer = infer_method(made)

            async def one(number: int, model: str, width: int) -> None:
                x = values(number, width)
                answer = await infer(asking(model, x, f"n{number}"), timeout=WAIT_S)
                assert answer.id == f"n{number}"
                np.testing.assert_array_equal(said(answer), 2 * x)

            await asyncio.gather(*(one(number, "double", 16) for number in range(100)))
            await asyncio.gather(*(one(number, "block", WIDTH) for number in range(10)))
            with pytest.raises(GRPCError) as caught:
                await infer(asking("nobody", values(0)))
            assert caught.value.status == Status.NOT_FOUND
            assert "nobody" in str(caught.value.message)
            with pytest.raises(asyncio.TimeoutError):  # its own clock says so, or the server
                await infer(asking("slow", LATE), timeout=0.05)
            await one(7, "double", 16)

    with Canary(server):
        asyncio.run(asyncio.wait_for(everything(), WAIT_S))


def test_grpclib_streams(server: Server, address: tuple[int, bool], files: tls.Files) -> None:
    """Requests while answers come, and a stream that is cancelled."""

    async def everything() -> None:
        async with channel(address, files) as made:
            method: Any = StreamStreamMethod(
                made, STREAM, pb.ModelInferRequest, pb.ModelStreamInferResponse
            )
            async with method.open(timeout=WAIT_S) as stream:
                for number in range(50):
                    await stream.send_message(asking("double", values(number), str(number)))
                    answer = await stream.recv_message()
                    assert answer.infer_response.id == str(number)
                    np.testing.assert_array_equal(said(answer.infer_response), 2 * values(number))
                await stream.end()
                assert await stream.recv_message() is None
            async with method.open() as stream:
                await stream.send_message(asking("double", values(1)))
                await stream.recv_message()
                await stream.cancel()
            answer = await infer_method(made)(asking("double", values(3)), timeout=WAIT_S)
            np.testing.assert_array_equal(said(answer), 2 * values(3))

    asyncio.run(asyncio.wait_for(everything(), WAIT_S))


# ---- grpc-js ----

# Calls as they are told, one line of JSON each, with messages that are encoded already; prints a
# line for each: its code, its details, and its messages.
SCRIPT: Final = """
const grpc = require('@grpc/grpc-js'), fs = require('fs');
const [address, ca] = process.argv.slice(1);
const bytes = (data) => data;
const credentials = ca ? grpc.credentials.createSsl(fs.readFileSync(ca))
                       : grpc.credentials.createInsecure();
const client = new grpc.Client(address, credentials);
const call = ({path, messages, timeout_ms, stream}) => new Promise((done) => {
  const found = [], options = timeout_ms ? {deadline: Date.now() + timeout_ms} : {};
  const end = (code, details) => done({code, details, messages: found});
  const parts = messages.map((message) => Buffer.from(message, 'base64'));
  if (!stream) {
    client.makeUnaryRequest(path, bytes, bytes, parts[0], new grpc.Metadata(), options,
      (error, answer) => {
        if (answer) found.push(answer.toString('base64'));
        end(error ? error.code : 0, error ? error.details : '');
      });
    return;
  }
  const one = client.makeBidiStreamRequest(path, bytes, bytes, new grpc.Metadata(), options);
  one.on('data', (answer) => found.push(answer.toString('base64')));
  one.on('error', () => {});
  one.on('status', ({code, details}) => end(code, details));
  parts.forEach((part) => one.write(part));
  one.end();
});
const calls = fs.readFileSync(0, 'utf8').trim().split('\\n').map(JSON.parse);
Promise.all(calls.map(call)).then((all) => {
  all.forEach((one) => console.log(JSON.stringify(one)));
  client.close();
});
"""


def grpc_js() -> str:
    """The folder with its package."""
    folder = os.environ.get("LUMEN_GRPC_JS", "")
    if not folder or not Path(folder, "node_modules/@grpc/grpc-js").is_dir():
        needs.absent("grpc_js")
    return folder


def told(path: str, *messages: Any, stream: bool = False, timeout_ms: int = 0) -> dict[str, object]:
    encoded = [base64.b64encode(message.SerializeToString()).decode() for message in messages]
    return {"path": path, "messages": encoded, "stream": stream, "timeout_ms": timeout_ms}


def test_grpc_js(server: Server, address: tuple[int, bool], files: tls.Files) -> None:
    """Many at once on one connection, larger than its windows; streams; errors; a late call."""
    folder = grpc_js()
    port, is_tls = address
    small = [told(INFER, asking("double", values(n), f"n{n}")) for n in range(50)]
    large = [told(INFER, asking("block", values(n, WIDTH), f"n{n}")) for n in range(5)]
    stream = told(STREAM, *(asking("double", values(n)) for n in range(20)), stream=True)
    calls = [
        *small,
        *large,
        stream,
        told(INFER, asking("nobody", values(0))),
        told("/inference.GRPCInferenceService/Nothing", pb.ServerLiveRequest()),
        told(INFER, asking("slow", LATE), timeout_ms=50),
        told(LIVE, pb.ServerLiveRequest()),
    ]
    with Canary(server):
        done = subprocess.run(
            [
                needs.program("node"),
                "-e",
                SCRIPT,
                "--",
                f"localhost:{port}",
                *([files.ca] * is_tls),
            ],
            input="\n".join(map(json.dumps, calls)),
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
            env={**os.environ, "NODE_PATH": str(Path(folder, "node_modules"))},
        )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    messages = [[base64.b64decode(each) for each in one["messages"]] for one in found]
    codes = [one["code"] for one in found]
    assert codes == [*([0] * 56), 5, 12, 4, 0], found[55:]
    for number, parts in enumerate(messages[:55]):
        answer = pb.ModelInferResponse.FromString(parts[0])
        offset, width = (number, 16) if number < 50 else (number - 50, WIDTH)
        assert answer.id == f"n{offset}"
        np.testing.assert_array_equal(said(answer), 2 * values(offset, width))
    assert len(messages[55]) == 20
    for number, part in enumerate(messages[55]):
        streamed = pb.ModelStreamInferResponse.FromString(part).infer_response
        np.testing.assert_array_equal(said(streamed), 2 * values(number))
    assert "nobody" in found[56]["details"]
    assert pb.ServerLiveResponse.FromString(messages[59][0]).live
