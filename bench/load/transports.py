"""`http_overhead --transports`: the server's CPU time per request of 602 KB, by how tensors travel.

A developer's tool. Two models that do next to nothing, so that what is left is transport: one takes
a float32 tensor of SqueezeNet's size (3 x 224 x 224) and answers one number, the other answers with
the tensor. `Client` asks over TCP, over the unix socket, and through memory shared over the unix
socket, in short rounds that alternate; answers are compared before anything is timed. The server's
idle threads sleep at once: what they look for while idle is no transport.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from bench.common.local_server import local_server
from bench.common.measure import machine, process_cpu_s
from bench.report.rules import table
from lumen_uring import Client

TRANSPORTS: Final = ("TCP", "unix socket", "memfd")
MODELS: Final = {"in": "602 KB in, 4 bytes out", "both": "602 KB in and out"}
_SHAPE: Final = [1, 3, 224, 224]
_REQUESTS: Final = 200  # of a round


def measure(rounds: int, settings: Sequence[str]) -> dict[str, Any]:
    """Runs all rounds.

    Args:
        rounds: of 200 requests over each transport.
        settings: passed on to the server.

    Returns:
        The server's CPU time per request of each round; µs, by model and transport.

    Raises:
        LumenError: no server.
        RuntimeError: the answers differ.
    """
    x = np.random.default_rng(1).standard_normal(_SHAPE, np.float32)
    cpu_us: dict[str, dict[str, list[float]]] = {m: {t: [] for t in TRANSPORTS} for m in MODELS}
    with tempfile.TemporaryDirectory(prefix="lumen-") as folder:
        models = [f"--model={name}={_write(Path(folder, f'{name}.onnx'), name)}" for name in MODELS]
        socket = f"{folder}/s"
        arguments = [*models, f"--unix-socket={socket}", "--set=server.shared_memory=true"]
        arguments.append("--set=engine.idle=park")
        arguments += [f"--set={setting}" for setting in settings]
        with (
            local_server(*arguments) as server,
            Client("127.0.0.1", server.port) as tcp,
            Client(f"unix:{socket}") as unix,
            Client(f"unix:{socket}", shared_memory=True) as memfd,
        ):
            clients = dict(zip(TRANSPORTS, (tcp, unix, memfd), strict=True))
            for model in MODELS:
                _check(clients, model, x)
            for number in range(rounds):
                print(f"round {number + 1}/{rounds}", file=sys.stderr)
                for model, found in cpu_us.items():
                    for transport in TRANSPORTS[:: -1 if number % 2 else 1]:
                        before = process_cpu_s(server.pid)
                        for _ in range(_REQUESTS):
                            clients[transport].infer(model, {"x": x})
                        used_s = process_cpu_s(server.pid) - before
                        found[transport].append(used_s * 1e6 / _REQUESTS)
    return {"machine": machine(), "rounds": rounds, "cpu_us_per_request": cpu_us}


def report(results: dict[str, Any]) -> str:
    """Makes text of the results.

    Args:
        results: as `measure` gives them.

    Returns:
        Markdown.
    """
    about = results["machine"]
    rows = []
    for model, found in results["cpu_us_per_request"].items():
        middles = [statistics.median(found[transport]) for transport in TRANSPORTS]
        times = [f"{middle:.0f}" for middle in middles]
        ratios = [f"{middle / middles[-1]:.1f}" for middle in middles[:-1]]
        rows.append([MODELS[model], *times, *ratios])
    heads = [f"{transport}: µs" for transport in TRANSPORTS]
    heads += [f"{transport} ÷ memfd" for transport in TRANSPORTS[:-1]]
    return (
        f"The server's CPU time per request; {about['cpu']}, {about['cores']} cores, Linux "
        f"{about['kernel']}, {about['date']}; medians of {results['rounds']} rounds of {_REQUESTS} "
        "requests, one at a time.\n\n" + table(("", *heads), rows)
    )


def _write(path: Path, name: str) -> Path:
    """x FP32 [1,3,224,224] -> y: its first element, or all of it."""
    size = _SHAPE if name == "both" else [1, 1, 1, 1]
    constants = [
        helper.make_tensor(word, TensorProto.INT64, [4], values)
        for word, values in (("starts", [0] * 4), ("ends", size), ("axes", range(4)))
    ]
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["y"])],
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, _SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, size)],
        constants,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    onnx.save(made, str(path))
    return path


def _check(clients: dict[str, Client], model: str, x: np.ndarray[Any, Any]) -> None:
    expected = x if model == "both" else x[:1, :1, :1, :1]
    for transport, client in clients.items():
        if not np.array_equal(client.infer(model, {"x": x}).outputs["y"], expected):
            raise RuntimeError(f"{transport}: a wrong answer: nothing was timed.")
