"""Which version answers requests that name none: over each protocol as the weights say, of a
session always the same, and as a reload says from then on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import graphs
import numpy as np
import pytest
import text_folders
import tritonclient.grpc as triton
import web
from conftest import Serve
from harness import eventually
from http2 import Http2
from operating import Reloaded
from web import Http

pytestmark = pytest.mark.once  # what chooses a version is the same on both backends

X: Final = np.arange(16, dtype="<f4").reshape(1, 16)


def settings(tmp_path: Path, **traffic: Any) -> dict[str, Any]:
    paths = {number: graphs.double(tmp_path / f"{number}.onnx") for number in (1, 2, 3)}
    models = [{"name": f"iris:{number}", "path": str(path)} for number, path in paths.items()]
    return {"models": models, "traffic": {"iris": traffic}}


def ask(link: Any, *fields: str, name: str = "iris") -> str:
    """The version that answers."""
    answer = link.query(web.infer(name, {"x": X}, headers=fields))
    assert answer.code == 200
    version: str = answer.document["model_version"]
    return version


def count(link: Any, requests: int) -> dict[str, int]:
    return dict(Counter(ask(link) for _ in range(requests)))


@pytest.mark.parametrize("connect", [Http, Http2])
def test_each_version_has_its_share(serve: Serve, tmp_path: Path, connect: Any) -> None:
    """One of weight 0 is asked by its number alone. Metadata are the highest's."""
    document = settings(tmp_path, versions={1: 75, 2: 25, 3: 0})
    document["server"] = {"io_threads": 1}
    server = serve(document)
    with connect(server.port) as link:
        found = count(link, 100)
        assert found["1"] == pytest.approx(75, abs=3)
        assert found["2"] == 100 - found["1"]
        for number in "123":
            path = f"/v2/models/iris/versions/{number}/infer"
            answer = link.query(
                web.post(path, web.cut(web.infer("iris", {"x": X}, binary=False))[1])
            )
            assert answer.document["model_version"] == number
        assert ask(link, name="iris:2") == "2"
        assert ask(link, "lumen-session: ann") in "12"
        assert link.query(web.get("/v2/models/iris")).document["versions"] == ["1", "2", "3"]


def test_calls_have_versions_too(serve: Serve, tmp_path: Path) -> None:
    server = serve(settings(tmp_path, versions={1: 50, 2: 50}))
    given = triton.InferInput("x", X.shape, "FP32")
    given.set_data_from_numpy(X)
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        found = Counter(
            client.infer("iris", [given]).get_response().model_version for _ in range(40)
        )
        assert found["1"] == pytest.approx(20, abs=3)
        assert set(found) == {"1", "2"}
        one = client.infer("iris", [given], model_version="3").get_response()
        assert one.model_version == "3"


def test_a_session_stays_with_its_version(serve: Serve, tmp_path: Path) -> None:
    """Whichever connection its requests come on; the sessions are spread."""
    server = serve(settings(tmp_path, versions={1: 50, 2: 50}, sticky=True))
    names = [f"user-{number}" for number in range(40)]
    with Http(server.port) as one, Http2(server.port) as other:
        found = [ask(one, f"Lumen-Session: {name}") for name in names]
        assert [ask(other, f"lumen-session: {name}") for name in names] == found
        assert 10 <= found.count("1") <= 30
        assert set(count(one, 20)) == {"1", "2"}


def test_a_reload_changes_the_shares(serve: Serve, tmp_path: Path) -> None:
    """Also while a version is not there, whose share the others get."""
    document = settings(tmp_path, versions={1: 100, 2: 0})
    one = Reloaded(serve, tmp_path, document)
    with Http(one.server.port) as link:
        assert count(link, 20) == {"1": 20}
        said = one.reload({**document, "traffic": {"iris": {"versions": {1: 0, 2: 1}}}})
        assert "traffic" in said
        assert count(link, 20) == {"2": 20}
        one.reload({**document, "traffic": {"iris": {"versions": {9: 7}}}})
        assert count(link, 20) == {"3": 20}  # none of these is served
        one.reload({**document, "traffic": {"rose": {"versions": {1: 1}}}})
        assert count(link, 20) == {"3": 20}
        two = {**document, "models": document["models"][:2]}
        one.reload({**two, "traffic": {"iris": {"versions": {1: 1, 2: 1, 3: 8}}}})
        # It is unloaded behind the line in the log.
        eventually(lambda: set(count(link, 20)) == {"1", "2"}, "the share of a version that goes")


def test_texts_have_versions_too(serve: Serve, tmp_path: Path) -> None:
    """Their model's name is in the body, or there is one alone."""
    files = text_folders.sentence_files({"pooling_mode_mean_tokens": True})
    folder = str(text_folders.write(tmp_path / "emb", files))
    models = [{"name": f"emb:{number}", "path": folder} for number in (1, 2)]
    traffic = {"emb": {"versions": {1: 1, 2: 1}, "sticky": True}}
    server = serve({"models": models, "traffic": traffic})

    def answered(link: Http) -> list[int]:
        paths = [f"/v2/models/emb/versions/{number}/stats" for number in (1, 2)]
        figures = [link.query(web.get(path)).document["model_stats"][0] for path in paths]
        return [one["inference_stats"]["success"]["count"] for one in figures]

    with Http(server.port) as link:
        for body in ({"model": "emb", "input": "hello"}, {"input": "hello"}):
            before = answered(link)
            for _ in range(20):
                assert link.query(web.post("/v1/embeddings", json.dumps(body).encode())).code == 200
            found = [now - was for now, was in zip(answered(link), before, strict=True)]
            assert sum(found) == 20
            assert found[0] == pytest.approx(10, abs=2)
        before = answered(link)
        for _ in range(5):
            one = json.dumps({"model": "emb:1", "input": "hello"}).encode()
            assert link.query(web.post("/v1/embeddings", one)).code == 200
            one = json.dumps({"model": "emb", "input": "hello"}).encode()
            assert link.query(web.post("/v1/embeddings", one, "Lumen-Session: a")).code == 200
        found = [now - was for now, was in zip(answered(link), before, strict=True)]
        assert found in ([10, 0], [5, 5])
