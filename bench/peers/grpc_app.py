"""A peer: the model behind grpcio's own server, with ONNX Runtime, as its users write it.

Started by peers/grpc_compare.py: `grpc_app.py MODEL PORT threads|asyncio`. The messages are those
of the Open Inference Protocol, as NVIDIA's package makes them.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped,unused-ignore]
import numpy as np
import onnxruntime  # type: ignore[import-untyped,unused-ignore]
from tritonclient.grpc import (  # type: ignore[import-untyped,unused-ignore]
    service_pb2,
    service_pb2_grpc,
)


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc,unused-ignore]
    """One model, one session with ONNX Runtime's thread pool off: the service has its own."""

    def __init__(self, path: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self._output = self._session.get_outputs()[0].name

    def ServerReady(self, _request: Any, _context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Whether it serves."""
        return service_pb2.ServerReadyResponse(ready=True)

    def ModelInfer(self, request: Any, _context: Any) -> Any:  # noqa: N802 - gRPC's name
        """One inference."""
        (given,) = request.inputs
        array = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(given.shape)
        (answer,) = self._session.run([self._output], {given.name: array})
        response = service_pb2.ModelInferResponse(model_name=request.model_name)
        response.outputs.add(name=self._output, datatype="FP32", shape=answer.shape)
        response.raw_output_contents.append(answer.tobytes())
        return response


class AsyncService(Service):
    """The same on asyncio: the Run is in the loop, as in most such services."""

    async def ServerReady(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Whether it serves."""
        return super().ServerReady(request, context)

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """One inference."""
        return super().ModelInfer(request, context)


async def serve(path: str, address: str) -> None:
    """Serves on asyncio until it is killed."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(AsyncService(path), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


def main(path: str, port: str, kind: str) -> None:
    """Serves until it is killed."""
    address = f"127.0.0.1:{port}"
    if kind == "asyncio":
        asyncio.run(serve(path, address))
    server = grpc.server(ThreadPoolExecutor())
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Service(path), server)
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
