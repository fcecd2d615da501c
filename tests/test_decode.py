"""The server's decoders against Pillow: the same pixels, over the files that Pillow can write and
PNGs that it can read alone."""

from __future__ import annotations

import io
import itertools
import os
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
from image_tool import Refused, Tool
from PIL import Image

from lumen_uring.pictures import files as pictures
from lumen_uring.pictures.image_input import PRESETS, ImageConfig, Preprocessing, resolve
from lumen_uring.protocol.convert import Array

SIZES = [(1, 1), (2, 1), (1, 2), (9, 7), (8, 8), (17, 15), (31, 33), (100, 1), (1, 100), (65, 129)]
ORIENTATION = 0x0112


@pytest.fixture(scope="module")
def tool() -> Iterator[Tool]:
    with Tool() as tool:
        yield tool


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("LUMEN_SEED", "0")) or random.getrandbits(32)
    print(f"LUMEN_SEED={seed}")
    return random.Random(seed)


def noise(chance: random.Random, width: int, height: int, channels: int) -> Array:
    """A gradient with noise: [H,W,C]."""
    numbers = np.random.default_rng(chance.getrandbits(32))
    slope = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None]
    rough = slope * np.arange(1, channels + 1) + numbers.normal(0, 30, (height, width, channels))
    return (rough % 256).astype(np.uint8)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    into = io.BytesIO()
    image.save(into, kind, **options)
    return into.getvalue()


def pixels(
    tool: Tool, file: bytes, size: tuple[int, int], grey: bool = False, **settings: float
) -> Array:
    """A picture's own pixels, [H,W,3], or [H,W,1] where grey: the tensor of its own size."""
    plan = Preprocessing(size[1], size[0], layout="nhwc", dtype="uint8", grey=grey, upright=False)
    return tool.file(plan, file, **settings)[0]


def check(tool: Tool, file: bytes, what: object, **settings: float) -> None:
    with Image.open(io.BytesIO(file)) as opened:
        for grey, mode in ((False, "RGB"), (True, "L")):
            expected = np.asarray(opened.convert(mode))
            found = pixels(tool, file, opened.size, grey, **settings)
            assert np.array_equal(found[..., 0] if grey else found, expected), (mode, what)


# ---- JPEG ----


def jpegs(chance: random.Random) -> Iterator[tuple[bytes, dict[str, Any]]]:
    modes = (("L", 1, (0,)), ("RGB", 3, (0, 1, 2)), ("CMYK", 4, (0,)))
    for (width, height), (mode, channels, samplings) in itertools.product(SIZES, modes):
        numbers = noise(chance, width, height, channels)
        image = Image.fromarray(numbers[..., 0] if channels == 1 else numbers, mode)
        for sampling, progressive in itertools.product(samplings, (False, True)):
            options = {
                "quality": chance.randint(5, 100),
                "subsampling": sampling,
                "progressive": progressive,
                "optimize": chance.random() < 0.5,
                "keep_rgb": mode == "RGB" and sampling == 0 and chance.random() < 0.5,
                "restart_marker_blocks": chance.choice([0, 0, 1, 5]),
                "restart_marker_rows": chance.choice([0, 0, 1]),
            }
            yield saved(image, "JPEG", **options), {"mode": mode, "size": image.size, **options}


def test_jpegs(tool: Tool, chance: random.Random) -> None:
    for file, what in jpegs(chance):
        check(tool, file, what, step_ns=chance.choice([0, 1]))


def test_four_components(tool: Tool, chance: random.Random) -> None:
    """Inverted or not by their marker, and YCCK: as Pillow takes them."""
    file = saved(Image.fromarray(noise(chance, 40, 30, 4), "CMYK"), "JPEG")
    at = file.index(b"\xff\xee\x00\x0eAdobe")
    check(tool, file, "as written")
    check(tool, file[: at + 15] + b"\x02" + file[at + 16 :], "YCCK")
    check(tool, file[:at] + file[at + 16 :], "no marker")


def test_decode_fast(tool: Tool, chance: random.Random) -> None:
    """The resolution is that of Pillow's draft."""
    for file, what in jpegs(chance):
        for sides in ((1, 1), (4, 3), (16, 16)):
            plan = Preprocessing(*sides)
            with Image.open(io.BytesIO(file)) as opened:
                opened.draft(None, (plan.width, plan.height))
                expected = pictures.tensor(plan, opened)
            assert np.array_equal(tool.file(plan, file, fast=1), expected), (what, sides)


# ---- PNG ----

SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by colour type
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
# Adam7: first column, first row, columns apart, rows apart.
PASSES = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(samples: Array, depth: int) -> bytes:
    """A row as PNG has it."""
    if depth == 16:
        return samples.astype(">u2").tobytes()
    bits = np.unpackbits(samples.reshape(-1, 1).astype(np.uint8), axis=1)[:, 8 - depth :]
    return np.packbits(bits.reshape(-1)).tobytes()


def filtered(chance: random.Random, rows: list[bytes], distance: int) -> bytes:
    """Rows, each by a filter of its own."""
    out = b""
    above = np.zeros(len(rows[0]) + distance, np.int32)
    for bytes_ in rows:
        row = np.concatenate([np.zeros(distance, np.int32), np.frombuffer(bytes_, np.uint8)])
        left, corner, up = row[:-distance], above[:-distance], above[distance:]
        guess = left + up - corner
        a, b, c = abs(guess - left), abs(guess - up), abs(guess - corner)
        paeth = np.where((a <= b) & (a <= c), left, np.where(b <= c, up, corner))
        kind = chance.randrange(5)
        subtracted = (np.zeros_like(up), left, up, (left + up) // 2, paeth)[kind]
        out += bytes([kind]) + ((row[distance:] - subtracted) % 256).astype(np.uint8).tobytes()
        above = row
    return out


def png(
    chance: random.Random, samples: Array, colour: int, depth: int, adam7: bool, *before: bytes
) -> bytes:
    """A PNG of samples, [H,W,C], with chunks before its pixels."""
    height, width, count = samples.shape
    distance = max(1, count * depth // 8)
    data = b""
    for x, y, across, down in PASSES if adam7 else ((0, 0, 1, 1),):
        part = samples[y::down, x::across]
        if part.size:
            data += filtered(chance, [packed(row, depth) for row in part], distance)
    stream = zlib.compress(data, chance.randrange(10))
    step = chance.choice([1, 7, 100, len(stream)])
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, adam7)),
            *before,
            *(chunk(b"IDAT", stream[i : i + step]) for i in range(0, len(stream), step)),
            chunk(b"tEXt", b"a\0b"),
            chunk(b"IEND", b""),
        )
    )


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
@pytest.mark.parametrize("colour", SAMPLES)
def test_pngs(tool: Tool, chance: random.Random, colour: int) -> None:
    """Alpha is dropped, and so is a colour that stands for it."""
    numbers = np.random.default_rng(chance.getrandbits(32))
    for depth, (width, height), adam7 in itertools.product(DEPTHS[colour], SIZES, (False, True)):
        what = (colour, depth, width, height, adam7)
        colours = chance.randint(1, 1 << depth)  # of the palette; pixels may name others
        samples = numbers.integers(0, 1 << depth, (height, width, SAMPLES[colour]))
        before = [chunk(b"PLTE", numbers.bytes(3 * colours))] if colour == 3 else []
        if colour in (0, 2) and chance.random() < 0.5:
            before.append(chunk(b"tRNS", struct.pack(f">{SAMPLES[colour]}H", *samples[0, 0])))
        if colour == 3 and chance.random() < 0.5:
            before.append(chunk(b"tRNS", numbers.bytes(chance.randint(1, colours))))
        file = png(chance, samples, colour, depth, adam7, *before)
        if (colour, depth) == (0, 16):
            # Pillow would make 255 of all that is above it.
            expected = np.repeat((samples >> 8).astype(np.uint8), 3, axis=2)
            found = pixels(tool, file, (width, height), step_ns=chance.choice([0, 1]))
            assert np.array_equal(found, expected), what
        else:
            check(tool, file, what, step_ns=chance.choice([0, 1]))


def test_chunks_without_pixels_are_not_read(tool: Tool, chance: random.Random) -> None:
    """A megabyte that a kilobyte of text or of a profile unpacks to is no cost."""
    bomb = zlib.compress(bytes(1 << 20), 9)
    extra = [
        chunk(b"iCCP", b"p\0\0" + bomb),
        chunk(b"zTXt", b"t\0\0" + bomb),
        chunk(b"gAMA", struct.pack(">I", 1)),
        chunk(b"sBIT", b"\x01\x01\x01"),
        chunk(b"prIv", b"\xff" * 100)[:-1] + b"\0",  # its checksum is wrong, too
        *(chunk(b"tEXt", b"k\0v") for _ in range(1000)),
    ]
    samples = noise(chance, 20, 10, 3)
    file = png(chance, samples, 2, 8, False, *extra)
    assert np.array_equal(pixels(tool, file, (20, 10)), samples)


# ---- whole pictures ----


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_orientations(tool: Tool, chance: random.Random, kind: str) -> None:
    image = Image.fromarray(noise(chance, 50, 40, 3))
    for value in range(11):
        exif = Image.Exif()
        exif[ORIENTATION] = value
        file = saved(image, kind, exif=exif)
        for upright in (True, False):
            plan = Preprocessing(30, 20, upright=upright)
            with Image.open(io.BytesIO(file)) as opened:
                expected = pictures.tensor(plan, opened)
            assert np.array_equal(tool.file(plan, file), expected), (value, upright)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(
    tool: Tool, chance: random.Random, preset: Literal["imagenet", "squeezenet", "yolo"]
) -> None:
    plan = resolve(ImageConfig(preset=preset), "x", "FP32", [-1, 3, 224, 224])
    for kind, mode in (("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "P")):
        image = Image.fromarray(noise(chance, 400, 300, 3)).convert(mode)
        file = saved(image, kind)
        with Image.open(io.BytesIO(file)) as opened:
            expected = pictures.tensor(plan, opened)
        assert np.array_equal(tool.file(plan, file), expected)


def test_damage_is_refused_unless_lenient(tool: Tool, chance: random.Random) -> None:
    file = saved(Image.fromarray(noise(chance, 64, 64, 3)), "JPEG")
    part = file[: len(file) * 3 // 4]
    with pytest.raises(Refused, match=r"^the JPEG ends after \d+ of 64 rows$"):
        pixels(tool, part, (64, 64))
    found, whole = pixels(tool, part, (64, 64), lenient=1), pixels(tool, file, (64, 64))
    assert np.array_equal(found[:16], whole[:16])
    assert not np.array_equal(found, whole)
