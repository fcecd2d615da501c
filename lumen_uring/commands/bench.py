"""`lumen bench`: puts load on a running server and shows the figures.

Called by cli.py, on the main thread. The requests are sent by C on a ring of its own
(ring/load.py); this file chooses what to send, shows progress, and adds up. Closed loop: every
connection sends its next request when it has its answer. Open loop (--rate): requests are due at
random moments at a mean rate, and late ones count from when they were due.
"""

from __future__ import annotations

import argparse
import math
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.client.connection import unix_path
from lumen_uring.errors import ConfigError, StatsError
from lumen_uring.loadgen.sizes import dims, with_sizes
from lumen_uring.loadgen.target import is_http, native_address, target
from lumen_uring.options import (
    Subparsers,
    add_token_options,
    choose_model,
    core,
    count,
    credential_of,
    number,
    port_number,
    token_of,
    whole,
)
from lumen_uring.predict.inputs import add_input_option

if TYPE_CHECKING:
    from lumen_uring.protocol.describe import Model, TensorInfo
    from lumen_uring.ring.load import LoadPlan

_PROGRESS_S: Final = 0.5
_PAYLOADS: Final = 16
_WORD_BYTES: Final = 8  # of a random string: all requests have one length
_time: Final = number(86400)  # a day
_microseconds: Final = whole(0, 2**32 - 1)
_seed: Final = whole(0, 2**64 - 1)
_UCRED: Final = struct.Struct("iII")  # struct ucred of unix(7): pid, uid, gid


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "bench",
        help="put load on a running server",
        description="Sends requests to a running server and shows throughput and latencies.",
    )
    parser.add_argument(
        "--server",
        "--url",
        dest="url",
        metavar="URL",
        default="lumen://127.0.0.1:8000",
        help="lumen://ADDRESS:PORT, http://HOST:PORT, https://HOST:PORT, unix:PATH, or "
        "http+unix:PATH for HTTP over a unix socket (%(default)s)",
    )
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="PORT",
        help="the same as --server lumen://127.0.0.1:PORT",
    )
    add_token_options(parser)
    parser.add_argument(
        "--model", metavar="NAME", help="model to run; not needed when there is only one"
    )
    parser.add_argument(
        "--connections", type=count, default=16, metavar="N", help="to open (%(default)s)"
    )
    parser.add_argument("--requests", type=count, metavar="N", help="end after so many answers")
    parser.add_argument("--seconds", type=_time, metavar="S", help="end after so many seconds (10)")
    parser.add_argument(
        "--warmup",
        type=_time,
        default=1.0,
        metavar="S",
        help="seconds of load that are not counted (%(default)s)",
    )
    parser.add_argument(
        "--rate",
        type=number(1e9, least=0.001),
        default=0.0,
        metavar="R",
        help="open loop: requests a second, at random moments",
    )
    parser.add_argument(
        "--seed",
        type=_seed,
        default=1,
        help="seed of the random arrivals and payloads",
    )
    parser.add_argument("--rows", type=count, default=1, help="rows in each request")
    parser.add_argument(
        "--dims",
        type=dims,
        default={},
        metavar="NAME=SIZE,...",
        help="sizes of the model's free dimensions beside the rows (the maximum, at most 128)",
    )
    parser.add_argument(
        "--timeout-us", type=_microseconds, default=0, help="deadline of each request, µs"
    )
    parser.add_argument(
        "--encoding",
        choices=("auto", "tensors", "rgb8"),
        default="auto",
        help="form of the inputs (%(default)s); rgb8 over HTTP is a raw binary request",
    )
    parser.add_argument(
        "--http-json", action="store_true", help="over HTTP: send values as JSON, not as bytes"
    )
    parser.add_argument("--get", metavar="PATH", help="over HTTP: send GETs of this path")
    parser.add_argument(
        "--images",
        metavar="PATH",
        help="send this picture or those of this folder, not random bytes",
    )
    add_input_option(parser, "send these values, not random ones; rows and sizes are theirs")
    parser.add_argument(
        "--poll-us",
        type=_microseconds,
        default=0,
        metavar="US",
        help="poll for replies this long before sleeping: no wake-up in the latency, a busy core",
    )
    parser.add_argument("--cpu", type=core, default=-1, help="core to pin the generator to")
    parser.add_argument("--histogram", metavar="FILE", help="write every bucket, as CSV")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="write figures, histogram and course of the load there, for `lumen dashboard`",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the load.

    Args:
        arguments: as `add` declared them.

    Returns:
        0, or 1 when a request failed or the server went away.

    Raises:
        LumenError: no server, no such model, no picture.
    """
    import orjson

    from lumen_uring.loadgen import figures as bench_figures
    from lumen_uring.loadgen import folder as bench_folder

    if arguments.port is not None:
        arguments.url = f"lumen://127.0.0.1:{arguments.port}"
    from lumen_uring.ring.load import Load

    if arguments.out:
        bench_folder.prepare(arguments.out)
    plan = make_plan(arguments)
    server = _server_cpu_seconds(plan)
    load = Load(plan)
    progress = []
    try:
        result = load.wait(_PROGRESS_S)
        while result is None:
            progress.append(load.progress())
            if sys.stderr.isatty() and not arguments.json:
                bench_figures.show_progress(progress[-1])
            result = load.wait(_PROGRESS_S)
    except KeyboardInterrupt:
        load.stop()
        result = load.wait()
        assert result is not None
    figures = bench_figures.as_json(result, _cpu_since(server, plan))
    if arguments.histogram:
        bench_figures.write_histogram(Path(arguments.histogram), result)
    if arguments.out:
        bench_folder.write(arguments.out, arguments, result, figures, progress)
    if arguments.json:
        print(orjson.dumps(figures, option=orjson.OPT_INDENT_2).decode())
    else:
        bench_figures.show(plan, figures)
    for warning in bench_figures.warnings(plan, result):
        print(f"lumen: {warning}", file=sys.stderr)
    return 1 if result.errors or result.trouble else 0


def make_plan(arguments: argparse.Namespace) -> LoadPlan:
    """Turns the command's options into a plan of the load.

    Args:
        arguments: as `add` declared them.

    Returns:
        The plan; its payloads fit the model.

    Raises:
        LumenError: the options do not fit each other, the server or the model.
    """
    from lumen_uring.ring.load import LoadPlan

    if arguments.inputs:
        _take_no_others(arguments)
    return LoadPlan(
        **(_http_side(arguments) if is_http(arguments.url) else _native_side(arguments)),
        connections=arguments.connections,
        rows=arguments.rows,
        requests=arguments.requests or 0,
        seconds=arguments.seconds or (0.0 if arguments.requests else 10.0),
        warmup_s=arguments.warmup,
        rate=arguments.rate,
        seed=arguments.seed,
        timeout_us=arguments.timeout_us,
        poll_us=arguments.poll_us,
        cpu=arguments.cpu,
    )


def _take_no_others(arguments: argparse.Namespace) -> None:
    """Refuses options that say beside --input what the requests hold."""
    for option, given in (
        ("--images", arguments.images),
        ("--rows", arguments.rows != 1),
        ("--dims", arguments.dims),
        ("--get", arguments.get),
        ("--encoding", arguments.encoding == "rgb8"),
    ):
        if given:
            raise ConfigError(f"{option}: expected it without --input, which gives the values.")
    arguments.encoding = "tensors"


def _native_side(arguments: argparse.Namespace) -> dict[str, Any]:
    from lumen_uring.client import payloads
    from lumen_uring.client.client import Client

    for option, given in (("--http-json", arguments.http_json), ("--get", arguments.get)):
        if given:
            raise ConfigError(
                f"{option}: expected --url http://HOST:PORT, https://HOST:PORT or http+unix:PATH, "
                f"found {arguments.url!r}."
            )
    host, port = native_address(arguments.url)
    credential = credential_of(arguments)
    with Client(host, port or 8000, token=token_of(arguments)) as client:
        model = choose_model(client.models(), arguments.model)
    encoding = arguments.encoding
    if encoding == "auto":
        encoding = "tensors" if model.rgb8 is None else "rgb8"
    if encoding == "rgb8" and model.rgb8 is None:
        raise ConfigError(f"Model {model.name!r} takes no rgb8: use --encoding tensors.")
    model, bodies = _sized(model, encoding, arguments)
    if model.free_dims:
        shapes = [_shape(tensor, arguments.rows) for tensor in model.inputs]
        bodies = [payloads.pack_shapes(shapes) + body for body in bodies]
    return {
        "host": host,
        "port": port,
        "model": model.index,
        "encoding": 1 if encoding == "rgb8" else 0,
        "payloads": bodies,
        "shapes": bool(model.free_dims),
        "credential": credential,
    }


def _http_side(arguments: argparse.Namespace) -> dict[str, Any]:
    from lumen_uring.loadgen import http as bench_http

    server = target(arguments.url, token_of(arguments))
    found = {
        "host": server.address,
        "port": server.port,
        "model": 0,
        "encoding": 0,
        "protocol": 1,
        "tls_host": server.tls_host,
    }
    if arguments.get:
        return {**found, "payloads": [bench_http.get_request(server, arguments.get)]}
    model = bench_http.fetch_model(server, arguments.model)
    rows, timeout_us = arguments.rows, arguments.timeout_us
    if arguments.encoding == "rgb8":
        if arguments.http_json or rows != 1 or timeout_us:
            raise ConfigError(
                "--encoding rgb8: over HTTP this is a raw binary request, which has no --http-json,"
                " --rows or --timeout-us."
            )
        model = with_sizes(bench_http.with_rgb8(model), arguments.dims)
        bodies = _payloads(model, "rgb8", arguments)
        return {**found, "payloads": bench_http.raw_requests(server, model, bodies)}
    model, bodies = _sized(model, "tensors", arguments)
    write = bench_http.json_requests if arguments.http_json else bench_http.binary_requests
    return {**found, "payloads": write(server, model, arguments.rows, timeout_us, bodies)}


def _sized(model: Model, encoding: str, arguments: argparse.Namespace) -> tuple[Model, list[bytes]]:
    """The model with the sizes of all requests, and their tensors; --input also gives the rows."""
    if not arguments.inputs:
        model = with_sizes(model, arguments.dims)
        return model, _payloads(model, encoding, arguments)
    from dataclasses import replace

    import numpy as np

    from lumen_uring.client import payloads
    from lumen_uring.predict import inputs

    values = inputs.read(model, arguments.inputs)
    buffers, arguments.rows = payloads.pack_inputs(model, values, None)
    tensors = buffers[len(buffers) - len(model.inputs) :]  # behind a shape block, if there is one
    model = with_sizes(model, inputs.sizes_of(model, values))
    sent = tuple(
        tensor
        if tensor.max_rank is None
        else replace(tensor, shape=np.shape(values[tensor.name]), dims=None, max_rank=None)
        for tensor in model.inputs
    )
    return replace(model, inputs=sent), [b"".join(tensors)]


def _payloads(model: Model, encoding: str, arguments: argparse.Namespace) -> list[bytes]:
    import numpy as np

    from lumen_uring.pictures import files as pictures

    if arguments.images:
        found = [
            np.tile(pictures.prepare(model, path), (arguments.rows, 1, 1, 1)).tobytes()
            for path in pictures.find([arguments.images])
        ]
        if not found:
            raise ConfigError(f"--images: no picture in {arguments.images}.")
        return found
    random = np.random.default_rng(arguments.seed)
    if encoding == "rgb8":
        assert model.rgb8 is not None
        size = model.rgb8.height * model.rgb8.width * 3 * arguments.rows
        return [random.bytes(size) for _ in range(_PAYLOADS)]
    return [_random_tensors(model, arguments.rows, random) for _ in range(_PAYLOADS)]


def _random_tensors(model: Model, rows: int, random: Any) -> bytes:
    """Values of 0..1: they fit every input, whether pixels, indexes or flags."""
    import numpy as np

    from lumen_uring.protocol import strings
    from lumen_uring.protocol.describe import DTYPES

    parts = []
    for tensor in model.inputs:
        shape = _shape(tensor, rows)
        if tensor.datatype == strings.DATATYPE:
            words = [random.bytes(_WORD_BYTES // 2).hex() for _ in range(math.prod(shape))]
            parts.append(strings.pack(strings.to_array(words)))
            continue
        dtype = DTYPES[tensor.datatype]
        values = random.random(shape) if np.issubdtype(dtype, np.floating) else 1
        parts.append(np.broadcast_to(values, shape).astype(dtype).tobytes())
    return b"".join(parts)


def _shape(tensor: TensorInfo, rows: int) -> list[int]:
    return [rows if size < 0 else size for size in tensor.shape]


def _server_cpu_seconds(plan: LoadPlan) -> float | None:
    """CPU time of the server so far; None when it does not run on this machine."""
    from lumen_uring.ring.process import cpu_s
    from lumen_uring.ring.stats import read, stats_path

    path = unix_path(plan.host)
    try:
        pid = read(stats_path(plan.port)).pid if path is None else _listener_pid(path)
        return cpu_s(pid)
    except (StatsError, OSError):
        return None


def _listener_pid(path: str) -> int:
    """The process that listens on a unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(path)
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(credentials)[0])


def _cpu_since(before: float | None, plan: LoadPlan) -> float | None:
    now = _server_cpu_seconds(plan)
    return None if before is None or now is None else now - before
