"""Requests of JSON over HTTP, as curl sends them.

Used by tests of routes, on the test's thread.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from harness import Server


def ask(server: Server, path: str, body: Any = None) -> Any:
    """The answer, read.

    Args:
        server: that is asked.
        path: of the request.
        body: as JSON; bytes go as they are; None: it is a GET.

    Raises:
        HTTPError: any code but 200.
    """
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", data, 30) as answer:
        return json.load(answer)


def refused(server: Server, path: str, body: Any = None) -> tuple[int, Any]:
    """The code and the JSON of a refusal."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(server, path, body)
    return caught.value.code, json.load(caught.value)
