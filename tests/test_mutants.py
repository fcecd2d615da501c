"""The mutants' tables: each text that is replaced stands in the source it names, once.

Whether they are noticed takes hours (`make mutants`); that they still break something does not.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).resolve().parent


def table(path: str) -> ModuleType:
    """A program that is no module of a package, imported."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), TESTS / f"{path}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for its names
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", ["models/mutants", "sim/sim_mutants"])
def test_texts(path: str) -> None:
    module = table(path)
    names = [mutant.name for mutant in module.MUTANTS]
    assert len(names) == len(set(names)) > 50
    counts = {
        mutant.name: (module.SOURCE / mutant.file).read_text().count(mutant.old)
        for mutant in module.MUTANTS
    }
    assert {name: count for name, count in counts.items() if count != 1} == {}
    assert [mutant.name for mutant in module.MUTANTS if mutant.old == mutant.new] == []


def test_simulation_breaks_sources_alone() -> None:
    # Its objects depend on the headers of c/src: a changed copy of one would not be compiled.
    files = {mutant.file for mutant in table("sim/sim_mutants").MUTANTS}
    assert {file for file in files if not file.endswith(".c")} == set()
