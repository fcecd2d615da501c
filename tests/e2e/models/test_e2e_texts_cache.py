"""Models of texts with `response_cache`: an answer from the cache is the one that was kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import text_folders
import web
from conftest import Serve
from harness import eventually
from web import Http

TEXTS = ["a cat", "the dog sat on a mat", "cat"]
RANKED = {"model": "cross", "query": "a cat", "documents": TEXTS}
ASKED: list[tuple[str, dict[str, Any], bool]] = [  # the last: whether it may be kept
    ("/v1/embeddings", {"model": "mean", "input": TEXTS}, True),
    ("/embed", {"model": "mean", "inputs": TEXTS}, True),
    ("/tokenize", {"model": "mean", "inputs": TEXTS}, False),
    ("/decode", {"model": "mean", "ids": [1, 2, 3]}, False),
    ("/rerank", {"model": "cross", "query": "a cat", "texts": TEXTS, "return_text": True}, False),
    ("/v1/rerank", RANKED, True),
    ("/v1/rerank", {**RANKED, "return_documents": True}, False),
    ("/v1/models/ents:entities", {"inputs": TEXTS}, True),
]
IDENTITY = {"activation_fn": "torch.nn.modules.linear.Identity"}


@pytest.mark.once
def test_whatever_was_asked_between(serve: Serve, tmp_path: Path) -> None:
    """What repeats the request's texts is not kept: they are in no output."""
    pooling = {"word_embedding_dimension": 6, "pooling_mode_mean_tokens": True}
    text_folders.write(tmp_path / "mean", text_folders.sentence_files(pooling))
    cross = text_folders.scores_files(sentence_transformers=IDENTITY)
    text_folders.write(tmp_path / "cross", cross, is_scores=True)
    text_folders.write(tmp_path / "ents", text_folders.entities_files(), is_entities=True)
    models = [
        {"name": name, "path": str(tmp_path / name), "response_cache": True}
        for name in ("mean", "cross", "ents")
    ]
    server = serve({"models": models, "server": {"io_threads": 1}})
    with Http(server.port) as http:

        def ask(path: str, document: dict[str, Any]) -> bytes:
            answer = http.query(web.post(path, json.dumps(document).encode()))
            assert answer.code == 200, answer.body
            return bytes(answer.body)

        firsts = [ask(path, document) for path, document, _ in ASKED]
        hits = 0
        for number, (path, document, is_kept) in enumerate(ASKED):
            for count in (1, 2, 3):  # the slot has others' texts then
                others = [f"mat {number}"] * count
                ask("/v1/rerank", {"model": "cross", "query": "cat", "documents": others})
                ask("/embed", {"model": "mean", "inputs": others})
            assert ask(path, document) == firsts[number]
            hits += is_kept
            eventually(lambda: server.figures().slots_in_use == 0, "all is counted")
            assert server.figures().io["cache_hits"] == hits
    assert hits == 4
