"""`make json-bench`: a picture as JSON, read by Lumen and by orjson, in one run.

The request holds one tensor of 1 x 3 x 224 x 224 FP32, 150,528 numbers, written as numpy prints
float32, flat and nested, and once as Python prints the same values as doubles. Lumen's codec
(json_bench.c, `make -C c bench`) checks the whole request and writes the tensor; the other
side is `orjson.loads` and `np.array(..., dtype=np.float32)`, which checks nothing. Both take turns;
both tensors must be the same, bit by bit.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson

ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = ROOT / "c/build/release/bench/micro/json_bench"
_SHAPE: Final = (1, 3, 224, 224)


def _request(data: str) -> bytes:
    return (
        '{"inputs":[{"name":"image","shape":[1,3,224,224],"datatype":"FP32","data":'
        + data
        + '}],"outputs":[{"name":"image"}]}'
    ).encode()


def _flat(values: list[str]) -> str:
    return "[" + ",".join(values) + "]"


def _nested(values: list[str]) -> str:
    rows = [_flat(values[i : i + 224]) for i in range(0, len(values), 224)]
    planes = [_flat(rows[i : i + 224]) for i in range(0, len(rows), 224)]
    return "[" + _flat(planes) + "]"


def requests() -> dict[str, bytes]:
    """The texts by name."""
    picture = np.random.default_rng(1).standard_normal(np.prod(_SHAPE), dtype=np.float32)
    short = [str(value) for value in picture]
    long = [repr(float(value)) for value in picture]
    return {
        "flat, as numpy prints": _request(_flat(short)),
        "nested, as numpy prints": _request(_nested(short)),
        "nested, as Python prints": _request(_nested(long)),
    }


def read_with_orjson(text: bytes) -> npt.NDArray[np.float32]:
    """The other side."""
    data = orjson.loads(text)["inputs"][0]["data"]
    return np.array(data, dtype=np.float32).reshape(_SHAPE)


def time_orjson(text: bytes, times: int) -> tuple[int, int]:
    """Nanoseconds: fastest and median."""
    samples = []
    for _ in range(times):
        start = time.perf_counter_ns()
        read_with_orjson(text)
        samples.append(time.perf_counter_ns() - start)
    return min(samples), int(statistics.median(samples))


def main() -> int:
    """Measures all texts and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--times", type=int, default=30, help="readings per round")
    options = parser.parse_args()
    if not _PROGRAM.is_file():
        raise SystemExit(f"{_PROGRAM} is missing: run make -C c bench.")
    texts = requests()
    with tempfile.TemporaryDirectory() as directory:
        tensor = Path(directory, "tensor")
        paths = [Path(directory, f"request-{i}") for i in range(len(texts))]
        for path, text in zip(paths, texts.values(), strict=True):
            path.write_bytes(text)
        with subprocess.Popen(
            [_PROGRAM, tensor, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as ours:
            assert ours.stdin is not None
            assert ours.stdout is not None
            for index, (name, text) in enumerate(texts.items()):
                ratios, mine, theirs = [], [], []
                for _ in range(options.rounds):
                    ours.stdin.write(f"{index} {options.times}\n")
                    ours.stdin.flush()
                    mine.append(int(ours.stdout.readline().split()[1]))
                    theirs.append(time_orjson(text, options.times)[1])
                    ratios.append(theirs[-1] / mine[-1])
                if tensor.read_bytes() != read_with_orjson(text).tobytes():
                    raise SystemExit(f"{name}: the tensors differ")
                print(
                    f"{name} ({len(text):,} bytes): Lumen {statistics.median(mine) / 1e6:.2f} ms "
                    f"({len(text) / statistics.median(mine):.2f} GB/s), orjson + numpy "
                    f"{statistics.median(theirs) / 1e6:.2f} ms: {statistics.median(ratios):.1f} "
                    f"times ({min(ratios):.1f} to {max(ratios):.1f})"
                )
            ours.stdin.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
