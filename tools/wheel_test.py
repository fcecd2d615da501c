"""From `pip install` of the wheel in an empty environment to the first right answer.

Run by `make wheel-test`, by a person. Nothing but Python is to be found there: PATH is an empty
folder, so that a compiler cannot help. Twice: with an empty pip cache and with the one that the
first time filled. The packages come from where pip is set to take them, so seconds tell about that
network, too. Exits with 1 when the answer is not the digit of the picture.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
DIGIT: Final = 7
PICTURE: Final = ROOT / "tests" / "data" / "digits" / f"digit_{DIGIT}.png"


def digit_request() -> bytes:
    """The picture as an Open Inference Protocol request."""
    import numpy as np
    from PIL import Image

    with Image.open(PICTURE) as opened:
        pixels = np.asarray(opened.convert("L").resize((8, 8), Image.Resampling.BOX), np.float32)
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    return json.dumps({"inputs": [{**tensor, "data": pixels.reshape(-1).tolist()}]}).encode()


def megabytes(folder: Path) -> float:
    """The size of all files below a folder, in 10^6 bytes."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def ask(port: int, body: bytes) -> int:
    """Asks a server which digit it is."""
    url = f"http://127.0.0.1:{port}/v2/models/digits/infer"
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as reply:
        outputs: list[dict[str, Any]] = json.load(reply)["outputs"]
    scores = next(entry["data"] for entry in outputs if entry["name"] == "probabilities")
    return int(scores.index(max(scores)))


def once(wheel: Path, body: bytes, cache: Path, what: str) -> bool:
    """Installs, serves, asks.

    Args:
        wheel: the file.
        body: the request.
        cache: pip's.
        what: to call this time by.

    Returns:
        Whether the answer was right.
    """
    with tempfile.TemporaryDirectory() as home:
        venv, empty = Path(home, "venv"), Path(home, "empty")
        empty.mkdir()
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        environment = {**kept, "PATH": str(empty), "HOME": home, "PIP_CACHE_DIR": str(cache)}
        before = megabytes(venv)
        began = time.monotonic()
        pip = [str(venv / "bin/python"), "-m", "pip", "install", "-q", str(wheel)]
        subprocess.run([*pip, "--disable-pip-version-check"], env=environment, cwd=home, check=True)
        installed = time.monotonic()
        command = [str(venv / "bin/lumen"), "--set", "server.port=0", "--set"]
        server = subprocess.Popen(
            [*command, "server.metrics_port=0"],
            env=environment,
            cwd=home,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            banner = server.stdout.readline()
            found = re.search(r"serves on \S+:(\d+)", banner)
            if found is None:
                print(f"{what}: no server: {banner!r}")
                return False
            ready = time.monotonic()
            answer = ask(int(found[1]), body)
            answered = time.monotonic()
        finally:
            server.terminate()
            server.communicate(timeout=60)
        of_lumen = megabytes(next(venv.glob("lib/python*/site-packages/lumen_uring")))
        print(
            f"{what}: {answered - began:.1f} s from pip install to the digit {answer} (pip "
            f"{installed - began:.1f}, start {ready - installed:.2f}, request "
            f"{answered - ready:.3f}); installed {megabytes(venv) - before:.0f} MB, of which "
            f"Lumen {of_lumen:.1f}; server's exit status {server.returncode}",
            flush=True,
        )
        return answer == DIGIT and server.returncode == 0


def main() -> int:
    """Runs as a command: the wheel is the argument.

    Returns:
        The exit status.
    """
    wheel, body = Path(sys.argv[1]).resolve(), digit_request()
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        times = ("empty pip cache", "filled pip cache")
        return 0 if all(once(wheel, body, Path(cache), what) for what in times) else 1


if __name__ == "__main__":
    sys.exit(main())
