"""Both clients against a peer on a real socket, well-behaved and not."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from peer import DESCRIPTION, Connection, Peer, answer, behave, reply
from PIL import Image

from lumen_uring import AsyncClient, Client
from lumen_uring.errors import (
    BadRequest,
    DeadlinePassed,
    InferenceFailed,
    Overloaded,
    PictureError,
    RateLimited,
    ServerError,
    ShuttingDown,
    TooLarge,
    Unauthorised,
    UnknownModel,
)
from lumen_uring.pictures import files as pictures
from lumen_uring.protocol.describe import parse_description

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_infers_tensors_with_rows_and_timings() -> None:
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        result = client.infer("sum", {"x": X})
        np.testing.assert_array_equal(result.outputs["total"], [6, 22])
        np.testing.assert_array_equal(result.outputs["twice"], X * 2)
        assert result.rows == 2
        timings = result.timings
        assert (timings.receive_us, timings.queue_us) == (1, 2)
        assert (timings.preprocess_us, timings.infer_us) == (3, 4)
        assert client.ping() > 0
        assert client.describe() == DESCRIPTION
        assert peer.connections == 1


def test_reads_shapes_from_the_reply() -> None:
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        y = client.infer("raw", {"x": np.array([5, 6, 7], np.int64)}).outputs["y"]
        assert y.shape == (3, 1)
        assert y.flags.aligned
        assert y.ravel().tolist() == [5, 6, 7]


def test_sends_one_picture_or_several() -> None:
    image = np.arange(30, dtype=np.uint8).reshape(2, 5, 3)
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        one = client.infer_rgb8("photo", image).outputs["mean"]
        many = client.infer_rgb8("photo", np.stack([image, image])).outputs["mean"]
        assert one.shape == (1, 3)
        assert many.shape == (2, 3)
        np.testing.assert_allclose(one[0], image.mean(axis=(0, 1)))


def test_large_payloads_go_through_in_both_directions() -> None:
    def big(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        request = connection.request()
        assert len(request.payload) == 40_000_000
        connection.send(reply(request.id, request.payload, rows=1))

    model = {
        "index": 0,
        "name": "big",
        "max_rows": 1,
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [10_000_000]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [10_000_000], "shape_known": True}],
        "rgb8": None,
    }
    array = np.arange(10_000_000, dtype=np.float32)
    original = DESCRIPTION["models"]
    DESCRIPTION["models"] = [model]
    try:
        with Peer((big,)) as peer, Client("127.0.0.1", peer.port, timeout_s=60) as client:
            np.testing.assert_array_equal(client.infer("big", {"x": array}).outputs["y"], array)
    finally:
        DESCRIPTION["models"] = original


def test_non_contiguous_input_arrives_right() -> None:
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        x = np.asfortranarray(X)
        np.testing.assert_array_equal(client.infer("sum", {"x": x}).outputs["twice"], X * 2)


@pytest.mark.parametrize(
    ("model", "inputs", "says"),
    [
        ("sum", {"x": X * 1j}, "expected float32 [rows, 4], found complex numbers."),
        ("sum", {"x": X.astype(np.float64) * 1e300}, "which float32 does not hold"),
        ("sum", {"x": X[0]}, "found float32 [4]: put one row into a list, [x], or use x[None]."),
        ("sum", {"x": X[:, :3]}, "expected float32 [rows, 4], found float32 [2, 3]."),
        ("raw", {"x": [1.0, 2.0, 3.0]}, "found float64 [3]: it may hold fractions"),
        ("raw", {"x": 3}, "expected int64 [3], found int64 []."),
        ("raw", {"x": [2**63] * 3}, "the value 9223372036854775808, which int64 does not hold"),
        ("sum", {"x": X[:0]}, "takes 1 to 512 rows in one request, found 0"),
        ("sum", {"x": np.zeros((513, 4), np.float32)}, "found 513"),
        ("sum", {"y": X}, "takes the inputs ['x'], found ['y']"),
        ("sum", {}, "found []"),
        ("sum", {"x": [[1.0, 2.0, 3.0, 4.0], [1.0]]}, "found list that is no array of numbers"),
        ("sum", {"x": [["a", "b", "c", "d"]]}, "found texts."),
        ("sum", {"x": None}, "found objects that are no numbers of 64 bits, such as None."),
    ],
)
def test_wrong_inputs_are_refused_before_sending(
    model: str, inputs: dict[str, object], says: str
) -> None:
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        with pytest.raises(BadRequest) as caught:
            client.infer(model, inputs)  # type: ignore[arg-type]
        assert says in str(caught.value)
        # The connection is as good as new.
        assert client.infer("sum", {"x": X}).rows == 2
        assert peer.connections == 1


def test_lists_and_other_types_are_converted() -> None:
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        for x in (X.tolist(), X.astype(np.float64), X.astype(">f4"), X.astype(np.int8), X > 3):
            found = client.infer("sum", {"x": x}).outputs["twice"]
            np.testing.assert_array_equal(found, np.asarray(x, np.float32) * 2)
        for whole in ([5, 6, 7], range(5, 8), np.array([5, 6, 7], np.uint8), (5, 6, 7)):
            assert client.infer("raw", {"x": whole}).outputs["y"].ravel().tolist() == [5, 6, 7]


def test_pictures_are_scaled_to_the_models_size(tmp_path: Path) -> None:
    picture = Image.new("RGB", (40, 10), (10, 20, 30))
    picture.save(tmp_path / "a.png")
    encoded = (tmp_path / "a.png").read_bytes()
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        for one in (tmp_path / "a.png", str(tmp_path / "a.png"), encoded, picture):
            assert client.infer_rgb8("photo", one).outputs["mean"].tolist() == [[10, 20, 30]]
        found = client.infer_rgb8("photo", [picture, encoded])
        assert (found.rows, found.outputs["mean"].tolist()) == (2, [[10, 20, 30]] * 2)
        for bad, error, says in [
            (tmp_path / "none.png", PictureError, "none.png is no readable picture: No such file"),
            (b"GIF89a", PictureError, "The picture is no readable picture"),
            ([], BadRequest, "found an empty list"),
            ([picture] * 9, BadRequest, "takes 1 to 8 rows"),
        ]:
            with pytest.raises(error, match=says):
                client.infer_rgb8("photo", bad)  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="takes no rgb8"):
            client.infer_rgb8("sum", picture)


@pytest.mark.parametrize("turned", range(1, 9))
def test_a_picture_is_turned_as_its_camera_says(turned: int) -> None:
    """The eight orientations of Exif: the model sees what a person sees."""
    model = parse_description(json.dumps(DESCRIPTION).encode()).models["photo"]
    seen = np.random.default_rng(7).integers(0, 256, (2, 5, 3)).astype(np.uint8)
    # How the sensor's rows and columns lie, by the number that says so.
    stored = {
        1: seen, 2: seen[:, ::-1], 3: seen[::-1, ::-1], 4: seen[::-1],
        5: seen.transpose(1, 0, 2), 6: np.rot90(seen, 1), 7: np.rot90(seen, 2).transpose(1, 0, 2),
        8: np.rot90(seen, -1),
    }[turned]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = turned
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(stored)).save(file, "PNG", exif=exif)
    np.testing.assert_array_equal(pictures.prepare(model, file.getvalue()), seen)


def test_a_grey_picture_lies_as_the_models_rows_and_columns() -> None:
    document = json.loads(json.dumps(DESCRIPTION))
    document["models"][0]["inputs"][0]["shape"] = [-1, 1, 2, 5]
    model = parse_description(json.dumps(document).encode()).models["sum"]
    seen = np.random.default_rng(8).integers(0, 256, (2, 5)).astype(np.uint8)
    found = pictures.prepare(model, Image.fromarray(seen))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, seen.reshape(1, 1, 2, 5))


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        ([-1, 1, 2, 5], True),
        ([1, 1, 2, 5], True),
        ([2, 1, 2, 5], False),
        ([1, 3, 2, 5], False),
        ([1, 2, 5], False),
        ([1, 1, 0, 5], False),
        ([1, 1, 2, -1], False),
    ],
)
def test_which_models_take_a_grey_picture(shape: list[int], fits: bool) -> None:
    document = json.loads(json.dumps(DESCRIPTION))
    document["models"][0]["inputs"][0]["shape"] = shape
    model = parse_description(json.dumps(document).encode()).models["sum"]
    if fits:
        assert pictures.prepare(model, Image.new("L", (9, 9))).shape == (1, 1, 2, 5)
    else:
        with pytest.raises(UnknownModel, match="'sum' takes no pictures: it has"):
            pictures.prepare(model, Image.new("L", (9, 9)))
    document["models"][0]["inputs"][0]["datatype"] = "UINT8"
    model = parse_description(json.dumps(document).encode()).models["sum"]
    with pytest.raises(UnknownModel):
        pictures.prepare(model, Image.new("L", (9, 9)))


def test_a_picture_of_another_form_is_scaled_as_a_whole() -> None:
    """Left and right halves of any picture are the left and right of the model's."""
    model = parse_description(json.dumps(DESCRIPTION).encode()).models["photo"]
    wide = Image.new("RGBA", (100, 30), (200, 0, 0, 9))
    wide.paste((0, 0, 200, 9), (50, 0, 100, 30))
    found = pictures.prepare(model, wide)
    assert (found.shape, found.dtype) == ((2, 5, 3), np.uint8)
    assert found[:, 0].tolist() == [[200, 0, 0]] * 2
    assert found[:, 4].tolist() == [[0, 0, 200]] * 2


def test_pictures_of_a_folder_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    names = ["b.png", "a.JPG", "c.jpeg", "d.bmp", "e.gif", "f.webp", "g.txt", "h.tiff", "png"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "i.png").mkdir()
    other = tmp_path / "g.txt"
    found = list(pictures.find([str(other), str(tmp_path), "none.png"]))
    assert [path.name for path in found] == [
        "g.txt", "a.JPG", "b.png", "c.jpeg", "d.bmp", "e.gif", "f.webp", "none.png",
    ]  # fmt: skip


def test_pictures_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        with pytest.raises(PictureError, match="pip install pillow"):
            client.infer_rgb8("photo", "a.png")


def test_rows_must_be_what_the_arrays_have() -> None:
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        assert client.infer("sum", {"x": X}, rows=2).rows == 2
        with pytest.raises(BadRequest, match="has 2 rows, expected 3"):
            client.infer("sum", {"x": X}, rows=3)


def test_pictures_of_another_size_or_model_are_refused() -> None:
    with Peer() as peer, Client("127.0.0.1", peer.port) as client:
        with pytest.raises(BadRequest, match=r"\[rows, 2, 5, 3\], found uint8 \[5, 2, 3\]"):
            client.infer_rgb8("photo", np.zeros((5, 2, 3), np.uint8))
        with pytest.raises(BadRequest, match="takes no rgb8"):
            client.infer_rgb8("sum", np.zeros((5, 2, 3), np.uint8))
        with pytest.raises(UnknownModel, match=r"it has \['sum', 'raw', 'photo'\]"):
            client.infer("nope", {})


def test_timeout_us_travels_and_must_fit() -> None:
    seen: list[int] = []

    def script(connection: Connection) -> None:
        while True:
            request = connection.request()
            seen.append(request.timeout_us)
            connection.send(answer(request))

    with Peer((script,)) as peer, Client("127.0.0.1", peer.port) as client:
        client.infer("sum", {"x": X}, timeout_us=250)
        with pytest.raises(BadRequest):
            client.infer("sum", {"x": X}, timeout_us=2**32)
        with pytest.raises(BadRequest):
            client.infer("sum", {"x": X}, timeout_us=-1)
    assert seen == [0, 250]


STATUSES = {
    1: BadRequest,
    2: UnknownModel,
    3: TooLarge,
    4: Overloaded,
    5: DeadlinePassed,
    6: Unauthorised,
    7: RateLimited,
    8: InferenceFailed,
    9: ShuttingDown,
}


@pytest.mark.parametrize("status", [*STATUSES, 77])
def test_each_status_has_its_error_and_the_connection_lives_on(status: int) -> None:
    def script(connection: Connection) -> None:
        connection.send(answer(connection.request()))
        connection.send(reply(connection.request().id, b"because", status=status))
        behave(connection)

    with Peer((script,)) as peer, Client("127.0.0.1", peer.port) as client:
        with pytest.raises(STATUSES.get(status, ServerError)) as caught:
            client.infer("sum", {"x": X})
        assert str(caught.value) == "because"
        assert caught.value.status == status
        assert client.infer("sum", {"x": X}).rows == 2
        assert peer.connections == 1


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 1e10])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_timeout_that_no_socket_takes(
    kind: type[Client] | type[AsyncClient], timeout_s: float
) -> None:
    with pytest.raises(ValueError, match="timeout_s: expected seconds above 0, at most 1e9"):
        kind(timeout_s=timeout_s)
