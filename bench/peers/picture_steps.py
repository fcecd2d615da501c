"""A picture's file to a tensor, as services do it in Python: one way, timed.

Run in the peers' own virtual environment (peers/pictures.py starts it). Prints the least and the
median CPU time in µs. It never imports Lumen.

    python picture_steps.py WAY FILE SIDE REPEATS     WAY: pillow, draft, linear, area
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

_MEAN = np.array([123.675, 116.28, 103.53], np.float32)
_SCALE = np.array([0.017124754, 0.017507003, 0.017429194], np.float32)


def tensor(pixels: np.ndarray) -> np.ndarray:
    """float32 [1,3,H,W] of uint8 [H,W,3], RGB."""
    values = (pixels.astype(np.float32) - _MEAN) * _SCALE
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])


def pillow(file: bytes, side: int, *, draft: bool = False) -> np.ndarray:
    """Pillow, bilinear; `draft` lets its decoder work at a lower resolution."""
    import io

    from PIL import Image, ImageOps

    image = Image.open(io.BytesIO(file))
    if draft:
        image.draft("RGB", (side, side))
    upright = ImageOps.exif_transpose(image).convert("RGB")
    return tensor(np.asarray(upright.resize((side, side), Image.Resampling.BILINEAR)))


def opencv(file: bytes, side: int, *, area: bool) -> np.ndarray:
    """OpenCV on one thread; its linear filter looks at four pixels, however many there are."""
    import cv2

    cv2.setNumThreads(1)
    image = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    how = cv2.INTER_AREA if area else cv2.INTER_LINEAR
    resized = cv2.resize(image, (side, side), interpolation=how)
    return tensor(cv2.cvtColor(resized, cv2.COLOR_BGR2RGB))


WAYS = {
    "pillow": pillow,
    "draft": lambda file, side: pillow(file, side, draft=True),
    "linear": lambda file, side: opencv(file, side, area=False),
    "area": lambda file, side: opencv(file, side, area=True),
}


def main(way: str, path: str, side: str, repeats: str) -> None:
    """Times one way on one file."""
    with open(path, "rb") as stored:
        file = stored.read()
    convert, size = WAYS[way], int(side)
    convert(file, size)
    took = []
    for _ in range(int(repeats)):
        began = time.thread_time_ns()
        convert(file, size)
        took.append((time.thread_time_ns() - began) / 1000)
    print(f"{min(took):.1f} {statistics.median(took):.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
