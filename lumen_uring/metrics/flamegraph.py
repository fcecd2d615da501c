"""Draws sampled stacks as a flame graph: one SVG, no script, a tooltip on every frame.

Called by the metrics page for /debug/pprof/profile. A stack is a tuple of names, outermost first;
its weight is the number of samples. Nothing here runs perf or touches a file.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import PurePosixPath
from typing import Final

Stack = tuple[str, ...]

_DEPTH_MAX: Final = 200
_WIDTH: Final = 1200
_ROW: Final = 17
_HEAD: Final = 48
_FONT: Final = 12
_CHARACTER: Final = 7.2  # the width of one in a monospace font of that size
_THINNEST: Final = 0.2
# "    7f2a10 name (file)": the address, what lies there, and the file it comes from.
_FRAME: Final = re.compile(r"\s+[0-9a-f]+\s+(.*) \((.*)\)\s*")


def parse_perf_script(text: str) -> Counter[Stack]:
    """Reads `perf script -F comm,ip,sym,dso`.

    Args:
        text: samples, each a line with the thread's name, then its frames, innermost first, then an
            empty line.

    Returns:
        How often each stack was seen; its first name is the thread's.
    """
    stacks: Counter[Stack] = Counter()
    for sample in text.split("\n\n"):
        lines = [line for line in sample.splitlines() if line.strip() and not line.startswith("#")]
        if not lines or (lines[0][0].isspace() and _FRAME.fullmatch(lines[0])):
            continue
        frames = [_name(match) for match in map(_FRAME.fullmatch, lines[1:]) if match]
        stack = (_clean(lines[0].strip().rstrip(":")), *reversed(frames))
        stacks[stack] += 1
    return stacks


def _name(match: re.Match[str]) -> str:
    symbol, file = match.group(1).strip(), match.group(2)
    if symbol and symbol != "[unknown]":
        return _clean(symbol)
    return _clean(file if file.startswith("[") else f"[{PurePosixPath(file).name}]")


def _clean(name: str) -> str:
    """Replaces semicolons, which end a frame in the folded form, and control characters."""
    return "".join(":" if sign == ";" else sign if sign.isprintable() else "?" for sign in name)


def folded(stacks: Mapping[Stack, int]) -> str:
    """Writes a line per stack: its names between semicolons, a blank, its count.

    >>> folded({("a", "b"): 2, ("a",): 1})
    'a 1\\na;b 2\\n'
    """
    return "".join(f"{';'.join(stack)} {count}\n" for stack, count in sorted(stacks.items()))


@dataclass(slots=True)
class _Node:
    count: int = 0
    inner: dict[str, _Node] = field(default_factory=dict)


def svg(stacks: Mapping[Stack, int], title: str) -> str:
    """Draws the flame graph.

    Args:
        stacks: how often each was seen.
        title: the heading.

    Returns:
        A whole SVG document.
    """
    root = _Node()
    for stack, count in stacks.items():
        root.count += count
        at = root
        for name in stack[:_DEPTH_MAX]:
            at = at.inner.setdefault(name, _Node())
            at.count += count
    depth = min(_DEPTH_MAX, max(map(len, stacks), default=0))
    height = _HEAD + (depth + 1) * _ROW + 8
    parts = [
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="monospace" font-size="{_FONT}">\n'
        "<style>g:hover rect{stroke:#000}text{pointer-events:none}</style>\n"
        f'<rect width="{_WIDTH}" height="{height}" fill="#fffdf5"/>\n'
        f'<text x="{_WIDTH / 2:g}" y="22" text-anchor="middle" font-size="16">'
        f"{_text(title)}</text>\n"
        f'<text x="{_WIDTH / 2:g}" y="40" text-anchor="middle" fill="#555">{root.count} samples; '
        "each thread's stacks from the bottom up; the width is their share</text>\n"
    ]
    if root.count == 0:
        parts.append(
            f'<text x="{_WIDTH / 2:g}" y="{_HEAD + _ROW}" text-anchor="middle" fill="#a00">'
            "No samples: no thread used a processor meanwhile. Profile while requests come, for "
            "example beside `lumen bench --seconds 30`.</text>\n"
        )
    else:
        _draw(parts, root, "all", 0, 0.0, _WIDTH / root.count, depth, root.count)
    parts.append("</svg>\n")
    return "".join(parts)


def _draw(
    parts: list[str],
    node: _Node,
    name: str,
    level: int,
    x: float,
    scale: float,
    depth: int,
    total: int,
) -> None:
    """Draws a frame and, above it, the frames it called."""
    width = node.count * scale
    if width < _THINNEST:
        return
    y = _HEAD + (depth - level) * _ROW
    parts.append(
        f"<g><title>{_text(name)}: {node.count} samples, {100 * node.count / total:.2f} %</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" rx="1" '
        f'fill="{_colour(name)}"/>'
    )
    room = int((width - 6) / _CHARACTER)
    if room >= 3:
        shown = name if len(name) <= room else name[: room - 2] + ".."
        parts.append(f'<text x="{x + 3:.2f}" y="{y + 12}">{_text(shown)}</text>')
    parts.append("</g>\n")
    at = x
    for inner_name, inner in sorted(node.inner.items()):
        _draw(parts, inner, inner_name, level + 1, at, scale, depth, total)
        at += inner.count * scale


def _colour(name: str) -> str:
    """A warm colour that is the same for the same name."""
    mixed = zlib.crc32(name.encode())
    return f"hsl({10 + mixed % 45} {75 + mixed // 64 % 20}% {58 + mixed // 4096 % 14}%)"


def _text(text: str) -> str:
    """Escapes a text, and replaces characters that XML forbids."""
    return escape("".join(sign if sign.isprintable() else "?" for sign in text), quote=False)
