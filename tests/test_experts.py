"""Rules of virtual models: features against numpy, and what a settings file may say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumen_uring.config import load
from lumen_uring.errors import ConfigError, EngineError
from lumen_uring.ring.features import feature

DTYPES = ("<f4", "<f8", "<f2", "u1", "i1", "<u2", "<i2", "<i4", "<i8", "<u4", "<u8", "?")


@pytest.fixture(autouse=True)
def _library_is_built(c_library: None) -> None:
    """All of them need it."""


def edges(row: np.ndarray, height: int, width: int, channels_last: bool) -> float:
    planes = row.reshape(-1, height, width) if not channels_last else row
    down, along = (0, 1) if channels_last else (1, 2)
    squares = [np.square(np.diff(planes, axis=axis)) for axis in (down, along)]
    count = sum(each.size for each in squares)
    return float(sum(each.sum() for each in squares) / count) if count else 0.0


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_features_are_numpys(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    # Sides around a vector's and a block's: 8 and 2048 values.
    side = st.sampled_from([1, 2, 3, 7, 8, 9, 40, 51])
    shape = data.draw(
        st.one_of(
            st.tuples(side, st.sampled_from([1, 5, 2047, 2048, 2049, 5000])),
            st.tuples(side, side, side),
            st.tuples(st.integers(1, 3), st.sampled_from([1, 3]), side, side),
            st.tuples(st.integers(1, 3), st.sampled_from([2, 40]), side, st.just(3)),
        )
    )
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scale = data.draw(st.sampled_from([0.01, 1.0, 50.0]))
    offset = data.draw(st.sampled_from([0.0, 60.0]))
    rows = (random.standard_normal(shape) * scale + offset).clip(-100, 100)
    rows = (rows if dtype.kind in "fi" else abs(rows)).astype(dtype)
    exact = rows.astype(np.float32).astype(np.float64).reshape(len(rows), -1)
    near = {"rtol": 2e-5, "atol": 2e-5 * max(1.0, scale)}
    np.testing.assert_allclose(feature("mean", rows), exact.mean(1), **near)
    np.testing.assert_allclose(feature("variance", rows), exact.var(1), **near)
    np.testing.assert_allclose(feature("norm", rows), np.linalg.norm(exact, axis=1), rtol=2e-5)
    channels_last = len(shape) == 4 and shape[3] == 3 and shape[1] not in (1, 3)
    height, width = (
        (shape[1:3] if channels_last else shape[-2:]) if len(shape) > 2 else (1, shape[1])
    )
    of_picture = [edges(row, height, width, channels_last) for row in rows.astype(np.float64)]
    np.testing.assert_allclose(feature("edges", rows), of_picture, **near)
    if dtype.kind == "f":
        top = np.sort(exact, axis=1)
        np.testing.assert_array_equal(feature("probability", rows), top[:, -1])
        soft = np.exp(exact - top[:, -1:])
        np.testing.assert_allclose(feature("softmax", rows), 1 / soft.sum(1), rtol=2e-5)
        if exact.shape[1] > 1:
            np.testing.assert_array_equal(feature("margin", rows), top[:, -1] - top[:, -2])


def test_flat_pictures_have_no_variance_however_bright() -> None:
    rows = np.full((1, 3, 224, 224), 250.0, np.float32)
    assert feature("variance", rows)[0] == 0
    rows[0, 0, 0, 0] = 0  # one pixel: 250² (n - 1) / n²
    n = rows.size
    np.testing.assert_allclose(feature("variance", rows), 250.0**2 * (n - 1) / n**2, rtol=1e-4)


def test_numbers_that_are_none_stay_so() -> None:
    rows = np.ones((3, 100), np.float32)
    rows[1, 50], rows[2, 99] = np.nan, np.inf
    for name in ("variance", "mean", "norm"):
        assert list(np.isfinite(feature(name, rows))) == [True, False, False]
    assert np.isnan(feature("margin", rows)[1])
    assert np.isnan(feature("softmax", rows)[1])
    assert feature("probability", rows)[2] == np.inf


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("edges", np.ones(3, np.float32)),
        ("softmax", np.ones((3, 3), np.int64)),
        ("length", np.ones((3, 3), np.float32)),
        ("variance", np.ones((2, 0), np.float32)),
        ("variance", np.ones((2, 2), np.complex64)),
    ],
)
def test_what_has_no_such_feature(name: str, rows: np.ndarray) -> None:
    with pytest.raises(EngineError, match=f"has no feature '{name}'"):
        feature(name, rows)  # type: ignore[arg-type]


def problems(tmp_path: Path, *entries: str) -> list[str]:
    path = tmp_path / "lumen.yaml"
    lines = ["models:", "- {name: a, path: a.onnx}", "- {name: b, path: b.onnx}"]
    path.write_text("\n".join([*lines, "experts:", *(f"- {entry}" for entry in entries)]))
    with pytest.raises(ConfigError) as caught:
        load(path)
    return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]


RULES = [
    (
        "{name: e, feature: mean, experts: [{model: a, below: 2}, {model: b, at_least: 3}]}",
        ".at_least: expected 2, where the expert before ends, found 3: a gap",
    ),
    (
        "{name: e, feature: mean, experts: [{model: a, below: 2}, {model: b, at_least: 1}]}",
        ".at_least: expected 2, where the expert before ends, found 1: an overlap",
    ),
    (
        "{name: e, feature: mean, experts: [{model: a, below: 2}, {model: b, below: 2}, "
        "{model: a}]}",
        ".below: expected more than 2, where the one before ends, found 2: an overlap",
    ),
    (
        "{name: e, feature: mean, experts: [{model: a, below: 2}, {model: b, below: 3}]}",
        ".below: expected null, since the last expert takes the rest, found 3: a gap from there on",
    ),
    (
        "{name: e, feature: mean, experts: [{model: a, at_least: 0, below: 2}, {model: b}]}",
        ".at_least: expected null, since the first expert takes the smallest numbers, found 0: a "
        "gap below",
    ),
    (
        "{name: e, feature: mean, experts: [{model: a}, {model: b}]}",
        ".below: expected the mean below which 'a' runs, found null",
    ),
    (
        "{name: e, feature: mean, experts: [{model: a, below: .nan}, {model: b}]}",
        ".below: expected null (the last expert takes the rest) or a number, found nan",
    ),
    (
        "{name: e, feature: margin, experts: [{model: a, below: 1, at_least: 0}, {model: b}]}",
        ".below: expected null: with feature margin an answer stands from at_least on, found 1",
    ),
    (
        "{name: e, feature: margin, experts: [{model: a}, {model: b}]}",
        ".at_least: expected the margin from which the answer of 'a' stands, found null",
    ),
    (
        "{name: e, feature: margin, experts: [{model: a, at_least: 1}, {model: b, at_least: 1}]}",
        ".at_least: expected null: the answer of the last expert stands, found 1",
    ),
    (
        "{name: e, feature: mean, experts: [{model: c, below: 1}, {model: b}]}",
        ".model: expected the name of a model (a, b), found 'c'",
    ),
    (
        "{name: e, feature: mean, experts: [{model: e, below: 1}, {model: b}]}",
        ".model: expected the name of a model (a, b), found 'e', which has experts itself",
    ),
    (
        "{name: e, feature: pixels, of: x, experts: [{model: a, below: 1}, {model: b}]}",
        ".of: expected null with feature pixels, found 'x'",
    ),
    (
        "{name: a, feature: mean, experts: [{model: a, below: 1}, {model: b}]}",
        ".name: expected a name of its own, found 'a', the name of model 0 too",
    ),
    (
        "{name: e, feature: blur, experts: [{model: a, below: 1}, {model: b}]}",
        ".feature: expected variance | mean | norm | edges | pixels | length | size | probability "
        "| softmax | margin, found 'blur'",
    ),
    (
        "{name: e, feature: mean, experts: [{model: b}]}",
        ".experts: expected a list of 2..8 experts, each with a model, found a list of 1",
    ),
    (
        "{name: e, feature: mean, experts: [3, {model: b}]}",
        ".experts.0: expected a mapping with a model, found 3",
    ),
    (
        "{name: e, feature: mean, burst: 2, experts: [{model: a, below: 1}, {model: b}]}",
        ".burst: expected none without a rate, found 2 beside no rate",
    ),
]


@pytest.mark.parametrize(("entry", "problem"), RULES, ids=[problem for _entry, problem in RULES])
def test_a_rule_that_cannot_be_is_refused_with_its_line(
    tmp_path: Path, entry: str, problem: str
) -> None:
    (found,) = problems(tmp_path, entry)
    place, _, _ = problem.partition(": expected")
    assert found.startswith("5 experts.0")
    assert found.partition(": expected")[0].endswith(place)
    assert found.endswith(problem.removeprefix(place))


def test_every_rule_is_looked_at(tmp_path: Path) -> None:
    entries = [entry for entry, _problem in RULES[:2]]
    found = problems(tmp_path, *entries)
    assert [line[:3] for line in found[-2:]] == ["5 e", "6 e"]


def test_a_virtual_model_has_the_last_experts_settings(tmp_path: Path) -> None:
    path = tmp_path / "lumen.yaml"
    path.write_text(
        "models: [{name: a, path: a.onnx}, {name: b, path: b.onnx, max_rows: 3, rate: 5}]\n"
        "experts:\n"
        "- {name: e, feature: mean, rate: 7, experts: [{model: a, below: 1e3}, {model: b}]}"
    )
    config = load(path)
    *_, virtual = config.served()
    assert (virtual.name, virtual.max_rows, virtual.rate) == ("e", 3, 7)
    assert config.experts[0].bounds()[0] == 1000


def test_a_virtual_model_has_no_queue_of_its_own(tmp_path: Path) -> None:
    """Its requests wait in the queues of its experts, within their bounds."""
    path = tmp_path / "lumen.yaml"
    path.write_text(
        "models: [{name: a, path: a.onnx}, "
        "{name: b, path: b.onnx, max_queued: 3, queue_timeout_us: 5}]\n"
        "experts:\n- {name: e, feature: mean, experts: [{model: a, below: 1}, {model: b}]}"
    )
    _, last, virtual = load(path).served()
    assert (last.max_queued, last.queue_timeout_us) == (3, 5)
    assert (virtual.max_queued, virtual.queue_timeout_us) == (0, 0)
