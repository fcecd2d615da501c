"""YAML as settings files have it, read by libyaml where PyYAML has it, which is ten times as fast.

Used by config.py, on the main thread and by checks.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

# Part of PyYAML's wheels, and not of every build of it.
Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def compose(text: str) -> tuple[Any, yaml.Node | None]:
    """A document's nodes, None where it is empty, and the loader that makes its values of them.

    Args:
        text: of the file.

    Raises:
        yaml.YAMLError: it is no YAML; with the words and the line of the slower reader.
    """
    try:
        loader = Loader(text)
        return loader, loader.get_single_node()
    except yaml.YAMLError:
        slow = yaml.SafeLoader(text)
        return slow, slow.get_single_node()
