"""`make tokenizer`: trained tokenizers, in C and in the wheel `tokenizers`, in one run.

Each reads a query of 6 words and a long English text, in turns, on one core; CPU time. Before that
both read random texts of odd characters, and must agree on every id. Fetches 240 MB once.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import tokenizers as wheel

from bench.common import wheels
from lumen_uring.ring.tokenizer import Tokenizer
from lumen_uring.text.compile import compile_file

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
from odd_texts import Texts  # noqa: E402 -- the tests' texts

_PROGRAM: Final = ROOT / "c/build/release/bench/micro/tokenizer"
_QUERY: Final = "how do I reset my password"
_TOKENS_MAX: Final = 1 << 16


def count_differences(file: bytes, theirs: wheel.Tokenizer, texts: int, seed: int) -> int:
    """How many of some random texts have other ids than the wheel gives them."""
    known = [text.strip("#\u2581\u0120") for text in sorted(theirs.get_vocab())[::97]]
    odd = Texts(seed, [text for text in known if text] + ["<mask>", "[SEP]", " "], 30)
    different = 0
    with closing(Tokenizer(file)) as ours:
        for number in range(texts):
            first, second = odd.one(), odd.one() if number % 5 == 0 else None
            found = theirs.encode(first, second)
            same = ours.encode(first, second, tokens_max=_TOKENS_MAX)
            different += same != (found.ids, found.type_ids)
    return different


def measure(file: Path, theirs: wheel.Tokenizer, text: str, rounds: int) -> tuple[float, float]:
    """Microseconds of CPU time of one reading: ours and theirs."""
    path = file.with_suffix(".txt")
    path.write_text(text)
    times = max(20, 200_000 // len(text))
    mine, their = [], []
    with subprocess.Popen(
        [_PROGRAM, file, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as ours:
        assert ours.stdin is not None
        assert ours.stdout is not None
        for _ in range(rounds):
            ours.stdin.write(f"{times}\n")
            ours.stdin.flush()
            mine.append(float(ours.stdout.readline().split()[0]) / 1e3)
            start = time.process_time_ns()
            for _ in range(times):
                theirs.encode(text)
            their.append((time.process_time_ns() - start) / times / 1e3)
        ours.stdin.close()
    return statistics.median(mine), statistics.median(their)


def main() -> int:
    """Measures all tokenizers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--texts", type=int, default=20_000, help="to compare (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of these (%(default)s)")
    options = parser.parse_args()
    if not _PROGRAM.is_file():
        raise SystemExit(f"{_PROGRAM} is missing: run make -C c bench.")
    long = " ".join((ROOT / "docs" / "GUIDE.md").read_text().split())
    for what, path in wheels.tokenizers().items():
        theirs = wheel.Tokenizer.from_file(str(path))
        theirs.no_truncation()
        theirs.no_padding()
        start = time.process_time()
        laid_out = compile_file(path)
        seconds = time.process_time() - start
        different = count_differences(laid_out, theirs, options.texts, options.seed)
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "tokenizer.bin")
            file.write_bytes(laid_out)
            query = measure(file, theirs, _QUERY, options.rounds)
            text = measure(file, theirs, long, options.rounds)
        size = len(long.encode())
        print(
            f"{what}: {different} of {options.texts} texts differ; 6 words {query[0]:.2f} us, "
            f"the wheel {query[1]:.1f}; {size / text[0]:.1f} MB/s, the wheel {size / text[1]:.1f}; "
            f"laid out in {seconds:.1f} s, {len(laid_out) / 1e6:.1f} MB",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
