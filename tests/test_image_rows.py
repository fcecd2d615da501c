"""The server's row sink against Pillow and numpy: the same bits, over thousands of pictures."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import PIL
import pytest
from image_tool import DTYPES, FILTERS, FITS, Refused, Tool
from PIL import Image

from lumen_uring.pictures import files as pictures
from lumen_uring.pictures import image_input
from lumen_uring.pictures.image_input import Preprocessing
from lumen_uring.protocol.convert import Array

ORIENTATION = 0x0112
IMAGENET = image_input.PRESETS["imagenet"]


@pytest.fixture(scope="module")
def tool() -> Iterator[Tool]:
    with Tool() as tool:
        yield tool


def kernels(tool: Tool) -> list[int]:
    """The numbers of the kernels that this processor has."""
    rgb = np.zeros((1, 1, 3), np.uint8)
    found: list[int] = []
    while True:
        try:
            tool.rows(Preprocessing(1, 1), rgb, kernel=len(found))
        except Refused:
            return found
        found.append(len(found))


def expected(plan: Preprocessing, rgb: Array, orientation: int = 1) -> Array:
    image = Image.fromarray(rgb)
    image.getexif()[ORIENTATION] = orientation
    return pictures.tensor(plan, image)


def noise(chance: random.Random, width: int, height: int) -> Array:
    """Noise, or blocks of black and white, which reach both ends of what is clipped."""
    numbers = np.random.default_rng(chance.getrandbits(32))
    if chance.random() < 0.5:
        return numbers.integers(0, 256, (height, width, 3), np.uint8)
    rough = numbers.integers(0, 2, (height // 3 + 1, width // 3 + 1, 3), np.uint8) * 255
    return np.ascontiguousarray(rough.repeat(3, 0).repeat(3, 1)[:height, :width])


def any_plan(chance: random.Random) -> Preprocessing:
    def side() -> int:
        return chance.choice([1, 2, 7, 16, 31, 32, 33, 48, chance.randint(1, 100)])

    def choose(values: Any) -> Any:
        return chance.choice(values)

    height, width = side(), side()
    shorter = min(height, width)
    fit = choose(FITS)
    resize = choose([0, shorter, shorter + chance.randint(0, 40)])
    mean, scale = choose(
        [
            ((0.0,) * 3, (1.0,) * 3),
            (IMAGENET.mean, IMAGENET.scale),
            ((127.5, 1e-6, -3.25), (1 / 127.5, 1e-6, 300.0)),
        ]
    )
    return Preprocessing(
        height=height,
        width=width,
        layout=choose(["nchw", "nhwc"]),
        dtype=choose(list(DTYPES)),
        grey=chance.random() < 0.25,
        channel_order=choose(["rgb", "bgr"]),
        mean=mean,
        scale=scale,
        filter=choose(FILTERS),
        fit=fit,
        resize=resize if fit == "shorter_side_and_crop" else 0,
        pad_value=chance.randint(0, 255),
        upright=chance.random() < 0.9,
    )


def check(
    tool: Tool, plan: Preprocessing, rgb: Array, orientation: int = 1, **settings: float
) -> None:
    with np.errstate(over="ignore"):  # of float16
        wanted = expected(plan, rgb, orientation)
    found = tool.rows(plan, rgb, orientation, **settings)
    where = f"{plan} of {rgb.shape[1]} x {rgb.shape[0]}, orientation {orientation}, {settings}"
    assert found.tobytes() == wanted.tobytes(), where


def test_any_picture(tool: Tool) -> None:
    """All sizes up and down, filters, fits, orientations, types, with weights kept and not."""
    seed = int(os.environ.get("LUMEN_SEED", "0")) or random.getrandbits(32)
    print(f"LUMEN_SEED={seed}")
    chance = random.Random(seed)
    every = kernels(tool)
    for _ in range(1000):
        plan = any_plan(chance)
        width, height = (
            chance.choice([1, 2, 3, plan.width, plan.height, chance.randint(1, 200)])
            for _ in range(2)
        )
        check(
            tool,
            plan,
            noise(chance, width, height),
            chance.randint(1, 8),
            kernel=chance.choice(every),
            kept=chance.choice([0, 8 << 10, 256 << 10]),
            spare=1 << 20,
        )


@pytest.mark.parametrize("filter", FILTERS)
def test_usual_sizes(tool: Tool, filter: Literal["bilinear"]) -> None:
    chance = random.Random(1)
    plan = Preprocessing(224, 224, mean=IMAGENET.mean, scale=IMAGENET.scale, filter=filter)
    for width, height in [(600, 400), (512, 512), (1200, 1800), (99, 3000), (224, 224), (30, 20)]:
        for kernel in kernels(tool):
            for fit in FITS:
                one = dataclasses.replace(plan, fit=fit)
                check(tool, one, noise(chance, width, height), chance.randint(1, 8), kernel=kernel)


def test_pillow_itself() -> None:
    """Since Pillow 13 the order of the passes is the sizes'; before, the horizontal came first."""
    chance = random.Random(3)
    recent = int(PIL.__version__.partition(".")[0]) >= 13
    for _ in range(200):
        plan = dataclasses.replace(any_plan(chance), fit="stretch", resize=0, dtype="uint8")
        plan = dataclasses.replace(plan, layout="nhwc", channel_order="rgb", grey=False)
        rgb = noise(chance, chance.randint(1, 99), chance.randint(1, 99))
        resample = Image.Resampling[plan.filter.upper()]
        pillows = np.asarray(Image.fromarray(rgb).resize((plan.width, plan.height), resample))
        assert not recent or np.array_equal(pillows, expected(plan, rgb)[0])


@pytest.mark.parametrize("sides", [(0, 1), (1, 0), (65501, 1)])
def test_sides_past_the_limits_are_refused(tool: Tool, sides: tuple[int, int]) -> None:
    with pytest.raises(Refused, match="refused"):
        tool.rows(Preprocessing(2, 2), np.zeros((*sides, 3), np.uint8))
