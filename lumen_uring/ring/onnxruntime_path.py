"""Finds libonnxruntime.so inside the installed onnxruntime wheel.

Called by engine.py and doctor, on the main thread. It never imports onnxruntime: that would load a
second copy of it into this process, start its threads and cost a second of start-up.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Final

from lumen_uring.errors import LibraryError

# A dozen reads out of bounds in its CPU kernels were mended there.
OLDEST: Final = (1, 27)
# Wheels with another provider's library lag behind; the C interface is the same.
OLDEST_OF_PROVIDERS: Final = (1, 17)
_NAME: Final = re.compile(r"libonnxruntime\.so(?:\.(\d+)\.(\d+)(?:\.\d+)*)?")
_PROVIDER: Final = re.compile(r"libonnxruntime_providers_(\w+)\.so")
_CURE: Final = 'run `pip install "onnxruntime>=1.27"`'


def find(package: str = "onnxruntime") -> Path:
    """Finds the runtime's shared library.

    Args:
        package: the import package to look in; GPU wheels use the same name.

    Returns:
        The file, the newest if there are several.

    Raises:
        LibraryError: the wheel is not installed, holds no library, or is older than 1.27; one with
            another provider's library, older than 1.17.
    """
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise LibraryError(f"ONNX Runtime is not installed: {_CURE}.")
    found: dict[Path, tuple[int, ...]] = {}
    for location in spec.submodule_search_locations:
        for path in sorted(Path(location, "capi").glob("libonnxruntime.so*")):
            match = _NAME.fullmatch(path.name)
            if match:
                found[path] = tuple(int(part) for part in match.groups() if part)
    if not found:
        raise LibraryError(f"The installed {package} wheel holds no libonnxruntime.so: {_CURE}.")
    newest = max(found, key=lambda path: found[path])
    oldest = OLDEST_OF_PROVIDERS if provider_libraries(newest) else OLDEST
    if found[newest] and found[newest] < oldest:
        raise LibraryError(
            f"{newest} is older than {oldest[0]}.{oldest[1]}: requests could make the kernels of "
            f"older ones read beyond their tensors: {_CURE}."
        )
    return newest


def version(path: Path) -> str:
    """Reads the runtime's version from its file name.

    Args:
        path: as find gave it.

    Returns:
        For example "1.31.1"; "unknown" for a name without a version.
    """
    _, _, text = path.name.partition(".so.")
    return text or "unknown"


def provider_libraries(path: Path) -> list[str]:
    """The execution providers that come as libraries of their own beside the runtime's.

    Args:
        path: as find gave it.

    Returns:
        For example ["openvino"]; the wheel for the CPU has none.
    """
    found = (_PROVIDER.fullmatch(file.name) for file in path.parent.glob("*.so"))
    return sorted(match[1] for match in found if match and match[1] != "shared")
