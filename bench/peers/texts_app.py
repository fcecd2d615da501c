"""A peer: sentence embeddings behind FastAPI, as people write it: tokenizers, ONNX Runtime, numpy.

Run by uvicorn in a virtual environment of its own (peers/texts.py starts it): one process and ONNX
Runtime's defaults, or a process per core and one thread per session. The answer is OpenAI's. It
never imports Lumen.
"""

from __future__ import annotations

import base64
import os
from typing import Any

import numpy as np
import onnxruntime
from fastapi import FastAPI, Response
from pydantic import BaseModel
from tokenizers import Tokenizer

_folder = os.environ["LUMEN_PEER_MODEL"]
_options = onnxruntime.SessionOptions()
if "LUMEN_PEER_TUNED" in os.environ:
    _options.intra_op_num_threads = 1
    _options.inter_op_num_threads = 1
_session = onnxruntime.InferenceSession(
    f"{_folder}/onnx/model.onnx", _options, providers=["CPUExecutionProvider"]
)
_tokenizer = Tokenizer.from_file(f"{_folder}/tokenizer.json")
_tokenizer.enable_truncation(256)
_tokenizer.enable_padding()

app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)


class Request(BaseModel):
    """OpenAI's, as far as it is used."""

    input: str | list[str]
    model: str = ""
    encoding_format: str = "float"


@app.get("/health")
async def health() -> Response:
    """Says which process is ready."""
    return Response(str(os.getpid()), media_type="text/plain")


@app.post("/v1/embeddings")
def embed(request: Request) -> dict[str, Any]:
    """In a thread of uvicorn's pool, so that others are answered meanwhile."""
    texts = [request.input] if isinstance(request.input, str) else request.input
    encoded = _tokenizer.encode_batch(texts)
    ids = np.array([one.ids for one in encoded], np.int64)
    mask = np.array([one.attention_mask for one in encoded], np.int64)
    types = np.array([one.type_ids for one in encoded], np.int64)
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    (hidden,) = _session.run(["last_hidden_state"], inputs)
    weights = mask[:, :, None].astype(np.float32)
    vectors = (hidden * weights).sum(1) / weights.sum(1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tokens = int(mask.sum())
    as_text = request.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(row.tobytes()).decode() if as_text else row.tolist(),
        }
        for index, row in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": request.model, "usage": usage}
