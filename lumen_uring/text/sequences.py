"""Parts of a tokenizer.json that may be a Sequence of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lumen_uring.errors import ConfigError

_DEPTH_MAX: Final = 16

Kinds = Mapping[str, Callable[[dict[str, Any]], None]]


def parts_of(document: dict[str, Any] | None, key: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """A part, or those of a Sequence in their order; none of null.

    Args:
        document: the part.
        key: a Sequence's field for its parts.
        depth: how many Sequences it is in.
    """
    if document is None:
        return
    if document.get("type") != "Sequence" or depth == _DEPTH_MAX:
        yield document
        return
    for part in document[key]:
        yield from parts_of(part, key, depth + 1)


def take(part: dict[str, Any], kinds: Kinds, where: str) -> None:
    """Hands a part to the reader of its type.

    Args:
        part: no Sequence.
        kinds: the readers, by type.
        where: for the message.

    Raises:
        ConfigError: no reader is there for its type.
    """
    kind = str(part.get("type", "none"))
    if kind not in kinds:
        raise ConfigError(
            f"{where}: expected one of {', '.join(sorted(kinds))} or Sequence, found {kind}"
        )
    kinds[kind](part)
