"""What is said of models of an upstream: statistics, figures, the log, rows of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import web
from conftest import Serve
from harness import eventually
from test_e2e_experts import pair, rule
from test_e2e_fallbacks import settings, three
from test_e2e_upstreams import CHAT, ask
from web import Http

pytestmark = pytest.mark.once


def get(port: int, path: str) -> dict[str, Any]:
    with Http(port) as http:
        return json.loads(http.query(web.get(path)).body)


def test_statistics_and_figures(serve: Serve) -> None:
    """An answer is a row and a Run, as those of other models are."""
    with three() as upstreams:
        server = serve(settings({}, **upstreams))
        for _ in range(3):
            assert ask(server.port, {"model": "one"})[0] == 200
        upstreams["two"].script = lambda request, peer: peer.cut()
        for _ in range(2):
            assert ask(server.port, {"model": "two"})[0] == 502

        def counted() -> list[Any]:
            found = []
            for name in ("one", "two"):
                (stats,) = get(server.port, f"/v2/models/{name}/stats")["model_stats"]
                inference = stats["inference_stats"]
                found += [stats["inference_count"], stats["execution_count"]]
                found += [inference["success"]["count"], inference["fail"]["count"]]
            return found

        eventually(lambda: counted() == [3, 3, 3, 0, 0, 0, 0, 2], "they are counted", found=counted)
        figures = {model["name"]: model for model in get(server.port, "/figures")["models"]}
        assert [figures["one"][key] for key in ("answered", "failed")] == [3, 0]
        assert [figures["two"][key] for key in ("answered", "failed")] == [0, 2]
        assert figures["one"]["infer_ns"] > 0


def test_no_row_has_what_is_another_ones(serve: Serve, tmp_path: Path) -> None:
    log, rows = tmp_path / "access.log", tmp_path / "rows.csv"
    with three() as upstreams:
        document = settings({}, **upstreams)
        document["models"] = pair(tmp_path, ["n", 16])
        document["experts"] = rule("variance", 2.0, of="x")
        document["log"] = {"access_path": str(log)}
        document["engine"] = {"telemetry_csv_path": str(rows)}
        server = serve(document)
        values = {"name": "x", "datatype": "FP32", "shape": [1, 16], "data": [0.0] * 16}
        body = json.dumps({"id": "of-another", "inputs": [values]}).encode()
        with Http(server.port) as http:
            for padding in (0, 5000, 20000, 60000):  # of each size of slots
                assert http.query(web.post(web.path("both"), body + b" " * padding)).code == 200
            for padding in (0, 5000, 20000, 60000):
                asked = b'{"model": "one"}' + b" " * padding
                assert http.query(web.post(CHAT, asked)).code == 200
        server.terminate()
        server.expect_clean_end()
    lines = log.read_text().splitlines()
    assert sum("of-another" in line for line in lines if 'model="both"' in line) == 4
    assert [line for line in lines if 'model="one"' in line and "id=" in line] == []
    table = [line.split(",") for line in rows.read_text().splitlines()]
    of_upstream = [row for row in table[1:] if row[1] == "one"]
    assert (table[0][3], table[0][-1]) == ("queue_type", "expert")
    assert {(row[3], row[-1]) for row in of_upstream} == {("upstream", "")}
    assert all(row[-1] for row in table[1:] if row[1] == "both")
