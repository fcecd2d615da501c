"""`lumen quantize`: makes an INT8 model of a float one, and shows what it wins and loses.

Called by cli.py, on the main thread. quantize_graph.py reads the model, quantize_int8.py changes
it, quantize_samples.py brings the data, quantize_compare.py judges, quantize_report.py prints. The
file is written last, in one step, and only where it is faster here. A folder of a text model is
quantize_text.py's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from lumen_uring.errors import ConfigError, QuantizeError
from lumen_uring.files import expanded
from lumen_uring.offline import quantize_report, sample_options
from lumen_uring.offline.sample_options import tracked
from lumen_uring.options import CROPS_MAX, Subparsers, count, whole

_T = TypeVar("_T")


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "quantize",
        help="make an INT8 model, and compare it with the original",
        description="Makes an INT8 model: activations uint8, weights int8 with a scale for each "
        "channel, ranges from the data you give. Shows size, speed on one thread and how often "
        "both models agree. Keeps no file that is slower here. Of a text model's folder only the "
        "weights need to be known, and it writes onnx/model_quantized.onnx.",
    )
    parser.add_argument(
        "path",
        metavar="MODEL.onnx",
        help="the model's file, builtin:NAME, or a text model's folder",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the new file (MODEL.int8.onnx)")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--images", metavar="FOLDER", help="pictures such as the model will get")
    data.add_argument(
        "--npz", metavar="FILE", help="inputs as numpy.savez(FILE, NAME=[samples, ...]) writes them"
    )
    data.add_argument(
        "--texts", metavar="FILE", help="a text a line, to compare a folder's two graphs on"
    )
    parser.add_argument(
        "--method",
        choices=("minmax", "percentile", "entropy"),
        default="minmax",
        help="how a tensor's range is chosen: all values, all but 0.001 %%, or as many as keep "
        "their distribution (%(default)s)",
    )
    parser.add_argument(
        "--samples",
        type=count,
        default=200,
        metavar="N",
        help="pictures or rows to calibrate with, at most (%(default)s)",
    )
    parser.add_argument(
        "--crops",
        type=whole(0, CROPS_MAX),
        default=1000,
        metavar="N",
        help="random crops of the pictures to compare on (%(default)s)",
    )
    parser.add_argument(
        "--keep-float",
        action="append",
        default=[],
        metavar="NAME",
        help="a kind of operator, or one operator by its output, that stays float; may be repeated",
    )
    parser.add_argument(
        "--force", action="store_true", help="keep the file even if it is slower here"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    sample_options.add_picture_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Quantises the model, compares, and keeps the file where it is worth it.

    Args:
        arguments: as `add` declared them.

    Returns:
        0, or 1 where the INT8 model is slower here and was not kept.

    Raises:
        LumenError: the model, the data or an option cannot be used.
    """
    import orjson

    from lumen_uring.loading.model_cache import resolve

    if expanded(arguments.path).is_dir():
        return _run_on_folder(arguments, expanded(arguments.path))
    if not arguments.images and not arguments.npz:
        raise ConfigError("--images FOLDER or --npz FILE: expected one of them, found none.")
    path = resolve(arguments.path)
    out = Path(arguments.output) if arguments.output else _beside(arguments.path, path)
    _check_place(out, path)
    with tempfile.TemporaryDirectory(prefix="lumen-quantize-") as folder:
        report = _make(arguments, path, out, Path(folder))
    if arguments.json:
        print(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        quantize_report.show(report)
    return 0 if report.kept else 1


def _run_on_folder(arguments: argparse.Namespace, folder: Path) -> int:
    import orjson

    from lumen_uring.offline.quantize_text import quantize_folder, read_texts

    if arguments.images or arguments.npz:
        raise ConfigError("--texts FILE: expected it, or nothing, of a text model's folder.")
    out = Path(arguments.output or folder / "onnx" / "model_quantized.onnx")
    if out.exists() and not arguments.force:
        raise ConfigError(f"{out} is there already: --force replaces it.")
    report = quantize_folder(folder, out, read_texts(arguments.texts), arguments.force)
    if arguments.json:
        print(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode())
        return 0 if report.output else 1
    for line in report.lines():
        print(line)
    if report.output is None:
        print("Not kept: it is slower on this machine (--force keeps it).")
    elif arguments.output is None:
        print(f"Serve it: lumen --model NAME={folder} --set models.0.text.variant=quantized")
    return 0 if report.output else 1


def _beside(given: str, path: Path) -> Path:
    if given.startswith("builtin:"):
        return Path(f"{given.removeprefix('builtin:')}.int8.onnx")
    return path.with_name(f"{path.stem}.int8.onnx")


def _check_place(out: Path, path: Path) -> None:
    """Finds out before the work whether its result can be written."""
    if out.exists() and out.samefile(path):
        raise ConfigError(f"--output {out}: expected another file than the model's own.")
    if out.is_dir():
        raise ConfigError(f"--output {out}: expected the name of a file, found a folder.")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{out.parent}: expected a folder that can be written to: give another with -o FILE."
        )


def _make(
    arguments: argparse.Namespace, path: Path, out: Path, folder: Path
) -> quantize_report.Report:
    from lumen_uring.offline import quantize_compare as compare
    from lumen_uring.offline import quantize_graph as graph
    from lumen_uring.offline import quantize_int8 as int8
    from lumen_uring.offline.quantize_samples import inputs_of

    model = graph.load(path)
    graph.check(model, path.name)
    model, notes = graph.mend(model, path.name)
    samples, said = sample_options.samples_of(arguments, inputs_of(model, path.name), model)
    notes += said
    machine = compare.processor()
    if machine.needs_reduced_range:
        notes.append(
            f"weights have 7 bits: this processor has {machine.name} and no VNNI, and its sums of "
            "8-bit products would overflow"
        )
    prepared = graph.prepare(model, folder, path.name)
    plan = int8.plan_of(prepared, arguments.keep_float, path.name)
    quantized = folder / "int8.onnx"
    reduced = machine.needs_reduced_range
    with sample_options.progress(arguments.json) as progress:
        rows = tracked(progress, "calibrate", samples.calibration(), samples.calibration_count)
        ranges, calibrated = int8.calibrate(prepared, plan, arguments.method, rows, path.name)
        int8.quantize(prepared, plan, ranges, reduced, quantized, path.name)
        original = compare.session(path)
        other = compare.session(quantized, folder / "optimized.onnx")
        steps = compare.compare(original, other, samples.comparison())
        agreements = _last(tracked(progress, "compare", steps, samples.comparison_count))
        _, row = next(samples.comparison())
        times = _last(tracked(progress, "measure", compare.measure(original, other, row), None))
    if agreements is None or times is None:
        raise QuantizeError(f"{path.name}: nothing to compare on.")
    shape = compare.shape_of(folder / "optimized.onnx")
    verdict = compare.judge(times, shape, machine)
    kept = arguments.force or not verdict.slower
    if kept:
        _keep(quantized, out)
    return quantize_report.Report(
        path=path,
        out=out,
        kept=kept,
        bytes_before=path.stat().st_size,
        bytes_after=quantized.stat().st_size,
        calibrated=calibrated,
        what=samples.what,
        held_out=samples.held_out,
        method=arguments.method,
        times=times,
        agreements=agreements,
        shape=shape,
        verdict=verdict,
        notes=(*notes, *quantize_report.doubts(samples, agreements)),
        processor=machine.name,
        preset=_preset_alone(arguments),
    )


def _preset_alone(arguments: argparse.Namespace) -> str | None:
    """The preset, where it says all about the pictures: `lumen --image` takes it."""
    others = ("fit", "resize", "filter", "channel_order", "mean", "scale", "dims")
    return None if any(getattr(arguments, name) for name in others) else arguments.preset


def _last(steps: Iterable[_T]) -> _T | None:
    last = None
    for step in steps:
        last = step
    return last


def _keep(quantized: Path, out: Path) -> None:
    """Writes the file beside its place, then moves it there: a server never reads half of it."""
    half = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        half.write_bytes(quantized.read_bytes())
        half.replace(out)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise QuantizeError(f"{out} cannot be written: {error.strerror}.") from None
