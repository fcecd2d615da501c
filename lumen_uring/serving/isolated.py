"""The process of one model: `python -m lumen_uring.serving.isolated`, started by processes.py.

It reads what to do from stdin, bounds its own memory and hands over to the C library, which runs
the model for the server's workers. It ends with the server, however that ends.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lumen_uring.errors import LumenError
from lumen_uring.ring.config_struct import native_model
from lumen_uring.ring.process import end_with_parent
from lumen_uring.ring.processes import ModelProcess, serve_process
from lumen_uring.settings.models import ModelConfig

_OOM_SCORE: Final = 500  # where memory is short, the kernel ends this process before the server


def main() -> int:
    """Serves until the server ends; returns 1 where it cannot begin."""
    order: dict[str, Any] = json.load(sys.stdin.buffer)
    end_with_parent()
    if os.getppid() != order["parent"]:
        return 0
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE), "ascii")
    settings = ModelConfig.model_validate(order["settings"])
    cache_path = order["cache_path"]
    native = native_model(
        settings, Path(order["path"]), None if cache_path is None else Path(cache_path), None
    )
    place = ModelProcess(**order["place"])
    if settings.isolation_memory:
        # Private memory that can be written: what a leak takes. The weights are a mapped file, and
        # tensors are in the server's memory.
        limit = settings.isolation_memory
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        serve_process(place, Path(order["runtime"]), native)
    except (LumenError, MemoryError) as error:
        text = str(error) or "there is no memory left (isolation_memory)"
        print(f"The process of model {settings.name} cannot serve: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
