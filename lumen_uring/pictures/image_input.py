"""What becomes of a picture before a model sees it: the settings, the presets, the geometry.

The section `image` of a model is ImageConfig; with the model's own tensor it makes a
Preprocessing, which pictures/files.py carries out with Pillow and c/src/image to the same bits.
Nothing here needs Pillow. Used on any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from lumen_uring.errors import ConfigError

SIDE_MAX: Final = 65500  # of a JPEG

Filter: TypeAlias = Literal["bilinear", "bicubic", "box", "nearest"]
Fit: TypeAlias = Literal["stretch", "shorter_side_and_crop", "letterbox"]
Dtype: TypeAlias = Literal["float32", "float16", "uint8", "int8"]
Three: TypeAlias = tuple[float, float, float]

_DTYPES: Final[dict[str, Dtype]] = {
    "FP32": "float32",
    "FP16": "float16",
    "UINT8": "uint8",
    "INT8": "int8",
}


@dataclass(frozen=True, slots=True)
class Preset:
    """How a family of models wants its pictures.

    Args:
        mean, scale: (value - mean) * scale of values 0..255, in the order of `channel_order`.
        resize_ratio: what is cut has 1 / ratio of the resized picture's sides.
    """

    channel_order: Literal["rgb", "bgr"] = "rgb"
    mean: Three = (0.0, 0.0, 0.0)
    scale: Three = (1.0, 1.0, 1.0)
    filter: Filter = "bilinear"
    fit: Fit = "stretch"
    resize_ratio: float = 1.0


PRESETS: Final[dict[str, Preset]] = {
    # Source: torchvision's ImageClassification transform with its defaults: Resize(256),
    # CenterCrop(224), mean and standard deviation of values 0..1.
    "imagenet": Preset(
        mean=(255 * 0.485, 255 * 0.456, 255 * 0.406),
        scale=(1 / (255 * 0.229), 1 / (255 * 0.224), 1 / (255 * 0.225)),
        fit="shorter_side_and_crop",
        resize_ratio=256 / 224,
    ),
    # Source: the model of Windows Machine Learning, whose sample crops the middle; blue first,
    # 0..255, no mean. The SqueezeNet of torchvision and of the ONNX model zoo takes imagenet.
    "squeezenet": Preset(channel_order="bgr", fit="shorter_side_and_crop"),
    # Source: Ultralytics' LetterBox, with its grey of 114. Its own filter is OpenCV's.
    "yolo": Preset(scale=(1 / 255, 1 / 255, 1 / 255), fit="letterbox"),
}
_PLAIN: Final = Preset()


class ImageConfig(BaseModel):
    """How pictures become a model's input; what is null is the preset's."""

    # Each field's description says what is expected: error messages are made of it.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    preset: Literal["imagenet", "squeezenet", "yolo"] | None = Field(
        default=None, description="null | imagenet | squeezenet | yolo"
    )
    fit: Fit | None = Field(
        default=None,
        description="null (the preset's, else stretch) | stretch | shorter_side_and_crop | "
        "letterbox",
    )
    resize: Annotated[int, Field(ge=1, le=SIDE_MAX)] | None = Field(
        default=None,
        description="null (the preset's, else the model's size) or the pixels of the shorter side "
        f"before the crop, 1..{SIDE_MAX}",
    )
    filter: Filter | None = Field(
        default=None,
        description="null (the preset's, else bilinear) | bilinear | bicubic | box | nearest",
    )
    pad_value: int = Field(default=114, ge=0, le=255, description="a whole number, 0..255")
    upright: bool = Field(default=True, description="true | false")
    decode: Literal["exact", "fast"] = Field(default="exact", description="exact | fast")
    lenient: bool = Field(default=False, description="true | false")
    max_pixels: int = Field(
        default=64 << 20, ge=1, le=2**32 - 1, description="a whole number, 1..4294967295"
    )
    max_whole_pixels: int = Field(
        default=4 << 20, ge=1, le=2**32 - 1, description="a whole number, 1..4294967295"
    )

    def of_preset(self) -> Preset:
        """The preset's choices; the plain ones without a preset."""
        return _PLAIN if self.preset is None else PRESETS[self.preset]


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the pixels of one picture go.

    The picture is resized to `resized_width` x `resized_height`. Of a fit that crops, `left` and
    `top` are the corner of what is cut out of that; of a letterbox, the place of the picture in
    the tensor.
    """

    resized_width: int
    resized_height: int
    left: int = 0
    top: int = 0


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """All there is to know to turn a picture of any size into one model's tensor.

    Args:
        height, width: of the tensor.
        layout: nchw or nhwc.
        dtype: float16 is float32 rounded; uint8 takes the pixels as they are, int8 takes them
            minus 128, both without mean and scale.
        grey: the model has one channel; of `mean` and `scale` the first counts.
        resize: fit shorter_side_and_crop: the tensor's shorter side has this size before the crop.
        pad_value: fit letterbox: the pixels around the picture.
        upright: turn the picture as its EXIF orientation says.
    """

    height: int
    width: int
    layout: Literal["nchw", "nhwc"] = "nchw"
    dtype: Dtype = "float32"
    grey: bool = False
    channel_order: Literal["rgb", "bgr"] = "rgb"
    mean: Three = _PLAIN.mean
    scale: Three = _PLAIN.scale
    filter: Filter = _PLAIN.filter
    fit: Fit = _PLAIN.fit
    resize: int = 0
    pad_value: int = 114
    upright: bool = True

    def geometry(self, width: int, height: int) -> Geometry:
        """Finds where the pixels of a picture go.

        Args:
            width, height: of the picture, upright.

        Source: torchvision's Resize and CenterCrop, Ultralytics' LetterBox, with their roundings;
            of tensors that are not square the crop covers the whole.

        >>> Preprocessing(224, 224, fit="shorter_side_and_crop", resize=256).geometry(600, 400)
        Geometry(resized_width=384, resized_height=256, left=80, top=16)
        >>> Preprocessing(640, 640, fit="letterbox").geometry(600, 400)
        Geometry(resized_width=640, resized_height=427, left=0, top=106)
        """
        if self.fit == "stretch":
            return Geometry(self.width, self.height)
        if self.fit == "letterbox":
            ratio = min(self.height / height, self.width / width)
            inner_width = max(1, min(self.width, round(width * ratio)))
            inner_height = max(1, min(self.height, round(height * ratio)))
            return Geometry(
                inner_width,
                inner_height,
                # An odd pixel goes right and below, as there.
                max(0, round((self.width - inner_width) / 2 - 0.1)),
                max(0, round((self.height - inner_height) / 2 - 0.1)),
            )
        shorter = min(self.height, self.width)
        resize = self.resize or shorter
        wide, high = self.width * resize // shorter, self.height * resize // shorter
        if width * high <= height * wide:
            resized = (wide, max(high, int(wide * height / width)))
        else:
            resized = (max(wide, int(high * width / height)), high)
        # Half a pixel goes to the even side, as Python's round has it.
        return Geometry(
            *resized, round((resized[0] - self.width) / 2), round((resized[1] - self.height) / 2)
        )

    def sentence(self) -> str:
        """Says it to a person.

        >>> Preprocessing(224, 224, channel_order="bgr").sentence()
        'stretched to 224 x 224 (bilinear), bgr, 0..255'
        """
        size = f"{self.width} x {self.height}"
        if self.fit == "letterbox":
            place = f"fitted into {size} with a margin of {self.pad_value}"
        elif self.fit == "stretch":
            place = f"stretched to {size}"
        else:
            resize = self.resize or min(self.height, self.width)
            place = f"shorter side to {resize}, middle {size}"
        colours = "grey" if self.grey else self.channel_order
        plain = (self.mean, self.scale) == (_PLAIN.mean, _PLAIN.scale)
        if self.dtype in ("uint8", "int8") or plain:
            numbers = "-128..127" if self.dtype == "int8" else "0..255"
        else:
            value = f"(value - {_short(self.mean)})" if any(self.mean) else "value"
            numbers = f"{value} * {_short(self.scale)}"
        return f"{place} ({self.filter}), {colours}, {numbers}"


def _short(values: Three) -> str:
    texts = [f"{value:.5g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else f"[{', '.join(texts)}]"


def resolve(
    image: ImageConfig,
    name: str,
    datatype: str,
    shape: Sequence[int],
    channel_order: Literal["rgb", "bgr"] | None = None,
    mean: Three | None = None,
    scale: Three | None = None,
) -> Preprocessing:
    """Joins the settings of a model's pictures with the model's own tensor.

    Args:
        image: the section `image`.
        name: of the input, for messages.
        datatype: of the input, such as FP32.
        shape: of the input; its rows may be -1.
        channel_order, mean, scale: the model's settings of these names; None is the preset's.

    Raises:
        ConfigError: the input is no picture, or the settings contradict each other.

    >>> plan = resolve(ImageConfig(preset="imagenet"), "x", "FP32", [-1, 3, 224, 224])
    >>> plan.resize, plan.fit
    (256, 'shorter_side_and_crop')
    """
    channels, layout, height, width = picture_of(name, datatype, shape)
    preset = image.of_preset()
    fit = image.fit or preset.fit
    shorter = min(height, width)
    resize = image.resize or round(shorter * preset.resize_ratio)
    if image.resize and fit != "shorter_side_and_crop":
        raise ConfigError(
            f"image.resize: expected it with fit shorter_side_and_crop, found fit {fit}."
        )
    if resize < shorter:
        raise ConfigError(
            f"image.resize: expected at least {shorter}, the shorter side of input {name!r}, "
            f"found {resize}."
        )
    return Preprocessing(
        height=height,
        width=width,
        layout=layout,
        dtype=_DTYPES[datatype],
        grey=channels == 1,
        channel_order=channel_order or preset.channel_order,
        mean=preset.mean if mean is None else mean,
        scale=preset.scale if scale is None else scale,
        filter=image.filter or preset.filter,
        fit=fit,
        resize=resize if fit == "shorter_side_and_crop" else 0,
        pad_value=image.pad_value,
        upright=image.upright,
    )


def described(datatype: str, image: Mapping[str, Any]) -> Preprocessing:
    """Makes the plan that a server follows of what it says.

    Args:
        datatype: of the model's input, such as FP32.
        image: `image` of the model in the describe document.

    >>> pixels = {"height": 9, "width": 8, "layout": "NCHW", "channel_order": "BGR"}
    >>> values = {"mean": [0, 0, 0], "scale": [1, 1, 1], "pad_value": 114}
    >>> more = {"fit": "stretch", "resize": 0, "filter": "box"}
    >>> described("FP32", {**pixels, **values, **more}).sentence()
    'stretched to 8 x 9 (box), bgr, 0..255'
    """
    return Preprocessing(
        height=image["height"],
        width=image["width"],
        layout=image["layout"].lower(),
        dtype=_DTYPES[datatype],
        grey=image["channel_order"] == "GREY",
        channel_order="bgr" if image["channel_order"] == "BGR" else "rgb",
        mean=tuple(image["mean"]),
        scale=tuple(image["scale"]),
        filter=image["filter"],
        fit=image["fit"],
        resize=image["resize"],
        pad_value=image["pad_value"],
    )


def picture_of(
    name: str, datatype: str, shape: Sequence[int]
) -> tuple[int, Literal["nchw", "nhwc"], int, int]:
    """Reads the shape of an input that takes pictures.

    Returns:
        Channels, layout, height and width.

    Raises:
        ConfigError: it takes none.

    >>> picture_of("data", "FP32", [-1, 224, 224, 3])
    (3, 'nhwc', 224, 224)
    """
    if datatype in _DTYPES and len(shape) == 4 and shape[0] in (-1, 1):
        _, first, second, last = shape
        for channels in (3, 1):
            if first == channels and min(second, last) > 0:
                return channels, "nchw", second, last
            if last == channels and min(first, second) > 0:
                return channels, "nhwc", first, second
    raise ConfigError(
        f"Input {name!r} takes no pictures: expected FP32, FP16, UINT8 or INT8 [rows, 3, height, "
        "width] or [rows, height, width, 3], or with 1 channel in place of 3, of a fixed size, "
        f"found {datatype} {list(shape)}."
    )


@dataclass(frozen=True, slots=True)
class Guess:
    """The preset that a model most likely wants, and why."""

    preset: Literal["imagenet", "squeezenet", "yolo"]
    reason: str


def guess_preset(
    name: str, datatype: str, shape: Sequence[int], outputs: Sequence[tuple[str, Sequence[int]]]
) -> Guess | None:
    """Guesses a preset from what a graph says. A graph does not say how its model was trained.

    Args:
        name, datatype, shape: of the only input; sizes that are free are -1.
        outputs: names and shapes.

    Returns:
        None where the input is no picture, or nothing speaks for a preset.

    >>> guess_preset("data_0", "FP32", [-1, 3, 224, 224], [("softmaxout_1", [-1, 1000, 1, 1])])
    Guess(preset='squeezenet', reason="its input and output have the names of Caffe's SqueezeNet")
    """
    if datatype not in ("FP32", "FP16") or len(shape) != 4 or not outputs:
        return None
    sides = shape[2:] if shape[1] == 3 else shape[1:3] if shape[3] == 3 else None
    if sides is None:
        return None
    if (name, outputs[0][0]) == ("data_0", "softmaxout_1"):
        return Guess("squeezenet", "its input and output have the names of Caffe's SqueezeNet")
    if name == "images" and all(side < 0 or side % 32 == 0 for side in sides):
        return Guess("yolo", "its input is called images, as Ultralytics' exports have it")
    classes = [size for size in outputs[0][1][1:] if size != 1]
    square = sides[0] == sides[1] and 96 <= sides[0] <= 640
    if square and len(classes) == 1 and classes[0] in (1000, 1001):
        return Guess("imagenet", f"it puts square pictures into {classes[0]} classes")
    return None
