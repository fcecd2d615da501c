"""Models that come and go under load: by calls, by their folders, and by the settings. Every answer
is of a model that was in force, and nobody is refused one that is there all the time."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import graphs
import numpy as np
import pytest
import tritonclient.http as http_client
import web
import yaml
from conftest import Serve
from graphs import times
from harness import Server, eventually, run
from onnx import helper
from operating import Reloaded
from tritonclient.utils import InferenceServerException
from web import Http, get, post

from lumen_uring import Client
from lumen_uring.errors import UnknownModel
from lumen_uring.ring.stats import read

pytestmark = pytest.mark.once  # what loads models: the same on both backends

X = np.arange(16, dtype=np.float32)[None]


def ask(port: int, name: str) -> int:
    """The factor of the version that answers."""
    with Http(port) as http:
        answer = http.query(web.infer(name, {"x": X}))
        return int(answer.array("y")[0, 1]) if answer.code == 200 else -answer.code


@contextmanager
def asked_all_the_time(port: int, name: str, may_be: set[int]) -> Iterator[None]:
    stop = threading.Event()
    wrong: list[object] = []
    seen: set[int] = set()

    def client() -> None:
        with Http(port) as http:
            while not stop.wait(0.002):
                answer = http.query(web.infer(name, {"x": X}))
                if answer.code != 200:
                    wrong.append(answer)
                    return
                seen.add(int(answer.array("y")[0, 1]))

    threads = [threading.Thread(target=client) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert seen <= may_be


def repository(folder: Path, control: str, **more: object) -> dict[str, object]:
    return {"paths": [str(folder)], "control": control, **more}


def test_calls_under_load(serve: Serve, tmp_path: Path) -> None:
    for name, version, factor in (("same", 1, 7), ("m", 1, 1)):
        times(tmp_path / f"{name}/{version}/model.onnx", factor)
    server = serve({"repository": repository(tmp_path, "explicit", load=["same"])})
    client = http_client.InferenceServerClient(f"127.0.0.1:{server.port}")
    with asked_all_the_time(server.port, "same", {7}):
        assert ask(server.port, "m") == -404
        client.load_model("m")
        assert ask(server.port, "m") == 1
        with asked_all_the_time(server.port, "m", {1, 2, 3}):
            for factor in (2, 3):
                times(tmp_path / f"m/{factor}/model.onnx", factor)
                client.load_model("m")
                assert ask(server.port, "m") == factor
            (tmp_path / "m/4").mkdir()
            (tmp_path / "m/4/model.onnx").write_bytes(b"no model")
            with Http(server.port) as http:
                assert http.query(post("/v2/repository/models/m/load")).code == 400
            assert ask(server.port, "m") == 3
        client.unload_model("m")
        assert ask(server.port, "m") == -404
        assert not client.is_model_ready("m")
    client.close()
    server.check_idle()


def test_versions_side_by_side(serve: Serve, tmp_path: Path) -> None:
    """A request that names no version goes to the highest; the policy's latest two come and go."""
    for version in (1, 2):
        times(tmp_path / f"m/{version}/model.onnx", version)
    (tmp_path / "m/config.pbtxt").write_text("version_policy: { latest { num_versions: 2 } }")
    server = serve({"repository": repository(tmp_path, "explicit", load=["m"])})
    client = http_client.InferenceServerClient(f"127.0.0.1:{server.port}")
    tensor = http_client.InferInput("x", list(X.shape), "FP32")
    tensor.set_data_from_numpy(X)

    def answers(version: str) -> tuple[int, str]:
        answer = client.infer("m", [tensor], model_version=version)
        factor = answer.as_numpy("y")
        assert factor is not None
        return int(factor[0, 1]), answer.get_response()["model_version"]

    def stats(version: str) -> list[tuple[str, int]]:
        rows = client.get_inference_statistics("m", version)["model_stats"]
        return [(row["version"], row["inference_count"]) for row in rows]

    with asked_all_the_time(server.port, "m", {2, 3}):
        assert (answers("1"), answers("2")) == ((1, "1"), (2, "2"))
        assert client.get_model_metadata("m")["versions"] == ["1", "2"]
        assert stats("1") == [("1", 1)]
        assert [version for version, _ in stats("")] == ["1", "2"]
        times(tmp_path / "m/3/model.onnx", 3)
        client.load_model("m")
        assert [answers(version) for version in ("", "2", "3")] == [(3, "3"), (2, "2"), (3, "3")]
        with pytest.raises(
            InferenceServerException, match="version 1 is not at ready state; it has 2, 3"
        ):
            answers("1")
        assert client.get_model_metadata("m")["versions"] == ["2", "3"]
    with Client("127.0.0.1", server.port) as native:
        given = {"x": X}
        assert native.infer("m", given).outputs["y"][0, 1] == 3
        assert native.infer("m:2", given).outputs["y"][0, 1] == 2
        with pytest.raises(UnknownModel, match="no model 'm:1'; it has"):
            native.infer("m:1", given)
    states = {(one["version"], one["state"]) for one in client.get_model_repository_index()}
    assert states == {("1", "UNAVAILABLE"), ("2", "READY"), ("3", "READY")}
    client.unload_model("m")
    assert ask(server.port, "m") == -404
    client.close()
    server.check_idle()


def test_a_key_may_name_a_model_that_comes_later(serve: Serve, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        times(tmp_path / f"{name}/1/model.onnx", ord(name))
    keys = [
        {"name": "root", "sha256": hashlib.sha256(b"root").hexdigest(), "admin": True},
        {"name": "ada", "sha256": hashlib.sha256(b"ada").hexdigest(), "models": ["c"]},
    ]
    server = serve(
        {"server": {"keys": keys}, "repository": repository(tmp_path, "explicit", load=["a"])}
    )

    def code(name: str) -> int:
        with Http(server.port) as http:
            return http.query(web.infer(name, {"x": X}, headers=["Authorization: Bearer ada"])).code

    def call(target: str) -> None:
        with Http(server.port) as http:
            made = post(f"/v2/repository/models/{target}", b"", "Authorization: Bearer root")
            assert http.query(made).code == 200

    for target, codes in (
        ("b/load", (403, 403, 404)),
        ("c/load", (403, 403, 200)),
        ("a/unload", (404, 403, 200)),
        ("c/unload", (404, 403, 404)),
        ("a/load", (403, 403, 404)),
        ("c/load", (403, 403, 200)),
    ):
        call(target)
        assert tuple(map(code, "abc")) == codes, target


def test_a_model_that_another_one_needs(serve: Serve, tmp_path: Path) -> None:
    for name, factor in (("light", 1), ("dense", 2)):
        times(tmp_path / f"models/{name}/1/model.onnx", factor)
    rule = [{"model": "light", "below": 1e9}, {"model": "dense"}]
    server = serve(
        {
            "repository": repository(tmp_path / "models", "explicit", load=["*"]),
            "experts": [{"name": "both", "feature": "mean", "experts": rule}],
        }
    )
    with Http(server.port) as http:
        for name in ("light", "dense"):
            answer = http.query(post(f"/v2/repository/models/{name}/unload"))
            assert (answer.code, "both" in answer.error) == (400, True)
    assert [ask(server.port, name) for name in ("both", "light", "dense")] == [1, 1, 2]


def test_folders_are_watched(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    times(folder / "m/1/model.onnx", 1)
    server = serve({"repository": repository(folder, "watch")})

    def becomes(name: str, factor: int) -> None:
        eventually(lambda: ask(server.port, name) == factor, f"{name} x {factor}", 60)

    with asked_all_the_time(server.port, "m", {1, 2}):
        times(tmp_path / "2/model.onnx", 2)
        (tmp_path / "2").rename(folder / "m/2")
        becomes("m", 2)
        times(folder / "n/1/model.onnx", 5)
        becomes("n", 5)
    (folder / "n").rename(tmp_path / "away")
    becomes("n", -404)
    with Http(server.port) as http:
        answer = http.query(post("/v2/repository/models/m/load"))
        assert answer.code == 501
        assert http.query(get("/v2/health/ready")).code == 200


def test_settings_are_read_again(serve: Serve, cache: Path, tmp_path: Path) -> None:
    def document(**models: int) -> dict[str, object]:
        return {
            "server": {"arena_bytes": "64MiB"},
            "models": [
                {"name": name, "path": str(times(tmp_path / f"{name}{factor}.onnx", factor))}
                for name, factor in models.items()
            ],
        }

    one = Reloaded(serve, tmp_path, document(a=1, b=2))
    port = one.server.port

    def reload(wanted: dict[str, object]) -> tuple[int, str]:
        one.write(wanted)
        done = run(["reload", "--port", str(port)], cache)
        return done.returncode, done.stdout

    with asked_all_the_time(port, "a", {1, 5, 6}):
        code, said = reload(document(a=5, c=3))
        assert code == 0, said
        assert "model b (to be unloaded)" in said
        assert said.splitlines()[1:] == [
            "model a: loading version 1 ...",
            "model a: version 1 is loaded",
            "model c: loading version 1 ...",
            "model c: version 1 is loaded",
        ]
        assert [ask(port, name) for name in "abc"] == [5, -404, 3]
        # Another file under the same name: no setting has changed, and a model has.
        wanted = document(a=5, c=3)
        assert reload(wanted)[0] == 0
        times(tmp_path / "a5.onnx", 6)
        assert reload(wanted) == (
            0,
            "Reloaded: no setting has changed.\n"
            "model a: loading version 1 ...\nmodel a: version 1 is loaded\n",
        )
        assert ask(port, "a") == 6
        assert reload(wanted) == (
            0,
            "Reloaded: no setting has changed.\nAll models are loaded as their files are now.\n",
        )
    bad = document(a=6, c=3)
    bad["models"][1]["max_output_bytes"] = 3  # type: ignore[index]
    (tmp_path / "c3.onnx").write_bytes(b"no model")
    bad["server"] = {"arena_bytes": "32MiB"}
    code, said = reload(bad)
    assert code == 1
    assert "server.arena_bytes cannot change without a restart" in said
    assert "model c: not loaded" in said
    assert [ask(port, name) for name in "ac"] == [6, 3]
    one.path.write_text("models: 3")
    done = run(["reload", "--port", str(port)], cache)
    assert (done.returncode, "The reload failed" in done.stdout) == (1, True)


def test_virtual_models_are_read_again(serve: Serve, cache: Path, tmp_path: Path) -> None:
    """Experts and ensembles come, change and go; nobody misses one that stays."""
    models = [
        {"name": name, "path": str(times(tmp_path / f"{name}.onnx", factor))}
        for name, factor in (("light", 2), ("dense", 3))
    ]

    def document(below: float | None, steps: int) -> dict[str, object]:
        rule = [{"model": "light", "below": below}, {"model": "dense"}]
        chain = [
            {
                "model": "light",
                "inputs": {"x": f"t{step}" if step else "x"},
                "outputs": {"y": f"t{step + 1}"},
            }
            for step in range(steps)
        ]
        return {
            "models": models,
            "experts": []
            if below is None
            else [{"name": "both", "feature": "mean", "experts": rule}],
            "ensembles": [{"name": "chain", "steps": chain}] if steps else [],
        }

    one = Reloaded(serve, tmp_path, document(1e9, 0))
    port = one.server.port

    def reload(wanted: dict[str, object]) -> str:
        one.write(wanted)
        done = run(["reload", "--port", str(port)], cache)
        assert done.returncode == 0, done.stdout
        return done.stdout

    assert (ask(port, "both"), ask(port, "chain")) == (2, -404)
    with asked_all_the_time(port, "both", {2, 3}):
        said = reload(document(-1e9, 2))
        assert "model both (to be loaded again), model chain (to be loaded)" in said
        assert ask(port, "both") == 3
        with Http(port) as http:
            answer = http.query(web.infer("chain", {"x": X}))
            assert (answer.code, answer.array("t2")[0, 1]) == (200, 4)
        assert reload(document(-1e9, 2)).splitlines() == [
            "Reloaded: no setting has changed.",
            "All models are loaded as their files are now.",
        ]
    said = reload(document(None, 3))
    assert "model both (to be unloaded), model chain (to be loaded again)" in said
    assert ask(port, "both") == -404
    with Http(port) as http:
        assert http.query(web.infer("chain", {"x": X})).array("t3")[0, 1] == 8
    # A model that a virtual one runs stays as it is.
    changed = document(None, 3)
    changed["models"] = [{**models[0], "max_rows": 3}, models[1]]
    one.path.write_text(yaml.safe_dump(changed))
    done = run(["reload", "--port", str(port)], cache)
    assert (done.returncode, "is run by 'chain'" in done.stdout) == (1, True), done.stdout
    with Http(port) as http:
        assert http.query(web.infer("chain", {"x": X})).array("t3")[0, 1] == 8
    one.server.check_idle()


def test_experts_keep_their_counts(serve: Serve, tmp_path: Path) -> None:
    """Whatever their order is after a reload."""
    factors = {"light": 2, "dense": 3}
    models = [
        {"name": name, "path": str(times(tmp_path / f"{name}.onnx", factor))}
        for name, factor in factors.items()
    ]

    def document(*order: str) -> dict[str, object]:
        rule = [{"model": order[0], "below": 1e9}, {"model": order[1]}]
        return {
            "models": models,
            "experts": [{"name": "both", "feature": "mean", "experts": rule}],
        }

    def counts() -> dict[str, int]:
        found = read(one.server.stats_path).models["both"]
        return {name: found[f"expert:{name}"] for name in factors}

    one = Reloaded(serve, tmp_path, document("light", "dense"))
    answers = [ask(one.server.port, "both") for _ in range(5)]
    eventually(lambda: counts() == {"light": 5, "dense": 0}, "the counts", found=counts)
    one.reload(document("dense", "light"))
    while answers[-1] == 2:  # until it is loaded
        answers.append(ask(one.server.port, "both"))
    wanted = {"light": answers.count(2), "dense": answers.count(3)}
    eventually(lambda: counts() == wanted, f"{wanted}", found=counts)


def halves(server: Server, first: bytes, rest: bytes, between: Callable[[], object]) -> web.Answer:
    """A request of which one part is here before something happens, and the other comes after."""
    with Http(server.port) as http:
        before = server.figures().io["http_requests"]
        http.send(first)
        eventually(lambda: server.figures().io["http_requests"] > before, "the head is read")
        between()
        http.send(rest)
        return http.answer()


@pytest.mark.parametrize("what", ["same tensors", "other tensors", "unloaded"])
@pytest.mark.parametrize("binary", [True, False])
def test_a_model_changes_while_a_request_comes(
    serve: Serve, tmp_path: Path, what: str, binary: bool
) -> None:
    """No model is given what was meant for another one's tensors: a request that has its memory is
    run by the model that was there; one without is refused where the tensors are others."""
    times(tmp_path / "m/1/model.onnx", 3)
    server = serve({"repository": repository(tmp_path, "explicit", load=["m"])})
    request = web.infer("m", {"x": X}, binary=binary)
    head, _, body = request.partition(b"\r\n\r\n")
    at = len(head) + 4 + 9  # within the JSON

    def change() -> None:
        action = "unload" if what == "unloaded" else "load"
        if what == "same tensors":
            times(tmp_path / "m/2/model.onnx", 5)
        if what == "other tensors":
            shape = ["n", 4]
            graphs.save(
                tmp_path / "m/2/model.onnx",
                [helper.make_node("Identity", ["x"], ["y"])],
                [graphs.tensor("x", graphs.FLOAT, shape)],
                [graphs.tensor("y", graphs.FLOAT, shape)],
            )
        with Http(server.port) as other:
            assert other.query(post(f"/v2/repository/models/m/{action}")).code == 200

    (tmp_path / "m/2").mkdir()
    assert len(body) > 20
    answer = halves(server, request[:at], request[at:], change)
    if answer.code == 200:
        assert answer.array("y").tobytes() == (X * answer_factor(answer)).tobytes()
        assert answer_factor(answer) in ((3, 5) if what == "same tensors" else (3,))
    else:
        assert what != "same tensors"
        assert answer.code == 404
        said = "by one with other tensors" if what == "other tensors" else "was unloaded while"
        assert said in answer.error
    if binary:  # its place depends on the JSON, which was not here
        assert (answer.code == 200) == (what == "same tensors")
    server.check_idle()


def answer_factor(answer: web.Answer) -> int:
    return int(answer.array("y")[0, 1])
