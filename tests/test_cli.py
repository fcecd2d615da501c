"""The commands as a person runs them: output, exit status, and never a traceback."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peer import Connection, Peer, reply
from PIL import Image
from test_stats import HEADER, build

from lumen_uring.cli import main
from lumen_uring.commands.predict import preprocessing
from lumen_uring.describe import Model, Rgb8Info, TensorInfo

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
        ["key", "--help"],
        ["health", "--help"],
        ["doctor", "--help"],
        ["--version"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == 0
        assert "lumen" in capsys.readouterr().out


def test_wrong_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["bogus"], ["predict"], ["stats", "--port", "0"], ["--bogus"]):
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
    labels.write_text("mean\nother\n")
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
    assert lines[4] == (
        "colour: pictures are scaled as a whole to 6 x 4, not cropped; the server computes "
        "(value - mean) * scale in the order BGR, mean [1, 2, 3], scale 0.5"
    )
    assert len(lines) == 5
    assert "a.JPG" in lines[0]
    assert "b.png" in lines[2]
    assert lines[3].split() == ["1", "200.00000"]


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


def test_what_predict_says_of_a_picture() -> None:
    def model(datatype: str, info: Rgb8Info | None) -> Model:
        return Model(0, "m", 1, (TensorInfo("x", datatype, (1, 3, 4, 6), True),), (), info)

    plain = Rgb8Info(4, 6, "RGB", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    assert "these are the defaults: set the model's channel_order, mean" in preprocessing(
        model("FP32", plain)
    )
    assert preprocessing(model("UINT8", plain)).endswith("the model gets RGB values of 0..255")
    assert preprocessing(model("FP32", None)).startswith("m: pictures become grey")
    assert preprocessing(model("FP32", Rgb8Info(4, 6))).endswith("to 6 x 4, not cropped")


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
    # A real place in /dev/shm, under a number that no server has.
    for number in range(20_000 + os.getpid() % 40_000, 65_536):
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
    assert len(found["threads"]) == 3
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
    assert "from the first byte to the reply" in stage
    assert "requests whose header was read" in out
    # Counters that are 0 are shown with --all.
    assert "sleeps" not in out
    assert main(["stats", "--port", stats_port, "--all"]) == 0
    row = next(line.split() for line in out.splitlines() if line.strip().startswith("digits"))
    assert row == ["digits", "6", "0", "0", "-", "1.5"]


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


def test_health_without_a_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["health", "--port", "1"]) == 1
    assert "127.0.0.1:1 is not live: expected HTTP 200, found: " in capsys.readouterr().err
    assert main(["health", "--host", f"unix:{tmp_path}/none.sock"]) == 1
    assert "none.sock is not live" in capsys.readouterr().err


def test_the_header_of_the_statistics_test_is_the_real_one() -> None:
    assert struct.calcsize(HEADER) == 112
