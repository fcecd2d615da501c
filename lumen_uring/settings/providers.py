"""Execution providers: what computes a model's graph beside the CPU code of ONNX Runtime.

Used by settings/models.py for the setting `providers`, and by ring/model_structs.py for the options
that each provider gets, on the main thread. Which providers the installed ONNX Runtime has, the C
library finds out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer

from lumen_uring.errors import ConfigError

PROVIDERS_MAX: Final = 8  # LUMEN_PROVIDERS_MAX in lumen_config.h
OPTIONS_MAX: Final = 64  # LUMEN_PROVIDER_OPTIONS_MAX
CPU: Final = "cpu"
# The drivers of their devices reserve more address space than a machine has memory. The same
# providers have `on_device` in c/src/onnx/providers.c; a test compares the two lists.
_ON_DEVICES: Final = frozenset({"cuda", "tensorrt", "migraphx", "rocm", "qnn", "webgpu", "cann"})
_SUFFIX: Final = "executionprovider"
# OpenVINO would start a thread for each core, and move the thread that runs the model.
_PINNING: Final = "ENABLE_CPU_PINNING"
_THREADS: Final = "INFERENCE_NUM_THREADS"


class ProviderConfig(BaseModel):
    """One execution provider, by ONNX Runtime's name or a short one, and its options as texts."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_]{1,64}$")
    options: dict[str, str] = Field(default={}, max_length=OPTIONS_MAX)

    @model_serializer
    def _as_written(self) -> dict[str, dict[str, str]]:
        """As a settings file has it: what reads one reads this."""
        return {self.name: self.options}

    @property
    def key(self) -> str:
        """The name that all spellings share."""
        return self.name.lower().removesuffix(_SUFFIX)


def _entry(value: object) -> object:
    """`openvino`, or `{openvino: {device_type: CPU}}`."""
    if isinstance(value, ProviderConfig):
        return value
    if isinstance(value, str):
        return ProviderConfig(name=value)
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("neither a name nor a mapping of one name")
    ((name, options),) = value.items()
    if not isinstance(options, (dict, type(None))):
        raise ValueError("options that are no mapping")
    texts = {key: _text(key, option) for key, option in (options or {}).items()}
    return ProviderConfig(name=name, options=texts)


def _text(name: object, value: object) -> str:
    """An option as providers read it: true, 8, or JSON for what has parts."""
    if not isinstance(name, str) or not name or "\0" in name or value is None:
        raise ValueError("an option without a name or a value")
    text = value if isinstance(value, str) else json.dumps(value)
    if "\0" in text:
        raise ValueError("holds a NUL byte")
    return text


Providers = Annotated[
    tuple[Annotated[ProviderConfig, BeforeValidator(_entry)], ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    Field(max_length=PROVIDERS_MAX),
]
EXPECTED: Final = (
    f"a list of at most {PROVIDERS_MAX} providers, each a name such as openvino or a mapping of "
    "one name to its options"
)
EXPECTED_ENTRY: Final = "a name such as openvino, or a mapping of one name to its options"


def others(providers: tuple[ProviderConfig, ...]) -> list[ProviderConfig]:
    """Those beside the CPU, which every model ends with.

    Args:
        providers: of a model.
    """
    return [provider for provider in providers if provider.key != CPU]


def on_device(providers: tuple[ProviderConfig, ...]) -> bool:
    """Whether a device beside the processor computes a model, or a part of it.

    Args:
        providers: of the model.
    """
    return any(
        provider.key in _ON_DEVICES
        or (
            provider.key == "openvino"
            and not provider.options.get("device_type", "CPU").upper().startswith("CPU")
        )
        for provider in providers
    )


def problem(providers: tuple[ProviderConfig, ...]) -> tuple[str, str] | None:
    """What contradicts itself in a model's list: what is expected, and what was found.

    Args:
        providers: of a model.
    """
    keys = [provider.key for provider in providers]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        return "each provider once", f"{twice} twice"
    if CPU in keys[:-1]:
        return "cpu as the last one: it leaves no node to others", ", ".join(keys)
    if any(provider.key == CPU and provider.options for provider in providers):
        return "cpu without options", "some"
    return None


def options_of(provider: ProviderConfig, threads: int) -> dict[str, str]:
    """The options that a provider gets: those that are set, and what a worker needs.

    Args:
        provider: of a model.
        threads: of one Run, the model's intra_op_threads.

    Raises:
        ConfigError: OpenVINO's load_config is neither a mapping nor a file that holds one.
    """
    if provider.key != "openvino":
        return provider.options
    options = {"device_type": "CPU", **provider.options}
    if not options["device_type"].upper().startswith("CPU"):
        return options
    config = _json(options["load_config"]) if "load_config" in options else {}
    cpu = config.setdefault("CPU", {})
    if not isinstance(cpu, dict):
        raise ConfigError("providers: openvino: load_config: expected a mapping for CPU.")
    cpu.setdefault(_PINNING, False)
    if _THREADS not in cpu:
        options.setdefault("num_of_threads", str(threads))
    options["load_config"] = json.dumps(config)
    return options


def _json(text: str) -> dict[str, Any]:
    """OpenVINO's own settings by device: JSON, or the path of a file with JSON."""
    where = "providers: openvino: load_config"
    try:
        config = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    except OSError as error:
        raise ConfigError(
            f"{where}: expected a mapping, or a file of JSON; found {text!r}: {error.strerror}."
        ) from None
    except ValueError as error:
        raise ConfigError(f"{where}: expected JSON, found: {error}.") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{where}: expected a mapping of devices, found {text[:80]!r}.")
    return config
