"""c/build/release/image_tool, for tests: the server's own tensors of pixels and of files."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import get_args

import numpy as np

from lumen_uring.pictures import image_input
from lumen_uring.pictures.image_input import Preprocessing
from lumen_uring.protocol.convert import Array

TOOL = Path(__file__).resolve().parent.parent / "c" / "build" / "release" / "image_tool"
FILTERS = get_args(image_input.Filter)  # as plan.h counts them
FITS = get_args(image_input.Fit)
DTYPES = {"float32": 1, "float16": 10, "uint8": 2, "int8": 3}  # ONNX's numbers


class Refused(Exception):
    pass


class Tool:
    """c/build/release/image_tool: a job a call (tests/c/image_tool.c)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Tool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def rows(
        self, plan: Preprocessing, rgb: Array, orientation: int = 1, **settings: float
    ) -> Array:
        """Has a tensor made of pixels, [H,W,3]."""
        settings |= {
            "width": rgb.shape[1],
            "height": rgb.shape[0],
            "orientation": orientation,
        }
        return self._tensor(plan, rgb.tobytes(), settings)

    def file(self, plan: Preprocessing, file: bytes, **settings: float) -> Array:
        """Has a tensor made of a JPEG or PNG."""
        return self._tensor(plan, file, {**settings, "file": 1})

    def _tensor(self, plan: Preprocessing, data: bytes, settings: dict[str, float]) -> Array:
        settings |= {
            "fit": FITS.index(plan.fit),
            "filter": FILTERS.index(plan.filter),
            "resize": plan.resize,
            "pad_value": plan.pad_value,
            "upright": plan.upright,
            "tensor_width": plan.width,
            "tensor_height": plan.height,
            "nhwc": plan.layout == "nhwc",
            "bgr": plan.channel_order == "bgr",
            "grey": plan.grey,
            "dtype": DTYPES[plan.dtype],
        }
        for name in ("mean", "scale"):
            settings |= {f"{name}{c}": value for c, value in enumerate(getattr(plan, name))}
        sides = (plan.height, plan.width)
        channels = 1 if plan.grey else 3
        shape = (1, channels, *sides) if plan.layout == "nchw" else (1, *sides, channels)
        return np.frombuffer(self._ask(data, settings), plan.dtype).reshape(shape)

    def _ask(self, data: bytes, settings: dict[str, float]) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [f"{key}={float(value)!r}" for key, value in settings.items()]
        head = " ".join([f"bytes={len(data)}", *words]) + "\n"
        self._process.stdin.write(head.encode() + data)
        self._process.stdin.flush()
        count, answer = self._process.stdout.readline().decode().split()
        data = self._process.stdout.read(int(count))
        if answer != "done":
            raise Refused(data.decode() or answer)
        return data
