"""`lumen fit-router`: the threshold, its bound and intervals, and what cannot be fitted."""

from __future__ import annotations

import math
import re
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import orjson
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from lumen_uring.cli import main
from lumen_uring.offline import router_fit
from lumen_uring.offline.router_fit import Samples, allowed_errors
from lumen_uring.settings.schema import Config

FLOAT = TensorProto.FLOAT


def linear(path: Path, weights: np.ndarray, opset: int = 17) -> Path:
    """p = softmax(x @ weights), x FP32 [n, columns]."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Softmax", ["z"], ["p"], axis=1),
    ]
    columns, classes = weights.shape
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", FLOAT, ["n", columns])],
        [helper.make_tensor_value_info("p", FLOAT, ["n", classes])],
        [numpy_helper.from_array(weights.astype(np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return path


def samples(value: np.ndarray, agrees: np.ndarray, cascade: bool = False) -> Samples:
    return Samples(value, agrees, np.arange(len(value)) // 2, 1.0, 4.0, 0.0, cascade)


def test_the_bound_on_errors_is_the_binomials() -> None:
    def risk(errors: int, rows: int, agreement: Fraction) -> Fraction:
        terms = (
            math.comb(rows, k) * (1 - agreement) ** k * agreement ** (rows - k)
            for k in range(errors + 1)
        )
        return sum(terms, Fraction(0))

    for rows, agreement in ((59, "0.95"), (200, "0.95"), (600, "0.99"), (150, "0.5")):
        most = allowed_errors(rows, float(agreement))
        assert risk(most, rows, Fraction(agreement)) <= Fraction(1, 20)
        assert risk(most + 1, rows, Fraction(agreement)) > Fraction(1, 20)


@pytest.mark.parametrize("cascade", [False, True])
def test_the_cheapest_bound_that_is_good_enough(cascade: bool) -> None:
    """Rows below 0.6 agree, those above do in half of the cases; of a cascade the other way."""
    random = np.random.default_rng(4)
    value = random.uniform(0, 1, 4000)
    agrees = (value < 0.6) | (random.uniform(0, 1, 4000) < 0.5)
    found = router_fit.fit(samples(1 - value if cascade else value, agrees, cascade), 0.98)
    bound = found.choice.bound
    assert bound is not None
    # Half of the rows behind 0.6 are wrong: 2 % of all are the 4 % behind it, less the margin.
    assert (1 - bound if cascade else bound) == pytest.approx(0.63, abs=0.015)
    assert found.choice.wrong == found.choice.allowed
    assert found.fitted.agreement.figure >= 0.98
    held = found.held_out
    assert held.agreement.low < held.agreement.figure < held.agreement.high
    assert held.agreement.high > 0.98
    assert held.rows + found.fitted.rows == 4000
    # Three quarters of the time of a light row are saved, and of a cascade none of its light Run.
    assert held.saved.figure == pytest.approx(
        held.light.figure - 0.25 if cascade else 0.75 * held.light.figure
    )


def test_what_is_no_number_stays_with_the_dense_model() -> None:
    value = np.where(np.arange(4000) % 4 == 0, np.nan, np.arange(4000) % 7)
    found = router_fit.fit(samples(value, np.ones(4000, bool)), 0.9)
    assert found.choice.bound is not None
    assert found.choice.bound > 6
    assert found.held_out.light.figure == pytest.approx(0.75, abs=0.02)
    assert found.held_out.agreement.figure == 1
    assert 0.99 < found.held_out.agreement.low < 1  # of 667 groups none was wrong


def test_crops_of_one_picture_are_not_on_both_sides_and_count_once() -> None:
    wrong = np.arange(1000) // 100 == 3  # all of one group
    some = Samples(np.ones(1000), ~wrong, np.arange(1000) // 100, 1.0, 2.0, 0.0, False)
    judged = router_fit.judge(some, 2.0)
    assert (judged.rows, judged.groups) == (1000, 10)
    assert judged.agreement.figure == 0.9
    assert judged.agreement.low == pytest.approx(0.7, abs=0.1)
    found = router_fit.fit(some, 0.5)
    assert (found.fitted.groups, found.held_out.groups) == (7, 3)


@pytest.fixture
def models(tmp_path: Path, c_library: None) -> tuple[Path, Path, Path]:
    """A dense model, one that errs where the input is large in its last column, and rows."""
    random = np.random.default_rng(2)
    weights = random.standard_normal((6, 5))
    weights[5] = 0
    worse = weights.copy()
    worse[5, 0] = 3
    x = random.standard_normal((900, 6)).astype(np.float32)
    x[:, 5] = np.where(random.uniform(0, 1, 900) < 0.3, 40, 0)
    np.savez(tmp_path / "rows.npz", x=x)
    dense = linear(tmp_path / "dense.onnx", weights)
    return linear(tmp_path / "light.onnx", worse), dense, tmp_path / "rows.npz"


def fit(models: tuple[Path, Path, Path], *options: str) -> int:
    light, dense, rows = models
    return main(["fit-router", str(light), str(dense), "--npz", str(rows), *options])


def test_the_entry_serves(
    models: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "curve.png"
    assert fit(models, "--agreement", "0.97", "--plot", str(plot), "--name", "both") == 0
    said = capsys.readouterr().out
    assert plot.read_bytes().startswith(b"\x89PNG")
    entry = yaml.safe_load(said[said.index("experts:") :])
    config = Config.model_validate(
        {"models": [{"name": name, "path": name} for name in ("light", "dense")], **entry}
    )
    (rule,) = config.experts
    assert (rule.name, rule.feature, rule.of) == ("both", "variance", "x")
    # 40 in one of six columns has a variance of 200 and more, the others of a few.
    assert 1 < rule.bounds()[0] < 250
    held = re.search(r"answers as the dense model's +([\d.]+) %", said)
    assert held is not None
    assert float(held.group(1)) > 95


def test_json_and_a_cascade(
    models: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(models, "--json", "--feature", "margin", "--agreement", "0.6") == 0
    found = orjson.loads(capsys.readouterr().out)
    assert (found["feature"], found["of"]) == ("margin", "p")
    assert found["fitted"]["agreement"][0] >= 0.6
    assert found["fitted"]["rows"] + found["held_out"]["rows"] == 900
    assert "at_least" in found["experts"]
    assert found["errors"] <= found["errors_allowed"]


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (("--agreement", "0.999"), 1, "600 rows of 600 rows are too few to be sure of 0.999"),
        (("--agreement", "1"), 2, "expected a number between 0 and 1, found '1'"),
        (("--of", "z"), 2, "--of: expected the name of an input (x), found 'z'"),
        (("--plot", "curve.gif"), 2, "expected a name ending in .png, .svg or .pdf"),
        (("--plot", "/nowhere/at/all.png"), 2, "expected a folder /nowhere/at, found none"),
        (("--preset", "imagenet"), 2, "--preset: expected it with --images, found --npz"),
    ],
)
def test_what_cannot_be_fitted(
    models: tuple[Path, Path, Path],
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    status: int,
    sentence: str,
) -> None:
    try:
        found = fit(models, *options)
    except SystemExit as ended:
        found = int(ended.code or 0)
    said = capsys.readouterr()
    assert found == status
    assert sentence in said.out + said.err


def test_models_of_other_inputs(
    models: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = linear(tmp_path / "other.onnx", np.ones((7, 5)))
    assert fit((other, *models[1:])) == 2
    assert (
        "x FP32 [-1, 7] in other.onnx and x FP32 [-1, 6] in dense.onnx" in capsys.readouterr().err
    )
    np.savez(tmp_path / "few.npz", x=np.ones((5, 6), np.float32))
    assert fit((*models[:2], tmp_path / "few.npz")) == 2
    assert "expected at least 6 rows, found 5" in capsys.readouterr().err


def test_without_matplotlib(
    models: tuple[Path, Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert fit(models, "--plot", "curve.png") == 2
    assert "pip install 'lumen-uring[plot]'" in capsys.readouterr().err
