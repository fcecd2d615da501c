"""Where Triton would compute a model, as execution providers: instance_group's kind and
optimization's execution_accelerators.

Used by model_config.py, on whatever thread reads a configuration. Whether the installed ONNX
Runtime has them, the C library finds out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

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


@dataclass(slots=True)
class Devices:
    """What the file says of devices."""

    kinds: set[str] = field(default_factory=set)
    gpus: list[int] = field(default_factory=list)
    accelerated: list[dict[str, Any]] = field(default_factory=list)  # by a GPU, entries
    helped: list[dict[str, Any]] = field(default_factory=list)  # on processors
    where: str = ""  # the first field that asks for one

    def group(self, node: Node, problems: Problems) -> None:
        """Reads kind and gpus of an entry of instance_group."""
        kind = node.word("kind", problems)
        if kind not in _KINDS:
            problems.add(node.where("kind"), " or ".join(filter(None, _KINDS)), kind)
        self.kinds.add(kind)
        gpus = node.values("gpus", int, "numbers of GPUs", problems)
        if any(not 0 <= gpu < _GPUS_MAX for gpu in gpus):
            problems.add(node.where("gpus"), "numbers of GPUs", str(gpus))
        self.gpus += [gpu for gpu in gpus if gpu not in self.gpus]
        if len(self.gpus) > 1:
            problems.add(node.where("gpus"), "one GPU: all workers share it", str(self.gpus))
        if kind == "KIND_GPU":
            self.where = self.where or f"{node.where('kind')}: KIND_GPU"

    def accelerators(self, node: Node, problems: Problems) -> None:
        """Reads execution_accelerators."""
        for key, known, found in (
            ("gpu_execution_accelerator", ("tensorrt", "cuda"), self.accelerated),
            ("cpu_execution_accelerator", ("openvino",), self.helped),
        ):
            for entry in node.nodes(key, problems):
                name = entry.text("name", problems)
                if name not in known:
                    problems.add(entry.where("name"), " or ".join(known), name or "none")
                options = _options(name, entry, problems)
                found.append({name: options})
                self.where = self.where or f"{entry.where('name')}: {name}"
                entry.rest(problems)
        node.rest(problems)

    def providers(self) -> tuple[list[dict[str, Any]], str]:
        """The setting `providers`, empty where the file asks for none, and a note, or ""."""
        on_gpu = "KIND_GPU" in self.kinds or (self.accelerated and "KIND_CPU" not in self.kinds)
        found = [*(self.accelerated if on_gpu else self.helped)]
        if on_gpu and not any("cuda" in entry for entry in found):
            found.append({"cuda": {}})
        if on_gpu and self.gpus:
            for entry in found:
                for options in entry.values():
                    options.setdefault("device_id", str(self.gpus[0]))
        if not found:
            unused = self.accelerated and self.where
            return [], f"{self.where} is not looked at: KIND_CPU" if unused else ""
        names = ", ".join(name for entry in found for name in entry)
        return found, f"{self.where} is providers: [{names}]"


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
