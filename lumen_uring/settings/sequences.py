"""Sequences: requests of which each continues where the one before it ended.

Used by settings/models.py for a model's setting `sequences`, and by ring/model_structs.py, on the
main thread and the loader's. What becomes of them at run time is the C library's
(c/src/models/sequences.h).
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from lumen_uring.errors import ConfigError
from lumen_uring.files import expanded

STATES_MAX: Final = 120  # LUMEN_STATES_MAX in lumen_config.h
OPEN_MAX: Final = 65536  # LUMEN_SEQUENCES_MAX
_IDLE_MS_MAX: Final = 86_400_000
_Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
_Names = Annotated[dict[_Name, _Name], Field(max_length=STATES_MAX)]


def _control(expected: str) -> str:
    return f"null, or the name of an input that {expected}"


class SequencesConfig(BaseModel):
    """Which tensors of a model's graph belong to its sequences, and how many may be open."""

    # Each field's description says what is expected: error messages are made of it.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    start: _Name | None = Field(
        default=None, description=_control("is 1 in a sequence's first request")
    )
    end: _Name | None = Field(default=None, description=_control("is 1 in its last request"))
    ready: _Name | None = Field(default=None, description=_control("is always 1"))
    id: _Name | None = Field(default=None, description=_control("is the sequence's id"))
    state: _Names = Field(
        default={}, description="a mapping from inputs to the outputs that are the same state"
    )
    initial_state: _Names = Field(
        default={}, description="a mapping from inputs of `state` to files of their first bytes"
    )
    max_open: int = Field(
        default=128, ge=1, le=OPEN_MAX, description=f"a whole number, 1..{OPEN_MAX}"
    )
    idle_ms: int = Field(
        default=60_000, ge=1, le=_IDLE_MS_MAX, description=f"milliseconds, 1..{_IDLE_MS_MAX}"
    )

    def initial(self, model: str, name: str) -> bytes | None:
        """What the file of a state holds.

        Args:
            model: its name, for messages.
            name: an input of `state`.

        Returns:
            Its bytes; None where there is no file: zeros.

        Raises:
            ConfigError: the file cannot be read.
        """
        path = self.initial_state.get(name)
        if path is None:
            return None
        try:
            return expanded(path).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"model '{model}': sequences.initial_state.{name}: expected a file of bytes, found "
                f"{path!r}: {error.strerror or error}"
            ) from None


def problem(sequences: SequencesConfig) -> tuple[str, str] | None:
    """What is wrong among the names, as what was expected and what was found; None: nothing."""
    controls = [sequences.start, sequences.end, sequences.ready, sequences.id]
    names = [name for name in controls if name is not None] + list(sequences.state)
    twice = {name for name in names if names.count(name) > 1}
    outputs = list(sequences.state.values())
    twice |= {name for name in outputs if outputs.count(name) > 1}
    unknown = sequences.initial_state.keys() - sequences.state.keys()
    if not names:
        return "start, end, ready, id or state", "none of them"
    if twice:
        return "each tensor once", f"{min(twice)!r} twice"
    if unknown:
        return "initial_state of an input of `state`", repr(min(unknown))
    return None
