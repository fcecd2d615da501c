"""`lumen predict` on many pictures: requests in flight, their order, the table, the CSV file.

The peer's model `photos` takes files as they are; the content of a file says what becomes of it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from peer import Connection, Peer, Request, reply
from rich.progress import Progress

from lumen_uring.cli import main
from lumen_uring.commands import predict
from lumen_uring.errors import BadRequest
from lumen_uring.predict.pictures import IN_FLIGHT, Failure, Prediction, _scores, rows_of

BAD_REQUEST, OVERLOADED, DEADLINE_PASSED, UNAUTHORISED, SHUTTING_DOWN = 1, 4, 5, 6, 9
CLASSES = 200
JPEG = b"\xff\xd8\xff"  # how such a file begins
DOCUMENT: dict[str, Any] = {
    "server": {"name": "lumen", "version": "0.1.0", "protocol": 1},
    "models": [
        {
            "index": 0,
            "name": "photos",
            "max_rows": 8,
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, 4, 6]}],
            "outputs": [
                {"name": "y", "datatype": "FP32", "shape": [-1, CLASSES], "shape_known": True}
            ],
            "rgb8": {"height": 4, "width": 6, "layout": "NCHW"},
            "image": {
                "height": 4,
                "width": 6,
                "layout": "NCHW",
                "channel_order": "RGB",
                "mean": [1, 1, 1],
                "scale": [0.5, 0.5, 0.5],
                "fit": "stretch",
                "resize": 0,
                "filter": "bilinear",
                "pad_value": 114,
                "max_pixels": 99,
            },
            "labels": ["zero", "one, or so", *[""] * (CLASSES - 2)],
        },
    ],
}


def answer(request: Request) -> bytes:
    """The class whose number the file holds, or a status."""
    assert (request.encoding, request.rows) == (2, 1)
    (size,) = struct.unpack_from("<I", request.payload)
    file = request.payload[4:]
    assert len(file) == size
    text = file.removeprefix(JPEG).decode()
    if text.startswith("status "):
        return reply(request.id, b"picture 1: is bad", status=int(text.split()[1]))
    scores = np.zeros(CLASSES, "<f4")
    scores[int(text)] = 0.75
    scores[(int(text) + 1) % CLASSES] = 0.25
    return reply(request.id, scores.tobytes(), rows=1)


def described(connection: Connection) -> None:
    request = connection.request()
    assert request.kind == 3
    connection.send(reply(request.id, json.dumps(DOCUMENT).encode()))


def one_by_one(connection: Connection) -> None:
    described(connection)
    while True:
        connection.send(answer(connection.request()))


def backwards(total: int) -> Callable[[Connection], None]:
    """Waits for IN_FLIGHT requests, or for the last ones, and answers them backwards."""

    def script(connection: Connection) -> None:
        described(connection)
        for begin in range(0, total, IN_FLIGHT):
            requests = [connection.request() for _ in range(min(IN_FLIGHT, total - begin))]
            for request in reversed(requests):
                connection.send(answer(request))

    return script


def files(folder: Path, contents: list[object]) -> list[str]:
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{index:03}.jpg" for index in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(JPEG + str(content).encode())
    return [str(path) for path in paths]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_many_pictures_are_in_flight_and_keep_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    total = 3 * IN_FLIGHT + 5
    paths = files(tmp_path / "photos", [*range(total)])
    out = tmp_path / "out.csv"
    options = ["--json", "--top", "2", "--csv", str(out)]
    with Peer((backwards(total),)) as peer:
        status = main(["predict", str(tmp_path / "photos"), "--port", str(peer.port), *options])
    captured = capsys.readouterr()
    assert (status, captured.err) == (0, "")
    found = [json.loads(line) for line in captured.out.splitlines()]
    assert [entry["path"] for entry in found] == paths
    assert [entry["classes"][0]["class"] for entry in found] == [*range(total)]
    assert peer.connections == 1
    written = rows(out)
    assert [(row["path"], row["rank"], row["index"]) for row in written[:4]] == [
        (paths[0], "1", "0"),
        (paths[0], "2", "1"),
        (paths[1], "1", "1"),
        (paths[1], "2", "2"),
    ]
    assert len(written) == 2 * total
    assert (written[0]["label"], written[1]["label"]) == ("zero", "one, or so")
    assert (written[0]["score"], written[0]["infer_us"]) == ("0.75", "4")
    assert int(written[0]["round_trip_us"]) > 0
    assert all(row["error"] == "" for row in written)


def test_a_table_and_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = files(tmp_path / "photos", [0, "status 1", 7])
    missing = str(tmp_path / "none.jpg")
    out = tmp_path / "out.csv"
    with Peer((one_by_one,)) as peer:
        options = ["--port", str(peer.port), "--top", "1", "--csv", str(out)]
        assert main(["predict", str(tmp_path / "photos"), missing, *options]) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        f"lumen: {paths[1]}: picture 1: is bad",
        f"lumen: {missing} cannot be read: No such file or directory.",
    ]
    header, *lines, total, prepared = captured.out.splitlines()
    assert header.split() == ["picture", "class", "score", "ms"]
    assert [line.split()[:-1] for line in (lines[0], lines[2])] == [
        [paths[0], "zero", "0.75000"],
        [paths[2], "class", "7", "0.75000"],
    ]
    assert [line.split() for line in (lines[1], lines[3])] == [
        [paths[1], "failed"],
        [missing, "failed"],
    ]
    assert total.startswith("4 pictures in ")
    assert total.endswith(f"; 2 failed: {paths[1]}, {missing}")
    assert prepared == (
        "photos: the server decodes the file: stretched to 6 x 4 (bilinear), rgb, (value - 1) * 0.5"
    )
    assert [(row["path"], row["index"], row["error"]) for row in rows(out)] == [
        (paths[0], "0", ""),
        (paths[1], "", f"{paths[1]}: picture 1: is bad"),
        (paths[2], "7", ""),
        (missing, "", f"{missing} cannot be read: No such file or directory."),
    ]


@pytest.mark.parametrize("status", [OVERLOADED, DEADLINE_PASSED])
def test_a_picture_refused_for_lack_of_room_is_sent_again_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    """The server has room for one request; the last picture finds none even alone."""
    total = 2 * IN_FLIGHT
    paths = files(tmp_path / "photos", [*range(total), f"status {status}"])

    def script(connection: Connection) -> None:
        described(connection)
        requests = [connection.request() for _ in range(IN_FLIGHT)]
        for request in requests:
            text = b"the server is full"
            connection.send(reply(request.id, text, status=status))
        connection.send(answer(connection.request()))
        while True:
            connection.send(answer(connection.request()))

    with Peer((script,)) as peer:
        assert main(["predict", str(tmp_path / "photos"), "--port", str(peer.port), "--json"]) == 1
    captured = capsys.readouterr()
    found = [json.loads(line) for line in captured.out.splitlines()]
    assert [entry["classes"][0]["class"] for entry in found] == [*range(total)]
    assert captured.err == f"lumen: {paths[-1]}: picture 1: is bad\n"


@pytest.mark.parametrize("status", [UNAUTHORISED, SHUTTING_DOWN])
def test_what_concerns_all_pictures_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    """What was answered before is shown and written."""
    paths = files(tmp_path / "photos", [3, f"status {status}", *[5] * 40])
    out = tmp_path / "out.csv"
    with Peer((one_by_one,)) as peer:
        options = ["--port", str(peer.port), "--csv", str(out), "--top", "1"]
        assert main(["predict", str(tmp_path / "photos"), *options]) == 1
    captured = capsys.readouterr()
    assert "lumen: picture 1: is bad" in captured.err
    assert captured.out.splitlines()[1].split()[:3] == [paths[0], "class", "3"]
    assert "1 picture in" in captured.out.splitlines()[2]
    assert [row["path"] for row in rows(out)] == [paths[0]]


def test_a_row_for_a_name_that_is_no_text(tmp_path: Path) -> None:
    with rows_of(str(tmp_path / "rows.csv")) as write:
        write(Failure("b\ufffd.jpg", "b\udcff.jpg is no readable picture"))
    assert "b?.jpg is no readable picture" in (tmp_path / "rows.csv").read_text()


def test_the_scores_are_the_first_numbers() -> None:
    names = [SimpleNamespace(name=name) for name in ("label", "scores")]
    outputs = {"label": np.array(["cat"], object), "scores": np.array([[0.25, 0.75]])}
    model: Any = SimpleNamespace(name="m", outputs=names)
    result: Any = SimpleNamespace(outputs=outputs)
    assert _scores(model, result).tolist() == [0.25, 0.75]
    model.outputs = names[:1]
    with pytest.raises(BadRequest, match="answers with strings alone"):
        _scores(model, result)


def test_one_picture_has_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = files(tmp_path / "photos", [1])
    with Peer((one_by_one,)) as peer:
        assert main(["predict", path, "--port", str(peer.port), "--top", "2"]) == 0
    first, *classes, _prepared = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}: ")
    assert first.endswith("of which the model took 0.00 ms")
    assert classes == ["       1    0.75000  one, or so", "       2    0.25000"]


def test_the_progress_is_for_terminals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(terminal: bool, several: bool, as_json: bool) -> bool:
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda: terminal, raising=False)
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", screen)
            progress = predict._progress(several, as_json)
        assert isinstance(progress, Progress)
        return not progress.disable

    assert shown(True, True, False)
    assert not shown(False, True, False)
    assert not shown(True, False, False)
    assert not shown(True, True, True)


def test_where_the_csv_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = files(tmp_path / "photos", [1])
    out = tmp_path / "none" / "out.csv"
    with Peer((one_by_one,)) as peer:
        assert main(["predict", path, "--port", str(peer.port), "--csv", str(out)]) == 2
        said = capsys.readouterr().err
        assert said == (
            f"lumen: --csv {out}: expected a file to write, found: No such file or directory.\n"
        )
        assert main(["predict", path, "--port", str(peer.port), "--csv", "/dev/full"]) == 2
        assert "found: No space left on device." in capsys.readouterr().err
    assert main(["predict", "--input", "1", "--csv", str(out)]) == 2
    assert capsys.readouterr().err == (
        "lumen: --csv: expected it with pictures, found --input.\n"
    )  # fmt: skip


def test_a_name_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files(tmp_path / "photos", [1, 2])
    os.rename(tmp_path / "photos" / "000.jpg", os.fsencode(tmp_path / "photos") + b"/\xff.jpg")
    out = tmp_path / "out.csv"
    with Peer((one_by_one,)) as peer:
        options = ["--port", str(peer.port), "--csv", str(out), "--top", "1"]
        assert main(["predict", str(tmp_path / "photos"), *options]) == 0
        assert main(["predict", str(tmp_path / "photos"), *options, "--json"]) == 0
    assert "\N{REPLACEMENT CHARACTER}.jpg" in capsys.readouterr().out
    assert {Path(row["path"]).name for row in rows(out)} == {
        "001.jpg",
        "\N{REPLACEMENT CHARACTER}.jpg",
    }


def test_a_folder_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str | Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    assert main(["predict", str(tmp_path), "--port", "1"]) == 1
    assert capsys.readouterr().err == f"lumen: {tmp_path} cannot be read: Permission denied.\n"


def test_the_table_names_ten_failures_at_most() -> None:
    good = Prediction("a", ((7, 0.5, None),), 10, 1500, 900)
    empty = Prediction("b", (), 0, 1500, 900)
    bad = [Failure(f"f{number}", "it is bad") for number in range(12)]
    lines = predict.table([good, empty, *bad[:10]], 2)
    assert lines[2].split() == ["b", "none", "1.50"]
    assert lines[-1].endswith("10 failed: " + ", ".join(f"f{number}" for number in range(10)))
    assert predict.table([good, *bad], 0)[-1].endswith("12 failed: " + ", ".join(
        f"f{number}" for number in range(10)
    ) + " and 2 more")  # fmt: skip
