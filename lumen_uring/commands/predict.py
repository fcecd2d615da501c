"""`lumen predict`: sends pictures to a running server and shows what its model says.

Called by cli.py, on the main thread. The model's description decides how a picture is prepared. A
picture that cannot be read is reported and the next one tried.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lumen_uring import pictures
from lumen_uring.commands.options import (
    Subparsers,
    add_server_options,
    count,
    credential_of,
    token_of,
)
from lumen_uring.errors import BadRequest, PictureError, UnknownModel

if TYPE_CHECKING:
    from lumen_uring.client import Client
    from lumen_uring.describe import Model
    from lumen_uring.native import Array, InferResult


@dataclass(frozen=True, slots=True)
class Prediction:
    """One picture's best classes: `classes` holds (index, score, label or None), best first."""

    path: str
    classes: tuple[tuple[int, float, str | None], ...]
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


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "predict",
        help="classify pictures with a running server",
        description="Sends pictures (files, or folders of them) to a running server.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a picture or a folder")
    add_server_options(parser)
    parser.add_argument("--model", metavar="NAME", help="which model; not needed if there is one")
    parser.add_argument(
        "--top", type=count, default=5, metavar="K", help="how many classes to show (%(default)s)"
    )
    parser.add_argument("--labels", metavar="FILE", help="names of the classes, one per line")
    parser.add_argument("--json", action="store_true", help="one JSON object per picture")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Classifies every picture.

    Args:
        arguments: as `add` declared them.

    Returns:
        0, or 1 when a picture could not be classified.

    Raises:
        LumenError: there is no server, no such model, no such file.
    """
    import orjson

    from lumen_uring.client import Client

    labels = _read_labels(arguments.labels)
    failed = 0
    seen = 0
    token = token_of(arguments)
    credential_of(arguments)
    with Client(arguments.host, arguments.port, token=token) as client:
        model = choose(client.models(), arguments.model)
        for path in pictures.find(arguments.paths):
            seen += 1
            try:
                prediction = _predict(client, model, path, arguments.top, labels)
            except (PictureError, BadRequest) as error:
                failed += 1
                print(f"lumen: {error}", file=sys.stderr)
                continue
            if arguments.json:
                print(orjson.dumps(prediction.as_json()).decode())
            else:
                _show(prediction)
    if seen == 0:
        raise PictureError(f"No picture (.png .jpg .jpeg .bmp .gif .webp) in {arguments.paths}.")
    return 1 if failed else 0


def choose(models: dict[str, Model], name: str | None) -> Model:
    """Picks the model a command is about.

    Args:
        models: the server's, by name.
        name: as given; None where there is only one.

    Returns:
        The model.

    Raises:
        UnknownModel: there is none of that name, or the choice is open.
    """
    if name is None:
        if len(models) != 1:
            raise UnknownModel(f"The server has {list(models)}: choose one with --model NAME.")
        return next(iter(models.values()))
    if name not in models:
        raise UnknownModel(f"The server has no model {name!r}; it has {list(models)}.")
    return models[name]


def _predict(
    client: Client, model: Model, path: Path, top: int, labels: Sequence[str]
) -> Prediction:
    prepared = pictures.prepare(model, path)
    start_ns = time.perf_counter_ns()
    result = _infer(client, model, prepared)
    round_trip_us = (time.perf_counter_ns() - start_ns) // 1000
    scores = result.outputs[model.outputs[0].name].reshape(-1)
    best = scores.argsort()[::-1][:top]
    return Prediction(
        path=str(path),
        classes=tuple(
            (int(index), float(scores[index]), labels[index] if index < len(labels) else None)
            for index in best
        ),
        round_trip_us=round_trip_us,
        infer_us=result.timings.infer_us,
    )


def _infer(client: Client, model: Model, prepared: Array) -> InferResult:
    if model.rgb8 is not None:
        return client.infer_rgb8(model.name, prepared)
    return client.infer(model.name, {model.inputs[0].name: prepared})


def _read_labels(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        return Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PictureError(f"The labels in {path} cannot be read: {error}.") from None


def _show(prediction: Prediction) -> None:
    print(
        f"{prediction.path}: {prediction.round_trip_us / 1000:.2f} ms, "
        f"of which the model took {prediction.infer_us / 1000:.2f} ms"
    )
    for index, score, label in prediction.classes:
        print(f"  {index:>6}  {score:9.5f}{f'  {label}' if label else ''}")
