"""The banner: everything a person needs to know about a server that has just started."""

from __future__ import annotations

import dataclasses

from lumen_uring.config import load
from lumen_uring.ring.engine import EngineInfo, SlotClass
from lumen_uring.server import banner

INFO = EngineInfo(
    port=8000,
    io_threads=1,
    workers=2,
    models=1,
    arena_bytes=256 << 20,
    ready_us=1,
    slots=128,
    slot_classes=(SlotClass(1024, 64), SlotClass(1 << 20, 64)),
    worker_cpus=(0, -1),
    io_backend="io_uring",
    io_detail="DEFER_TASKRUN",
    ort_version="1.31.1",
    stats_path="/dev/shm/lumen-8000",
    notes=("no huge pages",),
)
DIGITS = {
    "index": 0,
    "name": "digits",
    "max_rows": 512,
    "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}],
    "outputs": [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}],
    "rgb8": None,
}


def test_the_banner_names_everything() -> None:
    lines = banner(load(), INFO, {"models": [DIGITS]}, ["cache not kept"], 0.5)
    text = "\n".join(lines)
    for part in (
        "serves on 127.0.0.1:8000 (ONNX Runtime 1.31.1)",
        "digits: image FP32[n,1,8,8] -> probabilities FP32[n,10]",
        "2 (core 0, unpinned)",
        "io_uring, 1 thread(s) (DEFER_TASKRUN)",
        "128 slots in 256MiB, of 1KiB to 1MiB each",
        "/dev/shm/lumen-8000",
        "note     cache not kept",
        "note     no huge pages",
        "in 0.50 s",
        "Try: lumen predict --model digits PICTURE.png",
    ):
        assert part in text


def test_the_banner_of_other_servers() -> None:
    config = load(None, ["server.host='::1'"], ["bench=builtin:squeezenet"])
    table = {
        **DIGITS,
        "name": "bench",
        "inputs": [{"name": "row", "datatype": "FP32", "shape": [-1, 9]}],
    }
    info = dataclasses.replace(INFO, port=9000, notes=(), slot_classes=())
    text = "\n".join(banner(config, info, {"models": [table]}, [], 0.5))
    assert "serves on [::1]:9000" in text
    assert "bench (untrained weights, for speed only)" in text
    assert "Client(port=9000)" in text
    assert "socket" not in text


def test_the_banner_of_a_unix_socket() -> None:
    config = load(None, ["server.unix_socket=/run/s", "server.unix_socket_mode=0600"])
    text = "\n".join(banner(config, INFO, {"models": [DIGITS]}, [], 0.5))
    assert "socket   unix:/run/s (mode 0600)" in text
