"""Options and helpers of the commands that run models on pictures or on an .npz file's rows.

Called by commands/quantize.py and commands/fit_router.py, on the main thread.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lumen_uring.errors import ConfigError
from lumen_uring.loadgen.sizes import dims
from lumen_uring.options import count

if TYPE_CHECKING:
    from rich.progress import Progress

    from lumen_uring.offline.quantize_samples import Input, Samples
    from lumen_uring.pictures.image_input import Preprocessing

_T = TypeVar("_T")


def add_picture_options(parser: argparse.ArgumentParser) -> None:
    """Declares what becomes of a picture.

    Args:
        parser: of the command.
    """
    group = parser.add_argument_group(
        "pictures", "what becomes of a picture; set them as for the server, or the ranges are wrong"
    )
    group.add_argument(
        "--preset",
        choices=("imagenet", "squeezenet", "yolo"),
        help="sets the others; guessed from the graph where no option of these is given",
    )
    group.add_argument("--fit", choices=("stretch", "shorter_side_and_crop", "letterbox"))
    group.add_argument("--resize", type=count, metavar="N", help="the shorter side before the crop")
    group.add_argument("--filter", choices=("bilinear", "bicubic", "box", "nearest"))
    group.add_argument("--channel-order", choices=("rgb", "bgr"))
    group.add_argument("--mean", type=_three, metavar="M[,M,M]")
    group.add_argument(
        "--scale", type=_three, metavar="S[,S,S]", help="the model gets (value - mean) * scale"
    )
    group.add_argument(
        "--dims",
        type=dims,
        default={},
        metavar="NAME=SIZE,...",
        help="height and width where they are free in the model",
    )


def _three(text: str) -> tuple[float, float, float]:
    """Reads one number, or three with commas between them, for argparse.

    >>> _three("127.5"), _three("1,2,3")
    ((127.5, 127.5, 127.5), (1.0, 2.0, 3.0))
    """
    try:
        values = [float(part) for part in text.split(",")]
        first, second, third = values * 3 if len(values) == 1 else values
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a number, or three with commas between them, found {text!r}"
        ) from None
    return first, second, third


def samples_of(
    arguments: argparse.Namespace, inputs: list[Input], model: Any
) -> tuple[Samples, list[str]]:
    """The samples of --images or --npz, and sentences about them.

    Args:
        arguments: with images, npz, samples, crops and the picture options.
        inputs: of the model.
        model: as quantize_graph.load gives it.

    Raises:
        ConfigError: the options do not fit the model or each other.
    """
    from lumen_uring.offline.quantize_samples import ArraySamples, PictureSamples

    if arguments.npz:
        _refuse_picture_options(arguments)
        return ArraySamples(Path(arguments.npz), inputs, arguments.samples), []
    if len(inputs) != 1:
        names = ", ".join(entry.name for entry in inputs)
        raise ConfigError(
            f"--images: expected a model with one input, found {len(inputs)} ({names}): give them "
            "with --npz."
        )
    plan, notes = _preprocessing(arguments, inputs[0], model)
    samples = PictureSamples(
        Path(arguments.images), inputs[0].name, plan, arguments.samples, max(0, arguments.crops)
    )
    return samples, [*notes, f"pictures: {plan.sentence()}"]


def _refuse_picture_options(arguments: argparse.Namespace) -> None:
    for option in ("preset", "fit", "resize", "filter", "channel_order", "mean", "scale", "dims"):
        if getattr(arguments, option):
            raise ConfigError(
                f"--{option.replace('_', '-')}: expected it with --images, found --npz, which "
                "gives the model's own inputs."
            )


def _preprocessing(
    arguments: argparse.Namespace, entry: Input, model: Any
) -> tuple[Preprocessing, list[str]]:
    """What becomes of a picture, from the options or by a guess."""
    from lumen_uring.offline.quantize_samples import with_dims
    from lumen_uring.pictures.image_input import ImageConfig, guess_preset, picture_of, resolve

    entry = with_dims(entry, arguments.dims)
    given = {
        name: getattr(arguments, name)
        for name in ("preset", "fit", "resize", "filter")
        if getattr(arguments, name) is not None
    }
    others = (arguments.channel_order, arguments.mean, arguments.scale)
    notes = []
    channels, *_ = picture_of(entry.name, entry.datatype, entry.shape)
    if not given and others == (None, None, None) and channels == 3 and "FP" in entry.datatype:
        outputs = [
            (output.name, [dim.dim_value or -1 for dim in output.type.tensor_type.shape.dim])
            for output in model.graph.output
        ]
        guess = guess_preset(entry.name, entry.datatype, entry.shape, outputs)
        if guess is None:
            raise ConfigError(
                "--images: expected --preset, or --fit with --mean and --scale: nothing in the "
                "graph says what its pictures looked like in training."
            )
        given["preset"] = arguments.preset = guess.preset
        notes.append(f"--preset {guess.preset} was guessed: {guess.reason}")
    return resolve(ImageConfig(**given), entry.name, entry.datatype, entry.shape, *others), notes


def progress(silent: bool) -> Progress:
    """A bar for each step of the work, where a person watches.

    Args:
        silent: show none.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description:<9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=silent or not sys.stderr.isatty(),
    )


def tracked(progress: Progress, name: str, steps: Iterable[_T], total: int | None) -> Iterator[_T]:
    """Passes the steps on, and moves the bar.

    Args:
        progress: of `progress`.
        name: of the step.
        steps: to pass on.
        total: how many there are, at most; None: unknown.
    """
    task = progress.add_task(name, total=total)
    done = 0
    for step in steps:
        yield step
        done += 1
        progress.update(task, completed=done)
    progress.update(task, total=done)  # what could not be read is not waited for
