"""Command-line options that several benchmarks have, with one meaning each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence


def add_rounds(
    parser: argparse.ArgumentParser,
    *,
    rounds: int,
    seconds: float,
    warmup: float,
    connections: Sequence[int],
) -> None:
    """Adds --rounds, --seconds, --warmup and --connections.

    Args:
        parser: of the benchmark.
        rounds: the default number of rounds.
        seconds: the default time per figure.
        warmup: the default seconds before each figure.
        connections: the default numbers of connections.
    """
    parser.add_argument("--rounds", type=int, default=rounds, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=seconds, help="per figure (%(default)s)")
    parser.add_argument("--warmup", type=float, default=warmup, help="before each (%(default)s)")
    parser.add_argument("--connections", type=counts, default=list(connections), metavar="N,N")


def counts(text: str) -> list[int]:
    """Reads numbers with commas between them, as an argument's type.

    Args:
        text: such as "1,16".

    Returns:
        Each number once, the smallest first.
    """
    return sorted({int(part) for part in text.split(",")})


def some_of(allowed: Collection[str]) -> Callable[[str], list[str]]:
    """Makes an argument's type that reads names with commas between them.

    Args:
        allowed: the names to choose from.
    """

    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(
                f"expected some of {', '.join(allowed)}, found {unknown[0]!r}"
            )
        return names

    return parse
