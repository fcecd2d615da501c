"""The models behind `builtin:NAME`: their names and their files.

Called by the configuration on the main thread, before the server starts. It never runs a model,
and importing it reads no file: `onnx` and numpy are imported only where a model must be written.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lumen_uring.pictures.image_input import ImageConfig

__all__ = ["BUILTIN", "builtin_image", "builtin_labels", "builtin_path"]

BUILTIN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "digits": "handwritten digits, image [N,1,8,8] 0..255 white on black to 10 probabilities",
        "squeezenet": "the architecture of SqueezeNet 1.1, untrained weights, for speed only",
    }
)


def builtin_path(name: str) -> Path:
    """Find the file of a built-in model; `squeezenet` is written on first use.

    Args:
        name: what follows `builtin:`, a key of BUILTIN.

    Returns:
        The path of an ONNX file that exists.

    Raises:
        ConfigError: there is no such model, or its file can neither be found nor written.

    >>> builtin_path("digits").name
    'digits.onnx'
    """
    if name == "squeezenet":
        from lumen_uring.models.squeezenet import cached_path

        return cached_path()
    from lumen_uring.errors import ConfigError

    if name != "digits":
        raise ConfigError(
            f"There is no built-in model {name!r}: expected one of {', '.join(sorted(BUILTIN))}."
        )
    path = Path(__file__).resolve().with_name("digits.onnx")
    if not path.is_file():
        raise ConfigError(
            f"The built-in model digits is missing at {path}: install lumen_uring again, "
            "or run tools/train_digits.py in its repository."
        )
    return path


def builtin_labels(name: str) -> Path | None:
    """Find the names of a built-in model's classes.

    Args:
        name: what follows `builtin:`.

    Returns:
        A text file with one class per line; None where the model has none.
    """
    path = Path(__file__).resolve().with_name(f"{name}.txt")
    return path if name in BUILTIN and path.is_file() else None


def builtin_image(name: str) -> ImageConfig | None:
    """Tell what becomes of files of pictures for a built-in model whose entry has no `image`.

    Args:
        name: what follows `builtin:`.

    Returns:
        As the model was trained; None where it takes none.
    """
    from lumen_uring.pictures.image_input import ImageConfig

    # Box averages whole areas: strokes survive a reduction to a few pixels.
    return ImageConfig(filter="box") if name == "digits" else None
