"""A peer: the model behind FastAPI, as a careful author would write it.

Run by uvicorn in a virtual environment of its own (peers/servers.py starts it), a process per core.
The body is the input tensor's bytes, the answer the output's; nothing is parsed, copied twice or
handed to another thread. It never imports Lumen.
"""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
from fastapi import FastAPI, Request, Response

_options = onnxruntime.SessionOptions()
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
    """Runs the model in the event loop: with a process per core there is nobody else to serve."""
    tensor = np.frombuffer(await request.body(), np.float32).reshape(_shape)
    (answer,) = _session.run(_names, {_input.name: tensor})
    return Response(answer.tobytes(), media_type="application/octet-stream")
