"""Pictures outside the server: finds them, decodes them, scales them to a model's size.

Used by both clients, `lumen predict`, `lumen bench` and `lumen quantize`, on any thread. Clients
turn a picture as its camera noted, then scale it as a whole to the model's size, without cropping
and whatever its proportions (`prepare`). `tensor` does what the server does with a picture's file.
Pillow is imported when first needed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, Union

from lumen_uring.errors import BadRequest, LumenError, PictureError, UnknownModel

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage
    from PIL.Image import Resampling

    from lumen_uring.pictures.image_input import Preprocessing
    from lumen_uring.protocol.convert import Array
    from lumen_uring.protocol.describe import Model

# A file's path, the bytes of such a file, or an opened Pillow image.
Picture: TypeAlias = Union[str, "os.PathLike[str]", bytes, "PillowImage"]

_SERVED: Final = (b"\xff\xd8\xff", b"\x89PNG")  # a JPEG, a PNG


def find(paths: Sequence[str]) -> Iterator[Path]:
    """Lists pictures.

    Args:
        paths: files, taken as they are, and folders, of which all pictures are taken, also those of
            folders within.

    Yields:
        Each file, a folder's in the order of their names.

    Raises:
        PictureError: a folder cannot be read.
    """
    endings = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"}
    for name in paths:
        path = Path(name)
        if path.is_dir():
            entries = (
                Path(at, file) for at, _, files in os.walk(path, onerror=_no) for file in files
            )
            for entry in sorted(entries):
                if entry.suffix.lower() in endings and entry.is_file():
                    yield entry
        else:
            yield path


def _no(error: OSError) -> None:
    raise PictureError(f"{error.filename} cannot be read: {error.strerror}.") from None


def prepare(model: Model, picture: Picture) -> Array:
    """Decodes a picture into a model's input.

    Args:
        model: one with an image input.
        picture: one that Pillow reads or has read.

    Returns:
        uint8 [H,W,3] for a model that takes rgb8, else float32 [1,1,H,W], 0..255. A size that is
        free in the model is the picture's own, at most the model's maximum.

    Raises:
        PictureError: the file is no picture, or Pillow is not installed.
        UnknownModel: the model takes no pictures.
    """
    import numpy as np

    with opened(picture) as image:
        from PIL import Image

        if model.rgb8 is not None:
            size = (model.rgb8.width, model.rgb8.height)
            resized = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
            return np.asarray(resized, np.uint8)
        height, width = _grey_size(model, image.height, image.width)
        # Box averages whole areas: strokes survive a reduction to a few pixels.
        grey = image.convert("L").resize((width, height), Image.Resampling.BOX)
        return np.asarray(grey, np.float32).reshape(1, 1, height, width)


def tensor(plan: Preprocessing, picture: Picture) -> Array:
    """Makes a model's input of a picture as the server does, bit by bit.

    Args:
        plan: of the model.
        picture: one that Pillow reads or has read.

    Returns:
        One row: [1,C,H,W] or [1,H,W,C], as the plan says.

    Raises:
        PictureError: the file is no picture, or Pillow is not installed.
    """
    import numpy as np

    with opened(picture, plan.upright) as image:
        pixels = _fitted(plan, _eight_bits(image).convert("L" if plan.grey else "RGB"))
    if plan.grey:
        pixels = pixels[..., None]
    elif plan.channel_order == "bgr":
        pixels = pixels[..., ::-1]
    if plan.layout == "nchw":
        pixels = pixels.transpose(2, 0, 1)
    if plan.dtype == "uint8":
        return np.ascontiguousarray(pixels[None])
    if plan.dtype == "int8":
        return np.ascontiguousarray((pixels ^ 0x80).view(np.int8)[None])
    # Subtract, then multiply, each rounded to float32: the server's two steps.
    channels = slice(0, 1) if plan.grey else slice(0, 3)
    shape = (-1, 1, 1) if plan.layout == "nchw" else (-1,)
    mean = np.asarray(plan.mean[channels], np.float32).reshape(shape)
    scale = np.asarray(plan.scale[channels], np.float32).reshape(shape)
    values = (pixels.astype(np.float32) - mean) * scale
    return np.ascontiguousarray(values[None], plan.dtype)


def _eight_bits(image: PillowImage) -> PillowImage:
    """Takes the upper byte of 16-bit grey, as of colours; Pillow's convert would saturate."""
    import numpy as np
    from PIL import Image

    if not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def _fitted(plan: Preprocessing, image: PillowImage) -> Array:
    """The pixels, uint8 [H,W] or [H,W,3]."""
    import numpy as np
    from PIL import Image

    place = plan.geometry(image.width, image.height)
    resized = _resized(
        image, place.resized_width, place.resized_height, Image.Resampling[plan.filter.upper()]
    )
    if plan.fit == "letterbox":
        pad = plan.pad_value
        whole = Image.new(image.mode, (plan.width, plan.height), pad if plan.grey else (pad,) * 3)
        whole.paste(resized, (place.left, place.top))
        resized = whole
    elif plan.fit == "shorter_side_and_crop":
        left, top = place.left, place.top
        resized = resized.crop((left, top, left + plan.width, top + plan.height))
    return np.asarray(resized)


def _resized(image: PillowImage, width: int, height: int, filter: Resampling) -> PillowImage:
    """Resizes in the order of Pillow 13, whichever version this is; others differ in the last bit.

    Source: ImagingResampleInner in src/libImaging/Resample.c. Until 12 the horizontal pass came
        first always.
    """
    lower, narrower = image.height - height, image.width - width
    vertical_first = lower > max(0, 2 * narrower)
    between = (image.width, height) if vertical_first else (width, image.height)
    return image.resize(between, filter).resize((width, height), filter)


@contextmanager
def opened(picture: Picture, upright: bool = True) -> Iterator[PillowImage]:
    """Opens a picture; within the context an error of Pillow's says what is wrong with it.

    Args:
        picture: one that Pillow reads or has read.
        upright: turn it as its camera noted.

    Raises:
        PictureError: the file is no picture, or Pillow is not installed.
    """
    try:
        from PIL import ImageOps
    except ImportError as error:
        raise PictureError(
            f"Pictures are read with Pillow: pip install pillow ({error})."
        ) from None
    try:
        with _open(picture) as image:
            # A camera stores the picture as its sensor lay, and notes how to turn it.
            yield ImageOps.exif_transpose(image) if upright else image
    except LumenError:
        raise
    except Exception as error:  # its readers of single formats raise what they like
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = reason or type(error).__name__
        name = os.fspath(picture) if isinstance(picture, (str, os.PathLike)) else "The picture"
        raise PictureError(f"{name} is no readable picture: {reason}.") from None


def _open(picture: Picture) -> AbstractContextManager[PillowImage]:
    """Opens a picture; the caller's own stays open."""
    from PIL import Image

    if isinstance(picture, Image.Image):
        return nullcontext(picture)
    return Image.open(io.BytesIO(picture) if isinstance(picture, bytes) else picture)


def files(images: Picture | Sequence[Picture]) -> list[bytes]:
    """The bytes of pictures' files, as the server decodes them.

    Args:
        images: one picture or a list of them; a Pillow image becomes a PNG.

    Raises:
        PictureError: a path cannot be read.
    """
    if isinstance(images, (list, tuple)):
        return [_file(picture) for picture in images]
    return [_file(images)]  # type: ignore[arg-type]


def served_file(path: Path) -> bytes:
    """The bytes of a picture's file as the server takes it: one of another format becomes a PNG.

    Args:
        path: of the picture.

    Raises:
        PictureError: it cannot be read, or it is neither JPEG nor PNG and Pillow does not read it.
    """
    file = _file(path)
    if file.startswith(_SERVED):
        return file
    with opened(path) as image:
        return _file(_eight_bits(image).convert("RGB"))


def _file(picture: Picture) -> bytes:
    if isinstance(picture, bytes):
        return picture
    if isinstance(picture, (str, os.PathLike)):
        try:
            return Path(picture).read_bytes()
        except OSError as error:
            name = os.fspath(picture)
            raise PictureError(f"{name} cannot be read: {error.strerror}.") from None
    stored = io.BytesIO()
    picture.save(stored, "PNG")
    return stored.getvalue()


def pixels(model: Model, pictures: Array | Picture | Sequence[Picture]) -> Array:
    """Converts the pictures given to infer_rgb8 to pixels.

    Args:
        model: one that takes rgb8.
        pictures: an array, returned as it is; a picture; or a list of them, a row each.

    Returns:
        uint8 [height, width, 3], or [rows, height, width, 3] for a list.

    Raises:
        BadRequest: the model takes no pictures, or the list is empty.
        PictureError: one is no picture.
    """
    import numpy as np

    if isinstance(pictures, np.ndarray):
        return pictures
    if model.rgb8 is None:
        raise BadRequest(f"Model {model.name!r} takes no rgb8 images: its input is no picture.")
    if not isinstance(pictures, (list, tuple)):
        return prepare(model, pictures)  # type: ignore[arg-type]
    if not pictures:
        raise BadRequest(f"Images for {model.name!r}: expected one or more, found an empty list.")
    return np.stack([pixels(model, picture) for picture in pictures])


def _grey_size(model: Model, height: int, width: int) -> tuple[int, int]:
    """The size of a grey picture for the model, which has this size itself."""
    tensor = model.inputs[0]
    most = {dim.name: dim.max for dim in model.free_dims}
    dims = tensor.dims or tensor.shape
    fits = (
        len(model.inputs) == 1
        and tensor.datatype == "FP32"
        and len(tensor.shape) == 4
        and tensor.shape[0] in (-1, 1)
        and tensor.shape[1] == 1
        and all(dim in most if isinstance(dim, str) else dim > 0 for dim in dims[2:])
    )
    if not fits:
        raise UnknownModel(
            f"Model {model.name!r} takes no pictures: it has "
            f"{[(entry.name, entry.datatype, list(entry.shape)) for entry in model.inputs]}. "
            "Send tensors with lumen_uring.Client."
        )
    own = (min(height, width),) * 2 if dims[2] == dims[3] else (height, width)
    # One scale for both directions, as far as the model's sizes allow.
    scales = [dim / size for dim, size in zip(dims[2:], own, strict=True) if isinstance(dim, int)]
    if not scales:
        scales = [1.0, *(most[str(dim)] / size for dim, size in zip(dims[2:], own, strict=True))]
    found = [
        max(1, min(most[dim], round(size * min(scales)))) if isinstance(dim, str) else dim
        for dim, size in zip(dims[2:], own, strict=True)
    ]
    return found[0], found[1]
