"""YAML as settings files have it, read by libyaml where PyYAML has it, which is ten times as fast.

Used by config.py, on the main thread and by checks.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

# Part of PyYAML's wheels, and not of every build of it.
_Base: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE: Final = "tag:yaml.org,2002:merge"
_TEXT: Final = "tag:yaml.org,2002:str"


class Loader(_Base):  # type: ignore[misc]  # one of two
    """Reads the keys of mappings as they are written: YAML takes `on` and `no` for truth values,
    8000 for a number and `~` for nothing, and settings have names."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        """Called by PyYAML."""
        self.flatten_mapping(node)
        for key, _value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                key.tag = _TEXT
        return super().construct_mapping(node, deep=deep)


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
