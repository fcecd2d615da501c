"""The processes of isolated models, as the main thread looks at them; a stand-in for the engine
knows no model. tests/e2e/models/test_e2e_isolation.py has real ones."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from lumen_uring.errors import EngineError
from lumen_uring.guard import Guard
from lumen_uring.ring.processes import Isolated
from lumen_uring.serving.processes import Processes
from lumen_uring.settings.models import ModelConfig


class Engine:
    """Has not been given the model yet, or has refused it."""

    isolated: tuple[Isolated, ...] = ()

    def process_is_up(self, _key: int) -> bool:
        raise EngineError("no such model")


def test_a_process_is_expected_no_more_when_its_model_could_not_be_loaded() -> None:
    """While a model comes, the main thread looks for its process every few milliseconds."""
    nobody: Any = None
    engine: Any = Engine()
    processes = Processes(nobody, Guard(lambda _level, _text: None))
    assert processes.start(engine, lambda: False)
    at_rest_s = processes.look()
    model = Isolated(1, ModelConfig(name="m", path="m.onnx"), Path("m.onnx"), None)
    refused = EngineError("it is no model")
    with contextlib.suppress(EngineError), processes.expect(model):
        assert processes.look() < at_rest_s
        raise refused
    assert processes.look() == at_rest_s
