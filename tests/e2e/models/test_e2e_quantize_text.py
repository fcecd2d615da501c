"""`lumen quantize FOLDER`: an INT8 graph of a text model, compared with the original on texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
import text_folders

from lumen_uring.cli import main
from lumen_uring.offline import quantize_text
from lumen_uring.offline.sentences import SENTENCES

pytestmark = pytest.mark.once  # no server is in it

FOLDERS: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "embedding": (text_folders.sentence_files({"pooling_mode_cls_token": True}), {}),
    "scores": (text_folders.scores_files(), {"is_scores": True}),
    "entities": (text_folders.entities_files(), {"is_entities": True}),
}


def made(folder: Path, task: str) -> Path:
    files, rest = FOLDERS[task]
    return text_folders.write(folder / task, files, **rest)


@pytest.mark.parametrize("task", FOLDERS)
def test_the_graph_has_integers_and_answers_alike(
    tmp_path: Path, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path, task)
    texts = tmp_path / "texts.txt"
    texts.write_text("a cat sits on the mat.\n\nthe dog runs fast\na dog!\nthe mat is slow\n")
    assert main(["quantize", str(folder), "--texts", str(texts), "--force", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    out = folder / "onnx" / "model_quantized.onnx"
    assert report["output"] == str(out)
    assert report["texts"] == 4
    assert report["bytes_after"] == out.stat().st_size
    assert 0.9 < report["cosine_min"] <= report["cosine_mean"] <= 1.0001
    assert (report["nearest"] is None) == (task != "embedding")
    assert (report["labels"] is None) == (task == "embedding")
    kinds = {one.data_type for one in onnx.load(str(out)).graph.initializer}
    assert onnx.TensorProto.INT8 in kinds or onnx.TensorProto.UINT8 in kinds
    assert main(["quantize", str(folder)]) != 0
    assert "is there already: --force replaces it" in capsys.readouterr().err
    assert main(["inspect", str(folder)]) == 0
    assert "other variants: quantized" in capsys.readouterr().out


def test_a_slower_graph_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = made(tmp_path, "embedding"), tmp_path / "int8.onnx"
    monkeypatch.setattr(quantize_text, "_times", lambda *_: (1.0, 2.0))
    report = quantize_text.quantize_folder(folder, out, SENTENCES, False)
    assert report.output is None
    assert not out.exists()
    assert not report.is_faster
    kept = quantize_text.quantize_folder(folder, out, SENTENCES, True)
    assert kept.output == str(out)
    assert out.exists()
    said = "\n".join(kept.lines())
    assert "1.0 to 2.0 ms (0.5 times as fast)" in said
    assert "the most similar other text is the same for" in said


@pytest.mark.parametrize("pooling", [("cls",), ("max", "mean"), ("weightedmean", "lasttoken")])
def test_pooling_is_the_servers(pooling: tuple[str, ...]) -> None:
    rows = np.arange(12.0).reshape(4, 3) ** 2
    places = np.arange(1, 5)[:, None]
    parts = {
        "cls": rows[0],
        "max": rows[3],
        "mean": rows.sum(0) / 4,
        "weightedmean": (rows * places).sum(0) / 10,
        "lasttoken": rows[3],
    }
    found = quantize_text._pool(pooling, rows)
    np.testing.assert_allclose(found, np.concatenate([parts[name] for name in pooling]))


def test_what_cannot_be_done_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, empty = made(tmp_path, "embedding"), tmp_path / "empty.txt"
    empty.write_text("one line\n\n")
    for arguments, says in (
        ([str(folder), "--images", "x"], "--texts FILE: expected it, or nothing"),
        ([str(folder), "--texts", str(empty)], "expected at least two lines, found 1"),
        ([str(folder), "--texts", "/none"], "expected lines of text, found"),
        ([str(tmp_path / "none")], "--images FOLDER or --npz FILE: expected one"),
    ):
        assert main(["quantize", *arguments]) != 0
        assert says in capsys.readouterr().err
