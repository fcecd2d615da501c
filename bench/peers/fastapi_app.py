"""A peer: the model behind FastAPI, as a careful author would write it.

Run by uvicorn in a virtual environment of its own (peers/servers.py starts it), a process per core
and one thread per session, or one process and ONNX Runtime's defaults.
The body is the input tensor's bytes, the answer the output's; nothing is parsed, copied twice or
handed to another thread. With LUMEN_PEER_BOUND tensors of one row lie in memory that ONNX Runtime
was given once. With LUMEN_PEER_PICTURE the body is a picture's file, and the answer its five best
classes. It never imports Lumen.
"""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
import picture_steps
from fastapi import FastAPI, Request, Response

_options = onnxruntime.SessionOptions()
if "LUMEN_PEER_TUNED" in os.environ:
    _options.intra_op_num_threads = 1
    _options.inter_op_num_threads = 1
_session = onnxruntime.InferenceSession(
    os.environ["LUMEN_PEER_MODEL"], _options, providers=["CPUExecutionProvider"]
)
_input = _session.get_inputs()[0]
_names = [_session.get_outputs()[0].name]
_shape = [size if isinstance(size, int) else -1 for size in _input.shape]

app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/health")
async def health() -> Response:
    """Says which process is ready."""
    return Response(str(os.getpid()), media_type="text/plain")


@app.post("/infer")
async def infer(request: Request) -> Response:
    """Runs the model in the event loop, as most applications do."""
    tensor = np.frombuffer(await request.body(), np.float32).reshape(_shape)
    (answer,) = _session.run(_names, {_input.name: tensor})
    return Response(answer.tobytes(), media_type="application/octet-stream")


class _Row:
    """One row's input and output, allocated once and bound to the session."""

    def __init__(self) -> None:
        self._tensor = np.empty(self._one_row(_input.shape), np.float32)
        self._answer = np.empty(self._one_row(_session.get_outputs()[0].shape), np.float32)
        self._flat = self._tensor.reshape(-1)
        self._binding = _session.io_binding()
        for bind, name, array in (
            (self._binding.bind_input, _input.name, self._tensor),
            (self._binding.bind_output, _names[0], self._answer),
        ):
            bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)

    @staticmethod
    def _one_row(shape: list[int | str]) -> list[int]:
        return [size if isinstance(size, int) else 1 for size in shape]

    def run(self, body: bytes) -> bytes:
        """Runs the model in the bound memory; one request at a time, as the event loop does."""
        self._flat[:] = np.frombuffer(body, np.float32)
        _session.run_with_iobinding(self._binding)
        return self._answer.tobytes()


_row = _Row() if "LUMEN_PEER_BOUND" in os.environ else None


@app.post("/bound")
async def bound(request: Request) -> Response:
    """As /infer, but allocates no tensors."""
    assert _row is not None
    return Response(_row.run(await request.body()), media_type="application/octet-stream")


_way = picture_steps.WAYS.get(os.environ.get("LUMEN_PEER_PICTURE", ""))


@app.post("/picture")
async def picture(request: Request) -> list[dict[str, float]]:
    """Decodes and resizes a file, runs the model, and answers with the best classes."""
    assert _way is not None
    tensor = _way(await request.body(), _shape[-1])
    (answer,) = _session.run(_names, {_input.name: tensor})
    scores = answer.reshape(-1)
    best = np.argsort(-scores)[:5]
    return [{"score": float(scores[index]), "index": int(index)} for index in best]
