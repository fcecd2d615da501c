"""docs/API.md names everything that is public; test_e2e_docs.py runs its examples."""

from __future__ import annotations

import inspect

import harness
import pytest

import lumen_uring
from lumen_uring import errors
from lumen_uring.protocol.describe import Model
from lumen_uring.protocol.native import InferResult, Timings

pytestmark = pytest.mark.once  # the clients are the same on both backends
PAGE = harness.ROOT / "docs" / "API.md"


def test_everything_public_is_named() -> None:
    text = PAGE.read_text()
    for name in set(lumen_uring.__all__) - {"__version__"}:
        assert f"`{name}`" in text
    for client in (lumen_uring.Client, lumen_uring.AsyncClient):
        methods = {name for name in vars(client) if not name.startswith("_")}
        assert {name for name in methods if f"{name}(" not in text} == set()
        made = inspect.signature(client).parameters
        assert {name for name in made if f"| `{name}` |" not in text} == set()
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    raised = [kind for kind in kinds if issubclass(kind, errors.ClientError)]
    assert {kind.__name__ for kind in raised if f"`{kind.__name__}`" not in text} == set()
    for kind in (InferResult, Timings, Model):
        fields = kind.__dataclass_fields__
        assert {name for name in fields if f"`{name}`" not in text} == set()
