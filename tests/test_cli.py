"""The commands as a person runs them: output, exit status, and never a traceback."""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import io
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peer import Connection, Peer, reply
from PIL import Image
from rich.console import Console
from test_stats import HEADER, build

from lumen_uring.cli import main, make_parser
from lumen_uring.commands import stats as stats_command
from lumen_uring.commands.predict import _show as show
from lumen_uring.commands.predict import preprocessing
from lumen_uring.errors import ConfigError, Unauthorised, UnknownModel
from lumen_uring.metrics import stats_words
from lumen_uring.options import credential_of, token_of
from lumen_uring.predict.pictures import Prediction
from lumen_uring.protocol.describe import ImageInfo, Model, Rgb8Info, TensorInfo
from lumen_uring.ring import stats
from lumen_uring.ring.snapshot import Snapshot, ThreadStats
from lumen_uring.serving import doctor as checks
from lumen_uring.serving.server import Checked

ROOT = Path(__file__).resolve().parents[1]

DOCUMENT: dict[str, Any] = {
    "server": {"name": "lumen", "version": "0.1.0", "protocol": 1},
    "models": [
        {
            "index": 0,
            "name": "grey",
            "max_rows": 512,
            "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 4, 6]}],
            "outputs": [
                {"name": "scores", "datatype": "FP32", "shape": [-1, 3], "shape_known": True}
            ],
            "rgb8": None,
        },
        {
            "index": 1,
            "name": "colour",
            "max_rows": 512,
            "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 4, 6]}],
            "outputs": [
                {"name": "scores", "datatype": "FP32", "shape": [-1, 3], "shape_known": True}
            ],
            "rgb8": {
                "height": 4,
                "width": 6,
                "layout": "NCHW",
                "channel_order": "BGR",
                "mean": [1, 2, 3],
                "scale": [0.5, 0.5, 0.5],
            },
            "labels": ["red", "", "blue"],
        },
        {
            "index": 2,
            "name": "table",
            "max_rows": 512,
            "inputs": [{"name": "row", "datatype": "FP32", "shape": [-1, 9]}],
            "outputs": [
                {"name": "scores", "datatype": "FP32", "shape": [-1, 3], "shape_known": True}
            ],
            "rgb8": None,
        },
    ],
}


def mean_of_pixels(connection: Connection) -> None:
    """Scores: grey gives the mean of all pixels; colour the mean of each channel."""
    while True:
        request = connection.request()
        if request.kind == 3:
            connection.send(reply(request.id, json.dumps(DOCUMENT).encode()))
            continue
        if request.model == 0:
            pixels = np.frombuffer(request.payload, "<f4")
            assert pixels.size == 24
            scores = np.array([pixels.mean(), -1, -2], "<f4")
        else:
            assert request.encoding == 1
            pixels = np.frombuffer(request.payload, np.uint8).reshape(4, 6, 3)
            scores = pixels.mean(axis=(0, 1)).astype("<f4")
        connection.send(reply(request.id, scores.tobytes(), rows=1))


@pytest.fixture
def port() -> Iterator[str]:
    with Peer((mean_of_pixels,)) as peer:
        yield str(peer.port)


def picture(path: Path, colour: tuple[int, ...] = (10, 200, 30), mode: str = "RGB") -> str:
    Image.new(mode, (60, 40), colour if len(colour) > 1 else colour[0]).save(path)
    return str(path)


def test_help_needs_no_library(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (
        ["--help"],
        ["serve", "--help"],
        ["predict", "--help"],
        ["stats", "--help"],
        ["top", "--help"],
        ["key", "--help"],
        ["health", "--help"],
        ["doctor", "--help"],
        ["inspect", "--help"],
        ["--version"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 0
        assert "lumen" in capsys.readouterr().out


def test_wrong_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["bogus"], ["inspect"], ["stats", "--port", "0"], ["--bogus"]):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 2
        assert "error:" in capsys.readouterr().err


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lumen_uring", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=60,
    )


def test_serve_tells_every_wrong_setting_and_no_traceback() -> None:
    done = run("--set", "server.port=x", "--set", "engine.idle=never")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "lumen: --set server.port: expected a port number, 0..65535, found 'x'",
        "--set engine.idle: expected adaptive | spin | yield | park, found 'never'",
    ]


def test_serve_host_and_port_are_settings() -> None:
    done = run("serve", "--host", "nowhere", "--port", "70000")
    assert done.returncode == 2
    assert "--set server.host: expected an IPv4 or IPv6 address" in done.stderr
    assert "--set server.port: expected a port number, 0..65535, found 70000" in done.stderr


def test_serve_unix_socket_is_a_setting() -> None:
    done = run("serve", "--unix-socket", f"/{'it' * 60}'s # a: path")
    assert done.returncode == 2
    assert done.stderr.startswith("lumen: --set server.unix_socket: expected null, or a path")
    assert 'found "/itit' in done.stderr  # quoted so for the ' in it


def test_serve_image_wants_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--image", "imagenet"]) == 2
    assert capsys.readouterr().err == (
        "lumen: --image imagenet: expected a model on the command line, such as `lumen MODEL.onnx "
        "--image imagenet`, found none; in a file write image: {preset: imagenet}.\n"
    )


def test_serve_without_model_file_or_library() -> None:
    done = run("--model", "a=/no/such.onnx")
    assert done.returncode == 2
    assert "/no/such.onnx does not exist" in done.stderr
    done = run(LUMEN_LIBRARY="/no/such.so")
    assert done.returncode == 1
    assert done.stderr == (
        "lumen: LUMEN_LIBRARY names /no/such.so, which is no file: correct it.\n"
    )


def test_predict_grey(port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = picture(tmp_path / "a.png", (70,), "L")
    labels = tmp_path / "labels.txt"
    labels.write_bytes(b"mean\r\nother\n")
    argv = ["predict", path, "--port", port, "--model", "grey", "--labels", str(labels), "--json"]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == path
    assert found["classes"] == [
        {"class": 0, "score": 70.0, "label": "mean"},
        {"class": 1, "score": -1.0, "label": "other"},
        {"class": 2, "score": -2.0, "label": None},
    ]
    assert found["infer_us"] == 4
    assert found["round_trip_us"] > 0


def test_predict_a_folder_in_colour(
    port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture(tmp_path / "b.png")
    picture(tmp_path / "a.JPG")
    (tmp_path / "notes.txt").write_text("no picture")
    argv = ["predict", str(tmp_path), "--port", port, "--model", "colour", "--top", "1"]
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "a.JPG" in lines[1]
    assert lines[2].split()[:-1] == [str(tmp_path / "b.png"), "class", "1", "200.00000"]
    assert lines[3].startswith("2 pictures in ")
    assert lines[4] == (
        "colour: pictures are scaled as a whole to 6 x 4, not cropped; the server computes "
        "(value - mean) * scale in the order BGR, mean [1, 2, 3], scale 0.5"
    )


def test_predict_shows_the_servers_labels(
    port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["predict", picture(tmp_path / "a.png", (200, 10, 30)), "--port", port, "--json"]
    assert main([*argv, "--model", "colour"]) == 0
    captured = capsys.readouterr()
    assert [entry["label"] for entry in json.loads(captured.out)["classes"]] == [
        "red",
        "blue",
        None,
    ]
    assert captured.err == ""
    own = tmp_path / "own.txt"
    own.write_text("a\u2028b\r\nc\r\n")
    assert main([*argv, "--model", "colour", "--labels", str(own)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["classes"][0]["label"] == "a\u2028b"
    assert captured.err == "lumen: note: 2 labels for 3 classes\n"
    own.write_text("a\nb\nc\nd\n")
    assert main([*argv, "--model", "colour", "--labels", str(own)]) == 0
    assert capsys.readouterr().err == "lumen: note: 4 labels for 3 classes\n"


def test_what_predict_says_of_a_picture() -> None:
    def model(datatype: str, info: Rgb8Info | None) -> Model:
        return Model(0, "m", 1, (TensorInfo("x", datatype, (1, 3, 4, 6), True),), (), info)

    plain = Rgb8Info(4, 6, "RGB", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    assert "these are the defaults: set the model's channel_order, mean" in preprocessing(
        model("FP32", plain)
    )
    # One value that the server's owner has set is enough: the note would be wrong.
    for values in (
        ("BGR", plain.mean, plain.scale),
        ("RGB", (0.0, 1.0, 0.0), plain.scale),
        ("RGB", plain.mean, (1.0, 1.0, 0.5)),
    ):
        text = preprocessing(model("FP32", Rgb8Info(4, 6, *values)))
        assert "these are the defaults" not in text
        assert f"in the order {values[0]}, mean" in text
    assert preprocessing(model("UINT8", plain)).endswith("the model gets RGB values of 0..255")
    assert preprocessing(model("FP32", None)).startswith("m: pictures become grey")
    assert preprocessing(model("FP32", Rgb8Info(4, 6))).endswith("to 6 x 4, not cropped")


def test_what_predict_says_of_a_file() -> None:
    """Also of a model that takes no pixels, such as one of FP16."""
    ones = (1.0, 1.0, 1.0)

    def said(datatype: str, mean: tuple[float, ...]) -> str:
        image = ImageInfo(4, 6, "NCHW", "RGB", mean, ones, "stretch", "box", 0, 114, 99)
        inputs = (TensorInfo("x", datatype, (1, 3, 4, 6), True),)
        return preprocessing(Model(0, "m", 1, inputs, (), None, image=image))

    begin = "m: the server decodes the file: stretched to 6 x 4 (box), rgb, "
    assert said("FP16", ones) == f"{begin}(value - 1) * 1"
    assert said("INT8", (0.0, 0.0, 0.0)) == f"{begin}-128..127"
    plain = said("FP32", (0.0, 0.0, 0.0))
    assert plain.startswith(f"{begin}0..255\n  these are the defaults: ")


def test_predict_goes_on_after_a_bad_picture(
    port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"\x89PNG\r\n\x1a\nno more")
    good = picture(tmp_path / "good.png")
    missing = str(tmp_path / "missing.png")
    argv = ["predict", str(bad), missing, good, "--port", port, "--model", "colour"]
    assert main(argv) == 1
    captured = capsys.readouterr()
    assert "bad.png is no readable picture" in captured.err
    assert "missing.png is no readable picture: No such file" in captured.err
    assert "good.png" in captured.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("x.png",), "choose one with --model NAME"),
        (("x.png", "--model", "nope"), "it has ['grey', 'colour', 'table']"),
        (("{picture}", "--model", "table"), "takes no pictures"),
        (("{empty}", "--model", "grey"), "No picture"),
        (("x.png", "--labels", "/no/labels"), "cannot be read"),
    ],
)
def test_predict_says_what_to_do(
    port: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    says: str,
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"picture": picture(tmp_path / "a.png"), "empty": str(tmp_path / "empty")}
    argv = ["predict", "--port", port, *(text.format(**places) for text in arguments)]
    assert main(argv) == 1
    assert says in capsys.readouterr().err


def test_predict_wants_pictures_or_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    for options, found in ([], "neither"), (["x.png", "--input", "1"], "both"):
        assert main(["predict", *options]) == 2
        said = capsys.readouterr().err
        assert said == f"lumen: predict: expected pictures or --input VALUE, found {found}.\n"


def test_a_token_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    monkeypatch.setenv("LUMEN_TOKEN", "se cret")
    for options, says in [
        (["--token", "se cret"], "--token: expected a token of visible ASCII characters"),
        (["--token", ""], "--token: expected a token"),
        (["--token", "s" * 33], "at most 32 characters, found 33; longer ones work over HTTP"),
        (["--token-file", str(empty)], "empty: expected a token"),
        (["--token-file", str(binary)], "found: it is no text"),
        (["--token-file", str(tmp_path)], "found: Is a directory"),
        ([], "LUMEN_TOKEN: expected a token"),
    ]:
        assert main(["predict", "x.png", "--port", "1", *options]) == 2
        said = capsys.readouterr().err
        assert says in said
        assert "se cret" not in said


@pytest.fixture
def stats_port() -> Iterator[str]:
    # A real place in /dev/shm, under a number that no test's server gets from the kernel.
    for number in range(1 + os.getpid() % 500, 1024):
        path = Path(f"/dev/shm/lumen-{number}")
        with suppress(FileExistsError), path.open("x+b") as file:
            file.write(build(port=number))
            file.flush()
            lock = struct.pack("hhlli", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)  # as its server would hold it
            yield str(number)
            break
    path.unlink()


def test_stats_of_a_killed_server(stats_port: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its file is left, and may name any process: this one, or process 1 of a container."""
    path = Path(f"/dev/shm/lumen-{stats_port}")
    held = path.rename(path.with_name(f"{path.name}-held"))
    try:
        for process in (1, os.getpid(), 42):
            path.write_bytes(build(port=int(stats_port), pid=process))
            assert main(["stats", "--port", stats_port]) == 1
            out, err = capsys.readouterr()
            assert f"pid {process}, killed" in out
            assert "No server with port" in err
            assert main(["stats", "--port", stats_port, "--json"]) == 1
            assert json.loads(capsys.readouterr().out)["alive"] is False
            assert main(["stats", "--port", stats_port, "--watch", "--json"]) == 1
            assert "No server with port" in capsys.readouterr().err
    finally:
        held.rename(path)


def test_stats_as_json(stats_port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--port", stats_port, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["alive"] is True
    assert found["counters"] == {"io": {"requests": 10}, "worker": {"requests": 9}}
    assert found["stages"]["total"]["count"] == 4 + 2**40
    assert set(found["stages"]["total"]) == {"count", "mean_us", "p50_us", "p99_us", "p999_us"}
    assert [
        (thread["role"], thread["index"], thread["cpu"], thread["tid"])
        for thread in found["threads"]
    ] == [("io", 0, -1, 100), ("worker", 0, 6, 100), ("worker", 1, 7, 101)]
    assert found["threads"][0]["gauges"] == {"connections_open": 3}
    assert [thread["counters"] for thread in found["threads"]] == [
        {"requests": 10}, {"requests": 4}, {"requests": 5},
    ]  # fmt: skip
    assert found["models"]["digits"] == {
        "requests": 6,
        "errors": 0,
        "refused": 0,
        "ok": 6,
        "infer_ns": 9000,
        "last_ms": 7,
        "mean_infer_us": 1.5,
    }
    assert found["models"]["b"]["errors"] == 2
    assert found["models"]["b"]["mean_infer_us"] is None


def test_stats_as_a_table(stats_port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--port", stats_port]) == 0
    out = capsys.readouterr().out
    assert "ready" in out
    assert "1,099,511,627,780" in out
    stage = next(line for line in out.splitlines() if line.strip().startswith("total"))
    assert "from the request's first byte to the end of the reply" in stage
    assert "requests whose complete header was read" in out
    # Counters that are 0 are shown with --all.
    assert "sleeps" not in out
    assert main(["stats", "--port", stats_port, "--all"]) == 0
    row = next(line.split() for line in out.splitlines() if line.strip().startswith("digits"))
    assert row == ["digits", "6", "0", "0", "-", "1.5"]


def second_of(earlier: Snapshot, seconds: int) -> Snapshot:
    """A later reading, in which every counter has grown by 3 a second, and gauges by 7."""

    def grown(values: dict[str, dict[str, int]], by: int) -> dict[str, dict[str, int]]:
        return {
            role: {name: value + by * seconds for name, value in of_role.items()}
            for role, of_role in values.items()
        }

    def thread_then(thread: ThreadStats) -> ThreadStats:
        total = thread.histograms["total"]
        counts = total.counts.copy()
        counts[4] += np.uint64(5 * seconds)
        return dataclasses.replace(
            thread,
            counters={name: value + 3 * seconds for name, value in thread.counters.items()},
            gauges={name: value + 7 * seconds for name, value in thread.gauges.items()},
            model_counters=grown(thread.model_counters, 3),
            model_gauges=grown(thread.model_gauges, 7),
            histograms={"total": dataclasses.replace(total, counts=counts)},
        )

    threads = tuple(map(thread_then, earlier.threads))
    return dataclasses.replace(earlier, threads=threads, is_alive=True)


@pytest.mark.parametrize("as_json", [False, True])
def test_watching_shows_what_each_second_brought(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    as_json: bool,
) -> None:
    """The rates between two readings, each counted from the one before and not from the first."""
    (tmp_path / "stats").write_bytes(build())
    first = dataclasses.replace(stats.read(tmp_path / "stats"), is_alive=True)
    dead = dataclasses.replace(first, is_alive=False)
    readings = iter([first, second_of(first, 1), second_of(first, 3), dead])
    slept: list[float] = []
    shown: list[str] = []

    class Live:
        def __init__(self, tables: object, auto_refresh: bool) -> None:
            assert not auto_refresh
            self.update(tables)

        def __enter__(self) -> Live:
            return self

        def __exit__(self, *_error: object) -> None:
            pass

        def update(self, tables: Any, refresh: bool = True) -> None:
            assert refresh
            console = Console(width=120, file=io.StringIO())
            console.print(tables)
            shown.append(console.file.getvalue())  # type: ignore[attr-defined]

    monkeypatch.setattr(stats, "read", lambda _path: next(readings))
    monkeypatch.setattr("rich.live.Live", Live)
    monkeypatch.setattr("time.sleep", slept.append)
    options = ["--json"] if as_json else []
    assert main(["stats", "--port", "8000", "--watch", *options]) == 1
    out, err = capsys.readouterr()
    assert "No server with port 8000 runs here: these are the last figures of process 42" in err
    assert slept == [1.0] * 3
    if as_json:
        lines = [json.loads(line) for line in out.splitlines()]
        for line, seconds, opened in zip(lines, (1, 2), (10, 24), strict=True):
            assert line["alive"] is True
            assert line["counters"] == {
                "io": {"requests": 3 * seconds}, "worker": {"requests": 2 * 3 * seconds},
            }  # fmt: skip
            assert line["gauges"]["io"] == {"connections_open": opened}
            assert line["stages"]["total"]["count"] == 3 * 5 * seconds
            assert line["models"]["b"]["ok"] == 2 * 3 * seconds
            assert line["models"]["digits"]["mean_infer_us"] == 0.001  # 3 ns of each answer
        return
    assert len(shown) == 3
    rows = [
        {cells[1]: cells[2] for cells in map(str.split, text.splitlines()) if cells[:1] == ["io"]}
        for text in shown
    ]
    assert rows == [
        {"requests": "10", "connections_open": "3"},
        {"requests": "3", "connections_open": "10"},
        {"requests": "6", "connections_open": "24"},
    ]


def test_the_whole_table_of_stats(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "stats").write_bytes(build())
    reading = dataclasses.replace(
        stats.read(tmp_path / "stats"),
        is_alive=True,
        counters={"io": {"requests": 1_234_567, "bytes_in": 0}, "worker": {"odd_one": 5}},
        gauges={"io": {"in_flight": 2, "slots_in_use": 0}, "worker": {}},
        histograms={},
        models={"m": {"ok": 1000, "rows": 2000, "failed": 5, "queue_ns": 1_234_567, "infer_ns": 9}},
    )
    console = Console(width=120)
    console.print(stats_command._tables(reading, False))
    console.print(stats_command._tables(reading, True))
    text = capsys.readouterr().out
    short, long = text.split("Lumen on port 8000, pid 42, ready\n")[1:]
    for part in (short, long):
        assert ["m", "1,005", "2,000", "5", "1.2", "0.0"] in map(str.split, part.splitlines())
    figures = [" ".join(line.split()) for line in long.splitlines()[-6:]]
    assert figures == [
        "thread figure value",
        "io in_flight 2 requests that hold a slot now",
        "io slots_in_use 0 slots in use now (a slot is the memory of one request)",
        "io requests 1,234,567 requests whose complete header was read",
        "io bytes_in 0 bytes received",
        "worker odd_one 5",
    ]
    assert [" ".join(line.split()) for line in short.splitlines()[-4:]] == [
        figures[0], figures[1], figures[3], figures[5],
    ]  # fmt: skip


def test_each_figure_is_explained_as_itself() -> None:
    """A word of each explanation that no other figure of its kind has."""
    told = {
        "native_requests": "native", "http_requests": "HTTP/1.1", "http2_requests": "HTTP/2",
        "grpc_requests": "gRPC",
        "requests_unknown_model": "(status 2)",
        "requests_unauthorised": "(status 6)", "requests_overloaded": "(status 4)",
        "requests_late": "(status 5)", "requests_limited": "(status 7)",
        "requests_draining": "(status 9)", "requests_expired": "(status 5)",
        "requests_bad": "(status 1)", "requests_too_large": "(status 3)",
        "requests_unready": "readiness", "requests_gone": "disconnected",
        "connections_accepted": "accepted", "connections_closed": "closed, by either",
        "connections_refused": "max_connections", "connections_crowded": "per_address",
        "tls_full": "handshakes", "tls_resumed": "came back", "tls_plain": "speak TLS",
        "tls_refused": "refused", "tls_unknown_clients": "client's certificate",
        "tls_late": "too slow", "tls_left": "in the middle", "tls_failed": "in common",
        "tls_crowded": "per_address",
        "upstream_requests": "requests for models", "upstream_ok": "passed on",
        "upstream_failed": "no answer", "upstream_gone": "client left",
        "upstream_fallen": "another model", "upstream_spills": "too busy",
        "upstream_bytes": "bytes", "upstream_retries": "sent again",
        "upstream_dials": "asked for", "upstream_undialed": "could not be had",
        "upstream_ejections": "left alone", "upstream_connections": "open now",
        "upstream_in_flight": "have now",
        "connections_timed_out": "too slow", "connections_evicted": "held memory",
        "connections_unparked": "descriptor again", "bytes_in": "received", "bytes_out": "sent",
        "slot_waits": "for a slot", "body_waits": "for their body",
        "header_buffers_starved": "header buffer", "replies_queued": "replies",
        "ring_overflows": "ring",
        "connections_open": "open now", "connections_parked": "without a file descriptor",
        "in_flight": "hold a slot now", "slots_in_use": "slots", "worker_hangs": "hang_seconds",
        "rows": "rows", "runs": "calls", "batches": "several requests",
            "runs_wide": "idle workers", "requests_stolen": "another NUMA node",
            "batches_failed": "failed",
        "log_lines_lost": "could not be written", "sleeps": "slept",
        "regions": "regions of memory", "region_bytes": "bytes of these",
        "arena_kept_bytes": "of the run arena", "string_allocations": "tensors of strings",
        "traces_dropped": "too slowly", "requests": "complete header was read",
        "cache_hits": "answered from", "cache_misses": "no answer", "cache_evictions": "made room",
        "cache_entries": "answers in", "cache_bytes": "bytes that",
    }  # fmt: skip
    ends = {
        ("io", "requests_ok"): "without a Run", ("worker", "requests_ok"): "by a model",
        ("io", "requests_error"): "not allowed", ("worker", "requests_error"): "with an error",
        ("io", "requests_refused"): "could not serve them",
    }  # fmt: skip
    for place, text in stats_words.FIGURES.items():
        assert ends.get(place) or told[place[1]] in text, place
        assert ends.get(place, "") in text, place
    stages = {
        "receive": "last", "queue": "worker", "preprocess": "tensors", "infer": "ONNX",
        "send": "kernel", "total": "reply",
    }  # fmt: skip
    assert {name: word for name, word in stages.items() if word in stats_words.STAGES[name]} == (
        stages
    )


def test_stats_without_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "--port", "1"]) == 1
    assert "no server with this port runs here" in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_no_traceback(stats_port: str, unbuffered: str) -> None:
    """Whether each line meets the closed pipe, or all of them at the end."""
    done = subprocess.run(
        f"{sys.executable} -m lumen_uring stats --json --port {stats_port} | true",
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("command", ["stats --json", "stats", "top", "inspect", "doctor"])
def test_an_output_that_is_full_or_closed_is_no_traceback(stats_port: str, command: str) -> None:
    where = {"stats": f"--port {stats_port}", "top": f"--port {stats_port}"}
    rest = {**where, "inspect": "builtin:digits"}.get(command.split()[0], "")
    line = f"timeout 60 {sys.executable} -m lumen_uring {command} {rest}"
    for output, status in ((">/dev/full", 1), (">&-", 0)):
        done = subprocess.run(
            f"{line} {output}",
            shell=True,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=60,
        )
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr
        if command != "doctor":  # whose status is what it found
            assert done.returncode == status, done.stderr
        if status:
            assert "expected room for all that the command writes" in done.stderr


@pytest.mark.parametrize("command", ["inspect", "quantize", "export"])
@pytest.mark.parametrize("path", ["x" * 300, "~nobody-of-this-name/x"])
def test_a_path_that_cannot_be_is_no_traceback(
    command: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, path]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lumen: ")
    assert "expected" in line or "does not exist" in line
    if path.startswith("x"):
        assert path[:40] in line


def test_doctor_gives_a_cure_for_every_problem(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    names = [finding["name"] for finding in findings]
    assert {"kernel", "io_uring", "engine", "memlock", "huge pages", "NUMA", "cgroup"} <= set(names)
    problems = [finding for finding in findings if finding["level"] == "problem"]
    assert all(finding["cure"] for finding in problems)
    assert status == (1 if problems else 0)
    assert main(["doctor"]) == status
    assert len(capsys.readouterr().out.splitlines()) >= len(findings)


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", 0, ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", 1, "found: 503"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 1, "found: 204"),
        (b"", 1, "found: a connection that ended at once"),
        (b"SSH-2.0-x\r\n", 1, "found: b'SSH-2.0-x"),
        (None, 1, "found: timed out"),
    ],
)
def test_health(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes | None,
    status: int,
    said: str,
) -> None:
    asked = []
    silent = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                asked.append(peer.recv(4096).decode())
                if answer is None:
                    silent.wait(60)
                else:
                    peer.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        # As a container has it: one variable for the server and its check.
        monkeypatch.setenv("LUMEN_SERVER__PORT", str(listener.getsockname()[1]))
        assert main(["health", "--ready", *(["--timeout", "0.2"] if answer is None else [])]) == (
            status
        )
        silent.set()
        server.join(60)
    assert asked[0].startswith("GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n")
    said_there = capsys.readouterr().err
    assert (said_there == "") == (said == "")
    assert said in said_there


@pytest.mark.parametrize(
    ("options", "question", "answer", "said"),
    [
        (["--timeout", "60"], "live", b"HTTP/1.1 200 OK\r\n", ""),
        (
            ["--ready", "--timeout", "60"],
            "ready",
            b"HTTP/1.1 400 Bad\r\n",
            "is not ready: expected HTTP 200, found: 400",
        ),
        (["--timeout", "0.2"], "live", None, "is not live: expected HTTP 200, found: timed out"),
        (["--timeout", "0.2"], "live", b"HTTP/1.1 2", "found: timed out"),  # and no more of it
    ],
)
def test_health_over_a_unix_socket(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: list[str],
    question: str,
    answer: bytes | None,
    said: str,
) -> None:
    path = tmp_path / "s"
    asked: list[bytes] = []
    done = threading.Event()

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            asked.append(peer.recv(4096))
            with suppress(ConnectionError):  # it may have gone already
                peer.sendall(answer or b"")
            done.wait(30)  # a client without a deadline would wait for this

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        server = threading.Thread(target=serve)
        server.start()
        assert main(["health", "--host", f"unix:{path}", *options]) == (1 if said else 0)
        done.set()
        server.join(60)
    fields = "Host: localhost\r\nConnection: close"
    assert asked == [f"GET /v2/health/{question} HTTP/1.1\r\n{fields}\r\n\r\n".encode()]
    err = capsys.readouterr().err
    assert (err == "") == (said == "")
    assert said in err
    assert not said or err.startswith(f"lumen: unix:{path} is not ")


def test_an_empty_variable_is_no_port_of_health(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, port in (("", 8000), ("8123", 8123)):
        monkeypatch.setenv("LUMEN_SERVER__PORT", value)
        assert make_parser().parse_args(["health"]).port == port


def test_what_health_takes_for_a_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LUMEN_SERVER__PORT", raising=False)
    for text in ("0", "-1", "nan", "3600.1", "inf", "soon"):
        with pytest.raises(SystemExit):
            main(["health", "--timeout", text])
        assert f"expected seconds above 0, at most 3600, found {text!r}" in capsys.readouterr().err
    parser = make_parser()
    for given, found in (("3600", 3600), ("0.001", 0.001), (None, 2.0)):
        options = [] if given is None else ["--timeout", given]
        arguments = parser.parse_args(["health", *options])
        assert (arguments.timeout, arguments.port, arguments.host) == (found, 8000, "127.0.0.1")
    times: list[object] = []

    def refuse(*given: object) -> socket.socket:
        times.append(given)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert main(["health", "--host", "::1", "--port", "9", "--timeout", "77"]) == 1
    assert times == [(("::1", 9), 77.0)]


def test_ports_and_counts_at_their_limits(capsys: pytest.CaptureFixture[str]) -> None:
    parser = make_parser()
    for option, most in (("--port", 65535), ("--top", 2**31 - 1)):
        name = option.removeprefix("--")
        for good in (1, most):
            arguments = parser.parse_args(["predict", "x.png", option, str(good)])
            assert getattr(arguments, name) == good
        for bad in ("0", str(most + 1), "-1", "1.5", "\u0661", ""):
            with pytest.raises(SystemExit):
                parser.parse_args(["predict", "x.png", option, bad])
            assert f"found {bad!r}" in capsys.readouterr().err


def test_where_a_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option before the environment; blanks around a file's token do not count."""
    path = tmp_path / "token"
    path.write_text("\n  of-the-file \n")
    parser = make_parser()
    monkeypatch.setenv("LUMEN_TOKEN", "of-the-environment")
    for options, token in (
        (["--token", "of-the-option"], "of-the-option"),
        (["--token-file", str(path)], "of-the-file"),
        ([], "of-the-environment"),
    ):
        arguments = parser.parse_args(["predict", "x.png", *options])
        assert token_of(arguments) == token
        assert credential_of(arguments) == token.encode().ljust(32, b"\0")
    monkeypatch.setenv("LUMEN_TOKEN", "")
    assert token_of(parser.parse_args(["predict", "x.png"])) is None
    assert credential_of(parser.parse_args(["predict", "x.png"])) == b""
    with pytest.raises(SystemExit):
        parser.parse_args(["predict", "x.png", "--token", "a", "--token-file", "b"])


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, ""),
        (ConfigError("no such setting"), 2, "lumen: no such setting\n"),
        (UnknownModel("no such model"), 1, "lumen: no such model\n"),
        (
            Unauthorised("no key"),
            1,
            "lumen: no key\nlumen: give the token with --token-file FILE, or in LUMEN_TOKEN.\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_each_end_has_its_status_and_its_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | None,
    status: int,
    said: str,
) -> None:
    def run(arguments: argparse.Namespace) -> int:
        assert arguments.port == 77
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr(stats_command, "run", run)
    assert main(["stats", "--port", "77"]) == status
    assert capsys.readouterr() == ("", said)


def test_without_a_command_lumen_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An option in front belongs to serve; --host, --port and the socket are settings."""
    given: list[tuple[object, ...]] = []
    folder = str(tmp_path)

    def load(
        path: object, overrides: object, models: object, _environment: object, folders: object
    ) -> object:
        given.append((path, overrides, models, folders) if folders else (path, overrides, models))
        return "a config"

    def serve(config: object, reread: Callable[[], object]) -> int:
        assert (config, reread()) == ("a config", "a config")
        return 7

    monkeypatch.setattr("lumen_uring.config.load", load)
    monkeypatch.setattr("lumen_uring.serving.server.run", serve)
    for argv, expected in (
        ([], (None, [], [])),
        (["--config", "c.yaml"], ("c.yaml", [], [])),
        (["serve", "--model", "a=b", "--set", "x=1"], (None, ["x=1"], ["a=b"])),
        (
            ["a.onnx", "--image", "yolo", "--set", "models.1.image.fit=stretch", "--model", "b=c"],
            (
                None,
                [
                    "models.0.image.preset=yolo",
                    "models.1.image.preset=yolo",
                    "models.1.image.fit=stretch",
                ],
                ["b=c", "a=a.onnx"],
            ),
        ),
        (
            ["--set", "x=1", "--host", "::1", "--port", "9", "--unix-socket", "/it's"],
            (
                None,
                ["x=1", "server.host='::1'", "server.port=9", "server.unix_socket='/it''s'"],
                [],
            ),
        ),
        (
            [folder, "a.onnx", "--model-repository", "more"],
            (None, [], ["a=a.onnx"], ["more", folder]),
        ),
    ):
        given.clear()
        assert main(argv) == 7
        assert given == [expected, expected]


@pytest.mark.parametrize("fails", [False, True])
def test_serve_check_serves_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: bool
) -> None:
    def check(_config: object) -> Checked:
        if fails:
            raise UnknownModel("a is no model")
        return Checked(["model a: /a.onnx", "note: it is not kept"], [])

    monkeypatch.setattr("lumen_uring.serving.server.check", check)
    monkeypatch.setattr("lumen_uring.serving.server.run", None)
    assert main(["serve", "--check"]) == (1 if fails else 0)
    assert capsys.readouterr() == (
        ("", "a is no model\n")
        if fails
        else (
            "model a: /a.onnx\nnote: it is not kept\nThe settings and the models are right.\n",
            "",
        )
    )


def test_serve_check_fails_where_a_model_is_not_served(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though the server would start, without it."""
    found = Checked(["model a: /a.onnx"], ["not served: b: it is no model"])
    monkeypatch.setattr("lumen_uring.serving.server.check", lambda _config: found)
    assert main(["serve", "--check"]) == 1
    assert capsys.readouterr() == (
        "model a: /a.onnx\nnot served: b: it is no model\n",
        "The server starts without what cannot be served.\n",
    )


def test_what_doctor_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [
        checks.Finding("ok", "one", "all of it"),
        checks.Finding("note", "the other", "slow", "Make it fast."),
        checks.Finding("note", "two", "slower"),
    ]
    monkeypatch.setattr(checks, "check_all", lambda _machine: findings)
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok       one        all of it",
        "note     the other  slow",
        "                    -> Make it fast.",
        "note     two        slower",
        "Nothing keeps Lumen from serving here; 2 note(s) on what would make it faster or safer.",
    ]
    findings.append(checks.Finding("problem", "last", "broken", "Mend it."))
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "1 problem(s) keep Lumen from serving here; 2 note(s) on what would make it faster or "
        "safer."
    )
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][1] == {
        "level": "note", "name": "the other", "found": "slow", "cure": "Make it fast.",
    }  # fmt: skip


def test_the_lines_of_a_prediction(
    port: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([1_000_000, 3_345_678])
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(clock))
    path = picture(tmp_path / "a.png", (10, 200, 30))
    assert main(["predict", path, "--port", port, "--model", "colour", "--top", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        f"{path}: 2.35 ms, of which the model took 0.00 ms",
        "       1  200.00000",
        "       2   30.00000  blue",
    ]
    prediction = Prediction("p", ((3, 0.5, "x"),), 10, 1234, 56_789)
    assert prediction.as_json() == {
        "path": "p",
        "classes": [{"class": 3, "score": 0.5, "label": "x"}],
        "round_trip_us": 1234,
        "infer_us": 56_789,
    }
    show(prediction)
    assert capsys.readouterr().out.splitlines() == [
        "p: 1.23 ms, of which the model took 56.79 ms",
        "       3    0.50000  x",
    ]


def test_health_without_a_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["health", "--port", "1"]) == 1
    assert "127.0.0.1:1 is not live: expected HTTP 200, found: " in capsys.readouterr().err
    assert main(["health", "--host", f"unix:{tmp_path}/none.sock"]) == 1
    assert "none.sock is not live" in capsys.readouterr().err


def test_the_header_of_the_statistics_test_is_the_real_one() -> None:
    assert struct.calcsize(HEADER) == 128


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["benchh"], "found 'benchh' (did you mean 'bench'?)"),
        (["nothing/"], "or a model or a folder of models to serve, found 'nothing/'"),
        (["bench", "--prot", "1"], "unrecognized arguments: --prot 1 (did you mean '--port'?)"),
        (["--prot=1"], "unrecognized arguments: --prot=1 (did you mean '--port'?)"),
    ],
)
def test_what_was_probably_meant_is_said(
    given: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("command", ["predict", "health", "stats", "top", "reload"])
@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://127.0.0.1:81", "127.0.0.1", 81),
        ("lumen://localhost:65535/", "localhost", 65535),
        ("[::1]:9", "::1", 9),
        ("http://gpu-7.example:8000", "gpu-7.example", 8000),
        ("unix:/run/l.sock", "unix:/run/l.sock", 8000),
        ("http+unix:/run/l.sock", "unix:/run/l.sock", 8000),
        ("http://127.0.0.1", None, 0),
        ("http://h:0", None, 0),
        ("http://h:70000", None, 0),
        ("ftp://h:80", None, 0),
        ("/run/l.sock", None, 0),
    ],
)
def test_every_command_names_a_server_in_one_way(
    command: str, url: str, host: str | None, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = make_parser([command])
    words = [command, *(["x.png"] if command == "predict" else []), "--server", url]
    is_here = command not in ("predict", "health")
    if host is None or (is_here and host not in ("127.0.0.1", "localhost", "::1")):
        with pytest.raises(SystemExit):
            parser.parse_args(words)
        said = capsys.readouterr().err
        assert f"argument --server: expected {'a server of this' if host else 'http'}" in said
        assert repr(url) in said
    else:
        found = parser.parse_args(words)
        assert (found.host, found.port) == (host, port)


def test_bench_takes_a_server_too() -> None:
    for option in ("--server", "--url"):
        assert (
            make_parser(["bench"]).parse_args(["bench", option, "http://h:1"]).url == "http://h:1"
        )


def test_what_was_closed_before_the_start() -> None:
    """Nothing that is opened later gets the numbers of stdin and stdout."""
    program = (
        "import os, sys; os.close(0); os.close(1); from lumen_uring import cli; "
        "cli._keep_standard_descriptors(); file = os.open('/', os.O_RDONLY); "
        "print(file > 2, *(os.readlink(f'/proc/self/fd/{n}') for n in range(2)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stderr.decode() == "True /dev/null /dev/null\n"


def test_a_terminal_that_lacks_a_letter() -> None:
    command = [sys.executable, "-m", "lumen_uring", "inspect", "builtin:digits"]
    surroundings = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=surroundings, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
