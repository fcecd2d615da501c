"""`lumen fit-router`: finds the threshold of a rule, and prints the entry of `experts` to paste.

Called by cli.py, on the main thread. sample_options.py brings the rows, router_fit.py chooses and
judges, router_report.py prints. Features are the C library's, as a server computes them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import ConfigError, QuantizeError
from lumen_uring.offline import sample_options
from lumen_uring.options import CROPS_MAX, Subparsers, count, whole

if TYPE_CHECKING:
    from lumen_uring.offline.quantize_samples import Input
    from lumen_uring.offline.quantize_samples import Samples as Source
    from lumen_uring.offline.router_fit import Samples
    from lumen_uring.settings.models import Feature

_FEATURES: Final = ("variance", "mean", "norm", "edges", "probability", "softmax", "margin")
_CASCADES: Final = ("probability", "softmax", "margin")
_GROUPS_MIN: Final = 6


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "fit-router",
        help="find the threshold between a light and a dense model",
        description="Runs a light and a dense model on your data and finds the threshold of a rule "
        "of `experts` that saves most while its answers stay the dense model's. A third of the "
        "pictures only judges it.",
    )
    parser.add_argument("light", metavar="LIGHT.onnx", help="the light model, or builtin:NAME")
    parser.add_argument("dense", metavar="DENSE.onnx", help="the dense model, or builtin:NAME")
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--images", metavar="FOLDER", help="pictures such as the models will get")
    data.add_argument(
        "--npz", metavar="FILE", help="inputs as numpy.savez(FILE, NAME=[samples, ...]) writes them"
    )
    parser.add_argument(
        "--feature",
        choices=_FEATURES,
        default="variance",
        help="what decides: of an input, or (probability, softmax, margin) of the light model's "
        "own answer (%(default)s)",
    )
    parser.add_argument("--of", metavar="NAME", help="the input or output; the only one, or first")
    parser.add_argument(
        "--agreement",
        type=_share,
        default=0.99,
        metavar="SHARE",
        help="of rows whose first class is the dense model's, at least (%(default)s)",
    )
    parser.add_argument(
        "--crops",
        type=whole(0, CROPS_MAX),
        default=1000,
        metavar="N",
        help="random crops of the pictures to run too (%(default)s)",
    )
    parser.add_argument("--name", default="routed", help="of the virtual model (%(default)s)")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the curve (needs matplotlib)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, samples=count("1"))
    sample_options.add_picture_options(parser)


def _share(text: str) -> float:
    """Reads a number between 0 and 1, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and 1, found {text!r}")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Fits the rule.

    Args:
        arguments: as `add` declared them.

    Returns:
        0, or 1 where no threshold is good enough.

    Raises:
        LumenError: a model, the data or an option cannot be used.
    """
    from lumen_uring.loading.model_cache import resolve
    from lumen_uring.offline import quantize_graph as graph
    from lumen_uring.offline import router_fit, router_report
    from lumen_uring.offline.quantize_compare import processor, session
    from lumen_uring.offline.quantize_samples import inputs_of

    if arguments.plot:
        router_report.check_plot(Path(arguments.plot))
    paths = [resolve(arguments.light), resolve(arguments.dense)]
    models = [graph.mend(graph.load(path), path.name)[0] for path in paths]
    inputs, others = (
        inputs_of(model, path.name) for model, path in zip(models, paths, strict=True)
    )
    if _shapes(inputs) != _shapes(others):
        raise ConfigError(
            f"fit-router: expected models of the same inputs, found {_shapes(inputs)} in "
            f"{paths[0].name} and {_shapes(others)} in {paths[1].name}."
        )
    source, notes = sample_options.samples_of(arguments, others, models[1])
    light, dense = (session(path) for path in paths)
    of = _of(arguments, inputs, light)
    samples = _try(arguments, of, inputs, light, dense, source)
    if (found := len(set(samples.group.tolist()))) < _GROUPS_MIN:
        raise ConfigError(
            f"fit-router: expected at least {_GROUPS_MIN} {source.what}, found {found}: a third of "
            "them is held out."
        )
    report = router_report.Report(
        name=arguments.name,
        feature=arguments.feature,
        of=of,
        agreement=arguments.agreement,
        light=paths[0],
        dense=paths[1],
        what=source.what,
        samples=samples,
        fit=router_fit.fit(samples, arguments.agreement),
        notes=(*notes, *source.skipped),
        processor=processor().name,
    )
    router_report.show(report, arguments.json)
    if arguments.plot:
        router_report.plot(report, Path(arguments.plot))
    return 0 if report.fit.choice.bound is not None else 1


def _shapes(inputs: list[Input]) -> str:
    return ", ".join(f"{entry.name} {entry.datatype} {list(entry.shape)}" for entry in inputs)


def _of(arguments: argparse.Namespace, inputs: list[Input], light: Any) -> str:
    """The tensor that the feature is of."""
    is_cascade = arguments.feature in _CASCADES
    names = [output.name for output in light.get_outputs()] if is_cascade else []
    names = names or [entry.name for entry in inputs]
    if arguments.of is None:
        return str(names[0])
    if arguments.of not in names:
        what = "an output" if is_cascade else "an input"
        raise ConfigError(
            f"--of: expected the name of {what} ({', '.join(names)}), found {arguments.of!r}."
        )
    return str(arguments.of)


def _try(
    arguments: argparse.Namespace,
    of: str,
    inputs: list[Input],
    light: Any,
    dense: Any,
    source: Source,
) -> Samples:
    """Runs both models on every row, in turns, and computes the feature."""
    import numpy as np

    from lumen_uring.offline.quantize_compare import is_classes
    from lumen_uring.offline.quantize_samples import has_rows
    from lumen_uring.offline.router_fit import Samples
    from lumen_uring.ring.features import feature

    name: Feature = arguments.feature
    is_cascade = name in _CASCADES
    outputs = [output.name for output in light.get_outputs()]
    whole = {entry.name for entry in inputs if not has_rows(entry)}
    values, agrees, groups = [], [], []
    times: tuple[list[float], ...] = ([], [], [])

    def timed(of_what: int, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = work()
        times[of_what].append(time.perf_counter() - began)
        return result

    crops = max(0, arguments.crops) if arguments.images else 0
    with sample_options.progress(arguments.json) as progress:
        for group, row in sample_options.tracked(
            progress, "run", source.everything(), source.group_count + crops
        ):
            feeds = dict(row)
            left, right = (
                timed(0, lambda feeds=feeds: light.run(None, feeds)),  # type: ignore[misc]
                timed(1, lambda feeds=feeds: dense.run(None, feeds)),  # type: ignore[misc]
            )
            at = next((at for at, one in enumerate(right) if is_classes(one)), None)
            if at is None or left[at].shape != right[at].shape:
                raise QuantizeError(
                    "fit-router: expected models of the same output, with a value for each class."
                )
            tensor = left[outputs.index(of)] if is_cascade else feeds[of]
            tensor = tensor[None] if of in whole else tensor
            (value,) = timed(2, lambda tensor=tensor: feature(name, tensor))  # type: ignore[misc]
            values.append(value)
            agrees.append(left[at].argmax() == right[at].argmax())
            groups.append(group)
    return Samples(
        np.array(values),
        np.array(agrees, np.bool_),
        np.array(groups, np.int64),
        light_s=median(times[0]),
        dense_s=median(times[1]),
        rule_s=median(times[2]),
        is_cascade=is_cascade,
    )
