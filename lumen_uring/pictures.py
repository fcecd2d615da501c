"""Pictures on the client's side: finds them, decodes them, scales them to a model's size.

Used by both clients, `lumen predict` and `lumen bench`, on any thread. A picture is turned as its
camera noted, then scaled as a whole to the model's size, without cropping and whatever its
proportions. Pillow is imported when first needed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from lumen_uring.errors import BadRequest, PictureError, UnknownModel

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

    from lumen_uring.convert import Array
    from lumen_uring.describe import Model

# A file's path, the bytes of such a file, or an opened Pillow image.
Picture: TypeAlias = Union[str, "os.PathLike[str]", bytes, "PillowImage"]


def find(paths: Sequence[str]) -> Iterator[Path]:
    """Lists pictures.

    Args:
        paths: files, taken as they are, and folders, of which the pictures are taken.

    Yields:
        Each file, a folder's in the order of their names.
    """
    endings = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"}
    for name in paths:
        path = Path(name)
        if path.is_dir():
            for entry in sorted(path.iterdir()):
                if entry.suffix.lower() in endings and entry.is_file():
                    yield entry
        else:
            yield path


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
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise PictureError(
            f"Pictures are read with Pillow: pip install 'lumen-uring[tools]' ({error})."
        ) from None
    import numpy as np

    try:
        with _opened(picture) as opened:
            # A camera stores the picture as its sensor lay, and notes how to turn it.
            image = ImageOps.exif_transpose(opened)
            if model.rgb8 is not None:
                size = (model.rgb8.width, model.rgb8.height)
                resized = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
                return np.asarray(resized, np.uint8)
            height, width = _grey_size(model, image.height, image.width)
            # Box averages whole areas: strokes survive a reduction to a few pixels.
            grey = image.convert("L").resize((width, height), Image.Resampling.BOX)
            return np.asarray(grey, np.float32).reshape(1, 1, height, width)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        name = os.fspath(picture) if isinstance(picture, (str, os.PathLike)) else "The picture"
        raise PictureError(f"{name} is no readable picture: {reason}.") from None


def _opened(picture: Picture) -> AbstractContextManager[PillowImage]:
    """Opens a picture; the caller's own stays open."""
    from PIL import Image

    if isinstance(picture, Image.Image):
        return nullcontext(picture)
    return Image.open(io.BytesIO(picture) if isinstance(picture, bytes) else picture)


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
