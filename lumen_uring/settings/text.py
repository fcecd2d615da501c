"""Texts: what becomes of them before and after a model's graph.

Used by settings/models.py for a model's setting `text`, by repository/text_folder.py, which fills
it in from a folder of Hugging Face, and by ring/model_structs.py. What becomes of it at run time is
the C library's (c/src/models/text_model.h).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from lumen_uring.settings.types import PathText, as_tuple, no_nul

TOKENS_MAX: Final = 32768  # LUMEN_TEXT_TOKENS_MAX in lumen_config.h
TOKENS_DEFAULT: Final = 512
LABELS_MAX: Final = 65536
PROMPTS_MAX: Final = 64  # LUMEN_PROMPTS_MAX
_PROMPT_BYTES_MAX: Final = 16384  # LM_PROMPT_BYTES_MAX in limits.h

Pooling = Literal["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken"]
POOLINGS: Final = get_args(Pooling)  # by the bits of LUMEN_POOLING_*, in their order
TASKS: Final = ("embedding", "scores", "entities")  # by the numbers of LUMEN_TEXT_*
ACTIVATIONS: Final = ("none", "sigmoid", "softmax")  # of LUMEN_ACTIVATION_*

AGGREGATIONS: Final = ("none", "simple", "first", "average", "max")  # of LUMEN_AGGREGATE_*

_Text = Annotated[str, AfterValidator(no_nul)]


def _short(value: str) -> str:
    if len(value.encode()) > _PROMPT_BYTES_MAX:
        raise ValueError("too long")
    return value


_Prompt = Annotated[str, AfterValidator(no_nul), AfterValidator(_short)]


def _poolings(value: object) -> object:
    """One name stands for a list of one; `none` for an empty one."""
    if isinstance(value, str):
        return () if value == "none" else (value,)
    return as_tuple(value)


class TextConfig(BaseModel):
    """What a model of texts needs beside its graph. A folder of Hugging Face says all of it."""

    # Each field's description says what is expected: error messages are made of it.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tokenizer: PathText | None = Field(
        default=None, min_length=1, description="null (the folder's), or a tokenizer.json's path"
    )
    variant: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")] | None = Field(
        default=None,
        description="null (model.onnx), or what follows model_ in the name of a file of the folder",
    )
    task: Literal["embedding", "scores", "entities"] | None = Field(
        default=None, description="null (the folder's, or embedding) | " + " | ".join(TASKS)
    )
    pooling: Annotated[tuple[Pooling, ...], BeforeValidator(_poolings)] | None = Field(
        default=None,
        description="null (the folder's), none (the graph pools) or a list of "
        + ", ".join(POOLINGS),
    )
    normalize: bool | None = Field(
        default=None, description="null (the folder's, or false) | true | false"
    )
    activation: Literal["none", "sigmoid", "softmax"] | None = Field(
        default=None, description="null (the folder's, or none) | " + " | ".join(ACTIVATIONS)
    )
    aggregation: Literal["none", "simple", "first", "average", "max"] = Field(
        default="simple",
        description=" | ".join(AGGREGATIONS) + " (a request may say another)",
    )
    pairs: bool | None = Field(
        default=None, description="null (the folder's, or false) | true | false"
    )
    output: _Text | None = Field(
        default=None,
        min_length=1,
        description="null (by its name or shape), or the name of an output of the graph",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=3,
        le=TOKENS_MAX,
        description=f"null (the folder's, or 512) or a whole number, 3..{TOKENS_MAX}",
    )
    truncate: bool = Field(default=True, description="true (longer texts are cut) | false")
    prompts: dict[_Prompt, _Prompt] = Field(
        default={},
        max_length=PROMPTS_MAX,
        description=f"a mapping of at most {PROMPTS_MAX} names to what is put before a text",
    )
    default_prompt: _Text | None = Field(default=None, description="null, or a name of `prompts`")
    labels: Annotated[
        tuple[_Text, ...], BeforeValidator(as_tuple), Field(max_length=LABELS_MAX)
    ] = Field(default=(), description="a list of the names of the scores")

    def filled_in(self, of_folder: TextConfig) -> TextConfig:
        """The same with what it does not set taken from a folder.

        Args:
            of_folder: as its files say it.
        """
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return of_folder.model_copy(update=own)


def problem(text: TextConfig) -> tuple[str, str] | None:
    """What contradicts itself: what is expected, and what was found; None: nothing.

    Args:
        text: of a model, with what its folder says.
    """
    embeds = text.task in (None, "embedding")
    twice = [name for name in text.pooling or () if (text.pooling or ()).count(name) > 1]
    if text.tokenizer is None:
        return "tokenizer, a tokenizer.json's path", "none"
    if embeds and text.pooling is None:
        return "pooling (" + ", ".join(POOLINGS) + ", or none where the graph pools)", "none"
    if twice:
        return "each pooling once", f"{twice[0]} twice"
    if text.task != "scores" and text.activation not in (None, "none"):
        found = "entities" if text.task == "entities" else "an embedding"
        return "activation of task scores alone", f"{text.activation} of {found}"
    if text.task != "scores" and text.pairs:
        return "pairs of task scores alone", f"them of {text.task or 'embedding'}"
    if text.task == "entities" and text.prompts:
        return "prompts of other tasks than entities, whose places are of the text", "some"
    if not embeds and text.pooling:
        return "pooling of task embedding alone", f"it of {text.task}"
    if text.default_prompt is not None and text.default_prompt not in text.prompts:
        known = ", ".join(text.prompts) or "none"
        return f"default_prompt to be one of `prompts` ({known})", repr(text.default_prompt)
    return None
