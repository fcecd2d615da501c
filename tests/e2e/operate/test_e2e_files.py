"""The files that a server writes: its log, the access log, the telemetry file."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import harness
import pytest
import text_folders
import wire
from conftest import Serve
from harness import Server, eventually
from json_http import ask
from operating import Reloaded, key, raw_server, records, wait_for_port
from test_e2e_life import DIGITS, settings

pytestmark = pytest.mark.once  # what writes files: the same on both backends


def test_the_log_in_lines_of_json(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "lumen.log"
    document = {**DIGITS, "log": {"format": "json", "path": str(log), "level": "debug"}}
    reader, writer = os.pipe()
    with raw_server(document, cache, tmp_path, writer) as (process, port):
        os.close(writer)
        wait_for_port(process, port)
        process.send_signal(signal.SIGUSR2)
        eventually(lambda: "SIGUSR2" in log.read_text(), "a line of level debug")
        process.send_signal(signal.SIGTERM)
        assert process.wait(harness.STOP_S) == 0
    with os.fdopen(reader, "rb") as rest:
        assert rest.read() == b""  # no banner between the lines of a program that reads along
    found = records(log)
    assert f"serves on 127.0.0.1:{port}" in found[0]["message"]
    assert [record["level"] for record in found if "SIGUSR2" in record["message"]] == ["debug"]
    assert "Draining" in found[-1]["message"]
    for record in found:
        assert record.keys() == {"time", "level", "message"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["time"])


def test_the_log_of_a_server_that_does_not_start(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "lumen.log"
    done = harness.run(
        [
            "--set", f"log.path={log}", "--set", "log.format=json",
            "--model", f"m={tmp_path}/none.onnx",
        ],
        cache,
    )  # fmt: skip
    assert done.returncode == 2
    (record,) = records(log)
    assert record["level"] == "error"
    assert "none.onnx does not exist" in record["message"]
    assert "none.onnx does not exist" in done.stderr


def test_a_log_that_cannot_be_written_refuses_the_start(cache: Path, tmp_path: Path) -> None:
    done = harness.run(["--set", f"log.path={tmp_path}/none/lumen.log"], cache)
    assert done.returncode == 2
    assert "log.path: expected a file that can be written" in done.stderr


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_what_cannot_be_written_is_told_at_once(
    cache: Path, tmp_path: Path, options: list[str]
) -> None:
    """With the model's file that is not there: nobody starts five times for five mistakes."""
    none = tmp_path / "none"
    settings = {
        "log.path": f"{none}/log",
        "log.access_path": tmp_path,
        "engine.telemetry_csv_path": f"{none}/t.csv",
        "budgets.path": f"{none}/budgets.json",
        "server.unix_socket": f"{none}/lumen.sock",
        "models": f"[{{name: m, path: {none}/m.onnx}}]",
    }
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = harness.run([*options, *sets], cache)
    assert done.returncode in (1, 2)
    for said in (
        f"log.path: expected a file that can be written, found {none}/log: there is no folder",
        f"log.access_path: expected a file that can be written, found {tmp_path}: it is a folder",
        f"engine.telemetry_csv_path: expected a file that can be written, found {none}/t.csv",
        f"budgets.path: expected a file that can be written, found {none}/budgets.json: there is",
        f"server.unix_socket: expected a folder for {none}/lumen.sock, found none",
        f"{none}/m.onnx does not exist",
    ):
        assert said in done.stderr, said
    assert not none.exists()


def test_the_log_beside_the_banner(serve: Serve) -> None:
    """stdout and stderr are two files here: people read the one, the other is the log."""
    server = serve(DIGITS)
    first = server.output.splitlines()[0]
    assert f"info    {first}" in server.errors
    server.stop()
    assert "Draining" in server.output
    assert "info    Draining" in server.errors


def test_one_place_for_both_says_everything_once(cache: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    with (
        both.open("wb") as file,
        raw_server(DIGITS, cache, tmp_path, file.fileno()) as (process, _port),
    ):
        eventually(lambda: "serves on" in both.read_text(), "the banner")  # later than the port
        process.send_signal(signal.SIGTERM)
        assert process.wait(harness.STOP_S) == 0
    assert both.read_text().count("serves on") == 1
    assert both.read_text().count("Draining") == 1


def test_a_moved_log_is_opened_again(serve: Serve, tmp_path: Path) -> None:
    """logrotate: move the file, send SIGUSR1."""
    log, old = tmp_path / "lumen.log", tmp_path / "lumen.log.1"
    server = serve({**DIGITS, "log": {"path": str(log), "level": "debug"}})
    log.rename(old)
    server.process.send_signal(signal.SIGUSR1)
    eventually(log.exists, "a new file")
    server.process.send_signal(signal.SIGUSR2)
    eventually(lambda: "SIGUSR2" in log.read_text(), "a line in the new file")
    assert "SIGUSR2" not in old.read_text()
    server.stop()


def test_a_full_log_is_said_once(serve: Serve) -> None:
    server = serve({**DIGITS, "log": {"path": "/dev/full", "level": "debug"}})
    for _ in range(3):
        server.process.send_signal(signal.SIGUSR2)
        with server.connect() as connection:
            assert connection.ask(wire.ping(1)).id == 1
    server.stop()
    assert server.errors.count("/dev/full cannot be written") == 1
    assert "Draining" in server.errors


# ---- the access log, and the telemetry file ----


def http(server: Server, request: str, body: bytes = b"", *lines: str) -> int:
    head = [request, "Host: localhost", "Connection: close", *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    with server.connect() as connection:
        connection.send("\r\n".join([*head, "", ""]).encode() + body)
        return int(connection.expect_closed().split()[1])


def lines_of(path: Path, count: int) -> list[dict[str, object]]:
    """The access log once it has so many lines, in the form of JSON."""
    eventually(
        lambda: path.exists() and len(path.read_text().splitlines()) >= count,
        f"{count} lines", found=path.read_text,
    )  # fmt: skip
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(found) == count
    return found


def test_the_access_log(serve: Serve, tmp_path: Path) -> None:
    """A line for each request: who asked for what, how it ended, and why not."""
    log = tmp_path / "access.log"
    keys = [key("ada"), key("bob", models=["slow"]), key("eve", rate=0.001, burst=1)]
    document = settings(tmp_path, keys=keys)
    document["log"] = {"access_path": str(log), "format": "json"}
    server = serve(document, options=["--port", "0", "--set", "log.format=text"])
    server.stop()
    lines = log.read_text().splitlines()
    assert len(lines) == 1  # the harness's own describe, refused for want of a key
    assert re.fullmatch(
        r"\S+Z 127\.0\.0\.1:\d+ native describe status=6 bytes=0 id=7 total_us=\d+ "
        r'why="expected.*"',
        lines[0],
    )
    log.unlink()

    # The harness waits for the banner, which is not there with JSON: the form comes by a reload.
    one = Reloaded(serve, tmp_path, {**document, "log": {"access_path": str(log)}})
    server = one.server
    # The log is written beside the path: this line may come late, and is not of the new file.
    eventually(lambda: "describe" in log.read_text(), "the line of the harness's own request")
    one.reload(document)
    log.unlink()
    server.process.send_signal(signal.SIGUSR1)
    eventually(log.exists, "the log in the form of JSON")
    infer = "POST /v2/models/double/infer HTTP/1.1"
    raw = "Inference-Header-Content-Length: 0"

    def by(token: str) -> str:
        return f"Authorization: Bearer {token}"

    assert http(server, infer, bytes(64), raw, by("ada")) == 200
    assert http(server, infer, bytes(60), raw, by("ada")) == 400
    assert http(server, infer, bytes(64), raw, by("nobody")) == 401
    assert http(server, infer, bytes(64), raw, by("bob")) == 403
    assert http(server, infer, bytes(64), raw, by("eve")) == 200
    assert http(server, infer, bytes(64), raw, by("eve")) == 429
    tensor = b'{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": 1}'
    body = b'{"id": "seven", "inputs": [' + tensor + b"]}"
    assert http(server, infer, body, by("ada")) == 400
    assert http(server, "GET /v2/health/live HTTP/1.1") == 200
    assert http(server, "GET /nothing HTTP/1.1") == 404
    with server.connect() as connection:
        assert connection.ask(wire.ping(11)).id == 11
        frame = wire.frame(b"ada".ljust(32, b"\0") + bytes(64), id=12, flags=1)
        assert connection.ask(frame).status == wire.OK
        assert connection.ask(wire.frame(bytes(64), id=13)).status == wire.UNAUTHORISED
    with server.connect() as last:
        last.send(b"LMN1" + bytes(28))
        last.reply()
    found = lines_of(log, 13)

    def of(entry: dict[str, object]) -> tuple[object, ...]:
        return tuple(entry.get(name) for name in ("dialect", "request", "model", "key", "status"))

    assert sorted(map(str, map(of, found))) == sorted(
        map(
            str,
            [
                ("http", "infer", "double", "ada", 200),
                ("http", "infer", "double", "ada", 400),
                ("http", "infer", None, None, 401),
                ("http", "infer", "double", "bob", 403),
                ("http", "infer", "double", "eve", 200),
                ("http", "infer", "double", "eve", 429),
                ("http", "infer", "double", "ada", 400),
                ("http", "live", None, None, 200),
                ("http", "unknown", None, None, 404),
                ("native", "ping", None, None, 0),
                ("native", "infer", "double", "ada", 0),
                ("native", "infer", "double", None, 6),
                ("native", "unknown", None, None, 1),
            ],
        )
    )
    for entry in found:
        failed = entry["status"] not in (0, 200)
        assert ("why" in entry) == failed, entry
        assert str(entry["peer"]).startswith("127.0.0.1:")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(entry["time"]))
        assert isinstance(entry["total_us"], int)
    why = {entry["status"]: str(entry["why"]) for entry in found if "why" in entry}
    assert "rate of this key" in why[429]
    assert "may not use model 'double'" in why[403]
    assert "key of this server" in why[401]
    (seven,) = [entry for entry in found if entry.get("id") == "seven"]
    assert "data" in str(seven["why"])
    (good,) = [entry for entry in found if entry.get("id") == 12]
    assert {"receive_us", "queue_us", "preprocess_us", "infer_us", "send_us"} <= good.keys()


def test_many_texts_have_their_line(serve: Serve, tmp_path: Path) -> None:
    """Threads of their own answer a request of many texts: the access log hears of it too."""
    log = tmp_path / "access.log"
    pooling = {"word_embedding_dimension": 6, "pooling_mode_mean_tokens": True}
    text_folders.write(tmp_path / "texts" / "mean", text_folders.sentence_files(pooling))
    repository = {"paths": [str(tmp_path / "texts")]}
    server = serve({"repository": repository, "models": [], "log": {"access_path": str(log)}})
    for count in (1, 40):
        ask(server, "/v1/embeddings", {"model": "mean", "input": ["a cat"] * count})

    # A line may come after its answer.
    line = 'infer model="mean" status=200 '
    eventually(lambda: log.read_text().count(line) == 2, "a line each", found=log.read_text)


def test_an_access_log_nobody_reads_holds_nobody_up(cache: Path, tmp_path: Path) -> None:
    """Lines to a full pipe are dropped and counted; requests and the end are not delayed."""
    reader, writer = os.pipe()
    document = {**DIGITS, "log": {"access_path": "-", "format": "json"}}
    with raw_server(document, cache, tmp_path, writer) as (process, port):
        os.close(writer)
        wait_for_port(process, port)
        stats = Path(f"/dev/shm/lumen-{port}")

        def dropped() -> int:
            from lumen_uring.ring.stats import read

            return read(stats).counters["io"]["traces_dropped"]

        with wire.Wire(port) as connection:
            sent = 0
            while dropped() == 0:
                assert sent < 200_000
                connection.send(b"".join(wire.ping(number) for number in range(256)))
                connection.replies(256)
                sent += 256
        process.send_signal(signal.SIGTERM)
        assert process.wait(harness.STOP_S) == 0
    os.close(reader)


def test_telemetry_is_appended_and_rotated(serve: Serve, tmp_path: Path) -> None:
    path, old = tmp_path / "t.csv", tmp_path / "t.csv.1"
    document = settings(tmp_path)
    document["engine"] = {"thread_count": 2, "telemetry_csv_path": str(path)}

    def ask(server: Server, number: int) -> None:
        with server.connect() as connection:
            assert connection.ask(wire.frame(bytes(64), id=number)).status == wire.OK

    def rows(file: Path) -> list[int]:
        header, *rest = file.read_text().splitlines()
        assert header.startswith("id,model,worker,")
        return [int(line.partition(",")[0]) for line in rest]

    server = serve(document)
    ask(server, 1)
    server.stop()
    server = serve(document)
    ask(server, 2)
    eventually(lambda: rows(path) == [1, 2], "rows of both runs", found=path.read_text)
    path.rename(old)
    server.process.send_signal(signal.SIGHUP)
    eventually(path.exists, "a new file")
    ask(server, 3)
    eventually(lambda: path.read_text() and rows(path) == [3], "the third row in it")
    os.truncate(path, 0)  # copytruncate
    ask(server, 4)
    eventually(lambda: path.read_text() and rows(path) == [4], "the fourth row at its start")
    assert rows(old) == [1, 2]
    server.stop()


def test_a_file_with_other_columns_is_refused(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time,value\n1,2\n")
    done = harness.run(
        ["--port", "0", "--set", f"engine.telemetry_csv_path={path}"], cache, ["timeout", "60"]
    )
    assert done.returncode == 1
    assert "engine.telemetry_csv_path: expected no file, or one with the same columns" in (
        done.stderr
    )
    assert path.read_text() == "time,value\n1,2\n"


def test_a_full_disk_is_said_once_and_counted(serve: Serve, tmp_path: Path) -> None:
    document = settings(tmp_path)
    document["engine"] = {"thread_count": 2, "telemetry_csv_path": "/dev/full"}
    document["log"] = {"access_path": "/dev/full"}
    server = serve(document)
    with server.connect() as connection:
        for number in range(20):
            assert connection.ask(wire.frame(bytes(64), id=number)).status == wire.OK
            eventually(lambda n=number: server.figures().io["log_lines_lost"] > n, "the count")
    eventually(lambda: "log.access_path: cannot write /dev/full" in server.errors, "the sentence")
    server.stop()
    assert server.errors.count("cannot write /dev/full") == 2  # one for each file
