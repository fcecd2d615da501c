"""Both clients while the models of their server come, go and change."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from peer import DESCRIPTION, Connection, Peer, answer, reply

from lumen_uring import AsyncClient, Client
from lumen_uring.client.base import may_be_stale
from lumen_uring.errors import BadRequest, UnknownModel
from lumen_uring.protocol.native import InferResult, ReplyHeader

SUM, RAW, _PHOTO = DESCRIPTION["models"]
NARROW = {**SUM, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]}
X = np.arange(8, dtype=np.float32).reshape(2, 4)
Y = np.array([5, 6, 7], np.int64)
Infer = Callable[..., InferResult]


class Models:
    """A script of a peer: the n-th describe gives the n-th list, the last one repeats; `refused`
    infer requests get status 2."""

    def __init__(self, *lists: list[dict[str, Any]], refused: int = 0) -> None:
        self.lists = lists
        self.refused = refused
        self.describes = 0

    def __call__(self, connection: Connection) -> None:
        """Answers for as long as the client asks."""
        while True:
            request = connection.request()
            if request.kind == 3:
                models = self.lists[min(self.describes, len(self.lists) - 1)]
                self.describes += 1
                said = json.dumps({**DESCRIPTION, "models": models}).encode()
                connection.send(reply(request.id, said))
            elif request.kind == 1 and self.refused:
                self.refused -= 1
                connection.send(reply(request.id, b"gone", status=2))
            else:
                connection.send(answer(request))


class Both:
    """Makes clients of one kind, each call of which waits for its answer."""

    def __init__(self, is_async: bool) -> None:
        self._is_async = is_async
        self._loop = asyncio.new_event_loop()
        self._clients: list[Any] = []

    def __call__(self, peer: Peer) -> Any:
        """The client's call of this name, for any name."""
        kind = AsyncClient if self._is_async else Client
        self._clients.append(kind("127.0.0.1", peer.port))
        return self

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._clients[-1], name)

        def waited(*given: Any) -> Any:
            found = call(*given)
            return self._loop.run_until_complete(found) if self._is_async else found

        return waited

    def end(self) -> None:
        """Closes all."""
        for _ in range(len(self._clients)):
            self.close()
            self._clients.pop()
        self._loop.close()


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest) -> Iterator[Both]:
    both = Both(request.param == "async")
    yield both
    both.end()


def test_a_model_that_comes_is_found(client: Both) -> None:
    script = Models([RAW], [RAW, SUM])
    with Peer((script,)) as peer:
        calls = client(peer)
        calls.infer("raw", {"x": Y})
        assert calls.infer("sum", {"x": X}).rows == 2
        assert calls.infer("sum", {"x": X}).rows == 2
        assert (script.describes, peer.connections) == (2, 1)


def test_a_model_that_changes_is_fitted(client: Both) -> None:
    script = Models([NARROW], [SUM])
    with Peer((script,)) as peer:
        calls = client(peer)
        calls.models()
        assert calls.infer("sum", {"x": X}).rows == 2
        assert script.describes == 2


def test_a_model_that_is_not_there_is_asked_for_once_more(client: Both) -> None:
    script = Models([RAW])
    with Peer((script,)) as peer:
        calls = client(peer)
        with pytest.raises(UnknownModel, match="has no model 'sum'; it has"):
            calls.infer("sum", {"x": X})
        assert script.describes == 1  # what is new needs no second look
        with pytest.raises(UnknownModel, match="has no model 'sum'; it has"):
            calls.infer("sum", {"x": X})
        with pytest.raises(BadRequest, match=r"expected int64 \[3\]"):
            calls.infer("raw", {"x": Y[:2]})
        assert script.describes == 3
        assert calls.infer("raw", {"x": Y}).rows == 1
        assert (script.describes, peer.connections) == (3, 1)


def test_a_model_under_another_number_is_found_after_a_refusal(client: Both) -> None:
    """Nothing is sent twice: the refused call is told, and the next one knows better."""
    script = Models([SUM], [SUM], refused=1)
    with Peer((script,)) as peer:
        calls = client(peer)
        with pytest.raises(UnknownModel, match="gone"):
            calls.infer("sum", {"x": X})
        assert calls.infer("sum", {"x": X}).rows == 2
        assert (script.describes, peer.connections) == (2, 1)


@pytest.mark.parametrize(("encoding", "status", "stale"), [
    (0, 1, True), (1, 1, True), (2, 1, False), (0, 2, True), (2, 2, True), (0, 4, False),
])  # fmt: skip
def test_which_refusals_doubt_the_description(encoding: int, status: int, stale: bool) -> None:
    """Not those of a file that is no picture, which says nothing about the model."""
    header = ReplyHeader(*(0,) * len(dataclasses.fields(ReplyHeader)))
    assert may_be_stale(dataclasses.replace(header, status=status), encoding) is stale


def test_a_model_of_texts_that_comes_is_found(client: Both) -> None:
    texts = {
        **RAW,
        "name": "texts",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
    }
    script = Models([RAW], [RAW, texts])
    with Peer((script,)) as peer:
        calls = client(peer)
        calls.models()
        with pytest.raises(BadRequest, match="expected one that gives vectors"):
            calls.embed("texts", "a")
        assert script.describes == 2
