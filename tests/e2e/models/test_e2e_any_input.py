"""Commands for any model: `lumen MODEL.onnx`, `inspect`, `--input` of `predict` and `bench`; long
names.

`inspect` must never disagree with a server: what it shows is compared with what a server describes.
"""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import graphs
import harness
import needs
import numpy as np
import onnx
import pytest
import web
from conftest import Serve, zoo_settings
from graphs import FLOAT, INT64, tensor
from harness import BY_TIME, Server
from onnx import TensorProto, helper
from PIL import Image
from web import Http

from lumen_uring import Client
from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # the commands and the names are the same on both backends

LONGEST = "n" * 255
NONZERO = "it has NonZero, which may take any time"


def tokens(path: Path) -> Path:
    """ids INT64 and mask BOOL [batch, length] -> ids where the mask is true, FP32."""
    shape = ["batch", "length"]
    return graphs.save(
        path,
        [
            helper.make_node("Cast", ["ids"], ["floats"], to=FLOAT),
            helper.make_node("Cast", ["mask"], ["ones"], to=FLOAT),
            helper.make_node("Mul", ["floats", "ones"], ["kept"]),
        ],
        [tensor("ids", INT64, shape), tensor("mask", TensorProto.BOOL, shape)],
        [tensor("kept", FLOAT, shape)],
    )


def classifier(path: Path) -> Path:
    """x FP32 [n,3,96,96] -> scores FP32 [n,1000]: the means of the channels, then zeros."""
    return graphs.save(
        path,
        [
            helper.make_node("GlobalAveragePool", ["x"], ["means"]),
            helper.make_node("Flatten", ["means"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["scores"]),
        ],
        [tensor("x", FLOAT, ["n", 3, 96, 96])],
        [tensor("scores", FLOAT, ["n", 1000])],
        {"weights": np.eye(3, 1000, dtype=np.float32)},
    )


def detector(path: Path) -> Path:
    """images FP32 [1,3,height,width] -> its halves, as a detector of any size."""
    shape = [1, 3, "image height", "width"]
    return graphs.save(
        path,
        [helper.make_node("Identity", ["images"], ["boxes"])],
        [tensor("images", FLOAT, shape)],
        [tensor("boxes", FLOAT, shape)],
    )


@pytest.fixture
def server(serve: Serve, tmp_path: Path) -> Server:
    return serve(
        {
            "models": [
                {"name": "double", "path": str(graphs.double(tmp_path / "double.onnx"))},
                {"name": "tokens", "path": str(tokens(tmp_path / "tokens.onnx"))},
            ]
        }
    )


def ask(server: Server, cache: Path, model: str, *options: str) -> tuple[int, str, str]:
    port = str(server.port)
    done = harness.run(["predict", "--port", port, "--model", model, *options], cache)
    return done.returncode, done.stdout, done.stderr


def test_a_file_is_served_under_its_own_name(cache: Path, tmp_path: Path) -> None:
    one = graphs.double(tmp_path / "my double.v2.onnx")
    other = tokens(tmp_path / "TOKENS.ONNX")
    names = ["my_double.v2", "TOKENS"]
    settings: dict[str, object] = {"models": [{"name": name, "path": "unused"} for name in names]}
    options = ["--port", "0", str(one), str(other)]
    with Server(settings, cache, options=options) as server:
        with Client("127.0.0.1", server.port) as client:
            assert list(client.models()) == names
            assert client.infer("my_double.v2", {"x": [[1] * 16]}).outputs["y"].sum() == 32


def test_a_file_alone_is_a_command(cache: Path, tmp_path: Path) -> None:
    done = harness.run([str(tmp_path / "none.onnx")], cache)
    assert done.returncode == 2
    assert f"The model file {tmp_path}/none.onnx does not exist" in done.stderr
    path = str(graphs.double(tmp_path / "double.onnx"))
    done = harness.run(["--check", "--set", "server.port=0", path], cache)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"model double: {path}")


def test_predict_takes_any_input(server: Server, cache: Path, tmp_path: Path) -> None:
    x = np.arange(32).reshape(2, 16)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.json").write_text(json.dumps(x.tolist()))
    numbers = " ".join(map(str, range(32)))
    for value in (f"{tmp_path}/x.npy", f"x={tmp_path}/x.json", f"x={numbers}", str(x.tolist())):
        code, out, err = ask(server, cache, "double", "--input", value, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["outputs"]["y"] == (x * 2).tolist(), value
    ids = ["--input", "ids=[[5, 6, 7]]", "--input", "mask=[[true, false, true]]"]
    code, out, _err = ask(server, cache, "tokens", *ids)
    assert code == 0
    assert "kept float32 [1, 3]\n  [[5., 0., 7.]]" in out
    (tmp_path / "both.json").write_text('{"ids": [[1], [2]], "mask": [[1], [1]]}')
    code, out, _err = ask(server, cache, "tokens", "--json", "--input", f"{tmp_path}/both.json")
    assert (code, json.loads(out)["outputs"]["kept"]) == (0, [[1.0], [2.0]])
    code, _out, err = ask(server, cache, "tokens", "--input", "ids=1 2", "--input", "mask=1 1 1")
    assert (code, err.count("\n")) == (1, 1)
    assert "dimension 'length': expected 2 as in input 'ids', found 3" in err
    code, _out, err = ask(server, cache, "double", "--input", "x=1 2 3")
    assert "expected float32 [rows, 16], found int64 [3]" in err


def test_bench_takes_any_input(server: Server, cache: Path) -> None:
    values = ["--input", "ids=[[1, 2, 3], [4, 5, 6]]", "--input", "mask=[[1, 0, 1], [0, 1, 0]]"]
    load = ["--model", "tokens", "--requests", "20", "--warmup", "0", "--json"]
    for scheme, more in (("lumen", []), ("http", []), ("http", ["--http-json"])):
        url = f"{scheme}://127.0.0.1:{server.port}"
        before = server.figures()
        done = harness.run(["bench", "--url", url, *load, *values, *more], cache)
        assert done.returncode == 0, done.stderr
        figures = json.loads(done.stdout)
        assert (figures["requests"], figures["errors"]) == (20, 0)
        server.wait_until_idle()
        changes = server.figures().since(before)
        assert changes["worker.rows"] == 2 * changes["worker.requests_ok"] >= 40
    done = harness.run(["bench", "--url", url, *load, *values, "--rows", "2"], cache)
    assert done.returncode == 2
    assert "--rows: expected it without --input" in done.stderr


def test_inspect_says_what_a_server_says(serve: Serve, cache: Path, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        needs.absent("cores")  # on one core the width of a Run is not measured
    settings = zoo_settings(tmp_path)
    models = settings["models"]
    assert isinstance(models, list)
    chosen = [
        {"name": entry["name"], "path": entry["path"]}
        for entry in models
        if entry["name"] in ("double", "dtypes", "several", "nonzero", "nhwc")
    ]
    chosen.append({"name": "tokens", "path": str(tokens(tmp_path / "tokens.onnx"))})
    server = serve({"models": chosen})
    with Client("127.0.0.1", server.port) as client:
        described = client.describe()["models"]
    for entry in described:
        path = next(model["path"] for model in chosen if model["name"] == entry["name"])
        done = harness.run(["inspect", path, "--json"], cache)
        assert done.returncode == 0, done.stderr
        alone = json.loads(done.stdout)
        assert alone["served"]
        assert max(slot["slot_bytes"] for slot in alone["slots"]) > 0
        for model in (alone["model"], entry):
            assert model.pop("run_us") > 0  # measurements
            assert model.pop("width_why").startswith("a Run takes ")
            why = model.pop("run_why")
            assert model.pop("run") == {**BY_TIME, NONZERO: "worker"}[why]
        assert {**alone["model"], "index": entry["index"]} == entry
        assert harness.run(["inspect", path], cache).stdout.endswith(f"Serve it: lumen {path}\n")


def test_the_doctor_says_of_models_what_inspect_says(cache: Path, tmp_path: Path) -> None:
    good, bad = graphs.double(tmp_path / "good.onnx"), tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    said = harness.run(["inspect", str(good)], cache).stdout.splitlines()
    done = harness.run(["doctor", str(good)], cache)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    at = told.index("model good: can be served")

    def lines(text: list[str], word: str) -> list[str]:
        found = [line for line in text if line.startswith(f"  {word}")]
        # How many slots there are follows from the memory that is free at the moment.
        return [line.partition(" slots take")[0].rstrip("0123456789") for line in found]

    for word in ("input", "rows", "memory", "pictures"):
        assert lines(said, word) == lines(told[at:], word), word
    for word in ("runs", "width"):  # with times that differ
        assert any(line.startswith(f"  {word}") for line in told[at:])
    file = tmp_path / "config.yaml"
    models = [{"name": "one", "path": str(good)}, {"name": "two", "path": str(bad)}]
    file.write_text(json.dumps({"models": models}))
    done = harness.run(["doctor", "--json", "--config", str(file)], cache)
    assert done.returncode == 1
    one, two = json.loads(done.stdout)["models"]
    assert one["served"]
    assert one["model"]["name"] == "one"
    assert (two["name"], two["served"]) == ("two", False)
    assert str(bad) in two["reason"]
    done = harness.run(["doctor", "--config", str(file)], cache)
    assert "1 problem(s) keep Lumen from serving here" in done.stdout


def test_inspect_of_free_dimensions(cache: Path, tmp_path: Path) -> None:
    path = str(tokens(tmp_path / "tokens.onnx"))
    shown = harness.run(["inspect", path], cache).stdout
    assert "input    ids INT64[n,length]\n" in shown
    assert "sizes    length 1..512 (default)" in shown
    change = "models.0.max_dims={length: 64}"
    shown = harness.run(["inspect", path, "--set", change], cache).stdout
    assert "sizes    length 1..64; the largest request takes" in shown
    assert shown.endswith(f"Serve it: lumen {path} --set '{change}'\n")


def test_inspect_guesses_a_preset_and_its_command_works(cache: Path, tmp_path: Path) -> None:
    fit = "fitted into 640 x 640 with a margin of 114 (bilinear), rgb, value * 0.0039216"
    for path, preset, becomes in (
        (classifier(tmp_path / "a classifier.onnx"), "imagenet", "shorter side to 110, middle 96"),
        (detector(tmp_path / "detector.onnx"), "yolo", fit),
    ):
        done = harness.run(["inspect", str(path)], cache)
        assert f"\n  preset   {preset}, most likely: it" in done.stdout
        line = done.stdout.splitlines()[-1]
        program, *arguments = shlex.split(line.removeprefix("With pictures: "))
        assert program == "lumen"
        assert arguments[-2:] == ["--image", preset]
        told = json.loads(harness.run(["inspect", str(path), "--json"], cache).stdout)
        assert told["guessed_preset"]["preset"] == preset
        done = harness.run(["--check", "--set", "server.port=0", *arguments], cache)
        assert done.returncode == 0, done.stderr
        settings = [text for text in arguments if text.startswith("models.")]
        options = [
            f"--set={text}" for text in (*settings, f"models.0.image.preset={arguments[-1]}")
        ]
        done = harness.run(["inspect", str(path), *options], cache)
        assert f"\n  pictures files (JPEG, PNG) and rgb8: {becomes}" in done.stdout
        assert "most likely" not in done.stdout
        assert done.stdout.splitlines()[-1].startswith("Serve it: ")
    told = json.loads(harness.run(["inspect", "builtin:digits", "--json"], cache).stdout)
    assert told["guessed_preset"] is None


def test_inspect_reads_the_sides_that_a_file_names(cache: Path, tmp_path: Path) -> None:
    path = detector(tmp_path / "detector.onnx")
    for said, side in (("[320, 320]", 320), ("[320]", 640), ("0", 640), ("[-1, true]", 640)):
        model = onnx.load(path)
        helper.set_model_props(model, {"imgsz": said})
        onnx.save(model, path)
        line = harness.run(["inspect", str(path)], cache).stdout.splitlines()[-1]
        assert f"""fix_dims={{"image height": {side}, "width": {side}}}""" in line, said


def test_pictures_are_served_at_once(cache: Path, tmp_path: Path) -> None:
    """`lumen MODEL.onnx --image PRESET`, and what the banner says to try."""
    needs.program("curl")
    path = classifier(tmp_path / "net.onnx")
    Image.new("RGB", (100, 120), (200, 10, 30)).save(tmp_path / "PICTURE.jpg")
    settings: dict[str, object] = {"models": [{"name": "net", "path": "unused"}]}
    for more, best in ([], 0), (["--set", "models.0.channel_order=bgr"], 2):
        options = ["--port", "0", str(path), "--image", "imagenet", *more]
        with Server(settings, cache, options=options) as server:
            command = server.output.split("\nTry: ")[1].splitlines()[0]
            assert command == (
                f"curl -T PICTURE.jpg 'http://127.0.0.1:{server.port}/v2/models/net/infer?top=5'"
            )
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, capture_output=True, check=True
            )
            classes = json.loads(done.stdout)
            assert (len(classes), classes[0]["index"]) == (5, best)
            assert (
                "  pictures net: JPEG or PNG, shorter side to 110, middle 96 x 96" in server.output
            )
            done = harness.run(
                ["predict", "--port", str(server.port), str(tmp_path / "PICTURE.jpg")], cache
            )
            assert done.stdout.splitlines()[1].split()[0] == str(best)
            with Http(server.port) as http:
                config = http.query(web.get("/v2/models/net/config")).json()
                assert config["parameters"]["image"]["string_value"].startswith("JPEG or PNG: ")


def test_inspect_names_reason_and_cure(cache: Path, tmp_path: Path) -> None:
    double = graphs.double(tmp_path / "double.onnx")
    squeezed = tmp_path / "squeezed.onnx"
    squeezed.write_bytes(gzip.compress(double.read_bytes()))
    pointer = tmp_path / "pointer.onnx"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    plain = tmp_path / "squeezed.plain.onnx"
    for path, reason, cure in (
        (squeezed, "compressed with gzip", f"gunzip -c {squeezed} > {plain}"),
        (pointer, "Git LFS pointer", f"git -C {tmp_path} lfs pull"),
    ):
        done = harness.run(["inspect", str(path)], cache)
        assert (done.returncode, done.stderr) == (1, "")
        assert reason in done.stdout
        assert done.stdout.endswith(f"Cure: {cure}\n")
        told = json.loads(harness.run(["inspect", str(path), "--json"], cache).stdout)
        assert (told["served"], told["cure"]) == (False, cure)
    wide = graphs.double(tmp_path / "wide.onnx", columns=1024)
    small = ["--set", "server.max_request_bytes=1KiB"]
    done = harness.run(["inspect", str(wide), *small], cache)
    cure = "--set server.max_request_bytes=1KiB --set server.max_request_bytes=4096\n"
    assert done.stdout.endswith(f"Cure: lumen {wide} {cure}")
    text = tmp_path / "text.onnx"
    text.write_text("no model\n")
    assert harness.run(["inspect", str(text)], cache).stdout.endswith("No command mends that.\n")


def test_a_cure_works(cache: Path, tmp_path: Path) -> None:
    large = graphs.double(tmp_path / "large.onnx", columns=10_000_000)
    bounded = {"LUMEN_SERVER__MAX_REQUEST_BYTES": "8MiB"}  # unless set, it follows the model
    told = json.loads(harness.run(["inspect", str(large), "--json"], cache, (), bounded).stdout)
    program, path, *options = shlex.split(told["cure"])
    assert (program, path) == ("lumen", str(large))
    assert harness.run(["inspect", path, *options], cache).returncode == 0
    shapeless = tmp_path / "shape less.onnx"
    values = [tensor(name, FLOAT, None) for name in ("x y", *"abcdefgh")]  # one too many
    node = helper.make_node("Neg", ["x y"], ["z"])
    graphs.save(shapeless, [node], values, [tensor("z", FLOAT, None)])
    done = harness.run(["inspect", str(shapeless)], cache)
    cure = done.stdout.splitlines()[-1].removeprefix("Cure: ").replace("SIZE", "3")
    program, *options = shlex.split(cure)
    assert program == "python"
    subprocess.run([sys.executable, *options], check=True)
    done = harness.run(["inspect", str(tmp_path / "shape less.plain.onnx")], cache)
    assert "input    x y FP32[n,3]\n" in done.stdout


def test_a_name_of_255_bytes(serve: Serve, cache: Path, tmp_path: Path) -> None:
    path = str(graphs.double(tmp_path / "double.onnx"))
    log = tmp_path / "access.log"
    rows = tmp_path / "rows.csv"
    server = serve(
        {
            "models": [{"name": LONGEST, "path": path}, {"name": LONGEST[:-1] + "m", "path": path}],
            "engine": {"telemetry_csv_path": str(rows)},
            "log": {"access_path": str(log)},
        }
    )
    x = np.ones((1, 16), np.float32)
    with Http(server.port) as http, Client("127.0.0.1", server.port) as client:
        assert client.infer(LONGEST, {"x": [[2] * 16]}).outputs["y"].sum() == 64
        assert http.query(web.infer(LONGEST, {"x": x})).array("y").sum() == 32
        assert http.query(web.get(f"/v2/models/{LONGEST}")).json()["name"] == LONGEST
        stats = http.query(web.get("/v2/models/stats")).json()["model_stats"]
        assert stats[0]["name"] == LONGEST
        assert http.query(web.get("/figures")).json()["models"][0]["name"] == LONGEST
        for name in (LONGEST + "n", LONGEST[:-1]):
            assert http.query(web.get(f"/v2/models/{name}")).code == 404
        wrong = http.query(web.raw(LONGEST, b"1234567"))
        assert wrong.code == 400
        assert f"model '{LONGEST[:64]}' takes 64 bytes of FP32, found 7" in wrong.error
    assert next(iter(read(server.stats_path).models)) == LONGEST
    server.stop()
    assert log.read_text().count(f' model="{LONGEST}" ') >= 3
    assert f",{LONGEST}," in rows.read_text()


def test_all_bad_models_are_told_whoever_refuses_them(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no model\n")
    (tmp_path / "empty.onnx").write_bytes(b"")
    good = graphs.double(tmp_path / "good.onnx")
    files = [tmp_path / "none.onnx", tmp_path / "text.onnx", good, tmp_path / "empty.onnx"]
    for more in ([], ["--check"]):
        done = harness.run(["--port", "0", *more, *map(str, files)], cache)
        assert done.returncode == (1 if more else 2)
        lines = done.stderr.splitlines()
        assert len(lines) == 3, done.stderr
        assert f"The model file {tmp_path}/none.onnx does not exist" in lines[0]
        assert "model 'text'" in lines[1]
        assert "model 'empty'" in lines[2]
