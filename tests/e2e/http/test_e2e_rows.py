"""Rows with names: KServe v1, TensorFlow Serving and MLflow, against ONNX Runtime's own answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import web
from conftest import Serve
from graphs import FLOAT, INT64, tensor
from harness import Server, eventually
from onnx import TensorProto, helper
from operating import key
from test_e2e_free_dims import TOKENS, bert, segments
from test_e2e_strings import CITIES, table, text
from web import Http

pytestmark = pytest.mark.once  # what reads rows is the same on both backends

ROUNDS = 30
NAMES = ["age", "fare", "siblings", "is_child"]
Arrays = dict[str, np.ndarray]


def pipeline(path: Path) -> Path:
    """A classifier as skl2onnx makes one of a data frame's pipeline: an input [None, 1] for each
    column, and outputs label INT64 [None] and probabilities FP32 [None, 3]."""
    random = np.random.default_rng(5)
    columns = [("age", FLOAT), ("fare", TensorProto.DOUBLE), ("siblings", INT64)]
    nodes = [
        helper.make_node("Cast", [name], [f"{name}_f"], to=FLOAT) for name in ["fare", "siblings"]
    ]
    nodes += [
        helper.make_node("Cast", ["is_child"], ["child_f"], to=FLOAT),
        helper.make_node("Imputer", ["age"], ["age_f"], domain="ai.onnx.ml",
                         imputed_value_floats=[29.5], replaced_value_float=float("nan")),
        helper.make_node("Concat", ["age_f", "fare_f", "siblings_f", "child_f"], ["all"], axis=1),
        helper.make_node("Scaler", ["all"], ["scaled"], domain="ai.onnx.ml",
                         offset=[29.0, 32.0, 0.5, 0.5], scale=[0.07, 0.02, 0.9, 1.0]),
        helper.make_node("LinearClassifier", ["scaled"], ["label", "probabilities"],
                         domain="ai.onnx.ml", classlabels_ints=[0, 1, 2], multi_class=0,
                         coefficients=random.normal(size=12).tolist(),
                         intercepts=[0.1, 0.2, -0.3], post_transform="SOFTMAX"),
    ]  # fmt: skip
    inputs = [tensor(name, dtype, [None, 1]) for name, dtype in columns]
    inputs.append(tensor("is_child", TensorProto.BOOL, [None, 1]))
    outputs = [tensor("label", INT64, [None]), tensor("probabilities", FLOAT, [None, 3])]
    graph = helper.make_graph(nodes, "pipeline", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    onnx.save(model, str(path))
    return path


def sums(path: Path) -> Path:
    """FP32 [n, 1] of a, b and c -> their sum."""
    names = ["a", "b", "c"]
    inputs = [tensor(name, FLOAT, ["n", 1]) for name in names]
    return graphs.save(
        path, [helper.make_node("Sum", names, ["y"])], inputs, [tensor("y", FLOAT, ["n", 1])]
    )


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rows")
    return {
        "frame": pipeline(folder / "frame.onnx"),
        "double": graphs.double(folder / "double.onnx", 4),
        "two": graphs.double_and_negative(folder / "two.onnx", 3),
        "several": graphs.several(folder / "several.onnx"),
        "sums": sums(folder / "sums.onnx"),
        "tag": graphs.tag(folder / "tag.onnx"),
        "scalar": graphs.scalar(folder / "scalar.onnx"),
        "bert": bert(folder / "bert.onnx"),
        "segments": segments(folder / "segments.onnx"),
        "dtypes": graphs.dtypes(folder / "dtypes.onnx"),
        "table": table(folder / "table.onnx"),
        "text": text(folder / "text.onnx", ["n"]),
        "words": text(folder / "words.onnx", ["n", "m"]),
        "triple": text(folder / "triple.onnx", ["n", 3]),
    }


@pytest.fixture(scope="module")
def server(zoo: dict[str, Path], cache: Path) -> Iterator[Server]:
    models = [{"name": name, "path": str(path)} for name, path in zoo.items()]
    with Server({"models": models}, cache) as one:
        yield one


@pytest.fixture
def http(server: Server) -> Iterator[Http]:
    with Http(server.port) as one:
        yield one


def ask(http: Http, target: str, body: object) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http.query(web.post(target, data))


def predict(http: Http, model: str, body: object) -> Any:
    return ask(http, f"/v1/models/{model}:predict", body).json()


def invoke(http: Http, model: str, body: object) -> Any:
    return ask(http, f"/invocations?model={model}", body).json()


def same(found: Any, expected: np.ndarray) -> bool:
    array = np.array(found, expected.dtype)
    return array.shape == expected.shape and array.tobytes() == expected.tobytes()


def by_column(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


# ---- what is there ----


def test_models_as_clients_look_for_them(http: Http, zoo: dict[str, Path]) -> None:
    named = http.query(web.get("/v1/models")).json()
    assert (named["models"], named["object"]) == (list(zoo), "list")
    assert [one.pop("id") for one in named["data"]] == list(zoo)
    assert all(
        one == {"object": "model", "created": 0, "owned_by": "lumen"} for one in named["data"]
    )
    for target in ("/v1/models/frame", "/v1/models/frame/versions/1"):
        said = http.query(web.get(target)).json()
        assert said["name"] == "frame"
        assert said["ready"] is True  # KServe's clients
        state = said["model_version_status"][0]  # TensorFlow Serving's
        assert (state["version"], state["state"]) == ("1", "AVAILABLE")
        assert state["status"] == {"error_code": "OK", "error_message": ""}
    for target in ("/ping", "/health"):
        assert http.query(web.get(target)).code == 200
    for target in ("/v1/models/nobody", "/v1/models/frame/versions/2"):
        assert http.query(web.get(target)).code == 404
    assert ask(http, "/v1/models/nobody:predict", {}).code == 404
    assert ask(http, "/v1/models/frame/versions/2:predict", {}).code == 404
    assert ask(http, "/v1/models/frame/versions/1:predict", {}).code == 400


def test_the_only_model_needs_no_name(zoo: dict[str, Path], cache: Path, http: Http) -> None:
    body = {"instances": [[1.0, 2.0, 3.0, 4.0]]}
    assert "expected /invocations?model=NAME" in ask(http, "/invocations", body).error
    models = [{"name": "double", "path": str(zoo["double"])}]
    with Server({"models": models}, cache) as alone, Http(alone.port) as one:
        assert ask(one, "/invocations", body).json() == {"predictions": [[2, 4, 6, 8]]}


# ---- the same numbers in each form ----


def test_one_input_in_every_form(http: Http) -> None:
    random = np.random.default_rng(11)
    columns = ["a", "b", "é", "d"]
    for count in [*range(1, 5), 400]:
        x = random.standard_normal((count, 4)).astype(np.float32)
        x[0, 0] = np.float32(1e-42)  # subnormal
        rows, expected = x.tolist(), x + x
        for body in ({"instances": rows}, {"instances": [{"x": row} for row in rows]}):
            assert same(predict(http, "double", body)["predictions"], expected)
        for whole in ({"inputs": rows}, {"inputs": {"x": rows}, "signature_name": "default"}):
            assert same(predict(http, "double", whole)["outputs"], expected)
            assert same(invoke(http, "double", whole)["predictions"], expected)
        index = list(range(count))
        for frame in (
            {"dataframe_split": {"columns": columns, "index": index, "data": rows}},
            {"dataframe_split": {"data": rows, "columns": [0, 1, 2, 3]}, "params": {}},
            {"dataframe_split": {"columns": ["x"], "data": [[row] for row in rows]}},
            {"dataframe_records": [dict(zip(columns, row, strict=True)) for row in rows]},
            {"dataframe_records": [{"x": row} for row in rows]},
        ):
            assert same(invoke(http, "double", frame)["predictions"], expected)


def test_an_input_for_each_column(http: Http, zoo: dict[str, Path]) -> None:
    session = ort.InferenceSession(zoo["frame"])
    random = np.random.default_rng(12)
    for count in [1, 2, *random.integers(3, 60, ROUNDS)]:
        arrays = {
            "age": random.normal(30, 14, (count, 1)).astype(np.float32),
            "fare": random.exponential(30, (count, 1)),
            "siblings": random.integers(0, 5, (count, 1)),
            "is_child": random.integers(0, 2, (count, 1)).astype(bool),
        }
        label, probabilities = session.run(None, arrays)
        flat = {name: array[:, 0].tolist() for name, array in arrays.items()}
        order = list(random.permutation(NAMES))
        records = [{name: flat[name][row] for name in order} for row in range(count)]
        split = {"columns": order, "data": [[row[name] for name in order] for row in records]}
        for answer in (
            predict(http, "frame", {"instances": records}),
            invoke(http, "frame", {"dataframe_records": records}),
            invoke(http, "frame", {"dataframe_split": split}),
        ):
            rows = answer["predictions"]
            assert [list(row) for row in rows] == [["label", "probabilities"]] * count
            found = by_column(rows)
            assert same(found["label"], label)
            assert same(found["probabilities"], probabilities)
        for body in ({"inputs": flat}, {"inputs": {n: a.tolist() for n, a in arrays.items()}}):
            outputs = predict(http, "frame", body)["outputs"]
            assert same(outputs["label"], label)
            assert same(outputs["probabilities"], probabilities)
            assert invoke(http, "frame", body)["predictions"] == outputs


def test_rows_that_write_their_names_in_other_ways(http: Http) -> None:
    """In another order, with spaces elsewhere, with escapes; and a row after them as the first."""
    first, last = '{"a":[1],"b":[2],"c":[3]}', '{"a":[7],"b":[8],"c":[9]}'
    for row in (
        '{"c":[6],"a":[4],"b":[5]}',
        '{ "a" : [4] , "b":  [5],"c":\n[6]}',
        '{"\\u0061":[4],"b":[5],"\\u0063" :[6]}',
    ):
        rows = f"[{first},{row},{last}]".encode()
        found = predict(http, "sums", b'{"instances":' + rows + b"}")
        assert found == {"predictions": [[6], [15], [24]]}
    columns = (
        '[{"a":1,"b":2,"c":3,"d":4},{ "a":5, "b" : 6,"\\u0063":7,"d": 8},{"a":9,"b":1,"c":1,"d":1}]'
    )
    found = invoke(http, "double", f'{{"dataframe_records":{columns}}}'.encode())
    assert found == {"predictions": [[2, 4, 6, 8], [10, 12, 14, 16], [18, 2, 2, 2]]}
    twice = b'{"instances":[{"a":[1],"b":[2],"c":[3]},{"a":[1],"b":[2],"b":[3]}]}'
    assert "instances[1]: 'b' comes twice" in ask(http, "/v1/models/sums:predict", twice).error


def test_a_missing_value_of_a_data_frame_is_nan(http: Http, zoo: dict[str, Path]) -> None:
    session = ort.InferenceSession(zoo["frame"])
    row = {"age": None, "fare": 7.25, "siblings": 1, "is_child": False}
    arrays = {
        "age": np.array([[np.nan]], np.float32), "fare": np.array([[7.25]]),
        "siblings": np.array([[1]]), "is_child": np.array([[False]]),
    }  # fmt: skip
    label, probabilities = session.run(None, arrays)
    (found,) = invoke(http, "frame", {"dataframe_records": [row]})["predictions"]
    assert found["label"] == label[0]
    assert same(found["probabilities"], probabilities[0])
    for name in ("siblings", "is_child"):
        refusal = ask(
            http, "/invocations?model=frame", {"dataframe_records": [{**row, name: None}]}
        )
        assert f"dataframe_records[0], '{name}'" in refusal.error


ODD = ["", "plain", 'quote " slash / \\ line\n', "é🙂\x01\ud7ff", "x" * 300, "\\u0041", "[1,]}"]


def test_columns_of_strings(http: Http, zoo: dict[str, Path]) -> None:
    """1,000 rows against ONNX Runtime, strings with and without escapes in the text."""
    session = ort.InferenceSession(zoo["table"])
    random = np.random.default_rng(14)
    for count in [1, 2, 97, 900]:
        arrays = {
            "city": random.choice([*CITIES, "nowhere"], (count, 1)).astype(object),
            "age": random.normal(30, 14, (count, 1)).astype(np.float32),
            "job": random.choice([*ODD, *CITIES], (count, 1)).astype(object),
        }
        names = ["code", "half", "same"]
        expected = dict(zip(names, session.run(None, arrays), strict=True))
        flat = {name: array[:, 0].tolist() for name, array in arrays.items()}
        order = list(random.permutation(list(flat)))
        records = [{name: flat[name][row] for name in order} for row in range(count)]
        split = {"columns": order, "data": [[row[name] for name in order] for row in records]}
        for is_ascii in (True, False):

            def say(body: object, ascii_: bool = is_ascii) -> bytes:
                return json.dumps(body, ensure_ascii=ascii_).encode()

            for answer in (
                predict(http, "table", say({"instances": records})),
                invoke(http, "table", say({"dataframe_records": records})),
                invoke(http, "table", say({"dataframe_split": split})),
            ):
                found = by_column(answer["predictions"])
                assert found["same"] == expected["same"].tolist()
                assert all(same(found[name], expected[name]) for name in names[:2])
            outputs = predict(http, "table", say({"inputs": flat}))["outputs"]
            assert outputs["same"] == expected["same"].tolist()
            assert all(same(outputs[name], expected[name]) for name in names[:2])


def test_one_input_of_strings_in_every_form(http: Http) -> None:
    assert predict(http, "text", {"instances": ODD}) == {"predictions": ODD}
    assert predict(http, "text", {"inputs": ODD}) == {"outputs": ODD}
    assert predict(http, "text", {"inputs": {"t": ODD}}) == {"outputs": ODD}
    records = [{"t": word} for word in ODD]
    assert invoke(http, "text", {"dataframe_records": records}) == {"predictions": ODD}
    split = {"columns": ["t"], "data": [[word] for word in ODD]}
    assert invoke(http, "text", {"dataframe_split": split}) == {"predictions": ODD}
    rows = [ODD[:3], ODD[3:6], ODD[4:]]
    assert predict(http, "words", {"instances": rows}) == {"predictions": rows}
    columns = ["b", "a", "c"]
    records = [dict(zip(columns, row, strict=True)) for row in rows]
    assert invoke(http, "triple", {"dataframe_records": records}) == {"predictions": rows}
    split = {"columns": columns, "data": rows}
    assert invoke(http, "triple", {"dataframe_split": split}) == {"predictions": rows}
    longest = "x" * (1 << 20)
    assert predict(http, "text", {"instances": ["", longest]}) == {"predictions": ["", longest]}
    many = [""] * 60000  # the densest text there is
    assert predict(http, "text", {"instances": many}) == {"predictions": many}


def test_sizes_follow_from_how_arrays_are_nested(http: Http, zoo: dict[str, Path]) -> None:
    session = ort.InferenceSession(zoo["bert"])
    random = np.random.default_rng(13)
    for _ in range(ROUNDS):
        shape = random.integers(1, 8), random.integers(1, 40)
        ids, mask = random.integers(0, TOKENS, shape), random.integers(0, 2, shape)
        expected = dict(
            zip(["hidden", "pooled"],
                session.run(None, {"input_ids": ids, "attention_mask": mask}), strict=True)
        )  # fmt: skip
        instances = [
            {"attention_mask": m, "input_ids": i}
            for i, m in zip(ids.tolist(), mask.tolist(), strict=True)
        ]
        whole = {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}
        rows = by_column(predict(http, "bert", {"instances": instances})["predictions"])
        outputs = predict(http, "bert", {"inputs": whole})["outputs"]
        for name, array in expected.items():
            assert same(rows[name], array)
            assert same(outputs[name], array)
    picture = random.standard_normal((1, 3, 5, 9)).astype(np.float32)
    (classes,) = ort.InferenceSession(zoo["segments"]).run(None, {"picture": picture})
    found = predict(http, "segments", {"instances": picture.tolist()})
    assert same(found["predictions"], classes)


def test_whole_inputs_that_are_no_rows(http: Http) -> None:
    inputs = {"a": [[1, 2, 3, 4]] * 2, "k": [1, 2, 3], "b": [1, 2]}
    found = predict(http, "several", {"inputs": inputs})["outputs"]
    assert found == {"sum": [[2, 3, 4, 5], [3, 4, 5, 6]], "total": 6, "same": [1, 2]}
    assert predict(http, "tag", {"instances": [1, 2, 3, 4]}) == {"predictions": [4, 7, 10, 13]}
    assert predict(http, "scalar", {"inputs": {"x": 1.5}}) == {"outputs": 2.25}


def test_every_number_type(zoo: dict[str, Path], cache: Path, tmp_path: Path) -> None:
    kinds = [d for d in graphs.DTYPES if d[0] not in ("FP16", "BF16")]
    nodes = [helper.make_node("Identity", [f"i{k[0]}"], [f"o{k[0]}"]) for k in kinds]
    path = graphs.save(
        tmp_path / "kinds.onnx",
        nodes,
        [tensor(f"i{k[0]}", k[1], ["n"]) for k in kinds],
        [tensor(f"o{k[0]}", k[1], ["n"]) for k in kinds],
    )
    row: dict[str, Any] = {}
    for word, _, code in kinds:
        dtype = np.dtype(code)
        row[word] = dtype.kind == "b" or (
            np.finfo(dtype).max.item() if dtype.kind == "f" else np.iinfo(dtype).min
        )
    with Server({"models": [{"name": "m", "path": str(path)}]}, cache) as one, Http(one.port) as h:
        instance = {f"i{word}": value for word, value in row.items()}
        (found,) = predict(h, "m", {"instances": [instance]})["predictions"]
        for word, _, code in kinds:
            assert np.dtype(code).type(found[f"o{word}"]) == row[word], word
        for word, _, code in kinds:
            if np.dtype(code).kind in "iu":
                bad = {**instance, f"i{word}": int(np.iinfo(code).max) + 1}
                refusal = ask(h, "/v1/models/m:predict", {"instances": [instance, bad]}).error
                assert f"instances[1], 'i{word}': expected a whole number" in refusal


def test_other_types_are_refused(http: Http) -> None:
    refusal = ask(http, "/v1/models/dtypes:predict", {"inputs": {}}).error
    assert "input 'in_FP16': FP16 is not served as rows: ask /v2/models/dtypes/infer" in refusal


# ---- what is refused, and with which words ----

ROW = {"age": 1, "fare": 2, "siblings": 3, "is_child": True}
FRAME = '{"columns":["age","fare","siblings","is_child"],"data":%s}'
PERSON = {"city": "Oslo", "age": 1, "job": "é"}
FEW = {name: value for name, value in ROW.items() if name != "fare"}
BAD: list[tuple[str, object, str]] = [
    ("double", b"", "it is empty"),
    ("double", b"[[1,2,3,4]]", "no JSON object"),
    ("double", b"{}", "expected \"instances\", \"inputs\", \"dataframe_split\" or"),
    ("double", b'{"instances":', "the body is not JSON"),
    ("double", b'{"instances":[[1,2,3,4}]]}', "the body is not JSON"),
    ("double", b'{"instances":[[1,2,3,4]],"a":01}', "the body is not JSON"),
    ("double", b'{"instances":[[1,2,3,4]],"a":"\xff"}', "byte 30: expected UTF-8, found 0xff"),
    ("double", b'{"inst\\u0061nces":[[1,2,3,4]]}', "instances: expected an array, found an array"),
    ("double", {"instances": 5}, "instances: expected an array, found an integer"),
    ("double", {"instances": {"x": [1, 2, 3, 4]}}, "instances: expected an array, found an obj"),
    ("double", {"instances": []}, "instances: expected at least one row, found none"),
    ("double", {"inputs": {}}, "inputs: 'x' is missing"),
    ("double", {"instances": [[1, 2, 3, 4]], "inputs": []}, "found both"),
    ("double", b'{"inputs":[[1,2,3,4]],"inputs":[]}', 'field "inputs" comes twice'),
    ("double", {"instances": [[1, 2, 3, 4], [1, 2, 3]]}, "instances[1], element 3: expected 4 val"),
    ("double", {"instances": [[1, 2, 3, 4, 5]]}, "expected 4 values in an array, found more"),
    ("double", {"instances": [1, 2, 3, 4]}, "expected an array of 4 values, found 1"),
    ("double", {"instances": [[[1, 2], [3, 4]]]}, "instances[0], element 0: expected a number"),
    ("double", b'{"instances":[[1,2,3,nan]]}', "instances[0], element 3: expected a number that"),
    ("double", b'{"instances":[[1,2,3,nullx]]}', "instances[0], element 3: expected a number that"),
    ("double", b'{"instances":[[1,2,3,4],[1,2,1e400,4]]}', "instances[1], element 2"),
    ("double", b'{"instances":[[1,2,3,1e39]]}', "fits FP32, found 1e39"),
    ("double", b'{"instances":[[1,2,3,-Infinity]]}', "found -Infinity"),
    ("double", b'{"instances":[[1,2,3,.5]]}', "found .5"),
    ("double", b'{"instances":[[1,2,3,4],]}', "instances[1]"),
    ("double", b'{"instances":[[1,2,3,4] [1,2,3,4]]}', "expected a comma or a bracket"),
    ("double", {"instances": [[1, 2, 3, "4"]]}, 'found "4"'),
    ("double", {"instances": [[1, 2, 3, "nan"]]}, 'found "nan"'),
    ("double", {"instances": [[1, 2, 3, True]]}, "found true"),
    ("double", {"instances": [{"y": [1, 2, 3, 4]}]}, "instances[0]: 'x' is missing"),
    ("double", {"instances": [{"x": [1, 2, 3, 4], "z": 1}]}, "instances[0]: 'z' is no input"),
    ("double", b'{"instances":[{"x":[1,2,3,4],"x":[1,2,3,4]}]}', "instances[0]: 'x' comes twice"),
    ("double", b'{"instances":[{"x":[1,2,3,4]},5]}', "instances[1]: expected an object, found 5"),
    ("double", {"instances": [[1, 2, 3, 4]], "parameters": {"timeout": "x"}}, "timeout: expected"),
    ("double", {"dataframe_split": []}, "dataframe_split: expected an object, found an array"),
    ("double", {"dataframe_split": {"columns": ["a"]}}, "dataframe_split.data: expected an array"),
    ("double", {"dataframe_split": {"columns": 4, "data": [[1]]}}, "columns: expected an array"),
    ("double", {"dataframe_split": {"columns": ["a", "b", "c"], "data": [[1, 2, 3]]}},
     "dataframe_split.columns: expected 4 columns (a row of input 'x'), found 3"),
    ("double", {"dataframe_split": {"columns": ["a", "b", "c", "a"], "data": [[1, 2, 3, 4]]}},
     "columns 0 and 3 have one name"),
    ("double", {"dataframe_split": {"columns": ["a", "b", None, "d"], "data": [[1, 2, 3, 4]]}},
     "dataframe_split.columns[2]: expected a name, found null"),
    ("double", {"dataframe_split": {"columns": list("abcd"), "data": [[1, 2, "x", 4]]}},
     "dataframe_split.data[0], column 'c': expected a number that fits FP32, found \"x\""),
    ("double", {"dataframe_records": [[1, 2, 3, 4]]}, "dataframe_records[0]: expected an object"),
    ("double", {"dataframe_records": [{"a": 1, "b": 2}]}, "expected 4 columns"),
    ("double", b'{"dataframe_records":[{"a":1,"b":2,"a":3,"d":4}]}', "columns 0 and 2 have"),
    ("double", {"dataframe_records": [dict.fromkeys("abcd", 1), dict.fromkeys("abdc", 1)]},
     "dataframe_records[1]: expected field 'c' as in row 0, found 'd'"),
    ("double", {"dataframe_records": [dict.fromkeys("abcd", 1), dict.fromkeys("abc", 1)]},
     "dataframe_records[1]: expected 4 fields as in row 0, found 3"),
    ("double", {"dataframe_records": [dict.fromkeys("abcd", 1), dict.fromkeys("abcde", 1)]},
     "dataframe_records[1]"),
    ("double", {"dataframe_records": [dict.fromkeys("abcd", 1), {"a": 1, "b": 1, "c": "x"}]},
     "dataframe_records[1], column 'c'"),
    ("frame", {"instances": [[1, 2, 3, True]]}, "expected an object with 'age', 'fare', 'sib"),
    ("frame", {"inputs": [[1, 2, 3, 4]]}, "inputs: expected an object with 'age'"),
    ("frame", {"instances": [ROW, FEW]}, "instances[1]: 'fare' is missing"),
    ("frame", {"instances": [FEW]}, "instances[0]: 'fare' is missing"),
    ("frame", {"instances": [ROW, {**ROW, "sex": 1}]}, "instances[1]: 'sex' is no input"),
    ("frame", {"dataframe_records": [ROW, {**ROW, "siblings": 1.5}]},
     "dataframe_records[1], 'siblings': expected a whole number that fits INT64, found 1.5"),
    ("frame", {"dataframe_records": [{**ROW, "is_child": 1}]}, "expected true or false for BOOL"),
    ("frame", {"dataframe_records": [{**ROW, "age": [1, 2]}]}, "'age': expected 1 values"),
    ("frame", {"dataframe_split": {"data": [[1, 2, 3, True]]}}, 'field "columns" is missing'),
    ("frame", f'{{"dataframe_split":{FRAME % "[[1,2,3,true],[1,2,3]]"}}}'.encode(),
     "dataframe_split.data[1]: expected 4 cells as there are columns, found fewer"),
    ("frame", f'{{"dataframe_split":{FRAME % "[[1,2,3,true,5]]"}}}'.encode(), "found more"),
    ("frame", f'{{"dataframe_split":{FRAME % "[5]"}}}'.encode(), "data[0]: expected an array"),
    ("frame", f'{{"dataframe_split":{FRAME % "[[1,1e400,3,true]]"}}}'.encode(),
     "dataframe_split.data[0], 'fare': expected a number that fits FP64, found 1e400"),
    ("frame", {"dataframe_split": {"columns": ["age", "fare"], "data": [[1, 2]]}},
     "dataframe_split.columns: 'siblings' is missing"),
    ("frame", {"dataframe_split": {"columns": [*NAMES, "sex"], "data": [[1, 2, 3, True, 1]]}},
     "dataframe_split.columns[4]: expected one of 'age', 'fare', 'siblings', 'is_child', found"),
    ("frame", {"dataframe_split": {"columns": [*NAMES, "age"], "data": [[1, 2, 3, True, 1]]}},
     "dataframe_split.columns[4]: 'age' comes twice"),
    ("frame", {"inputs": {**{n: [v] for n, v in ROW.items()}, "age": [1, 2]}}, "rows"),
    ("frame", {"inputs": {**{n: [v] for n, v in ROW.items()}, "age": 1}}, "'age': expected an arr"),
    ("frame", {"inputs": {**{n: [v] for n, v in ROW.items()}, "sex": [1]}}, "has no input 'sex'"),
    ("frame", {"inputs": {"age": [1]}}, "inputs: 'fare' is missing"),
    ("frame", b'{"inputs":{"age":[1],"fare":[1],"siblings":[1],"is_child":[true],"age":[1]}}',
     "inputs: 'age' comes twice"),
    ("bert", {"instances": [{"input_ids": [1, 2], "attention_mask": [1]}]}, "expected 2 as before"),
    ("bert", {"instances": [{"input_ids": [1, 2], "attention_mask": [1, 1]},
                            {"input_ids": [1], "attention_mask": [1]}]},
     "instances[1], 'input_ids', element 1: expected 2 values in an array, found fewer"),
    ("bert", {"instances": [{"input_ids": 5, "attention_mask": 1}]}, "expected arrays 1 deep"),
    ("several", {"instances": [{"a": [1, 2, 3, 4], "k": 1, "b": 2}] * 3},
     "output 'total' has no element for each of 3 rows"),
    ("tag", {"instances": [1, 2, 3]}, "expected [4], found [3]"),
    ("scalar", {"instances": [1]}, "one number for all rows"),
    ("text", {"instances": ["a", 1]}, "instances[1]: expected a string for BYTES, found 1"),
    ("text", {"instances": ["a", None]}, "instances[1]: expected a string for BYTES, found null"),
    ("text", {"instances": ["a", ["b"]]}, "instances[1]: expected a string for"),
    ("text", {"instances": ["a", "x" * (1 << 20) + "x"]}, "at most 1048576 bytes, found 1048577"),
    ("text", b'{"instances":["a","\xff"]}', "instances[1]: expected UTF-8, found 0xff"),
    ("text", b'{"instances":["\xed\xa0\x80"]}', "instances[0]: expected UTF-8, found 0xed"),
    ("text", b'{"instances":["a","\\ud800b"]}', "instances[1]: expected an escape that"),
    ("text", b'{"instances":["\\ud800\\u0041"]}', "found \\ud800"),
    ("text", b'{"instances":["\\x"]}', "instances[0]: expected an escape that is a character"),
    ("text", b'{"instances":["a\nb"]}', "control characters as escapes, found 0x0a"),
    ("text", b'{"instances":["a"b]}', "instances[0]: expected a string"),
    ("words", {"instances": [["a", "b"], ["c"]]}, "instances[1], element 1: expected 2 values in"),
    ("triple", {"dataframe_split": {"columns": list("abc"), "data": [["a", "b", 5]]}},
     "dataframe_split.data[0], column 'c': expected a string for BYTES, found 5"),
    ("triple", {"dataframe_records": [{"a": "", "b": "", "c": ""}, {"a": "", "b": None, "c": ""}]},
     "dataframe_records[1], column 'b': expected a string for BYTES, found null"),
    ("table", {"instances": [PERSON, {**PERSON, "city": 5}]},
     "instances[1], 'city': expected a string for BYTES, found 5"),
    ("table", {"instances": [PERSON, {**PERSON, "age": "5"}]},
     "instances[1], 'age': expected a number that fits FP32, found \"5\""),
    ("table", {"dataframe_split": {"columns": ["age", "job", "city"], "data": [[1, "a", True]]}},
     "dataframe_split.data[0], 'city': expected a string for BYTES, found true"),
    ("table", {"inputs": {"city": ["a"], "age": [1], "job": [{}]}},
     "inputs, 'job', row 0: expected a string or {\"b64\": \"...\"}, found an object"),
    ("table", {"instances": [{"city": "a", "age": 1}]}, "instances[0]: 'job' is missing"),
]  # fmt: skip


@pytest.mark.parametrize("target", ["/v1/models/{}:predict", "/invocations?model={}"])
def test_bad_rows_get_a_sentence_that_says_where(http: Http, target: str) -> None:
    for model, body, words in BAD:
        answer = ask(http, target.format(model), body)
        assert answer.code == 400, (model, body, answer)
        assert words in answer.error, (model, body)
    assert predict(http, "double", {"instances": [[1, 2, 3, 4]]}) == {"predictions": [[2, 4, 6, 8]]}


def test_nan_that_comes_out_has_a_sentence(http: Http) -> None:
    frame = {"dataframe_split": {"columns": list("abcd"), "data": [[1, None, 3, 4]]}}
    answer = ask(http, "/invocations?model=double", frame)
    assert answer.code == 500
    assert "/v2/models/double/infer" in answer.error


def test_rows_come_as_json_alone(http: Http) -> None:
    body = json.dumps({"instances": [[1, 2, 3, 4]]}).encode()
    for size in (0, len(body), 4):
        request = web.post("/v1/models/double:predict", body, f"{web.JSON_LENGTH}: {size}")
        assert "rows and texts are JSON alone" in http.query(request).error


# ---- as any inference ----


def test_chunks_and_pieces(http: Http) -> None:
    x = np.arange(4000, dtype=np.float32).reshape(-1, 4)
    body = json.dumps({"instances": x.tolist()}).encode()
    request = web.post(
        "/v1/models/double:predict", web.chunked(body, 777), "Transfer-Encoding: chunked",
        length=None,
    )  # fmt: skip
    for at in range(0, len(request), 5000):
        http.send(request[at : at + 5000])
    assert same(http.answer().json()["predictions"], x + x)


def test_the_largest_body_has_room_for_its_answer(http: Http) -> None:
    """Two outputs with names in each row are many times the text of their rows."""
    rows = [[0, 0, 0]] * 60000
    found = predict(http, "two", {"instances": rows})["predictions"]
    assert len(found) == len(rows)
    assert found[-1] == {"y": [0, 0, 0], "z": [-0.0] * 3}


def test_keys_rates_deadlines_and_the_access_log(
    serve: Callable[..., Server], zoo: dict[str, Path], tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    server = serve(
        {
            "models": [{"name": name, "path": str(zoo[name])} for name in ("double", "tag")],
            "server": {"keys": [key("ada", models=["double"]), key("bob", rate=0.001, burst=1)]},
            "log": {"access_path": str(log)},
        }
    )
    good = {"instances": [[1, 2, 3, 4]]}
    targets = ["/v1/models/double:predict", "/invocations?model=double"]

    def code(http: Http, target: str, body: object, token: str) -> int:
        bearer = f"Authorization: Bearer {token}"
        return http.query(web.post(target, json.dumps(body).encode(), bearer)).code

    with Http(server.port) as http:
        assert http.query(web.get("/ping")).code == 200
        assert http.query(web.get("/v1/models")).code == 401
        for target in targets:
            assert ask(http, target, good).code == 401
            assert code(http, target, good, "ada") == 200
            assert code(http, target, {**good, "parameters": {"timeout": 1}}, "ada") == 503
            assert code(http, target, {**good, "params": {"timeout": 10**9}}, "ada") == 200
        assert code(http, "/v1/models/tag:predict", {"instances": [1, 2, 3, 4]}, "ada") == 403
        assert code(http, targets[0], good, "bob") == 200
        assert code(http, targets[1], good, "bob") == 429
        assert http.query(web.post(targets[0], b"{}", host="evil.example")).code == 421
    eventually(lambda: len(log.read_text().splitlines()) >= 13, "the access log")
    said = log.read_text()
    assert all(f" http {route} " in said for route in ("predict", "invocations", "v1_models")), said


def test_rows_share_a_batch(serve: Callable[..., Server], zoo: dict[str, Path]) -> None:
    model = {"name": "double", "path": str(zoo["double"]), "batch_size": 8, "batch_delay_us": 2000}
    server = serve({"models": [model], "engine": {"thread_count": 1}})

    def one(number: int) -> bool:
        x = np.full((1 + number % 3, 4), number, np.float32)
        with Http(server.port) as http:
            return same(predict(http, "double", {"instances": x.tolist()})["predictions"], x + x)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(64)))


# ---- missing values ----

MISSING = ["null", "NaN", '"NaN"']


def is_missing(path: Path) -> Path:
    """x FP32 [n, 3] and d FP64 [n, 1] -> where each is NaN, as INT64."""
    nodes = [
        helper.make_node("IsNaN", ["x"], ["x_gaps"]),
        helper.make_node("IsNaN", ["d"], ["d_gaps"]),
        helper.make_node("Concat", ["x_gaps", "d_gaps"], ["gaps"], axis=1),
        helper.make_node("Cast", ["gaps"], ["y"], to=INT64),
    ]
    inputs = [
        tensor("x", FLOAT, ["n", 3]),
        tensor("d", TensorProto.DOUBLE, ["n", 1]),
    ]
    return graphs.save(path, nodes, inputs, [tensor("y", INT64, ["n", 4])])


@pytest.mark.parametrize("gap", MISSING)
def test_a_missing_value_wherever_floats_are_due(serve: Serve, tmp_path: Path, gap: str) -> None:
    path = is_missing(tmp_path / "gaps.onnx")
    server = serve({"models": [{"name": "gaps", "path": str(path)}]})
    x, d = f"[1, {gap}, 2.5]", f"[{gap}]"
    tensors = (
        '{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": {x}}, '
        f'{{"name": "d", "datatype": "FP64", "shape": [1, 1], "data": {d}}}'
    )
    columns = '{"columns": ["x", "d"], "data": [[' + f"{x}, {gap}" + "]]}"
    with Http(server.port) as http:
        for nested in (x, f"[{x}]"):
            body = '{"inputs": [' + tensors.replace("{x}", nested) + "]}"
            answer = http.query(web.post(web.path("gaps"), body.encode()))
            assert answer.array("y").tolist() == [[0, 1, 0, 1]], (body, answer)
        for text, key in [
            (f'{{"instances": [{{"x": {x}, "d": {d}}}]}}', "predictions"),
            (f'{{"inputs": {{"x": [{x}], "d": [{d}]}}}}', "outputs"),
            (f'{{"dataframe_records": [{{"x": {x}, "d": {gap}}}]}}', "predictions"),
            (f'{{"dataframe_split": {columns}}}', "predictions"),
        ]:
            answer = http.query(web.post("/v1/models/gaps:predict", text.encode()))
            assert answer.code == 200, (text, answer)
            assert answer.json()[key] == [[0, 1, 0, 1]], text


# ---- bytes that are no text ----


def test_bytes_in_base64(serve: Serve, tmp_path: Path) -> None:
    """TensorFlow Serving's {"b64": ...} wherever a string of rows is due; with the backslashes that
    PHP writes, and without padding."""
    paths = {"flat": text(tmp_path / "flat.onnx", ["n"]), "nested": text(tmp_path / "a", ["n", 1])}
    server = serve({"models": [{"name": name, "path": str(at)} for name, at in paths.items()]})
    given = ["", "a", "ab", "abc", "~~?\u00ff~>>", "\u65e5\u672c\u8a9e" * 99]
    assert any("/" in coded(one)["b64"] for one in given)
    with Http(server.port) as http:
        for one in given:
            b64 = coded(one)
            for value in (b64, one):
                for model, body, expected in [
                    ("flat", {"instances": [value, b64]}, [one, one]),
                    ("flat", {"instances": [b64, value]}, [one, one]),
                    ("flat", {"instances": [{"t": value}]}, [one]),
                    ("flat", {"inputs": {"t": [b64, value]}}, [one, one]),
                    ("flat", {"inputs": [b64, value]}, [one, one]),
                    ("nested", {"instances": [[value], b64]}, [[one], [one]]),
                    ("nested", {"dataframe_records": [{"t": value}]}, [[one]]),
                    ("nested", {"dataframe_split": {"columns": ["t"], "data": [[b64]]}}, [[one]]),
                ]:
                    document = json.dumps(body)
                    for said in {document, document.replace("/", "\\/"), document.replace("=", "")}:
                        answer = http.query(web.post(f"/v1/models/{model}:predict", said.encode()))
                        key_of = "outputs" if "inputs" in body else "predictions"
                        assert answer.json()[key_of] == expected, (said, answer)
        for wrong in ({"b64": "a"}, {"b64": "a!bc"}, {"b64": 5}, {"b65": "YQ=="}, {}):
            answer = ask(http, "/v1/models/flat:predict", {"instances": [{"t": wrong}]})
            assert (answer.code, answer.error.startswith("instances[0]")) == (400, True), wrong
            assert "b64" in answer.error
            assert ask(http, "/v1/models/flat:predict", {"instances": [wrong]}).code == 400
        longest = "x" * (1 << 20)  # as long as a string that is written out
        answer = ask(http, "/v1/models/flat:predict", {"instances": [coded(longest)]})
        assert answer.json()["predictions"] == [longest]
        answer = ask(http, "/v1/models/flat:predict", {"instances": [coded(longest + "x")]})
        assert (answer.code, "bytes, found 1048577" in answer.error) == (400, True), answer.error


def coded(text: str) -> dict[str, str]:
    return {"b64": base64.b64encode(text.encode()).decode()}


def test_a_models_signature(http: Http) -> None:
    """What TensorFlow Serving's clients ask before they predict."""
    for path in ("/v1/models/table/metadata", "/v1/models/table/versions/1/metadata"):
        found = http.query(web.get(path)).json()
        assert found["model_spec"] == {"name": "table", "signature_name": "", "version": "1"}
        signature = found["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert signature["method_name"] == "tensorflow/serving/predict"
        described = http.query(web.get("/v2/models/table")).json()
        for side in ("inputs", "outputs"):
            assert list(signature[side]) == [known["name"] for known in described[side]]
            for known in described[side]:
                one = signature[side][known["name"]]
                assert one["name"] == known["name"]
                assert one["dtype"] == TENSORFLOW[known["datatype"]]
                sizes = [int(dim["size"]) for dim in one["tensor_shape"]["dim"]]
                assert (sizes, one["tensor_shape"]["unknown_rank"]) == (known["shape"], False)
    assert http.query(web.get("/v1/models/nobody/metadata")).code == 404
    assert http.query(web.request("HEAD", "/v1/models/table/metadata", b"", []), "HEAD").code == 200


TENSORFLOW = {
    "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE", "INT64": "DT_INT64", "BOOL": "DT_BOOL",
    "BYTES": "DT_STRING",
}  # fmt: skip
