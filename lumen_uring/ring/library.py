"""Finds liblumen_uring.so, loads it once, and refuses it unless it is the one this Python knows.

Called by engine.py and doctor on first use, on the main thread. The comparison goes both ways:
every field of every mirror against the library's table and the reverse. A library that does not
match is never called further, since it would read and write at the wrong places.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Final

from lumen_uring.errors import EngineError, LibraryError
from lumen_uring.ring import config_struct as _config_struct  # noqa: F401  LumenConfig's fields
from lumen_uring.ring import functions, structs

LIBRARY_NAME: Final = "liblumen_uring.so"
# One difference usually moves every field behind it: the first few say it all.
_PROBLEMS_SHOWN: Final = 4

Layout = dict[tuple[str, str], tuple[int, int]]


@functools.lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """Loads the C library and checks it.

    Returns:
        The library, every function of lumen.h typed.

    Raises:
        LibraryError: not found, not loadable, or of another version.
    """
    return load_from(find())


def check_engine(path: Path, whole: bool = False) -> None:
    """Checks the file of a native engine.

    Args:
        path: of the file.
        whole: compares all of its weights with their digests, not some.

    Raises:
        EngineError: it cannot be used; the message says what was expected and found.
        LibraryError: the C library is missing or of another version.

    Source:
        lumen_check_engine
    """
    loaded = load()
    code = loaded.lumen_check_engine(os.fsencode(path), int(whole))
    if code < 0:
        raise EngineError((loaded.lumen_last_error() or b"").decode("utf-8", "replace"), code)


def find() -> Path:
    """Finds the library: $LUMEN_LIBRARY, then the installed package, then the checkout's build.

    Returns:
        An existing file.

    Raises:
        LibraryError: none of the places has it; the message lists them.
    """
    named = os.environ.get("LUMEN_LIBRARY")
    if named:
        path = Path(named)
        if not path.is_file():
            raise LibraryError(f"LUMEN_LIBRARY names {named}, which is no file: correct it.")
        return path.resolve()
    here = Path(__file__).resolve().parent
    places = (here / LIBRARY_NAME, here.parents[1] / "c" / "build" / "release" / LIBRARY_NAME)
    for place in places:
        if place.is_file():
            return place
    raise LibraryError(
        f"{LIBRARY_NAME} is not built: run `make -C c lib` in the checkout, or `pip install` "
        f"Lumen again, or set LUMEN_LIBRARY. Looked at {' and '.join(map(str, places))}."
    )


def load_from(path: Path) -> ctypes.CDLL:
    """Loads one file as the C library and checks it.

    Args:
        path: the file.

    Returns:
        The library, every function of lumen.h typed.

    Raises:
        LibraryError: not loadable, or of another version.
    """
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryError(f"{path} does not load: {error}. Build it again here.") from None
    for name, restype, argtypes in functions.FUNCTIONS:
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LibraryError(
                f"{path} has no function {name}: expected the library of ABI version "
                f"{structs.ABI_VERSION}. Build it again with `make -C c lib`."
            ) from None
        function.restype = restype
        function.argtypes = argtypes
    version, found = _read_layout(library)
    problems = compare(version, found)
    if problems:
        shown = problems[:_PROBLEMS_SHOWN]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown)} more differences")
        raise LibraryError(
            f"{path} does not fit this Python package: {'; '.join(shown)}. "
            "Build it again with `make -C c lib`."
        )
    return library


def compare(version: int, found: Layout) -> list[str]:
    """Compares a library's layout with the mirrors, both ways.

    Args:
        version: its ABI version.
        found: (struct, field) -> (offset, size) in bytes; field "" is the whole struct.

    Returns:
        A sentence part for each difference; empty when they are the same.
    """
    problems: list[str] = []
    if version != structs.ABI_VERSION:
        problems.append(f"expected ABI version {structs.ABI_VERSION}, found {version}")
    expected = mirrored_layout()
    for key in sorted(expected.keys() | found.keys()):
        want, have = expected.get(key), found.get(key)
        if want != have:
            problems.append(
                f"{key[0]}{'.' if key[1] else ''}{key[1]}: expected {_said(want)}, "
                f"found {_said(have)}"
            )
    return problems


def mirrored_layout() -> Layout:
    """Lists what the ctypes mirrors are, in the form of lumen_abi's table.

    Returns:
        (struct, field) -> (offset, size) in bytes; field "" is the whole struct.
    """
    layout: Layout = {}
    for struct_name, mirror in functions.MIRRORS.items():
        layout[(struct_name, "")] = (0, ctypes.sizeof(mirror))
        for field in mirror._fields_:
            place = getattr(mirror, field[0])
            layout[(struct_name, field[0])] = (place.offset, place.size)
    return layout


def _read_layout(library: ctypes.CDLL) -> tuple[int, Layout]:
    version, count = ctypes.c_uint32(), ctypes.c_uint32()
    table = library.lumen_abi(ctypes.byref(version), ctypes.byref(count))
    if version.value != structs.ABI_VERSION:
        # The table's own layout may have changed with the version: only the number is safe to read.
        return version.value, mirrored_layout()
    layout: Layout = {}
    for index in range(count.value):
        entry = table[index]
        key = (entry.struct_name.decode(), entry.field_name.decode())
        layout[key] = (entry.offset, entry.size)
    return version.value, layout


def _said(place: tuple[int, int] | None) -> str:
    return "nothing" if place is None else f"{place[1]} bytes at {place[0]}"
