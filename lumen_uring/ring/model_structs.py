"""The sections of a model's settings as structs of lumen_model_config.h, one function each.

Used by config_struct.py, and by engine.py and live_models.py for virtual models. Every number is
range-checked before it crosses.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from lumen_uring.pictures.image_input import Filter, Fit, ImageConfig
from lumen_uring.ring import structs
from lumen_uring.ring.ranges import u32
from lumen_uring.settings.models import EnsembleConfig, ExpertsConfig, Feature
from lumen_uring.settings.providers import ProviderConfig, options_of
from lumen_uring.settings.sequences import SequencesConfig
from lumen_uring.settings.text import (
    ACTIVATIONS,
    AGGREGATIONS,
    POOLINGS,
    TASKS,
    TOKENS_DEFAULT,
    TextConfig,
)
from lumen_uring.settings.warmup import FILLS, WarmupConfig


def listed(name: str, count: str, kind: Any, items: Sequence[Any]) -> dict[str, Any]:
    """The two fields of a list: NULL and 0 where it is empty."""
    return {name: (kind * len(items))(*items) if items else None, count: len(items)}


def native_provider(provider: ProviderConfig, threads: int) -> structs.LumenProvider:
    """lumen_provider for one entry of a model's `providers`, whose Runs have so many threads."""
    options = [
        structs.LumenOption(name=name.encode(), value=value.encode())
        for name, value in options_of(provider, threads).items()
    ]
    return structs.LumenProvider(
        name=provider.name.encode(),
        options=(structs.LumenOption * len(options))(*options),
        option_count=len(options),
    )


def native_experts(entry: ExpertsConfig, indexes: Mapping[str, int]) -> structs.LumenExpertsConfig:
    """lumen_experts_config for a virtual model, where `indexes` has those of the models."""
    experts = [
        structs.LumenExpert(model=u32("model", indexes[one.model]), bound=bound)
        for one, bound in zip(entry.experts, entry.bounds(), strict=True)
    ]
    return structs.LumenExpertsConfig(
        feature=get_args(Feature).index(entry.feature),
        count=len(experts),
        tensor=None if entry.of is None else entry.of.encode(),
        experts=(structs.LumenExpert * len(experts))(*experts),
    )


def native_steps(entry: EnsembleConfig, indexes: Mapping[str, int]) -> structs.LumenStepsConfig:
    """lumen_steps_config for an ensemble, where `indexes` has those of the models."""

    def renamed(names: Mapping[str, str]) -> Any:
        pairs = [structs.LumenStepTensor(a.encode(), b.encode()) for a, b in names.items()]
        return (structs.LumenStepTensor * len(pairs))(*pairs)

    steps = [
        structs.LumenStep(
            model=u32("model", indexes[step.model]),
            input_count=len(step.inputs),
            inputs=renamed(step.inputs),
            output_count=len(step.outputs),
            is_closed=int(entry.is_tritons),
            outputs=renamed(step.outputs),
        )
        for step in entry.steps
    ]
    outputs = [name.encode() for name in entry.outputs]
    return structs.LumenStepsConfig(
        count=len(steps),
        output_count=len(outputs),
        steps=(structs.LumenStep * len(steps))(*steps),
        outputs=(ctypes.c_char_p * len(outputs))(*outputs),
    )


def native_text(text: TextConfig | None, tokenizer: Path | None) -> structs.LumenTextConfig | None:
    """lumen_text_config for a model's section `text`, with its tokenizer laid out."""
    if text is None or tokenizer is None:
        return None
    task = text.task or "embedding"
    prompts = [structs.LumenOption(a.encode(), b.encode()) for a, b in text.prompts.items()]
    pooling = sum(1 << POOLINGS.index(mode) for mode in text.pooling or ())
    return structs.LumenTextConfig(
        tokenizer=os.fsencode(tokenizer),
        output=None if text.output is None else text.output.encode(),
        task=TASKS.index(task),
        pooling=pooling,
        normalise=int(text.normalize or False),
        activation=ACTIVATIONS.index(text.activation or "none"),
        has_pairs=int(text.pairs or False),
        tokens_max=u32("max_tokens", text.max_tokens or TOKENS_DEFAULT),
        may_cut=int(text.truncate),
        aggregation=AGGREGATIONS.index(text.aggregation),
        default_prompt=(
            0 if text.default_prompt is None else list(text.prompts).index(text.default_prompt) + 1
        ),
        **listed("prompts", "prompt_count", structs.LumenOption, prompts),
    )


def native_warmup(model: str, index: int, warmup: WarmupConfig) -> structs.LumenWarmup:
    """lumen_warmup for an entry of a model's `warmup`; messages name the model."""
    tensors = []
    for name, one in warmup.inputs.items():
        content = one.content(f"model '{model}': warmup.{index}.inputs.{name}")
        tensors.append(
            structs.LumenWarmupTensor(
                name=name.encode(),
                shape=(ctypes.c_uint32 * len(one.shape))(*one.shape),
                rank=len(one.shape),
                fill=len(FILLS) if content is not None else FILLS.index(one.data),
                data=content,
                bytes=0 if content is None else len(content),
            )
        )
    return structs.LumenWarmup(
        name=(warmup.name or str(index)).encode(),
        inputs=(structs.LumenWarmupTensor * len(tensors))(*tensors),
        input_count=len(tensors),
        count=u32("count", warmup.count),
    )


def native_sequences(
    model: str, sequences: SequencesConfig | None
) -> structs.LumenSequencesConfig | None:
    """lumen_sequences_config for a model's section `sequences`; messages name the model."""
    if sequences is None:
        return None
    states = []
    for name, output in sequences.state.items():
        initial = sequences.initial(model, name)
        size = 0 if initial is None else len(initial)
        states.append(structs.LumenState(name.encode(), output.encode(), initial, size))
    controls = {
        name: None if control is None else control.encode()
        for name in ("start", "end", "ready", "id")
        for control in (getattr(sequences, name),)
    }
    return structs.LumenSequencesConfig(
        **controls,
        states=(structs.LumenState * len(states))(*states),
        state_count=len(states),
        max_open=u32("max_open", sequences.max_open),
        idle_ms=u32("idle_ms", sequences.idle_ms),
    )


def native_image(image: ImageConfig) -> structs.LumenImageConfig:
    """lumen_image_config for a model's section `image`."""
    preset = image.of_preset()
    return structs.LumenImageConfig(
        filter=get_args(Filter).index(image.filter or preset.filter),
        fit=get_args(Fit).index(image.fit or preset.fit),
        resize=image.resize or 0,
        resize_ratio=preset.resize_ratio,
        pad_value=image.pad_value,
        upright=image.upright,
        fast=image.decode == "fast",
        lenient=image.lenient,
        max_pixels=image.max_pixels,
        max_whole_pixels=image.max_whole_pixels,
    )
