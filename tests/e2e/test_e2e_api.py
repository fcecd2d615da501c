"""docs/API.md: its examples run and print what it says, and it names everything that is public."""

from __future__ import annotations

import doctest
import inspect

import harness
import pytest
from conftest import Serve

import lumen_uring
from lumen_uring import errors
from lumen_uring.describe import Model
from lumen_uring.native import InferResult, Timings

pytestmark = pytest.mark.once  # the clients are the same on both backends
PAGE = harness.ROOT / "docs" / "API.md"


def test_the_examples_run(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(
        {
            "models": [
                {"name": "digits", "path": "builtin:digits"},
                {"name": "squeezenet", "path": "builtin:squeezenet"},
            ]
        }
    )
    monkeypatch.chdir(harness.ROOT)  # where the pictures' paths begin
    text = PAGE.read_text().replace("8000", str(server.port)).replace("```python", "")
    examples = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, "API", None, 0)
    assert len(examples.examples) > 20
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=said.append)
    assert runner.failures == 0, "".join(said)


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
