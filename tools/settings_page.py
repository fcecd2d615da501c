"""Writes docs/SETTINGS.md: what each setting accepts (lumen_uring) and means (config.yaml).

    .venv/bin/python tools/settings_page.py > docs/SETTINGS.md

tests/test_config.py compares the page with what this would write. It must never know a setting by
name: a new key of settings/schema.py that config.yaml does not explain is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from lumen_uring.pictures.image_input import ImageConfig
from lumen_uring.settings import models as model_settings
from lumen_uring.settings import schema as settings
from lumen_uring.settings.budgets import BudgetConfig, BudgetsConfig
from lumen_uring.settings.repository import RepositoryConfig
from lumen_uring.settings.sequences import SequencesConfig
from lumen_uring.settings.sizes import format_size
from lumen_uring.settings.text import TextConfig
from lumen_uring.settings.tls import CertificateConfig, TlsConfig
from lumen_uring.settings.traffic import TrafficConfig
from lumen_uring.settings.upstreams import RetryConfig, TimeoutsConfig, TokensConfig, UpstreamConfig

ROOT: Final = Path(__file__).resolve().parent.parent
_SECTIONS: Final[dict[str, tuple[type[BaseModel], str]]] = {
    "server": (
        settings.ServerConfig,
        "Sockets, I/O threads, limits, keys.",
    ),
    "keys": (settings.KeyConfig, "Entries of `server.keys`. `lumen key NAME` prints one."),
    "tls": (TlsConfig, "`server.tls`. [DEPLOY.md](DEPLOY.md#tls) has examples."),
    "certificates": (CertificateConfig, "Entries of `server.tls.certificates`."),
    "engine": (settings.EngineConfig, "Workers, their queue and their memory."),
    "log": (settings.LogConfig, "What the server writes about itself."),
    "repository": (
        RepositoryConfig,
        "Folders of models. [REPOSITORIES.md](REPOSITORIES.md) says what is read there.",
    ),
    "models": (model_settings.ModelConfig, "Entries of `models`: what is served."),
    "experts": (
        model_settings.ExpertsConfig,
        "Entries of `experts`. [GUIDE.md](GUIDE.md#light-and-dense-models) has examples.",
    ),
    "expert": (model_settings.ExpertConfig, "Entries of a virtual model's `experts`."),
    "ensembles": (
        model_settings.EnsembleConfig,
        "Entries of `ensembles`. [GUIDE.md](GUIDE.md#models-one-after-the-other) has examples.",
    ),
    "step": (model_settings.StepConfig, "Entries of an ensemble's `steps`."),
    "upstreams": (UpstreamConfig, "Entries of `upstreams`. [GATEWAY.md](GATEWAY.md) has examples."),
    "timeouts": (TimeoutsConfig, "An upstream's `timeouts`."),
    "retry": (RetryConfig, "An upstream's `retry`."),
    "tokens": (TokensConfig, "An upstream's `tokens`."),
    "budgets": (BudgetsConfig, "[GATEWAY.md](GATEWAY.md#budgets) has an example."),
    "budget": (BudgetConfig, "Entries of `budgets.keys` and of `budgets.models`."),
    "traffic": (
        TrafficConfig,
        "Entries of `traffic`. [GUIDE.md](GUIDE.md#versions) has an example.",
    ),
    "image": (ImageConfig, "A model's `image`: what becomes of files of pictures."),
    "sequences": (
        SequencesConfig,
        "A model's `sequences`. [GUIDE.md](GUIDE.md#sequences) has an example.",
    ),
    "text": (TextConfig, "A model's `text`. [GUIDE.md](GUIDE.md#texts) has examples."),
}
_NESTED: Final = {
    "server": ("keys", "certificates", "tls"),
    "models": ("image", "sequences", "text"),
    "experts": ("expert", "experts"),  # the inner keys first
    "ensembles": ("step", "ensembles"),
    "upstreams": ("timeouts", "retry", "tokens", "upstreams"),
    "budgets": ("budget",),
    "traffic": ("traffic",),
}
_HEAD: Final = """\
# Settings

Every key of [`config.yaml`](../config.yaml); `tools/settings_page.py` makes this page. Sizes are
bytes, or with a unit: "64KiB", "8MiB", "1GiB" (of 1,024), "8MB" (of 1,000).
`lumen serve --config FILE --check` names the mistakes of a file.
`--set server.port=9000` or the environment variable `LUMEN_SERVER__PORT=9000` overrides a key for
one run. [GUIDE.md](GUIDE.md) says which key to use when."""
_LINE: Final = re.compile(r"^ *(?:# )?[ -]*(\w+):(.*?)(?:\s#\s(.*))?$")


def meanings(text: str) -> dict[tuple[str, str], str]:
    """The comment beside each key of config.yaml.

    Args:
        text: of the file.

    Returns:
        (section, key) to sentence; commented keys count as the section that they are an example of.
    """
    found: dict[tuple[str, str], str] = {}
    section = ""
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        if re.match(r"\w", line):
            section = match[1]
        elif match[3] is not None:
            is_nested = line.lstrip().startswith("#")
            named = [
                name
                for name in _NESTED.get(section, ())
                if match[1] in _SECTIONS[name][0].model_fields
            ]
            # Of a key that an entry and its inner ones have, the inner one comes first.
            free = [name for name in named if (name, match[1]) not in found]
            found[(free or named)[0] if is_nested else section, match[1]] = match[3]
    return found


def page(text: str) -> str:
    """The whole page.

    Args:
        text: of config.yaml.

    Raises:
        KeyError: config.yaml says nothing of a setting.
    """
    said = meanings(text)
    parts = [_HEAD]
    for section, (model, about) in _SECTIONS.items():
        rows = ["| key | what it is | accepted | default |", "|---|---|---|---|"]
        for name, field in model.model_fields.items():
            meaning = said[section, name]
            cells = (meaning[0].upper() + meaning[1:], field.description or "", _default(field))
            rows.append(f"| `{name}` | " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
        parts.append(f"## {section}\n\n{about}\n\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _default(field: Any) -> str:
    value = field.default
    if field.default_factory is not None:
        return "`{}`"
    if value is PydanticUndefined:
        return "must be given"
    if value is None:
        return "`null`"
    if isinstance(value, tuple):
        return "`[]`" if not value else f"`{value[0]:g}`"
    if isinstance(value, bool):
        return f"`{value}`".lower()
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, int) and "octal" in field.description:
        return f"`{value:04o}`"
    if isinstance(value, int) and "size" in field.description:
        return f"`{format_size(value)}`"
    return f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(page((ROOT / "config.yaml").read_text()))
