"""Where Triton would compute a model, as execution providers: instance_group's kind and
optimization's execution_accelerators.

Used by model_config.py, on whatever thread reads a configuration. Whether the installed ONNX
Runtime has them, the C library finds out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from lumen_uring.repository.tree import Node, Problems

_KINDS: Final = ("", "KIND_AUTO", "KIND_CPU", "KIND_GPU")
_GPUS_MAX: Final = 1 << 16
# Triton's words for what ONNX Runtime calls otherwise.
_PRECISIONS: Final[dict[str, dict[str, str]]] = {
    "FP32": {},
    "FP16": {"trt_fp16_enable": "true"},
}
_TENSORRT: Final = {"max_workspace_size_bytes": "trt_max_workspace_size"}
_SEARCHES: Final = {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}


@dataclass(frozen=True, slots=True)
class _Accelerator:
    where: str
    name: str
    options: dict[str, str]


@dataclass(slots=True)
class Devices:
    """What the file says of devices."""

    kinds: dict[str, str] = field(default_factory=dict)  # and the place of each
    gpus: list[int] = field(default_factory=list)
    of_gpu: list[_Accelerator] = field(default_factory=list)
    of_cpu: list[_Accelerator] = field(default_factory=list)

    def group(self, node: Node, problems: Problems) -> None:
        """Reads kind and gpus of an entry of instance_group."""
        kind = node.word("kind", problems)
        if kind not in _KINDS:
            problems.add(node.where("kind"), " or ".join(filter(None, _KINDS)), kind)
        self.kinds.setdefault(kind, node.where("kind"))
        gpus = node.values("gpus", int, "numbers of GPUs", problems)
        if any(not 0 <= gpu < _GPUS_MAX for gpu in gpus):
            problems.add(node.where("gpus"), "numbers of GPUs", str(gpus))
        self.gpus += [gpu for gpu in gpus if gpu not in self.gpus]
        if len(self.gpus) > 1:
            problems.add(node.where("gpus"), "one GPU: all workers share it", str(self.gpus))

    def accelerators(self, node: Node, problems: Problems) -> None:
        """Reads execution_accelerators."""
        for key, known, found in (
            ("gpu_execution_accelerator", ("tensorrt", "cuda"), self.of_gpu),
            ("cpu_execution_accelerator", ("openvino",), self.of_cpu),
        ):
            for entry in node.nodes(key, problems):
                name = entry.text("name", problems)
                where = entry.where("name")
                if name not in known:
                    problems.add(where, " or ".join(known), name or "none")
                found.append(_Accelerator(where, name, _options(name, entry, problems)))
                entry.rest(problems)
        node.rest(problems)

    def providers(self) -> tuple[list[dict[str, dict[str, str]]], list[str]]:
        """The setting `providers`, empty where the file asks for none, and notes on it."""
        on_gpu = "KIND_GPU" in self.kinds or (bool(self.of_gpu) and "KIND_CPU" not in self.kinds)
        used, unused = (self.of_gpu, self.of_cpu) if on_gpu else (self.of_cpu, self.of_gpu)
        what = "a GPU runs the model" if on_gpu else "no GPU runs the model"
        notes = [f"{one.where}: {one.name} is not looked at: {what}" for one in unused]
        found = [*used]
        if on_gpu and all(one.name != "cuda" for one in used):
            found.append(_Accelerator("", "cuda", {}))
        if on_gpu and self.gpus:
            for one in found:
                one.options.setdefault("device_id", str(self.gpus[0]))
        if found:
            names = ", ".join(one.name for one in found)
            gpu = self.kinds.get("KIND_GPU")
            asked = f"{gpu}: KIND_GPU" if gpu else f"{found[0].where}: {found[0].name}"
            notes.append(f"{asked} is providers: [{names}]")
        return [{one.name: one.options} for one in found], notes


def _options(name: str, entry: Node, problems: Problems) -> dict[str, str]:
    """The parameters of an accelerator, in ONNX Runtime's words."""
    options: dict[str, str] = {}
    for parameter in entry.nodes("parameters", problems):
        key, value = parameter.text("key", problems), parameter.text("value", problems)
        where = parameter.where("value")
        if name == "tensorrt" and key == "precision_mode":
            if value not in _PRECISIONS:
                problems.add(where, f"precision_mode {' or '.join(_PRECISIONS)}", value)
            options |= _PRECISIONS.get(value, {})
        elif name == "cuda" and key == "cudnn_conv_algo_search":
            options[key] = _SEARCHES.get(value, value)
        elif key:
            options[_TENSORRT.get(key, key) if name == "tensorrt" else key] = value
        parameter.rest(problems)
    return options
