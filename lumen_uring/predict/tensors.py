"""`lumen predict --input`: runs a model once on the inputs given, and prints its outputs.

Called by commands/predict.py, on the main thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.predict import inputs

if TYPE_CHECKING:
    from lumen_uring.client.client import Client
    from lumen_uring.protocol.convert import Array
    from lumen_uring.protocol.describe import Model

_VALUES_MAX: Final = 100  # of an output that a person reads whole


def run(client: Client, model: Model, arguments: argparse.Namespace, labels: Sequence[str]) -> None:
    """Runs the model once and prints every output.

    Args:
        client: of the server.
        model: to run.
        arguments: of the command: `inputs`, `top` and `json`.
        labels: names of the classes; may be empty.

    Raises:
        LumenError: the inputs do not fit the model, or the server refused them.
    """
    import orjson

    values = inputs.read(model, arguments.inputs)
    start_ns = time.perf_counter_ns()
    result = client.infer(model.name, values)
    round_trip_us = (time.perf_counter_ns() - start_ns) // 1000
    infer_us = result.timings.infer_us
    if arguments.json:
        document: dict[str, Any] = {
            "model": model.name,
            "outputs": {name: _for_json(array) for name, array in result.outputs.items()},
            "round_trip_us": round_trip_us,
            "infer_us": infer_us,
        }
        print(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY).decode())
        return
    print(
        f"{model.name}: {round_trip_us / 1000:.2f} ms, "
        f"of which the model took {infer_us / 1000:.2f} ms"
    )
    for name, array in result.outputs.items():
        kind = "strings" if array.dtype == object else array.dtype
        print(f"{name} {kind} {list(array.shape)}")
        for line in _lines(array, labels, arguments.top):
            print(f"  {line}")


def _for_json(array: Array) -> Any:
    import numpy as np

    if array.dtype != object:
        return array if array.ndim else array.tolist()
    # Bytes that are no text have no place in JSON.
    texts = [
        text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in array.flat
    ]
    return np.array(texts, object).reshape(array.shape).tolist()


def _lines(array: Array, labels: Sequence[str], top: int) -> list[str]:
    """The best classes of each row where the labels are of this output, else the values."""
    import numpy as np

    if labels and array.dtype != object and array.ndim >= 1 and array.shape[-1] == len(labels):
        lines = []
        for row, scores in enumerate(array.reshape(-1, len(labels))):
            best = scores.argsort()[::-1][:top]
            shown = ", ".join(f"{labels[index] or index} {scores[index]:.5f}" for index in best)
            lines.append(f"row {row}: {shown}")
        return lines
    text = np.array2string(array, threshold=_VALUES_MAX, max_line_width=98, separator=", ")
    return text.splitlines()
