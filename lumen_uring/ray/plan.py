"""What a deployment sends to each node: settings, and where the paths in them begin.

Made by deploy.py in the driver, read by start.py on a node. The text of the settings file goes
along, so that nodes need no copy of it. Nothing here knows Ray.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from lumen_uring.errors import ConfigError
from lumen_uring.settings import paths, yaml_text
from lumen_uring.settings.schema import ServerConfig

PORT: Final = 8100  # Ray Serve's own proxies listen on 8000
AGENT_DISTANCE: Final = 3  # of agent_port from port
_BUILTIN: Final = ("builtin:", "~")


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings for the server of every node.

    Attributes:
        text: of the settings file; None: Lumen's defaults.
        folder: of that file, or the driver's, at the driver; absolute.
        within: the same, from the driver's working directory on; where Ray ships a working_dir,
            it is found there.
        overrides: "KEY=VALUE", as --set has them.
        models: "NAME=PATH", as --model has them.
        per_node: how many of these servers may be on a node, each on ports of its own.
    """

    text: str | None
    folder: str
    within: str
    overrides: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    per_node: int = 1

    def data(self) -> dict[str, Any]:
        """The settings file as YAML reads it. What is wrong in it, the server will say better."""
        try:
            data = yaml.load(self.text or "", yaml_text.Loader)
        except (yaml.YAMLError, ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def named(self, section: str, name: str, environment: Mapping[str, str]) -> bool:
        """Whether the settings say something about one.

        Args:
            section: of it, such as "server".
            name: of it.
            environment: the server's variables.
        """
        key = f"{section}.{name}="
        inner = self.data().get(section)
        return (
            any(one.startswith(key) for one in self.overrides)
            or (isinstance(inner, dict) and name in inner)
            or bool(environment.get(f"LUMEN_{section}__{name}".upper()))
        )

    def placed(self, base: str, environment: Mapping[str, str]) -> list[str]:
        """Overrides that let the paths of the settings file begin at a folder of the node.

        Args:
            base: that folder; absolute.
            environment: the server's variables. What they set takes the place of the file's, as a
                list of models does that is given with the plan.
        """
        data, found = self.data(), []
        if self.models or environment.get("LUMEN_MODELS"):
            data.pop("models", None)
        for place in paths.of(data):
            if environment.get("__".join(("LUMEN_" + str(place[0]), *map(str, place[1:]))).upper()):
                continue
            value: Any = data
            for step in place:
                inside = isinstance(value, list) or (isinstance(value, dict) and step in value)
                value = value[step] if inside else None
            if isinstance(value, str) and value not in ("", "-") and not _begins(value):
                key = ".".join(map(str, place))
                found.append(f"{key}={json.dumps(os.path.join(base, value))}")
        return found

    def placed_models(self, base: str) -> list[str]:
        """`models`, whose paths begin at a folder of the node."""
        found = []
        for model in self.models:
            name, equals, path = model.partition("=")
            here = path if _begins(path) or not path else os.path.join(base, path)
            found.append(f"{name}{equals}{here}")
        return found

    def drain_s(self) -> float:
        """How long a server may take to its end, as far as a driver can know it; seconds."""
        return sum(self._seconds(name) for name in ("unready_seconds", "drain_seconds"))

    def _seconds(self, name: str) -> float:
        server = self.data().get("server")
        value: Any = server.get(name) if isinstance(server, dict) else None
        for override in self.overrides:
            if override.startswith(f"server.{name}="):
                value = override.partition("=")[2]
        try:
            return float(value)
        except (TypeError, ValueError):
            default: float = ServerConfig.model_fields[name].default
            return default


def make(
    config: str | os.PathLike[str] | None,
    overrides: Sequence[str] = (),
    models: Sequence[str] = (),
    per_node: int = 1,
) -> Plan:
    """Reads the settings file, in the driver.

    Args:
        config: its path; None: Lumen's defaults.
        overrides: as --set has them.
        models: as --model has them.
        per_node: how many servers may be on a node.

    Raises:
        ConfigError: the file cannot be read.
    """
    folder, text = Path.cwd(), None
    if config is not None:
        path = Path(config).absolute()
        folder = path.parent
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: expected a settings file: {error}") from None
    within = os.path.relpath(folder, Path.cwd())
    return Plan(text, str(folder), within, tuple(overrides), tuple(models), per_node)


def _begins(path: str) -> bool:
    """Whether a path needs no folder before it."""
    return os.path.isabs(path) or path.startswith(_BUILTIN)
