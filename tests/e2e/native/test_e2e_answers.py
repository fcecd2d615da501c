"""Real models with published answers: what is served is what the model says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import harness
import needs
import numpy as np
import onnx
import pytest
import web
import wire
from harness import ROOT, Server
from onnx import numpy_helper
from PIL import Image
from web import Http

pytestmark = pytest.mark.once  # what runs models is the same on both backends

DIGITS = ROOT / "tests" / "data" / "digits"


@pytest.fixture(scope="module")
def squeezenet() -> Path:
    return needs.shared_file("models/squeezenet/model.onnx").parent


@pytest.fixture(scope="module")
def mnist() -> Path:
    return needs.shared_file("models/mnist/model.onnx").parent


@pytest.fixture(scope="module")
def gallery(cache: Path) -> Iterator[Server]:
    """One server with those of the three models that are here."""
    others = needs.SHARED / "models"
    models: list[dict[str, object]] = [
        {
            "name": "squeezenet",
            "path": str(others / "squeezenet" / "model.onnx"),
            "channel_order": "bgr",
            "max_rows": 2,
        },
        {"name": "mnist", "path": str(others / "mnist" / "model.onnx")},
    ]
    settings: dict[str, object] = {
        "server": {"arena_bytes": "128MiB"},
        "models": [
            *(model for model in models if Path(str(model["path"])).exists()),
            {"name": "digits", "path": "builtin:digits"},
        ],
    }
    with Server(settings, cache) as server:
        yield server


@pytest.fixture(autouse=True)
def _idle_again(gallery: Server) -> Iterator[None]:
    yield
    gallery.check_idle()


def floats(reply: wire.Reply) -> np.ndarray:
    assert reply.status == wire.OK, reply.text
    payload = reply.payload
    if reply.flags & wire.SHAPES:  # allowed where the model's declaration does not settle it
        _shapes, payload = wire.split_shapes(payload)
    return np.frombuffer(payload, "<f4")


@pytest.mark.parametrize("name", ["fish", "kitten"])
def test_squeezenet_gives_the_stored_answers(gallery: Server, squeezenet: Path, name: str) -> None:
    x = np.load(squeezenet / f"{name}_input.npy")
    expected = np.load(squeezenet / f"{name}_output.npy")
    with gallery.connect() as connection:
        reply = connection.ask(wire.frame(x.astype("<f4").tobytes(), id=1))
    np.testing.assert_allclose(floats(reply), expected.reshape(-1), rtol=0, atol=1e-5)
    assert reply.rows == 1


def test_two_pictures_in_one_request(gallery: Server, squeezenet: Path) -> None:
    names = ("fish", "kitten")
    x = np.concatenate([np.load(squeezenet / f"{name}_input.npy") for name in names])
    expected = np.concatenate([np.load(squeezenet / f"{name}_output.npy") for name in names])
    with gallery.connect() as connection:
        reply = connection.ask(wire.frame(x.astype("<f4").tobytes(), rows=2))
    np.testing.assert_allclose(floats(reply), expected.reshape(-1), rtol=0, atol=1e-5)
    assert reply.rows == 2


def test_a_picture_as_rgb8_is_seen_as_its_tensor(gallery: Server, squeezenet: Path) -> None:
    pixels = np.asarray(Image.open(squeezenet / "kitten_224.png").convert("RGB"))
    assert pixels.shape == (224, 224, 3)
    expected = np.load(squeezenet / "kitten_output.npy").reshape(-1)
    with gallery.connect() as connection:
        reply = connection.ask(wire.frame(pixels.tobytes(), encoding=wire.RGB8))
        # The same picture as the tensor that the conversion must arrive at: BGR, 0..255, planar.
        tensor = pixels[:, :, ::-1].transpose(2, 0, 1).astype("<f4")
        as_tensor = connection.ask(wire.frame(tensor.tobytes()))
    found = floats(reply)
    assert list(found.argsort()[::-1][:5]) == list(expected.argsort()[::-1][:5])
    np.testing.assert_array_equal(found, floats(as_tensor))


@pytest.mark.parametrize("number", range(3))
def test_mnist_gives_the_published_answers(gallery: Server, mnist: Path, number: int) -> None:
    folder = mnist / f"test_data_set_{number}"
    x, expected = (
        numpy_helper.to_array(onnx.load_tensor(str(folder / name)))
        for name in ("input_0.pb", "output_0.pb")
    )
    with gallery.connect() as connection:
        reply = connection.ask(wire.frame(x.astype("<f4").tobytes(), model=gallery.models["mnist"]))
    np.testing.assert_allclose(floats(reply), expected.reshape(-1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("digit", range(10))
def test_digits_are_read(gallery: Server, digit: int) -> None:
    grey = (
        Image.open(DIGITS / f"digit_{digit}.png").convert("L").resize((8, 8), Image.Resampling.BOX)
    )
    x = np.asarray(grey, "<f4")
    with gallery.connect() as connection:
        reply = connection.ask(wire.frame(x.tobytes(), model=gallery.models["digits"]))
    assert int(floats(reply).argmax()) == digit


@pytest.mark.parametrize("digit", range(10))
def test_the_file_of_a_digit_is_recognised(gallery: Server, digit: int) -> None:
    """builtin:digits takes files without a setting, and answers with its classes."""
    file = (DIGITS / f"digit_{digit}.png").read_bytes()
    with Http(gallery.port) as http:
        listed = http.query(web.request("PUT", web.path("digits"), file)).json()
    assert [type(entry["score"]) for entry in listed] == [float] * 5
    assert (listed[0]["label"], listed[0]["index"]) == (str(digit), digit)


def test_lumen_predict_prints_the_right_digits(gallery: Server, cache: Path) -> None:
    done = harness.run(
        ["predict", "--port", str(gallery.port), "--model", "digits", "--json", str(DIGITS)], cache
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {Path(line["path"]).stem: line["classes"][0]["class"] for line in lines}
    assert found == {f"digit_{digit}": digit for digit in range(10)}


def test_lumen_predict_for_people(gallery: Server, cache: Path) -> None:
    options = ["predict", "--port", str(gallery.port), "--top", "1", "--model", "digits"]
    digit = harness.run([*options, str(DIGITS / "digit_7.png")], cache)
    assert digit.returncode == 0, digit.stderr
    assert digit.stdout.splitlines()[1].split()[0] == "7"


def test_lumen_predict_says_the_label(gallery: Server, cache: Path, squeezenet: Path) -> None:
    options = ["predict", "--port", str(gallery.port), "--top", "1"]
    kitten = harness.run(
        [
            *options,
            "--model",
            "squeezenet",
            "--labels",
            str(squeezenet / "labels.txt"),
            str(squeezenet / "kitten_224.png"),
        ],
        cache,
    )
    assert kitten.returncode == 0, kitten.stderr
    best = int(np.load(squeezenet / "kitten_output.npy").reshape(-1).argmax())
    label = (squeezenet / "labels.txt").read_text().splitlines()[best]
    assert kitten.stdout.splitlines()[1].split()[0] == str(best)
    assert label in kitten.stdout


def test_the_packages_own_client_agrees(gallery: Server, squeezenet: Path) -> None:
    from lumen_uring.client.client import Client

    x = np.load(squeezenet / "fish_input.npy")
    expected = np.load(squeezenet / "fish_output.npy")
    with Client(port=gallery.port) as client:
        result = client.infer("squeezenet", {"data_0": x})
    (found,) = result.outputs.values()
    np.testing.assert_allclose(found.reshape(-1), expected.reshape(-1), rtol=0, atol=1e-5)
