"""Text models: what a tokenizer.json means, and the file that the C library reads of it."""

from typing import Final

VERSION: Final = 3  # of that file: LM_TEXT_VERSION in c/src/text/file.h
