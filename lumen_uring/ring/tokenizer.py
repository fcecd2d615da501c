"""A tokenizer as the C library has it: texts to ids and back. Any thread."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Literal

from lumen_uring.errors import EngineError
from lumen_uring.ring import library


class Tokenizer:
    """One tokenizer.

    Args:
        file: as lumen_uring/text/compile.py lays it out.

    Raises:
        EngineError: the file is damaged.
    """

    def __init__(self, file: bytes) -> None:
        self._library = library.load()
        self._handle = ctypes.c_void_p()
        code = self._library.lumen_tokenizer_open(file, len(file), ctypes.byref(self._handle))
        if code:
            raise EngineError(self._library.lumen_last_error().decode(), code)

    def encode(
        self,
        first: str,
        second: str | None = None,
        *,
        tokens_max: int,
        cut: Literal["nothing", "end", "start"] = "end",
    ) -> tuple[list[int], list[int]]:
        """The ids of a text, or of a pair, and their types.

        Args:
            first: the text.
            second: of a pair; None: there is none.
            tokens_max: the most tokens, special ones included.
            cut: of longer texts; with "nothing" they are refused.

        Raises:
            EngineError: the text is too long, or tokens_max leaves no room for it.

        Source:
            lumen_tokenizer_encode
        """
        ids, types = (ctypes.c_int64 * tokens_max)(), (ctypes.c_int64 * tokens_max)()
        one = first.encode()
        two = None if second is None else second.encode()
        count = self._library.lumen_tokenizer_encode(
            self._handle,
            one,
            len(one),
            two,
            len(two or b""),
            ids,
            types,
            tokens_max,
            ("nothing", "end", "start").index(cut),
        )
        if count < 0:
            raise EngineError(self._library.lumen_last_error().decode(), count)
        return ids[:count], types[:count]

    def decode(self, ids: Sequence[int], *, skips_special: bool = True) -> str:
        """The text of some ids.

        Args:
            ids: of tokens.
            skips_special: special tokens are left out.

        Raises:
            EngineError: an id is not one, or the tokenizer's decoder is not implemented.

        Source:
            lumen_tokenizer_decode
        """
        numbers = (ctypes.c_uint32 * len(ids))(*ids)
        decode = self._library.lumen_tokenizer_decode
        wanted = (self._handle, numbers, len(ids), int(skips_special))
        count = decode(*wanted, None, 0)
        if count < 0:
            raise EngineError(self._library.lumen_last_error().decode(), count)
        out = ctypes.create_string_buffer(count)
        decode(*wanted, out, count)
        return out.raw.decode()

    def close(self) -> None:
        """Frees it; may be called twice."""
        self._library.lumen_tokenizer_close(self._handle)
        self._handle = ctypes.c_void_p()
