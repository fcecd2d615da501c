"""What both clients of the native protocol do with models of texts, on `infer` alone.

Used by client.py and async_client.py, on any thread. A server sends vectors and scores as tensors;
the names of the scores come with its description.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lumen_uring.client.base import ClientBase
from lumen_uring.errors import BadRequest
from lumen_uring.protocol.convert import Array
from lumen_uring.protocol.describe import Model
from lumen_uring.protocol.native import InferResult

_Inputs = dict[str, npt.ArrayLike]


@dataclass(frozen=True, slots=True)
class Label:
    """A class of a text and its score, as the model's activation leaves it."""

    label: str
    score: float


@dataclass(frozen=True, slots=True)
class Rank:
    """A text's place in the list that was sent, and its score beside the query."""

    index: int
    score: float


@dataclass(frozen=True, slots=True)
class Entity:
    """What a text names: text[start:end], which is `word` unless the model's setting
    `text.aggregation` is none; then each is a token, and `word` its name."""

    label: str
    score: float
    word: str
    start: int
    end: int


class TextClient(ClientBase):
    """Texts to vectors, labels and rankings, each call waiting for its answer."""

    _made_for: Callable[[str, Callable[[Model], _Inputs]], tuple[Model, _Inputs]]
    infer: Callable[..., InferResult]

    def embed(self, model: str, texts: str | Sequence[str], *, timeout_us: int = 0) -> Array:
        """Makes vectors of texts; the model's default prompt is put before each.

        Args:
            model: its name; it gives `embedding`.
            texts: one, or a list of them.
            timeout_us: the server drops the request when it has waited longer; µs, 0: its default.

        Returns:
            float32 [texts, width], in the order of the texts; a single text has a row as well.

        Raises:
            BadRequest: the model gives no vectors, or there is no text.
            ClientError: what the server answered, or how the connection failed.
        """
        _, inputs = self._made_for(model, lambda one: _alone(one, "embedding", texts))
        return self.infer(model, inputs, timeout_us=timeout_us).outputs["embedding"]

    def classify(
        self, model: str, texts: str | Sequence[str], *, timeout_us: int = 0
    ) -> list[list[Label]]:
        """Finds the classes of texts.

        Args:
            model: its name; it gives `scores` of texts.
            texts: one, or a list of them.
            timeout_us: the server drops the request when it has waited longer; µs, 0: its default.

        Returns:
            For each text all labels with their scores, the highest first.

        Raises:
            BadRequest: the model gives no scores of single texts, or there is no text.
            ClientError: what the server answered, or how the connection failed.
        """
        entry, inputs = self._made_for(model, lambda one: _alone(one, "scores", texts))
        return _labels(entry, self.infer(model, inputs, timeout_us=timeout_us))

    def entities(
        self, model: str, texts: str | Sequence[str], *, timeout_us: int = 0
    ) -> list[list[Entity]]:
        """Finds what texts name: persons, places and whatever else the model knows.

        Args:
            model: its name; it gives `entities` of texts.
            texts: one, or a list of them.
            timeout_us: the server drops the request when it has waited longer; µs, 0: its default.

        Returns:
            For each text its entities, in their order; places are in code points.

        Raises:
            BadRequest: the model gives no entities, or there is no text.
            ClientError: what the server answered, or how the connection failed.
        """
        _, inputs = self._made_for(model, lambda one: _alone(one, "entities", texts))
        return _entities(self.infer(model, inputs, timeout_us=timeout_us))

    def rerank(
        self, model: str, query: str, texts: str | Sequence[str], *, timeout_us: int = 0
    ) -> list[Rank]:
        """Orders texts by how well they answer a query.

        Args:
            model: its name; it gives `scores` of pairs (a cross-encoder).
            query: the first text of each pair.
            texts: the second ones.
            timeout_us: the server drops the request when it has waited longer; µs, 0: its default.

        Returns:
            All texts by their place in the list, the best first; equal ones in the list's order.

        Raises:
            BadRequest: the model gives no scores of pairs, or there is no text.
            ClientError: what the server answered, or how the connection failed.
        """
        _, inputs = self._made_for(model, lambda one: _pairs(one, query, texts))
        return _ranks(self.infer(model, inputs, timeout_us=timeout_us))


class AsyncTextClient(ClientBase):
    """As TextClient, for asyncio."""

    _made_for: Callable[[str, Callable[[Model], _Inputs]], Awaitable[tuple[Model, _Inputs]]]
    infer: Callable[..., Awaitable[InferResult]]

    async def embed(self, model: str, texts: str | Sequence[str], *, timeout_us: int = 0) -> Array:
        """Makes vectors of texts; arguments, result and errors as Client.embed."""
        _, inputs = await self._made_for(model, lambda one: _alone(one, "embedding", texts))
        return (await self.infer(model, inputs, timeout_us=timeout_us)).outputs["embedding"]

    async def classify(
        self, model: str, texts: str | Sequence[str], *, timeout_us: int = 0
    ) -> list[list[Label]]:
        """Finds the classes of texts; arguments, result and errors as Client.classify."""
        entry, inputs = await self._made_for(model, lambda one: _alone(one, "scores", texts))
        return _labels(entry, await self.infer(model, inputs, timeout_us=timeout_us))

    async def entities(
        self, model: str, texts: str | Sequence[str], *, timeout_us: int = 0
    ) -> list[list[Entity]]:
        """Finds what texts name; arguments, result and errors as Client.entities."""
        _, inputs = await self._made_for(model, lambda one: _alone(one, "entities", texts))
        return _entities(await self.infer(model, inputs, timeout_us=timeout_us))

    async def rerank(
        self, model: str, query: str, texts: str | Sequence[str], *, timeout_us: int = 0
    ) -> list[Rank]:
        """Orders texts by a query; arguments, result and errors as Client.rerank."""
        _, inputs = await self._made_for(model, lambda one: _pairs(one, query, texts))
        return _ranks(await self.infer(model, inputs, timeout_us=timeout_us))


def _strings(texts: str | Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _check(model: Model, inputs: set[str], output: str, what: str) -> None:
    found = {tensor.name for tensor in model.inputs}
    outputs = [tensor.name for tensor in model.outputs]
    if found != inputs or output not in outputs:
        raise BadRequest(
            f"Model {model.name!r}: expected one that gives {what}, found one of the inputs "
            f"{sorted(found)} and the outputs {outputs}."
        )


def _alone(model: Model, output: str, texts: str | Sequence[str]) -> _Inputs:
    names = {"embedding": "vectors", "scores": "scores", "entities": "entities"}
    what = f"{names[output]} of texts"
    _check(model, {"text"}, output, what)
    return {"text": _strings(texts)}


def _pairs(model: Model, query: str, texts: str | Sequence[str]) -> _Inputs:
    _check(model, {"text", "text_pair"}, "scores", "scores of pairs of texts")
    others = _strings(texts)
    return {"text": [query] * len(others), "text_pair": others}


def _labels(model: Model, result: InferResult) -> list[list[Label]]:
    rows = result.outputs["scores"]
    orders = np.argsort(-rows, axis=1, kind="stable")
    return [
        [Label(model.labels[at], float(row[at])) for at in order]
        for row, order in zip(rows, orders, strict=True)
    ]


def _entities(result: InferResult) -> list[list[Entity]]:
    rows = (json.loads(row) for row in result.outputs["entities"])
    return [
        [
            Entity(
                one.get("entity_group", one.get("entity")),
                one["score"],
                one["word"],
                one["start"],
                one["end"],
            )
            for one in row
        ]
        for row in rows
    ]


def _ranks(result: InferResult) -> list[Rank]:
    scores = result.outputs["scores"][:, 0]
    return [Rank(int(at), float(scores[at])) for at in np.argsort(-scores, kind="stable")]
