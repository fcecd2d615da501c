"""Text files as editors of all systems write them: UTF-8, with or without a byte order mark.

Used for settings, labels and models' configurations, on the thread that reads them.
"""

from __future__ import annotations

import codecs


class NotUtf8Error(ValueError):
    """The message says what was found."""


def decode(raw: bytes) -> str:
    """Reads a file's bytes.

    Args:
        raw: the file, or its beginning.

    Returns:
        The text without its byte order mark.

    Raises:
        NotUtf8Error: it is another encoding.

    >>> decode(b"\\xef\\xbb\\xbfcat")
    'cat'
    """
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise NotUtf8Error("UTF-16 (save it as UTF-8)")
    text = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        at = error.start + len(raw) - len(text)
        raise NotUtf8Error(f"byte {raw[at]:#04x} at offset {at}") from None
