"""Sequences of clients with keys: each key has its own, also across a reload of the keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import operating
import pytest
import web
from conftest import Serve
from harness import Server, eventually
from operating import Reloaded
from test_e2e_sequences import counting, counts
from web import Answer, Http

pytestmark = pytest.mark.once  # what runs models is the same on both backends

NAMES = ("ann", "bob", "eve")


def document(path: Path, names: tuple[str, ...], **rest: object) -> dict[str, object]:
    keys = [operating.key(name) for name in names]
    return {"server": {"keys": keys}, "models": [counts(path, **rest)]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return counting(tmp_path / "counts.onnx")


def asked(name: str, pad_bytes: int = 0, **parameters: object) -> bytes:
    x = {"x": np.array([0], "<i8")}
    bearer = f"Authorization: Bearer {name}"
    return web.infer("counts", x, headers=[bearer], parameters=parameters, pad_bytes=pad_bytes)


def count(server: Server, name: str, **parameters: object) -> Answer:
    with Http(server.port) as http:
        return http.query(asked(name, **parameters))


def value(answer: Answer) -> int:
    found: int = answer.outputs["y"].data.item()
    return found


def test_owners_have_sequences_of_their_own(serve: Serve, path: Path) -> None:
    server = serve(document(path, ("ann", "bob")))
    for name, start, expected in (
        ("ann", True, 1),
        ("ann", False, 2),
        ("bob", True, 1),
        ("ann", False, 3),
    ):
        assert value(count(server, name, sequence_id=1, sequence_start=start)) == expected


def test_no_key_has_more_than_half_of_the_sequences(serve: Serve, path: Path) -> None:
    server = serve(document(path, ("ann", "bob"), max_open=4))
    for number in (1, 2):
        assert count(server, "ann", sequence_id=number, sequence_start=True).code == 200
    refused = count(server, "ann", sequence_id=3, sequence_start=True)
    assert (refused.code, refused.headers["retry-after"]) == (503, "1")
    assert refused.error == (
        "parameters: sequence_start: expected fewer open sequences of one key: model 'counts' "
        "keeps the rest of its 4 for other keys (sequences.max_open); send it again later"
    )
    for number in (1, 2):
        assert count(server, "bob", sequence_id=number, sequence_start=True).code == 200
    assert count(server, "bob", sequence_id=3, sequence_start=True).code == 503
    assert value(count(server, "ann", sequence_id=1, sequence_end=True)) == 2
    assert count(server, "ann", sequence_id=3, sequence_start=True).code == 200
    figures = server.figures()
    assert figures.worker["requests_overloaded"] == 2
    assert figures.worker["requests_error"] == 0


def test_a_single_key_may_have_all_sequences(serve: Serve, path: Path) -> None:
    server = serve(document(path, ("ann",), max_open=2))
    for number in (1, 2):
        assert count(server, "ann", sequence_id=number, sequence_start=True).code == 200


@pytest.mark.parametrize("names", [(), ("eve",), ("eve", "ann", "bob")])
def test_keys_that_change_before_the_body_is_here(
    serve: Serve, path: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """The sequence is the one of the key that the head brought, in whatever table it was."""
    one = Reloaded(serve, tmp_path, document(path, NAMES))
    for name in ("ann", "bob", "eve"):
        assert count(one.server, name, sequence_id=3, sequence_start=True).code == 200
    assert value(count(one.server, "eve", sequence_id=3)) == 2
    with Http(one.server.port) as http:
        text = asked("eve", pad_bytes=20_000, sequence_id=3)  # so that it takes a slot
        http.send(text[:-30])
        eventually(lambda: one.server.figures().slots_in_use == 1, "the head")
        one.reload(document(path, names))
        http.send(text[-30:])
        assert value(http.answer()) == 3
