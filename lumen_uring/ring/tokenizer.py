"""A tokenizer as the C library has it: texts to ids. Any thread."""

from __future__ import annotations

import ctypes

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
        self, first: str, second: str | None = None, *, tokens_max: int, may_cut: bool = True
    ) -> tuple[list[int], list[int]]:
        """The ids of a text, or of a pair, and their types.

        Args:
            first: the text.
            second: of a pair; None: there is none.
            tokens_max: the most tokens, special ones included.
            may_cut: longer texts are cut; otherwise they are refused.

        Raises:
            EngineError: the text is too long, or tokens_max leaves no room for it.

        Source:
            lumen_tokenizer_encode
        """
        ids, types = (ctypes.c_int64 * tokens_max)(), (ctypes.c_int64 * tokens_max)()
        one = first.encode()
        two = None if second is None else second.encode()
        count = self._library.lumen_tokenizer_encode(
            self._handle, one, len(one), two, len(two or b""), ids, types, tokens_max, int(may_cut)
        )
        if count < 0:
            raise EngineError(self._library.lumen_last_error().decode(), count)
        return ids[:count], types[:count]

    def close(self) -> None:
        """Frees it; may be called twice."""
        self._library.lumen_tokenizer_close(self._handle)
        self._handle = ctypes.c_void_p()
