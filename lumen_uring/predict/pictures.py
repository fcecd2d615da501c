"""Classifies pictures on a running server: several requests in flight, answers in order.

Called by commands/predict.py, on its event loop. A picture that cannot be read, or that the server
refuses, becomes a Failure and the next one is tried; what concerns all of them is raised.
"""

from __future__ import annotations

import asyncio
import csv
import io
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import (
    BadRequest,
    ConfigError,
    DeadlinePassed,
    InferenceFailed,
    LumenError,
    Overloaded,
    PictureError,
    RateLimited,
    TooLarge,
)
from lumen_uring.pictures import files as pictures

if TYPE_CHECKING:
    from lumen_uring.client.async_client import AsyncClient
    from lumen_uring.protocol.convert import Array
    from lumen_uring.protocol.describe import Model
    from lumen_uring.protocol.native import InferResult

IN_FLIGHT: Final = 16  # files held in memory, and enough for the workers of most machines
_ABOUT_ONE: Final = (PictureError, BadRequest, TooLarge, RateLimited, InferenceFailed)
_FOR_LACK_OF_ROOM: Final = (Overloaded, DeadlinePassed)
_COLUMNS: Final = ("path", "rank", "index", "label", "score", "round_trip_us", "infer_us", "error")


@dataclass(frozen=True, slots=True)
class Prediction:
    """One picture's best classes: `classes` holds (index, score, label or None), best first."""

    path: str
    classes: tuple[tuple[int, float, str | None], ...]
    class_count: int
    round_trip_us: int
    infer_us: int

    def as_json(self) -> dict[str, Any]:
        """The figures under stable names."""
        return {
            "path": self.path,
            "classes": [
                {"class": index, "score": score, "label": label}
                for index, score, label in self.classes
            ],
            "round_trip_us": self.round_trip_us,
            "infer_us": self.infer_us,
        }


@dataclass(frozen=True, slots=True)
class Failure:
    """A picture without an answer, and a sentence that says why."""

    path: str
    error: str


async def classify(
    client: AsyncClient, model: Model, paths: Sequence[Path], top: int, labels: Sequence[str]
) -> AsyncGenerator[Prediction | Failure, None]:
    """Asks for the classes of every picture.

    Args:
        client: of the server; its timeout must allow for IN_FLIGHT requests.
        model: to run.
        paths: of the pictures.
        top: how many classes of each.
        labels: names of the classes; may be empty.

    Yields:
        For each path, in this order, what came of it.

    Raises:
        LumenError: the server is gone, or takes no pictures, or no requests of this client.
    """

    async def ask(path: Path) -> Prediction | Failure | LumenError:
        try:
            return await _predict(client, model, path, top, labels)
        except _ABOUT_ONE as error:
            return _failure(path, error)
        except _FOR_LACK_OF_ROOM as error:
            return error

    waiting: deque[tuple[Path, asyncio.Task[Prediction | Failure | LumenError]]] = deque()
    left = iter(paths)
    try:
        while True:
            while len(waiting) < IN_FLIGHT and (path := next(left, None)) is not None:
                waiting.append((path, asyncio.create_task(ask(path))))
            if not waiting:
                return
            path, task = waiting.popleft()
            outcome = await task
            if isinstance(outcome, LumenError):
                # The server may have room for fewer than IN_FLIGHT: once more, alone.
                if waiting:
                    await asyncio.wait([other for _, other in waiting])
                outcome = await ask(path)
            yield _failure(path, outcome) if isinstance(outcome, LumenError) else outcome
    finally:
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)


@contextmanager
def rows_of(file: str | None) -> Iterator[Callable[[Prediction | Failure], None]]:
    """Opens a CSV file for a row for each picture and class, or for each failure.

    Args:
        file: to write; None writes nothing.

    Yields:
        A function that writes what came of one picture.

    Raises:
        ConfigError: the file cannot be written.
    """
    if file is None:
        yield lambda _: None
        return
    try:
        # Without a buffer, so that an interrupted run leaves whole rows.
        out = open(file, "wb", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise _unwritable(file, error) from None

    def write(lines: Sequence[Sequence[object]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(lines)
        try:
            out.write(text.getvalue().encode("utf-8", "replace"))  # a name may be none
        except OSError as error:
            raise _unwritable(file, error) from None

    with out:
        write([_COLUMNS])
        yield lambda outcome: write(_rows(outcome))


def _unwritable(file: str, error: OSError) -> ConfigError:
    return ConfigError(f"--csv {file}: expected a file to write, found: {error.strerror}.")


def _rows(outcome: Prediction | Failure) -> Sequence[Sequence[object]]:
    if isinstance(outcome, Failure):
        return [(outcome.path, *[""] * 6, outcome.error)]
    times = (outcome.round_trip_us, outcome.infer_us)
    return [
        (outcome.path, rank, index, label or "", score, *times, "")
        for rank, (index, score, label) in enumerate(outcome.classes, 1)
    ]


def _failure(path: Path, error: LumenError) -> Failure:
    name, sentence = _name(path), str(error)
    return Failure(name, sentence if sentence.startswith(name) else f"{name}: {sentence}")


def _name(path: Path) -> str:
    """The path as text: a file's name may hold bytes that are none."""
    return os.fsencode(path).decode("utf-8", "replace")


async def _predict(
    client: AsyncClient, model: Model, path: Path, top: int, labels: Sequence[str]
) -> Prediction:
    prepared = await asyncio.to_thread(_prepare, model, path)
    start_ns = time.perf_counter_ns()
    result = await _infer(client, model, prepared)
    round_trip_us = (time.perf_counter_ns() - start_ns) // 1000
    scores = _scores(model, result)
    best = scores.argsort()[::-1][:top]
    return Prediction(
        path=_name(path),
        classes=tuple(
            (int(index), float(scores[index]), _label(labels, int(index))) for index in best
        ),
        class_count=len(scores),
        round_trip_us=round_trip_us,
        infer_us=result.timings.infer_us,
    )


def _scores(model: Model, result: InferResult) -> Array:
    """The first output of numbers: what a classifier's strings say, its labels say too."""
    for output in model.outputs:
        found = result.outputs[output.name]
        if found.dtype.kind not in "OSU":
            return found.reshape(-1)
    raise BadRequest(
        f"Model '{model.name}' answers with strings alone: expected an output of numbers, of which "
        "the highest are shown."
    )


def _prepare(model: Model, path: Path) -> Array | bytes:
    return pictures.served_file(path) if model.image else pictures.prepare(model, path)


def _label(labels: Sequence[str], index: int) -> str | None:
    return labels[index] or None if index < len(labels) else None


async def _infer(client: AsyncClient, model: Model, prepared: Array | bytes) -> InferResult:
    if isinstance(prepared, bytes):
        return await client.infer_images(model.name, prepared)
    if model.rgb8 is not None:
        return await client.infer_rgb8(model.name, prepared)
    return await client.infer(model.name, {model.inputs[0].name: prepared})
