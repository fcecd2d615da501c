"""HTTP requests that no other one resembles, with their answers, for the model "double".

Used by the tests of HTTP as a stream of bytes, on the test's thread.
"""

from __future__ import annotations

import time

import numpy as np
import web
from harness import Server
from web import Http


def double(number: int, *, binary: bool = True, **rest: object) -> tuple[bytes, np.ndarray]:
    """A request that no other one resembles, and its output."""
    x = (np.arange(16, dtype="<f4") + np.float32(number)).reshape(1, 16)
    data = web.infer("double", {"x": x}, binary=binary, id=f"n{number}", **rest)  # type: ignore[arg-type]
    return data, x + x


def expect(answer: web.Answer, number: int, y: np.ndarray) -> None:
    assert answer.code == 200, answer
    assert answer.document["id"] == f"n{number}"
    np.testing.assert_array_equal(answer.array("y"), y)


def usable(http: Http, number: int = 900) -> None:
    """The connection is as good as new."""
    request, y = double(number)
    expect(http.query(request), number, y)


def pause(zoo: Server, count: int, seconds: float = 0.004) -> None:
    """Gives the server the chance to read what was sent before more comes."""
    until = time.monotonic() + seconds
    while zoo.figures().io["bytes_in"] < count and time.monotonic() < until:
        pass
