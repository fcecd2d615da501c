"""Copies of requests on another version: no client sees them, and how far its answers are from the
others' is counted: by each protocol and encoding, in batches, with strings and texts; what cannot
be compared, fails, or finds no room is counted too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import graphs
import numpy as np
import onnx
import pytest
import text_folders
import web
from conftest import Serve
from harness import Server, eventually
from onnx import helper
from operating import Reloaded
from test_e2e_shm_http import BASE, File, ask, place, register
from web import Http

from lumen_uring import Client
from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # copies are run beside both backends

FLOAT, INT64, STRING = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.STRING
COLUMNS: Final = 16
# Of the first the largest number stays where it is; of the second it does not.
SAME: Final = np.linspace(1, 0, COLUMNS, dtype="<f4")
OTHER: Final = np.linspace(1, 0.875, COLUMNS, dtype="<f4")


def shifted(path: Path, outputs: int = COLUMNS) -> Path:
    """y = x + x, and half more in the last column."""
    shift = np.zeros(COLUMNS, np.float32)
    shift[-1] = 0.5
    return graphs.save(
        path,
        [
            helper.make_node("Add", ["x", "x"], ["twice"]),
            helper.make_node("Add", ["twice", "shift"], ["y"]),
        ],
        [graphs.tensor("x", FLOAT, ["n", COLUMNS])],
        [graphs.tensor("y", FLOAT, ["n", outputs])],
        {"shift": shift},
    )


def settings(
    paths: Mapping[str, Path | str], of_model: Mapping[str, Any] | None = None, **traffic: Any
) -> dict[str, Any]:
    """The versions 1 and 2 of `one`; the second has copies of all requests of the first."""
    models = [{"name": name, "path": str(path), **(of_model or {})} for name, path in paths.items()]
    rule = {"versions": {1: 1}, "shadow": 2, "shadow_percent": 100, **traffic}
    return {"models": models, "traffic": {"one": rule}}


def doubles(folder: Path) -> dict[str, Path]:
    return {
        "one:1": graphs.double(folder / "1.onnx"),
        "one:2": shifted(folder / "2.onnx"),
    }


def figures(server: Server, name: str = "one:2") -> dict[str, int]:
    values = read(server.stats_path).models[name]
    return {
        word.removeprefix("shadow_"): value
        for word, value in values.items()
        if word.startswith("shadow_") and word != "shadow_cpu_ns"
    }


def copies(server: Server, count: int) -> dict[str, int]:
    """The figures, once so many copies have ended."""
    ends = ("ok", "failed", "skipped", "unfit")
    eventually(
        lambda: sum(figures(server)[end] for end in ends) == count,
        f"{count} copies",
        found=lambda: figures(server),
    )
    return {word: value for word, value in figures(server).items() if value}


@pytest.mark.parametrize("batch_size", [1, 8])
def test_the_differences_are_counted(serve: Serve, tmp_path: Path, batch_size: int) -> None:
    """Whichever way requests come, and only those of the other version."""
    document = settings(doubles(tmp_path))
    document["engine"] = {"thread_count": 1, "batch_size": batch_size, "queue_type": "mpmc"}
    server = serve(document)
    both = np.stack([SAME, OTHER])
    with Http(server.port) as http, Client(port=server.port) as client:
        for done, x in enumerate((SAME[None], OTHER[None], both), 1):
            for binary in (True, False):
                answer = http.query(web.infer("one", {"x": x}, binary=binary))
                assert answer.document["model_version"] == "1"
            np.testing.assert_array_equal(client.infer("one:1", {"x": x}).outputs["y"], x + x)
            assert http.query(web.infer("one:2", {"x": x})).code == 200
            found = copies(server, 3 * done)
        assert found == {"ok": 9, "rows": 12, "apart": 6, "difference": 500_000_000}
        page = http.query(web.get("/v2/models/one/versions/2/stats")).document
        assert page["model_stats"][0]["inference_stats"]["success"]["count"] == 3


def test_batches_are_compared(serve: Serve, tmp_path: Path) -> None:
    """Whose inputs and outputs were side by side with others'."""
    document = settings(doubles(tmp_path), {"batch_delay_us": 20_000})
    document["engine"] = {"thread_count": 1, "batch_size": 8, "queue_type": "mpmc"}
    server = serve(document)
    links = [Http(server.port) for _ in range(8)]
    for _ in range(5):
        for number, link in enumerate(links):
            link.send(web.infer("one", {"x": (OTHER if number % 4 == 0 else SAME)[None]}))
        for link in links:
            assert link.answer().code == 200
    for link in links:
        link.close()
    found = copies(server, 40)
    done = found["ok"]  # of eight at a time some may find no room
    assert done + found.get("skipped", 0) == 40
    assert server.figures().worker["batches"] > 0
    assert found["rows"] == done >= 5
    assert 0 < found["apart"] <= 10
    assert found["difference"] == 500_000_000


def test_pixels_become_tensors_once_more(serve: Serve, tmp_path: Path) -> None:
    """In a batch they were made in the place of the batch."""
    shape = ["n", 3, 4, 4]
    paths = {
        f"one:{number}": graphs.save(
            tmp_path / f"{number}.onnx",
            [helper.make_node("Add", ["x", "more"], ["y"])],
            [graphs.tensor("x", FLOAT, shape)],
            [graphs.tensor("y", FLOAT, shape)],
            {"more": np.float32(more)},
        )
        for number, more in ((1, 1.0), (2, 1.25))
    }
    document = settings(paths, {"batch_delay_us": 20_000})
    document["engine"] = {"thread_count": 1, "batch_size": 8, "queue_type": "mpmc"}
    server = serve(document)
    links = [Http(server.port) for _ in range(4)]
    for link in links:
        link.send(web.raw("one", bytes(range(48))))
    for link in links:
        assert link.answer().code == 200
        link.close()
    assert server.figures().worker["batches"] > 0
    assert copies(server, 4) == {"ok": 4, "rows": 4, "difference": 250_000_000}


def test_strings_and_all_types(serve: Serve, tmp_path: Path) -> None:
    """Strings are compared row by row, and numbers of all types are read."""

    def texts(path: Path, word: str) -> Path:
        """A word for "yes", and one for all others."""
        words: dict[str, Any] = {"keys_strings": ["yes"], "values_strings": [word]}
        node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **words)
        graphs.save(path, [node], *([graphs.tensor(name, STRING, ["n"])] for name in "xy"))
        model = onnx.load(str(path))
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
        onnx.save(model, str(path))
        return path

    paths = {
        "one:1": texts(tmp_path / "s1.onnx", "yes"),
        "one:2": texts(tmp_path / "s2.onnx", "no, never"),
        "all:1": graphs.dtypes(tmp_path / "d1.onnx"),
        "all:2": graphs.dtypes(tmp_path / "d2.onnx"),
    }
    document = settings(paths)
    document["traffic"]["all"] = document["traffic"]["one"]
    server = serve(document)
    with Client(port=server.port) as client, Http(server.port) as http:
        client.infer("one:1", {"x": np.array(["no", "yes", "", "yes"], np.object_)})
        body = web.Tensor("BYTES", (2,), [b"yes", b"no"])
        assert http.query(web.infer("one", {"x": body}, binary=False)).code == 200
        assert copies(server, 2) == {"ok": 2, "rows": 6, "apart": 3}
        ones = {f"in_{name}": np.ones((2, 3), code) for name, _type, code in graphs.DTYPES}
        client.infer("all:1", ones)
    eventually(lambda: figures(server, "all:2")["ok"] == 1, "a copy with all types")
    assert figures(server, "all:2") == {**dict.fromkeys(figures(server), 0), "ok": 1, "rows": 2}


def test_texts_are_compared(serve: Serve, tmp_path: Path) -> None:
    pooling = ({"pooling_mode_mean_tokens": True}, {"pooling_mode_cls_token": True})
    folders = {
        f"one:{number}": text_folders.write(
            tmp_path / str(number), text_folders.sentence_files(how)
        )
        for number, how in enumerate(pooling, 1)
    }
    server = serve(settings(folders))
    with Http(server.port) as link:
        body = b'{"model": "one", "input": ["hello world", "two"]}'
        assert link.query(web.post("/v1/embeddings", body)).code == 200
        assert (
            link.query(
                web.infer("one", {"text": web.Tensor("BYTES", (1,), [b"a b"])}, binary=False)
            ).code
            == 200
        )
    found = copies(server, 2)
    assert (found["ok"], found["rows"]) == (2, 3)
    assert 0 < found["difference"] < 10**9


def test_shared_memory_is_its_clients_again(serve: Serve, tmp_path: Path) -> None:
    """Its client may write there once it has the answer: no copy reads from it."""
    file = File()
    server = serve({**settings(doubles(tmp_path)), "server": {"shared_memory": True}})
    x = {"name": "x", "datatype": "FP32", "shape": [1, COLUMNS], "parameters": place("r", 64)}
    with Http(server.port) as link:
        assert link.query(register("r", file.key, 4096)).code == 200
        file.put(0, SAME)
        assert link.query(ask("one", [x], [{"name": "y"}])).code == 200
        assert copies(server, 1) == {"unfit": 1}
        assert link.query(web.post(f"{BASE}/unregister")).code == 200
    file.path.unlink()


def test_what_cannot_be_compared_is_said(serve: Serve, tmp_path: Path) -> None:
    """Another shape, a Run that fails, and a version that is not served."""
    wide, narrow = graphs.double(tmp_path / "1.onnx"), graphs.double(tmp_path / "2.onnx", 4)
    server = serve(settings({"one:1": wide, "one:2": narrow}))
    with Http(server.port) as link:
        assert link.query(web.infer("one", {"x": SAME[None]})).code == 200
    assert copies(server, 1) == {"unfit": 1}
    server.stop()
    short = graphs.save(
        tmp_path / "short.onnx",
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        [graphs.tensor("x", INT64, [1])],
        [graphs.tensor("y", INT64, [1])],
        {"table": np.array([10, 21], np.int64)},
    )
    one = Reloaded(
        serve, tmp_path, settings({"one:1": graphs.gather(tmp_path / "g.onnx"), "one:2": short})
    )
    with Http(one.server.port) as link:
        for x in (0, 1, 3):
            answer = link.query(web.infer("one", {"x": np.array([x])}, binary=False))
            assert answer.document["outputs"][0]["data"] == [10 + 10 * x]
        assert link.query(web.infer("one", {"x": np.array([4])})).code == 400  # it has no answer
        assert copies(one.server, 3) == {"ok": 2, "rows": 2, "apart": 1, "failed": 1}


def test_a_reload_begins_and_ends_it(serve: Serve, tmp_path: Path) -> None:
    """So many in a hundred; and the version may go while it has copies."""
    document = settings(doubles(tmp_path), shadow_percent=25)
    without = {**document, "traffic": {"one": {"versions": {1: 1}}}}
    one = Reloaded(serve, tmp_path, without)
    request = web.infer("one", {"x": OTHER[None]})

    def ask(link: Http, times: int) -> None:
        for _ in range(times):
            assert link.query(request).document["model_version"] == "1"

    with Http(one.server.port) as link:
        ask(link, 10)
        one.reload(document)
        ask(link, 1)
        assert copies(one.server, 1)["ok"] == 1  # the first is always one of them
        for done in range(2, 6):
            ask(link, 4)
            copies(one.server, done)
        one.reload(without)
        ask(link, 20)
        assert copies(one.server, 5)["ok"] == 5
        one.reload({**document, "traffic": {"one": {"versions": {1: 1}, "shadow": 9}}})
        ask(link, 5)
        one.reload({**document, "models": document["models"][:1]})
        ask(link, 20)


def test_a_slow_version_delays_nobody(serve: Serve, tmp_path: Path) -> None:
    """Copies beyond a bound are left out, and neither answers nor the end wait for the rest."""
    quick = graphs.save(
        tmp_path / "1.onnx",
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [graphs.tensor("x", INT64, [1])],
        [graphs.tensor("y", INT64, [1])],
    )
    slow = graphs.slow(tmp_path / "2.onnx")
    one = Reloaded(serve, tmp_path, settings({"one:1": quick, "one:2": slow}))
    with Http(one.server.port) as link:
        for _ in range(200):
            assert link.query(web.infer("one", {"x": np.array([30_000])})).code == 200
        found = figures(one.server)
        assert found["skipped"] >= 100
        assert found["ok"] < 100
    one.server.terminate()
    assert one.server.wait() == 0
