"""What the server makes of a picture, in Python: settings, geometry, and every step's numbers."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from lumen_uring.errors import ConfigError, PictureError
from lumen_uring.pictures import files as pictures
from lumen_uring.pictures.image_input import (
    PRESETS,
    ImageConfig,
    Preprocessing,
    guess_preset,
    picture_of,
    resolve,
)

SHAPE = [-1, 3, 224, 224]
SIDES = st.integers(1, 3000)


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    channels = len(Image.new(mode, (1, 1)).getbands())
    values = np.random.default_rng(7).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(values if channels > 1 else values[..., 0])


# ---- settings ----


def test_a_preset_says_everything() -> None:
    plan = resolve(ImageConfig(preset="imagenet"), "x", "FP32", SHAPE)
    assert (plan.fit, plan.resize, plan.filter) == ("shorter_side_and_crop", 256, "bilinear")
    assert plan.mean == pytest.approx((123.675, 116.28, 103.53))
    assert plan.scale == pytest.approx((1 / 58.395, 1 / 57.12, 1 / 57.375))
    plan = resolve(ImageConfig(preset="squeezenet"), "x", "FP32", SHAPE)
    assert (plan.channel_order, plan.resize, set(plan.scale)) == ("bgr", 224, {1.0})
    plan = resolve(ImageConfig(preset="yolo"), "images", "FP16", [1, 3, 640, 640])
    assert (plan.fit, plan.pad_value, plan.dtype) == ("letterbox", 114, "float16")


def test_what_is_set_beats_the_preset() -> None:
    image = ImageConfig(preset="imagenet", resize=232, filter="bicubic", upright=False)
    plan = resolve(image, "x", "FP32", SHAPE, "bgr", (1, 2, 3), (4, 5, 6))
    assert (plan.resize, plan.filter, plan.upright) == (232, "bicubic", False)
    assert (plan.channel_order, plan.mean, plan.scale) == ("bgr", (1, 2, 3), (4, 5, 6))
    stretched = resolve(ImageConfig(preset="imagenet", fit="stretch"), "x", "FP32", SHAPE)
    assert stretched.geometry(600, 400) == Preprocessing(224, 224).geometry(1, 1)
    assert resolve(ImageConfig(preset="imagenet"), "x", "FP32", [1, 299, 299, 3]).resize == 342


def test_without_settings_a_picture_is_stretched() -> None:
    plan = resolve(ImageConfig(), "x", "UINT8", [-1, 32, 48, 3])
    assert plan == Preprocessing(32, 48, layout="nhwc", dtype="uint8")


@pytest.mark.parametrize(
    "settings",
    [
        {"preset": "imagnet"},
        {"fit": "crop"},
        {"filter": "lanczos"},
        {"resize": 0},
        {"pad_value": 256},
        {"upright": 1},
        {"size": 224},
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ImageConfig(**settings)


def test_settings_that_contradict_the_model_are_refused() -> None:
    crop = ImageConfig(fit="shorter_side_and_crop", resize=200)
    with pytest.raises(ConfigError, match="expected at least 224, the shorter side of input 'x'"):
        resolve(crop, "x", "FP32", SHAPE)
    with pytest.raises(ConfigError, match="with fit shorter_side_and_crop, found fit letterbox"):
        resolve(ImageConfig(preset="yolo", resize=700), "x", "FP32", SHAPE)


@pytest.mark.parametrize(
    ("datatype", "shape"),
    [
        ("FP32", [-1, 3, -1, 224]),
        ("FP32", [3, 224, 224]),
        ("FP32", [-1, 4, 8, 8]),
        ("INT64", SHAPE),
        ("FP32", [2, 3, 8, 8]),
        ("FP32", [-1, 1, 8, -1]),
    ],
)
def test_an_input_that_is_no_picture_is_refused(datatype: str, shape: list[int]) -> None:
    with pytest.raises(ConfigError, match="Input 'x' takes no pictures: expected FP32"):
        picture_of("x", datatype, shape)


def test_presets_are_guessed_from_the_graph() -> None:
    def guess(name: str, shape: list[int], *outputs: list[int], datatype: str = "FP32") -> Any:
        found = guess_preset(name, datatype, shape, [("out", output) for output in outputs])
        return found and found.preset

    assert guess("pixel_values", SHAPE, [-1, 1000]) == "imagenet"
    assert guess("input", [1, 299, 299, 3], [1, 1001, 1, 1]) == "imagenet"
    assert guess("images", [1, 3, 640, 640], [1, 84, 8400]) == "yolo"
    assert guess("images", [-1, 3, -1, -1], [-1, 84, -1]) == "yolo"
    assert guess("data_0", SHAPE, [-1, 10]) is None
    assert guess("image", SHAPE, [-1, 21, 224, 224]) is None
    assert guess("x", [-1, 1, 28, 28], [-1, 10]) is None
    assert guess("x", [-1, 8], [-1, 1000]) is None
    assert guess("x", SHAPE, [-1, 1000], datatype="UINT8") is None
    assert guess("x", SHAPE) is None


# ---- geometry ----


@given(width=SIDES, height=SIDES)
def test_the_middle_is_cut_as_torchvision_cuts_it(width: int, height: int) -> None:
    place = resolve(ImageConfig(preset="imagenet"), "x", "FP32", SHAPE).geometry(width, height)
    shorter, longer = min(width, height), max(width, height)
    longer = int(256 * longer / shorter)
    wanted = (256, longer) if width <= height else (longer, 256)
    assert (place.resized_width, place.resized_height) == wanted
    assert place.left == round((wanted[0] - 224) / 2)
    assert place.top == round((wanted[1] - 224) / 2)


@given(width=SIDES, height=SIDES, to_width=st.integers(1, 900), to_height=st.integers(1, 900))
def test_no_pixel_of_a_tensor_is_left_out(
    width: int, height: int, to_width: int, to_height: int
) -> None:
    plan = Preprocessing(to_height, to_width, fit="shorter_side_and_crop")
    place = plan.geometry(width, height)
    assert 0 <= place.left <= place.resized_width - to_width
    assert 0 <= place.top <= place.resized_height - to_height
    assert place.left == 0 or place.top == 0
    place = Preprocessing(to_height, to_width, fit="letterbox").geometry(width, height)
    assert 0 <= place.left <= to_width - place.resized_width
    assert 0 <= place.top <= to_height - place.resized_height
    assert place.resized_width == to_width or place.resized_height == to_height


# ---- numbers ----


@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic", "box", "nearest"])
def test_a_filter_is_pillows(filter_name: Any) -> None:
    picture = noise(61, 47)
    resized = picture.resize((20, 30), Image.Resampling[filter_name.upper()])
    plan = Preprocessing(30, 20, layout="nhwc", dtype="uint8", filter=filter_name)
    assert np.array_equal(pictures.tensor(plan, picture)[0], np.asarray(resized))


def test_values_are_subtracted_then_multiplied_in_float32() -> None:
    plan = resolve(ImageConfig(preset="imagenet", fit="stretch"), "x", "FP32", [1, 3, 8, 8])
    picture = noise(8, 8)
    mean = np.float32([255 * 0.485, 255 * 0.456, 255 * 0.406])
    scale = np.float32([1 / (255 * 0.229), 1 / (255 * 0.224), 1 / (255 * 0.225)])
    wanted = ((np.asarray(picture, np.float32) - mean) * scale).transpose(2, 0, 1)
    found = pictures.tensor(plan, picture)
    assert found.dtype == np.float32
    assert found.flags["C_CONTIGUOUS"]
    assert np.array_equal(found[0], wanted)
    rounded = resolve(ImageConfig(preset="imagenet", fit="stretch"), "x", "FP16", [1, 8, 8, 3])
    half = pictures.tensor(rounded, picture)
    assert np.array_equal(half[0], wanted.transpose(1, 2, 0).astype(np.float16))


def test_blue_comes_first_with_its_own_mean() -> None:
    plan = Preprocessing(1, 1, channel_order="bgr", mean=(1, 2, 3), scale=(1, 10, 100))
    pixel = Image.new("RGB", (5, 5), (30, 20, 10))
    assert pictures.tensor(plan, pixel).ravel().tolist() == [9, 180, 2700]


def test_bytes_stay_bytes() -> None:
    plan = Preprocessing(1, 1, dtype="int8", mean=(9, 9, 9))
    found = pictures.tensor(plan, Image.new("RGB", (3, 3), (0, 128, 255)))
    assert (found.dtype, found.ravel().tolist()) == (np.int8, [-128, 0, 127])


def test_a_margin_is_grey() -> None:
    plan = Preprocessing(8, 8, layout="nhwc", dtype="uint8", fit="letterbox")
    found = pictures.tensor(plan, Image.new("RGB", (8, 4), (1, 2, 3)))[0]
    assert found[:, 0].tolist() == [[114] * 3] * 2 + [[1, 2, 3]] * 4 + [[114] * 3] * 2


def test_three_channels_are_looked_for_before_one() -> None:
    """As the server does (c/src/models/pictures.c)."""
    assert picture_of("x", "FP32", [-1, 1, 28, 28]) == (1, "nchw", 28, 28)
    assert picture_of("x", "FP32", [-1, 28, 28, 1]) == (1, "nhwc", 28, 28)
    assert picture_of("x", "FP32", [-1, 1, 8, 3]) == (3, "nhwc", 1, 8)
    assert picture_of("x", "FP32", [-1, 1, 8, 1]) == (1, "nchw", 8, 1)


def test_a_grey_model_gets_one_channel() -> None:
    plan = resolve(ImageConfig(fit="letterbox"), "x", "FP32", [1, 1, 4, 8])
    found = pictures.tensor(plan, Image.new("RGB", (4, 4), (10, 10, 10)))
    assert (found.shape, sorted(set(found.ravel().tolist()))) == ((1, 1, 4, 8), [10, 114])


def test_sixteen_bits_become_eight() -> None:
    picture = Image.fromarray(np.full((2, 2), 40000, np.uint16))
    found = pictures.tensor(Preprocessing(2, 2, dtype="uint8"), picture)
    assert set(found.ravel().tolist()) == {40000 >> 8}


def test_a_turned_picture_is_upright() -> None:
    picture = noise(20, 10)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees clockwise
    file = io.BytesIO()
    picture.save(file, "PNG", exif=exif)
    plan = Preprocessing(20, 10, layout="nhwc", dtype="uint8")
    upright = np.asarray(picture.transpose(Image.Transpose.ROTATE_270))
    assert np.array_equal(pictures.tensor(plan, file.getvalue())[0], upright)
    lying = Preprocessing(10, 20, layout="nhwc", dtype="uint8", upright=False)
    assert np.array_equal(pictures.tensor(lying, file.getvalue())[0], np.asarray(picture))


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cat.jpg"
    noise(64, 64).save(file)
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(PictureError, match=r"cat\.jpg is no readable picture: image file is trunc"):
        pictures.tensor(Preprocessing(8, 8), file)


def test_whatever_a_reader_raises_is_told(tmp_path: Path) -> None:
    """Pillow's readers of EXIF and of single formats have no common error."""
    file = tmp_path / "cat.jpg"
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12"  # a table that is cut short
    noise(8, 8).save(file, exif=exif)
    for error in (RuntimeError, NotImplementedError, AttributeError, struct.error):
        with pytest.raises(PictureError, match="is no readable picture"), pictures.opened(file):
            raise error
    with suppress(PictureError):
        pictures.tensor(Preprocessing(8, 8), file)


def test_only_formats_that_the_server_has_go_as_they_are(tmp_path: Path) -> None:
    picture = noise(20, 10)
    for ending in ("jpg", "png"):
        picture.save(tmp_path / f"a.{ending}")
        served = pictures.served_file(tmp_path / f"a.{ending}")
        assert served == (tmp_path / f"a.{ending}").read_bytes()
    for ending in ("bmp", "gif", "webp", "tiff"):
        picture.save(tmp_path / f"a.{ending}")
        served = pictures.served_file(tmp_path / f"a.{ending}")
        with Image.open(io.BytesIO(served)) as image, Image.open(tmp_path / f"a.{ending}") as own:
            assert (image.format, image.mode) == ("PNG", "RGB")
            assert np.array_equal(np.asarray(image), np.asarray(own.convert("RGB")))
    (tmp_path / "a.bmp").write_text("no picture")
    with pytest.raises(PictureError, match=r"a\.bmp is no readable picture: cannot identify"):
        pictures.served_file(tmp_path / "a.bmp")


def test_squeezenet_knows_its_pictures() -> None:
    import onnxruntime

    folder = needs.shared_file("models/squeezenet")
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    labels = (folder / "labels.txt").read_text().splitlines()
    (entry,) = session.get_inputs()
    plan = resolve(ImageConfig(preset="squeezenet"), entry.name, "FP32", SHAPE)
    for name, label in (("chelsea", "Egyptian cat"), ("coffee", "espresso")):
        row = pictures.tensor(plan, needs.shared_file(f"images/{name}.jpg"))
        scores = session.run(None, {entry.name: row})[0].ravel()
        assert label in labels[int(scores.argmax())]
        assert scores.max() > 0.5


def test_every_preset_has_its_word_in_the_settings() -> None:
    assert all(ImageConfig(preset=name).preset == name for name in PRESETS)  # type: ignore[arg-type]
