"""Pictures on the client's side: finding them, decoding them, bringing them to a model's size.

Used by `lumen predict` and `lumen bench`, on the main thread. The model's description decides how a
picture is prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lumen_uring.errors import PictureError, UnknownModel

if TYPE_CHECKING:
    from lumen_uring.describe import Model
    from lumen_uring.native import Array


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


def prepare(model: Model, path: Path) -> Array:
    """Decodes a picture into what a model takes.

    Args:
        model: one with an image input.
        path: a file that Pillow reads.

    Returns:
        uint8 [H,W,3] for a model that takes rgb8, else float32 [1,1,H,W], 0..255.

    Raises:
        PictureError: the file is no picture.
        UnknownModel: the model takes none.
    """
    import numpy as np
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            # Cameras store the picture as the sensor lay and note how to turn it.
            image = ImageOps.exif_transpose(opened)
            if model.rgb8 is not None:
                size = (model.rgb8.width, model.rgb8.height)
                resized = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
                return np.asarray(resized, np.uint8)
            height, width = _grey_size(model)
            # Box averages whole areas: strokes survive a reduction to a few pixels.
            grey = image.convert("L").resize((width, height), Image.Resampling.BOX)
            return np.asarray(grey, np.float32).reshape(1, 1, height, width)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PictureError(f"{path} is no readable picture: {reason}.") from None


def _grey_size(model: Model) -> tuple[int, int]:
    tensor = model.inputs[0]
    fits = (
        len(model.inputs) == 1
        and tensor.datatype == "FP32"
        and len(tensor.shape) == 4
        and tensor.shape[0] in (-1, 1)
        and tensor.shape[1] == 1
        and min(tensor.shape[2:]) > 0
    )
    if not fits:
        raise UnknownModel(
            f"Model {model.name!r} takes no pictures: it has "
            f"{[(entry.name, entry.datatype, list(entry.shape)) for entry in model.inputs]}. "
            "Send tensors with lumen_uring.Client."
        )
    return tensor.shape[2], tensor.shape[3]
