"""`lumen predict`: sends pictures, or any inputs, to a running server and shows the answers.

Called by cli.py, on the main thread. The model's description decides how a picture is prepared. A
picture that cannot be read is reported and the next one tried. With --input the answer is shown by
predict_tensors.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lumen_uring import pictures, predict_tensors
from lumen_uring.errors import BadRequest, ConfigError, PictureError
from lumen_uring.inputs import add_input_option
from lumen_uring.options import (
    Subparsers,
    add_server_options,
    choose_model,
    count,
    credential_of,
    token_of,
)

if TYPE_CHECKING:
    from lumen_uring.client import Client
    from lumen_uring.convert import Array
    from lumen_uring.describe import Model
    from lumen_uring.native import InferResult


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


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "predict",
        help="ask a running server: classify pictures, or send any inputs",
        description="Sends pictures (files, or folders of them) to a running server. Each is "
        "scaled as a whole to the model's size, without cropping; the server then normalises it "
        "by the model's settings channel_order, mean and scale. With --input it sends numbers "
        "instead, to any model, and prints the outputs.",
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a picture or a folder")
    add_input_option(parser, "send these values, not a picture")
    add_server_options(parser)
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
    import orjson

    from lumen_uring.client import Client

    if bool(arguments.paths) == bool(arguments.inputs):
        found = "both" if arguments.paths else "neither"
        raise ConfigError(f"predict: expected pictures or --input VALUE, found {found}.")
    labels: Sequence[str] = _read_labels(arguments.labels)
    failed = 0
    seen = 0
    token = token_of(arguments)
    credential_of(arguments)
    with Client(arguments.host, arguments.port, token=token) as client:
        model = choose_model(client.models(), arguments.model)
        labels = labels or model.labels
        if arguments.inputs:
            predict_tensors.run(client, model, arguments, labels)
            return 0
        for path in pictures.find(arguments.paths):
            seen += 1
            try:
                prediction = _predict(client, model, path, arguments.top, labels)
            except (PictureError, BadRequest) as error:
                failed += 1
                print(f"lumen: {error}", file=sys.stderr)
                continue
            if seen == 1 and labels and len(labels) != prediction.class_count:
                print(
                    f"lumen: note: {len(labels)} labels for {prediction.class_count} classes",
                    file=sys.stderr,
                )
            if arguments.json:
                print(orjson.dumps(prediction.as_json()).decode())
            else:
                _show(prediction)
        if not arguments.json and failed < seen:
            print(preprocessing(model))
    if seen == 0:
        raise PictureError(f"No picture (.png .jpg .jpeg .bmp .gif .webp) in {arguments.paths}.")
    return 1 if failed else 0


def preprocessing(model: Model) -> str:
    """Says how a picture is prepared for the model.

    Args:
        model: as the server describes it.
    """
    info = model.rgb8
    if info is None:
        size = "their own size where it is free" if model.free_dims else "the model's size"
        return f"{model.name}: pictures become grey, scaled as a whole to {size}, 0..255"
    size = f"{info.width} x {info.height}"
    sentence = f"{model.name}: pictures are scaled as a whole to {size}, not cropped"
    if info.mean is None or info.scale is None or info.channel_order is None:
        return sentence
    if model.inputs[0].datatype == "UINT8":
        return f"{sentence}; the model gets {info.channel_order} values of 0..255"
    sentence += (
        f"; the server computes (value - mean) * scale in the order {info.channel_order}, "
        f"mean {_short(info.mean)}, scale {_short(info.scale)}"
    )
    if (info.channel_order, set(info.mean), set(info.scale)) == ("RGB", {0.0}, {1.0}):
        sentence += (
            "\n  these are the defaults: set the model's channel_order, mean and scale in the "
            "server's config.yaml as it was trained, or its answers are wrong"
        )
    return sentence


def _short(values: tuple[float, ...]) -> str:
    texts = [f"{value:g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}]"


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
            (int(index), float(scores[index]), _label(labels, int(index))) for index in best
        ),
        class_count=len(scores),
        round_trip_us=round_trip_us,
        infer_us=result.timings.infer_us,
    )


def _label(labels: Sequence[str], index: int) -> str | None:
    return labels[index] or None if index < len(labels) else None


def _infer(client: Client, model: Model, prepared: Array) -> InferResult:
    if model.rgb8 is not None:
        return client.infer_rgb8(model.name, prepared)
    return client.infer(model.name, {model.inputs[0].name: prepared})


def _read_labels(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
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
