"""`make experts`: a rule fitted on one part of a mixed set of pictures, and judged on the rest.

A developer's tool. The set has photographs, random crops of them, flat pictures and noise. A light
model (by default `lumen quantize`'s INT8 of the dense one) and a dense one answer the first part;
`lumen fit-router`'s numbers give a threshold of the variance and one of the light model's own
probability. Then one server serves both models and both rules, and gets the held-out pictures in
rounds, each model in turn: answers are compared with the dense model's, CPU is the process's own.
Intervals of agreement are bootstrapped over sources (a photograph and its crops are one), those of
CPU are the smallest and largest round. It must never run beside other work.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import yaml
from PIL import Image

from bench.common.local_server import SHARED, LocalServer, local_server, squeezenet
from bench.common.measure import machine, process_cpu_s
from bench.report.rules import table
from lumen_uring import Client
from lumen_uring.cli import main as lumen
from lumen_uring.errors import PictureError
from lumen_uring.offline import router_fit
from lumen_uring.offline.quantize_samples import crop_box
from lumen_uring.pictures.files import find, opened, tensor
from lumen_uring.pictures.image_input import ImageConfig, resolve
from lumen_uring.ring.features import feature

FEATURES: Final = ("variance", "probability")
INPUT_FEATURES: Final = ("variance", "mean", "norm", "edges")
SIDE: Final = 224
_SEED: Final = 1
_COLD_BYTES: Final = 64 << 20  # read between two calls, so that the caches hold something else


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of the set: the number of its source, its kind, and RGB pixels."""

    source: int
    kind: str
    pixels: np.ndarray


def mixed(folder: Path, crops: int, flats: int, noises: int) -> Iterator[Picture]:
    """Makes the set.

    Args:
        folder: of photographs.
        crops: of each photograph.
        flats, noises: how many of each.
    """
    random = np.random.default_rng(_SEED)
    plan = resolve(ImageConfig(fit="shorter_side_and_crop"), "x", "UINT8", (1, SIDE, SIDE, 3))
    source = 0
    for file in find([str(folder)], deep=True):
        try:
            with opened(file, True) as image:
                image.load()
                boxes = [crop_box(image.width, image.height, random) for _ in range(crops)]
                parts = [image, *(image.crop(box) for box in boxes)]
                for number, part in enumerate(parts):
                    kind = "crops" if number else "photographs"
                    yield Picture(source, kind, tensor(plan, part)[0])
        except PictureError:
            continue
        source += 1
    ramp = np.linspace(0, 1, SIDE)[:, None, None]
    for number in range(flats):
        ends = random.integers(0, 256, (2, 3))
        share = ramp if number % 2 else 0.0  # every other one is a gradient
        flat = np.broadcast_to(ends[0] + (ends[1] - ends[0]) * share, (SIDE, SIDE, 3))
        yield Picture(source + number, "flat", flat.astype(np.uint8))
    source += flats
    for number in range(noises):
        grain = int(random.choice([1, 2, 4, 8, 16, 32]))
        cells = SIDE // grain
        small = random.integers(0, 256, (cells, cells, 3), np.uint8)
        large = Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        yield Picture(source + number, "noise", np.asarray(large))


def settings(light: str, dense: str, bounds: dict[str, float]) -> dict[str, Any]:
    """A server's settings with both models, and with a rule for each bound."""
    image = {"image": {"preset": "squeezenet"}}
    models = [
        {"name": name, "path": path, **image, "width": 1}
        for name, path in (("light", light), ("dense", dense))
    ]
    words = {"variance": "below", "probability": "at_least"}
    experts = [
        {
            "name": name,
            "feature": name,
            "experts": [{"model": "light", words[name]: bound}, {"model": "dense"}],
        }
        for name, bound in bounds.items()
    ]
    return {
        "server": {"metrics_port": 0},
        "engine": {"thread_count": 1},
        "models": models,
        "experts": experts,
    }


def classes(client: Client, model: str, pictures: list[Picture]) -> tuple[np.ndarray, ...]:
    """The first class of each picture, its probability, and whether the light model answered."""
    found = []
    for picture in pictures:
        result = client.infer_rgb8(model, picture.pixels)
        values = next(iter(result.outputs.values())).reshape(-1)
        found.append((int(values.argmax()), float(values.max()), result.expert == "light"))
    return tuple(np.array(column) for column in zip(*found, strict=True))


def run_seconds(server: LocalServer, client: Client, model: str, pictures: list[Picture]) -> float:
    """The server's CPU time for a Run of the model on each picture."""
    began_s = process_cpu_s(server.pid)
    classes(client, model, pictures)
    return (process_cpu_s(server.pid) - began_s) / len(pictures)


def fit(
    pictures: list[Picture], server: LocalServer, agreement: float
) -> tuple[dict[str, float], dict[str, int]]:
    """The bound of each feature that has one, and how many rows it may answer otherwise."""
    with Client("127.0.0.1", server.port, timeout_s=60) as client:
        classes(client, "dense", pictures[:8])
        light, dense = (classes(client, name, pictures) for name in ("light", "dense"))
        seconds = [run_seconds(server, client, name, pictures) for name in ("light", "dense")]
    # As the server makes it: BGR planes of 0..255.
    tensors = np.stack([each.pixels[..., ::-1].transpose(2, 0, 1) for each in pictures])
    values = {"variance": feature("variance", tensors.astype(np.float32)), "probability": light[1]}
    bounds, allowed = {}, {}
    for name in FEATURES:
        samples = router_fit.Samples(
            values[name],
            light[0] == dense[0],
            np.array([each.source for each in pictures]),
            *seconds,
            rule_s=0.0,
            is_cascade=name == "probability",
        )
        chosen = router_fit.choose(samples, agreement)
        allowed[name] = chosen.allowed
        if chosen.bound is not None:
            bounds[name] = chosen.bound
    return bounds, allowed


def judge(
    pictures: list[Picture], server: LocalServer, names: list[str], rounds: int
) -> list[dict[str, Any]]:
    """What each model does on the held-out pictures."""
    every = ["dense", "light", *names]
    cpu: dict[str, list[float]] = {name: [] for name in every}
    sources = np.array([each.source for each in pictures])
    with Client("127.0.0.1", server.port, timeout_s=60) as client:
        said = {name: classes(client, name, pictures) for name in every}
        for turn in range(rounds):
            for name in every[turn % len(every) :] + every[: turn % len(every)]:
                cpu[name].append(run_seconds(server, client, name, pictures))
    found = []
    for name in every:
        alike = said[name][0] == said["dense"][0]
        is_light = said[name][2] if name in names else np.full(len(alike), name == "light")
        saved = sorted(
            1 - mine / dense for mine, dense in zip(cpu[name], cpu["dense"], strict=True)
        )
        kinds = {kind: np.array([each.kind == kind for each in pictures]) for kind in KINDS}
        found.append(
            {
                "model": name,
                "agreement": router_fit.share_of(alike, sources),
                "light": float(is_light.mean()),
                "cpu_ms": median(cpu[name]) * 1e3,
                "saved": (median(saved), saved[0], saved[-1]),
                "by_kind": {
                    kind: (float(alike[of].mean()), float(is_light[of].mean()))
                    for kind, of in kinds.items()
                },
            }
        )
    return found


KINDS: Final = ("photographs", "crops", "flat", "noise")


def rule_cost() -> list[dict[str, Any]]:
    """Each feature of a 3 x 224 x 224 FP32 tensor: in the caches, and with cold ones; µs."""
    x = np.random.default_rng(_SEED).standard_normal((1, 3, SIDE, SIDE)).astype(np.float32)
    other = np.zeros(_COLD_BYTES, np.uint8)
    found = []
    for name in INPUT_FEATURES:
        times: dict[str, list[float]] = {"hot": [], "cold": []}
        for kind, taken in times.items():
            for _ in range(50):
                if kind == "cold":
                    other += 1
                began = time.perf_counter()
                feature(name, x)  # type: ignore[arg-type]
                taken.append(time.perf_counter() - began)
        hot, cold = (median(times[kind]) * 1e6 for kind in ("hot", "cold"))
        kib = x.nbytes / 1024
        found.append(
            {"feature": name, "hot_us": hot, "cold_us": cold, "hot_ns_per_kib": hot * 1e3 / kib}
        )
    return found


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="make experts", description=__doc__)
    made.add_argument("--light", help="(INT8 of the dense model)")
    made.add_argument("--dense", default=squeezenet(), help="(%(default)s)")
    made.add_argument("--pictures", type=Path, default=SHARED / "images", help="(%(default)s)")
    made.add_argument("--agreement", type=float, default=0.98, help="(%(default)s)")
    made.add_argument("--crops", type=int, default=40, help="of each photograph (%(default)s)")
    made.add_argument("--flat", type=int, default=120, help="(%(default)s)")
    made.add_argument("--noise", type=int, default=120, help="(%(default)s)")
    made.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    made.add_argument("--json", action="store_true")
    return made


def text(document: dict[str, Any]) -> str:
    """The document as Markdown."""
    rows = [
        (
            each["model"],
            "{:.2%} ({:.2%} to {:.2%})".format(*each["agreement"]),
            f"{each['light']:.0%}",
            f"{each['cpu_ms']:.2f}",
            "{:.1%} ({:.1%} to {:.1%})".format(*each["saved"]),
            *(f"{each['by_kind'][kind][0]:.1%}, {each['by_kind'][kind][1]:.0%}" for kind in KINDS),
        )
        for each in document["models"]
    ]
    heads = ("model", "as dense", "by light", "CPU ms", "CPU saved", *KINDS)
    costs = [
        (
            each["feature"],
            f"{each['hot_us']:.0f}",
            f"{each['cold_us']:.0f}",
            f"{each['hot_ns_per_kib']:.0f}",
        )
        for each in document["rule"]
    ]
    return "\n\n".join(
        [
            f"{document['held_out']} held-out pictures; wanted {document['agreement']:.1%}; "
            f"bounds {document['bounds']}; of each kind: as dense, by light",
            table(heads, rows),
            table(("feature", "µs", "µs, cold", "ns per KiB"), costs),
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    options = parser().parse_args(arguments)
    pictures = list(mixed(options.pictures, options.crops, options.flat, options.noise))
    sources = np.random.default_rng(_SEED).permutation(pictures[-1].source + 1)
    held = set(sources[: len(sources) // 2].tolist())
    first = [each for each in pictures if each.source not in held]
    second = [each for each in pictures if each.source in held]
    with tempfile.TemporaryDirectory() as folder:
        light = options.light or f"{folder}/light.onnx"
        if options.light is None:
            given = ["--images", str(options.pictures), "--preset", "squeezenet", "--force"]
            with redirect_stdout(sys.stderr):
                lumen(["quantize", options.dense, "-o", light, "--crops", "0", *given])
        path = Path(folder) / "lumen.yaml"
        path.write_text(yaml.safe_dump(settings(light, options.dense, {})))
        with local_server("--config", str(path)) as server:
            bounds, allowed = fit(first, server, options.agreement)
        path.write_text(yaml.safe_dump(settings(light, options.dense, bounds)))
        with local_server("--config", str(path)) as server:
            models = judge(second, server, list(bounds), options.rounds)
    document = {
        "machine": machine(),
        "fitted": len(first),
        "held_out": len(second),
        "agreement": options.agreement,
        "bounds": bounds,
        "errors_allowed": allowed,
        "models": models,
        "rule": rule_cost(),
    }
    print(json.dumps(document, indent=1) if options.json else text(document))
    return 0 if bounds else 1


if __name__ == "__main__":
    sys.exit(main())
