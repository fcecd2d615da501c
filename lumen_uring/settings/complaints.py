"""What a message says of a setting that is wrong: where it is, what it takes, what was found.

Called by config.py, with pydantic's details, of which no user sees a word.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from lumen_uring.errors import meant
from lumen_uring.pictures.image_input import ImageConfig
from lumen_uring.settings import providers
from lumen_uring.settings.budgets import BudgetConfig, BudgetsConfig
from lumen_uring.settings.keys import KeyConfig
from lumen_uring.settings.models import (
    EnsembleConfig,
    ExpertConfig,
    ExpertsConfig,
    ModelConfig,
    StepConfig,
)
from lumen_uring.settings.repository import RepositoryConfig
from lumen_uring.settings.schema import (
    Config,
    EngineConfig,
    LogConfig,
    ServerConfig,
)
from lumen_uring.settings.sequences import SequencesConfig
from lumen_uring.settings.text import TextConfig
from lumen_uring.settings.traffic import TrafficConfig
from lumen_uring.settings.types import TooLongError
from lumen_uring.settings.upstreams import RetryConfig, TimeoutsConfig, TokensConfig, UpstreamConfig

_Path = tuple["str | int", ...]
_SECTIONS: Final[dict[str, type[BaseModel]]] = {
    "server": ServerConfig,
    "engine": EngineConfig,
    "log": LogConfig,
    "repository": RepositoryConfig,
    "models": ModelConfig,
    "keys": KeyConfig,
    "experts": ExpertsConfig,
    "providers": providers.ProviderConfig,
    "ensembles": EnsembleConfig,
    "sequences": SequencesConfig,
    "text": TextConfig,
    "image": ImageConfig,
    "timeouts": TimeoutsConfig,
    "retry": RetryConfig,
    "tokens": TokensConfig,
    "budgets": BudgetsConfig,
}
_INNER: Final[dict[type[BaseModel], type[BaseModel]]] = {
    ExpertsConfig: ExpertConfig,
    EnsembleConfig: StepConfig,
}
_ONE_OF: Final = "one of "
_MAPPINGS: Final = ("max_dims", "fix_dims")  # of names that the model's graph gives
_ENTRIES: Final = {
    "models": "a mapping with a name and a path",
    "keys": "a mapping with a name and a sha256",
    "experts": "a mapping with a name, a feature and experts",
    "providers": providers.EXPECTED_ENTRY,
    "ensembles": "a mapping with a name and steps",
}


def field_path(loc: _Path) -> _Path:
    """Cuts the steps that pydantic adds below a field (a union's arm, an item of a triple), and
    behind a name."""
    if loc[-1:] == ("[key]",):
        loc = loc[:-1]
    if loc[:1] + loc[2:3] in (("experts", "experts"), ("ensembles", "steps")):
        depth = 5
    elif (loc[:1] == ("models",) and loc[2:3] in (("sequences",), ("image",), ("text",))) or (
        loc[:1] == ("upstreams",) and loc[2:3] in (("timeouts",), ("retry",), ("tokens",))
    ):
        depth = 4
    elif loc[:1] in (("models",), ("experts",), ("ensembles",), ("upstreams",), ("traffic",)):
        depth = 3
    else:
        depth = 4 if loc[1:2] == ("keys",) or loc[:2] == ("budgets", "models") else 2
    inner = _is_mapping(loc[:depth]) or loc[0:1] + loc[2:3] == ("models", "providers")
    return loc[: depth + 1 if inner else depth]


def _is_mapping(path: _Path) -> bool:
    of_model = len(path) == 3 and path[0] == "models" and path[2] in _MAPPINGS
    of_upstream = len(path) == 3 and path[0] == "upstreams" and path[2] == "models"
    of_traffic = len(path) == 3 and path[0] == "traffic" and path[2] == "versions"
    return (
        of_model
        or of_upstream
        or of_traffic
        or (len(path) == 5 and path[4] in ("inputs", "outputs"))
    )


def expected(path: _Path) -> str:
    """What a setting takes, as its field says."""
    path = next((path[:depth] for depth in (3, 5) if _is_mapping(path[:depth])), path)
    model: type[BaseModel] = Config
    if path[:1] == ("upstreams",) and len(path) > 1:  # each has a name
        model, path = UpstreamConfig, path[2:]
        if not path:
            return "a mapping with urls and models, by a name"
    if path[:1] == ("traffic",) and len(path) > 1:
        model, path = TrafficConfig, path[2:3]
        if not path:
            return "a mapping with versions, by a model's name without a version"
    if path[:1] == ("fallbacks",):
        path = path[:1]
    if path[:1] == ("budgets",) and len(path) > 2:
        model, path = BudgetConfig, path[3:]
        if not path:
            return "a mapping of limits, by the name of a key or a model"
    for depth, step in enumerate(path):
        if isinstance(step, int):
            if depth == len(path) - 1:
                inner = model in _INNER.values()
                return "a mapping with a model" if inner else _ENTRIES[str(path[depth - 1])]
            continue
        field = model.model_fields.get(str(step))
        if field is None:
            return _ONE_OF + ", ".join(model.model_fields)
        if depth == len(path) - 1:
            return field.description or "a value"
        model = _INNER[model] if model in _INNER else _SECTIONS[str(step)]
    return "a mapping"


def problem(data: Any, path: _Path, detail: ErrorDetails, expected: str) -> str:
    """What was found in place of what was expected."""
    if detail["type"] in ("extra_forbidden", "invalid_key"):
        key = detail["loc"][-1]
        names = expected.removeprefix(_ONE_OF).split(", ")
        return f"the unknown key {key!r}" + meant(str(key), names)
    if detail["loc"][-1] == "[key]":
        return f"the name {found(path[-1])}"
    for step in path:
        # Only a missing field ends the walk early: pydantic reports no place below the data.
        if isinstance(data, dict) and step not in data:
            return "nothing"
        data = data[step]
    error = detail.get("ctx", {}).get("error")
    return found(data) + (f", {error}" if isinstance(error, TooLongError) else "")


def found(value: object) -> str:
    """A value as a message shows it.

    >>> found({}), found([1, 2]), found("x")
    ('an empty mapping', 'a list of 2', "'x'")
    """
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
