"""`lumen predict`: sends pictures, or any inputs, to a running server and shows the answers.

Called by cli.py, on the main thread. The model's description decides how a picture is prepared.
predict/pictures.py asks; this file has the options and prints. With --input predict/tensors.py does
both.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lumen_uring.errors import ConfigError, PictureError
from lumen_uring.options import (
    Subparsers,
    add_server_options,
    choose_model,
    count,
    credential_of,
    token_of,
)
from lumen_uring.pictures import files as pictures
from lumen_uring.predict import tensors as predict_tensors
from lumen_uring.predict.inputs import add_input_option
from lumen_uring.predict.pictures import IN_FLIGHT, Failure, Prediction, classify, rows_of
from lumen_uring.settings import text_files

if TYPE_CHECKING:
    from rich.progress import Progress

    from lumen_uring.protocol.describe import Model

_TIMEOUT_S: Final = 10.0

_SEVERAL_TIMEOUT_S: Final = 60.0  # of a request that waits behind IN_FLIGHT others
_NAMES_MAX: Final = 10  # of failed pictures, named in one line


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "predict",
        help="ask a running server: classify pictures, or send any inputs",
        description="Sends pictures (files, or folders of them) to a running server. A model with "
        "the setting `image` gets the file as it is. For another one each is scaled as a whole to "
        "the model's size, without cropping; the server then normalises it by the model's settings "
        "channel_order, mean and scale. Several pictures are sent many at a time and shown in a "
        "table. With --input it sends numbers instead, to any model, and prints the outputs.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a picture or a folder")
    add_input_option(parser, "send these values, not a picture")
    add_server_options(parser, tls=True)
    parser.add_argument(
        "--model", metavar="NAME", help="model to run; not needed when there is only one"
    )
    parser.add_argument(
        "--top", type=count, default=5, metavar="K", help="how many classes to show (%(default)s)"
    )
    parser.add_argument(
        "--labels",
        metavar="FILE",
        help="names of the classes, one per line; default: the server's labels",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per picture")
    parser.add_argument(
        "--csv",
        metavar="FILE",
        help="write a row for each picture and class: path, rank, index, label, score, "
        "round_trip_us, infer_us, error",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Classifies every picture, or runs the model on the inputs given.

    Args:
        arguments: as `add` declared them.

    Returns:
        0, or 1 when a picture could not be classified.

    Raises:
        LumenError: there is no server, no such model, no such file.
    """
    from lumen_uring.client.client import Client

    if bool(arguments.paths) == bool(arguments.inputs):
        found = "both" if arguments.paths else "neither"
        raise ConfigError(f"predict: expected pictures or --input VALUE, found {found}.")
    if arguments.inputs and arguments.csv:
        raise ConfigError("--csv: expected it with pictures, found --input.")
    labels: Sequence[str] = _read_labels(arguments.labels)
    token = token_of(arguments)
    credential_of(arguments)
    if arguments.inputs:
        with Client(arguments.host, arguments.port, token=token, tls=arguments.tls) as client:
            model = choose_model(client.models(), arguments.model)
            predict_tensors.run(client, model, arguments, labels or model.labels)
        return 0
    paths = list(pictures.find(arguments.paths))
    if not paths:
        raise PictureError(f"No picture (.png .jpg .jpeg .bmp .gif .webp) in {arguments.paths}.")
    return asyncio.run(_classify(arguments, paths, labels, token))


async def _classify(
    arguments: argparse.Namespace, paths: Sequence[Path], labels: Sequence[str], token: str | None
) -> int:
    """Returns the exit status."""
    from lumen_uring.client.async_client import AsyncClient

    several = len(paths) > 1
    outcomes: list[Prediction | Failure] = []
    timeout_s = _SEVERAL_TIMEOUT_S if several else _TIMEOUT_S
    start_s = time.monotonic()
    async with AsyncClient(
        arguments.host, arguments.port, token=token, timeout_s=timeout_s, tls=arguments.tls
    ) as client:
        model = choose_model(await client.models(), arguments.model)
        answers = classify(client, model, paths, arguments.top, labels or model.labels)
        try:
            with rows_of(arguments.csv) as write, _progress(several, arguments.json) as progress:
                task = progress.add_task("classify", total=len(paths))
                async with aclosing(answers):
                    async for outcome in answers:
                        outcomes.append(outcome)
                        write(outcome)
                        _tell(outcome, arguments.json, several)
                        progress.advance(task)
        finally:  # an interrupted run shows what it has
            if several and not arguments.json and outcomes:
                print("\n".join(table(outcomes, time.monotonic() - start_s)))
    predictions = [outcome for outcome in outcomes if isinstance(outcome, Prediction)]
    if predictions:
        _note_labels(labels or model.labels, predictions[0].class_count)
        if not arguments.json:
            print(preprocessing(model))
    return 0 if len(predictions) == len(paths) else 1


def _tell(outcome: Prediction | Failure, as_json: bool, several: bool) -> None:
    """Prints what came of a picture, as far as the table at the end does not."""
    import orjson

    if isinstance(outcome, Failure):
        print(f"lumen: {outcome.error}", file=sys.stderr)
    elif as_json:
        print(orjson.dumps(outcome.as_json()).decode())
    elif not several:
        _show(outcome)


def _note_labels(labels: Sequence[str], class_count: int) -> None:
    if labels and len(labels) != class_count:
        print(f"lumen: note: {len(labels)} labels for {class_count} classes", file=sys.stderr)


def _progress(several: bool, as_json: bool) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not several or as_json or not sys.stderr.isatty(),
    )


def table(outcomes: Sequence[Prediction | Failure], seconds: float) -> list[str]:
    """Shows several pictures, a line each, and their sum.

    Args:
        outcomes: one at least.
        seconds: that they took together.

    >>> found = Prediction("a.png", ((7, 0.5, None),), 10, 1500, 900)
    >>> print("\\n".join(table([found, Failure("b.png", "b.png is no picture.")], 0.5)))
    picture  class        score        ms
    a.png    class 7    0.50000      1.50
    b.png    failed
    2 pictures in 0.50 s, at most 16 at a time: 4 a second; 1 failed: b.png
    """
    cells = [("picture", "class", "    score", "      ms")]
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            cells.append((outcome.path, "failed", "", ""))
            continue
        took = f"{outcome.round_trip_us / 1000:8.2f}"
        if not outcome.classes:  # an output without elements
            cells.append((outcome.path, "none", " " * 9, took))
            continue
        index, best, label = outcome.classes[0]
        cells.append((outcome.path, label or f"class {index}", f"{best:9.5f}", took))
    widths = [max(len(row[column]) for row in cells) for column in (0, 1)]
    lines = [
        f"{path:<{widths[0]}}  {name:<{widths[1]}}  {score}  {took}".rstrip()
        for path, name, score, took in cells
    ]
    failed = [outcome.path for outcome in outcomes if isinstance(outcome, Failure)]
    noun = "picture" if len(outcomes) == 1 else "pictures"
    text = (
        f"{len(outcomes)} {noun} in {seconds:.2f} s, at most {IN_FLIGHT} at a time: "
        f"{len(outcomes) / max(seconds, 1e-6):.0f} a second"
    )
    if failed:
        more = len(failed) - _NAMES_MAX
        text += f"; {len(failed)} failed: {', '.join(failed[:_NAMES_MAX])}"
        text += f" and {more} more" if more > 0 else ""
    return [*lines, text]


def preprocessing(model: Model) -> str:
    """Says how a picture is prepared for the model.

    Args:
        model: as the server describes it.
    """
    info = model.rgb8
    if model.image is not None:
        from lumen_uring.pictures.image_input import described

        plan = described(model.inputs[0].datatype, asdict(model.image))
        sentence = f"{model.name}: the server decodes the file: {plan.sentence()}"
        if plan.dtype.startswith("float"):
            sentence += _doubt(plan.channel_order, plan.mean, plan.scale)
        return sentence
    if info is None:
        size = "their own size where it is free" if model.free_dims else "the model's size"
        return f"{model.name}: pictures become grey, scaled as a whole to {size}, 0..255"
    sentence = (
        f"{model.name}: pictures are scaled as a whole to {info.width} x {info.height}, not cropped"
    )
    if info.mean is None or info.scale is None or info.channel_order is None:
        return sentence
    if model.inputs[0].datatype == "UINT8":
        return f"{sentence}; the model gets {info.channel_order} values of 0..255"
    return (
        f"{sentence}; the server computes (value - mean) * scale in the order "
        f"{info.channel_order}, mean {_short(info.mean)}, scale {_short(info.scale)}"
        f"{_doubt(info.channel_order, info.mean, info.scale)}"
    )


def _doubt(channel_order: str, mean: tuple[float, ...], scale: tuple[float, ...]) -> str:
    if (channel_order.upper(), set(mean), set(scale)) != ("RGB", {0.0}, {1.0}):
        return ""
    return (
        "\n  these are the defaults: set the model's channel_order, mean and scale in the "
        "server's config.yaml as it was trained, or its answers are wrong"
    )


def _short(values: tuple[float, ...]) -> str:
    texts = [f"{value:g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}]"


def _read_labels(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        text = text_files.decode(Path(path).read_bytes())
    except (OSError, text_files.NotUtf8Error) as error:
        raise PictureError(f"The labels in {path} cannot be read: {error}.") from None
    # Not splitlines: a label may hold what Unicode calls a line's end, and must keep its number.
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _show(prediction: Prediction) -> None:
    print(
        f"{prediction.path}: {prediction.round_trip_us / 1000:.2f} ms, "
        f"of which the model took {prediction.infer_us / 1000:.2f} ms"
    )
    for index, score, label in prediction.classes:
        print(f"  {index:>6}  {score:9.5f}{f'  {label}' if label else ''}")
