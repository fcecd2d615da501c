"""Bad bodies of inference requests, as tables: all of them get 400 and keep their connection.

Used by test_e2e_http_hostile.py; rows 38 and 40 to 43 of the list of hostile inputs.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import web
from hostile import DECOY, GOOD, INFER, INPUT, VALUES, Case
from web import JSON_LENGTH, post


def keeps(row: int, name: str, body: bytes, *lines: str, codes: tuple[int, ...] = (400,)) -> Case:
    return Case(row, name, post(INFER, body, *lines), codes, False)


def blobs() -> Iterator[Case]:
    """Rows 10 and 38: lies about where the JSON ends and how large blobs are."""
    blob = bytes(64)

    def text(**parameters: Any) -> bytes:
        one = {key: INPUT[key] for key in ("name", "shape", "datatype")}
        return json.dumps({"inputs": [{**one, "parameters": parameters}]}).encode()

    good = text(binary_data_size=64)
    size = len(good)
    yield keeps(38, "no header", good + blob)
    for value in (
        "-1", "+1", "", "x", "1.0", "0x10", "1e2", f"{size},{size}", "01", "99999999",
        str(size - 1), str(size + 1), str(size + 64), str(size + 65), str(2**31), str(2**63),
        str(2**64), str(2**64 + size), "9" * 40,
    ):  # fmt: skip
        yield keeps(38, f"length {value[:22]!r}", good + blob, f"{JSON_LENGTH}: {value}")
    twice = [f"{JSON_LENGTH}: {size}"] * 2
    yield keeps(38, "length twice", good + blob, *twice)
    yield keeps(38, "lengths that differ", good + blob, twice[0], f"{JSON_LENGTH}: 0")
    header = f"{JSON_LENGTH}: {size}"
    yield keeps(38, "a byte too few", good + blob[1:], header)
    yield keeps(38, "a byte too many", good + blob + b"x", header)
    yield keeps(38, "a request too many", good + blob + DECOY, header)
    yield keeps(38, "no blob", good, header)
    for name, said in (
        ("0", 0), ("63", 63), ("65", 65), ("-64", -64), ("64.0", 64.0), ("64.5", 64.5),
        ("text", "64"), ("null", None), ("true", True), ("list", [64]), ("2^31", 2**31),
        ("2^63", 2**63), ("2^64", 2**64), ("2^64+64", 2**64 + 64), ("6.4e1", 6.4e1),
    ):  # fmt: skip
        body = text(binary_data_size=said)
        yield keeps(38, f"size {name}", body + blob, f"{JSON_LENGTH}: {len(body)}")
    body = text()
    yield keeps(38, "no size", body + blob, f"{JSON_LENGTH}: {len(body)}")
    both = json.dumps({"inputs": [{**INPUT, "parameters": {"binary_data_size": 64}}]}).encode()
    yield keeps(38, "data and blob", both + blob, f"{JSON_LENGTH}: {len(both)}")
    shared = text(shared_memory_region="r", shared_memory_byte_size=64)
    yield keeps(38, "shared memory", shared, f"{JSON_LENGTH}: {len(shared)}")
    several = web.path("several")
    raw = f"{JSON_LENGTH}: 0"
    yield Case(38, "raw, three inputs", post(several, bytes(36), raw), (400,), False)
    yield keeps(38, "raw, no body", b"", raw)
    yield keeps(38, "raw, a byte short", bytes(63), raw)
    yield keeps(38, "raw, two rows", bytes(128), raw)
    yield keeps(38, "raw, a request", DECOY, raw)
    yield Case(38, "raw, a free size", post(web.path("echo"), b"xy", raw), (400,), False)


NOT_JSON: dict[str, bytes] = {
    "empty": b"", "blank": b" \n\t ", "null": b"null", "true": b"true", "number": b"1",
    "text": b'"inputs"', "list": b"[]", "object without inputs": b"{}", "NUL": b"\0",
    "NUL behind": GOOD + b"\0", "two documents": GOOD + GOOD, "a comma behind": GOOD + b",",
    "a bracket behind": GOOD + b"}", "a word behind": GOOD + b"x", "cut": GOOD[:-1],
    "two byte order marks": b"\xef\xbb\xbf" * 2 + GOOD, "UTF-16": GOOD.decode().encode("utf-16"),
    "UTF-16 without a mark": GOOD.decode().encode("utf-16-le"),
    "UTF-32": GOOD.decode().encode("utf-32"), "form feed": b"\f" + GOOD, "NBSP": b"\xa0" + GOOD,
    "vertical tab": GOOD.replace(b": ", b":\v"), "comments": b"/* */" + GOOD, "hash": b"#\n" + GOOD,
    "single quotes": GOOD.replace(b'"', b"'"), "no quotes": GOOD.replace(b'"', b""),
    "equals": GOOD.replace(b": ", b"="), "a request": DECOY, "zeros": bytes(300),
    "100k of [": b"[" * 100_000, "100k of {": b'{"a":' * 100_000,
    "100k of [ inside": GOOD[:-1] + b',"a":' + b"[" * 100_000,
    "nested and closed": GOOD[:-1] + b',"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "objects nested and closed": GOOD[:-1] + b',"a":' + b'{"a":' * 9000 + b"1" + b"}" * 9001,
    "data nested deep": GOOD.replace(b"[0,", b"[" * 20_000 + b"0,", 1),
}  # fmt: skip
# In the place of a value in a field that nobody reads: still it must be JSON (JSONTestSuite's n_*).


# In the place of a value in a field that nobody reads: still it must be JSON (after JSONTestSuite).
NOT_VALUES = [
    *br"""
    , 1, - +1 ++1 --1 01 -01 -012 1. .1 -.1 2.e3 0.e1 0e 0e+ 0E 0E+ 1e 1e+ 1e- 1eE2 1.0e 1.0e+ 0.3e
    0.1.2 0x1 0x42 1_0 1a -1a 1+2 1e1.5 NaN -NaN nan Infinity -Infinity inf Inf 1e400 -1e400
    1e99999999999 tru True truee fals nul None undefined nullx true1 <null> & ` \u0031 \n * ; :
    " "a 'a' "\" "\x00" "\a" "\\\" "\u" "\u12" "\u12g4" "\uD800" "\uD800\n" "\uD800\uD800" "\uDC00"
    "\uDFFF\uD800" "\U0001F600" "\ud83d\u0041"
    [ ] [1 [1, [1,] [,1] [,] [1,,2] [1:2] [1} ["a" [a] [*] [1]] [1;2] [-] [[1] [1]1 [1}]
    { } {}} {a:1} {1:1} {'a':1} {"a"} {"a":} {"a"::1} {"a":1,} {"a":1,,"b":2} {"a":"b" {"a":1]
    {"a":1 {,"a":1} {null:1} {[]:1} {"a":1/**/} {"a",1} {"a":1;} {"a":{"b"} {"a":1"b":2}
    """.split(),
    b"", b"1 2", b"[1 2]", b'{"a" 1}', b'{"a":1 "b":2}', b"[\x00]", b"[1\f]", b'"a\nb"', b'"a\tb"',
    b'"a\x00b"', b'"\x1f"', b'"\xff"', b'"\xc0\xaf"', b'"\xe0\x80\xaf"', b'"\xed\xa0\x80"',
    b'"\xf4\x90\x80\x80"', b'"\x80"', b'"\xc3"', b'"\xe2\x82"', b'"\xf0\x9f\x98"',
    b'"\xf8\x88\x80\x80\x80"', b"\xef\xbc\x91", b"\xe2\x81\xa0", b"\xc2\xa0", b"\xff",
]  # fmt: skip


def not_json() -> Iterator[Case]:
    """Row 40: texts that are no JSON, or no object with inputs."""
    for name, body in NOT_JSON.items():
        yield keeps(40, name, body)
    for value in NOT_VALUES:
        yield keeps(40, f"a field of {repr(value)[1:]}", GOOD[:-1] + b', "k": ' + value + b"}")


def changed(act: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(GOOD)
    act(document)
    return json.dumps(document).encode()


def with_input(**fields: Any) -> bytes:
    return json.dumps({"inputs": [{**INPUT, **fields}]}).encode()


def with_values(values: list[Any], model_field: str = "data") -> bytes:
    return with_input(**{model_field: values})


def tag(*values: str) -> bytes:
    """The model "tag" takes INT64 [4]; values as they stand in the text."""
    items = ",".join(values)
    return (
        '{"inputs":[{"name":"x","shape":[4],"datatype":"INT64","data":[%s]}]}' % items  # noqa: UP031
    ).encode()


def documents() -> Iterator[Case]:
    """Rows 8 and 40: JSON that says nothing a model could take."""
    for name, text in {
        "inputs twice": GOOD[:-1] + b', "inputs": []}',
        "inputs twice, equal": GOOD[:-1] + b"," + GOOD[1:],
        "inputs twice, escaped": GOOD[:-1] + b', "\\u0069nputs": []}',
        "name twice": GOOD.replace(b'"name": "x"', b'"name": "x", "name": "x"'),
        "shape twice": GOOD.replace(b'"name"', b'"shape": [1, 16], "name"'),
        "data twice": GOOD.replace(b'"name"', b'"data": [], "name"'),
        "id twice": b'{"id":"a","id":"b",' + GOOD[1:],
        "outputs twice": b'{"outputs":[],"outputs":[],' + GOOD[1:],
    }.items():
        yield keeps(40, name, text)
    for value in (None, {}, "x", 1, True, [], [None], [1], ["x"], [[]], [{}], [INPUT, None]):
        yield keeps(40, f"inputs {str(value)[:30]}", json.dumps({"inputs": value}).encode())
    yield keeps(40, "the input twice", json.dumps({"inputs": [INPUT, INPUT]}).encode())
    yield keeps(40, "1000 inputs", json.dumps({"inputs": [INPUT] * 1000}).encode())
    other = {**INPUT, "name": "z"}
    yield keeps(40, "an unknown input", json.dumps({"inputs": [INPUT, other]}).encode())
    for field in INPUT:
        yield keeps(40, f"no {field}", changed(lambda d, f=field: d["inputs"][0].pop(f)))
        for value in (None, 1, "", {}, True):
            yield keeps(40, f"{field} {value}", with_input(**{field: value}))
    for name in ("", "X", "x ", "xx", "x\0", "../x", "y", "x" * 5000, "é"):
        yield keeps(40, f"the name {name[:9]!r}", with_input(name=name))
    for field, value in (
        ("id", 1), ("id", None), ("id", ["a"]), ("id", True), ("parameters", None),
        ("parameters", []), ("parameters", "x"), ("outputs", None), ("outputs", {}),
        ("outputs", "y"), ("outputs", 1),
    ):  # fmt: skip
        yield keeps(40, f"{field} {value}", changed(lambda d, f=field, v=value: d.update({f: v})))


def shapes() -> Iterator[Case]:
    """Rows 9 and 40: shapes and data that do not fit each other or the model."""
    for shape in (
        [], [16], [1], [1, 16, 1], [16, 1], [1, 15], [1, 17], [0, 16], [2, 16], [-1, 16], [1, -16],
        [-1, -16], [1.0, 16], [1, 16.5], ["1", 16], [None, 16], [True, 16], [[1, 16]], [257, 16],
        [2**31, 16], [2**32 + 1, 16], [2**63 - 1, 16], [2**63, 16], [2**64, 16], [2**64 + 1, 16],
        [1, 2**60 + 16], [1] * 9, [1] * 70_000, [1e400, 16],
    ):  # fmt: skip
        text = json.dumps({"inputs": [{**INPUT, "shape": shape}]}).replace("Infinity", "1e400")
        yield keeps(40, f"shape {str(shape)[:40]}", text.encode())
    for name, data in {
        "none": [], "one too few": VALUES[:-1], "one too many": [*VALUES, 1],
        "nested flat": [VALUES[:8], VALUES[8:]], "ragged": [VALUES[:3], VALUES[3:]],
        "half nested": [*VALUES[:8], VALUES[8:]], "nested too deep": [[VALUES]],
        "nested in ones": [[value] for value in VALUES], "an array at the end": [*VALUES[:-1], []],
        "text": [*VALUES[:-1], "5"], "bool": [*VALUES[:-1], True],
        "object": [*VALUES[:-1], {}], "empty arrays": [[]] * 16,
    }.items():  # fmt: skip
        yield keeps(40, f"data {name}", with_values(data))
    for text in (b"1e39", b"-1e39", b"3.5e38", b"1e308", b"1e400", b"nan", b"Infinity", b"9" * 400):
        body = GOOD.replace(b"15]", text + b"]")
        yield keeps(40, f"an FP32 of {text[:12].decode()}", body)
    for text in (
        "9223372036854775808", "-9223372036854775809", "18446744073709551615", "1" + "0" * 30,
        "1.5", "1.0", "1e0", "1e2", "true", '"5"', "null", "[1]", "NaN", "-", "1e400", "{}",
    ):  # fmt: skip
        body = tag("1", "2", "3", text)
        yield Case(40, f"an INT64 of {text[:20]}", post(web.path("tag"), body), (400,), False)
    for name, value in (
        ("BOOL", 1), ("BOOL", 0), ("BOOL", "true"), ("BOOL", None), ("UINT8", 256), ("UINT8", -1),
        ("INT8", 128), ("INT8", -129), ("UINT16", 65536), ("INT16", 32768), ("UINT32", 2**32),
        ("INT32", 2**31), ("INT32", -(2**31) - 1), ("UINT64", 2**64), ("UINT64", -1),
        ("UINT8", 1.5), ("UINT8", True), ("FP64", True), ("FP64", "1"), ("FP16", 1), ("BF16", 1),
    ):  # fmt: skip
        yield every_type(name, value)


def every_type(name: str, value: Any) -> Case:
    """The model "dtypes", with one value of one input in JSON; FP16 and BF16 have no such form."""
    items = []
    for other in web.NUMPY:
        head = {"name": f"in_{other}", "shape": [1, 3], "datatype": other}
        if other == name:
            items.append({**head, "data": [1, 1, value] if name != "BOOL" else [True, True, value]})
        elif other in ("FP16", "BF16"):
            items.append({**head, "parameters": {"binary_data_size": 6}})
        else:
            items.append({**head, "data": [other != "BOOL" and 1] * 3})
    text = json.dumps({"inputs": items, "parameters": {"binary_data_output": True}}).encode()
    blobs = sum("parameters" in item for item in items) * bytes(6)
    row = 41 if name in ("FP16", "BF16") else 40
    data = post(web.path("dtypes"), text + blobs, f"{JSON_LENGTH}: {len(text)}")
    return Case(row, f"{name} of {value}", data, (400,), False)


def types() -> Iterator[Case]:
    """Rows 11 and 41: what the datatype must not be."""
    for name in (
        "fp32",
        "FP64",
        "FP16",
        "INT32",
        "FLOAT",
        "float32",
        "BYTES",
        "STRING",
        "FP32 ",
        "",
        "FP3",
        "FP320",
    ):
        yield keeps(41, f"datatype {name!r}", with_input(datatype=name))
    yield keeps(41, "BYTES", with_input(datatype="BYTES", data=["x"] * 16))
    bad = with_input(datatype="BYTES", data=["ZZ"] * 16).replace(b"ZZ", b"\xff\xfe")
    yield keeps(41, "BYTES that are no UTF-8", bad)
    lie = struct.pack("<I", 2**32 - 1)
    text = json.dumps(
        {"inputs": [{"name": "x", "shape": [1, 16], "datatype": "BYTES",
                     "parameters": {"binary_data_size": 64}}]}
    ).encode()  # fmt: skip
    yield keeps(41, "BYTES that lie", text + lie * 16, f"{JSON_LENGTH}: {len(text)}")
    requested = {"name": "out_FP16", "parameters": {"binary_data": False}}
    text = json.dumps({"outputs": [requested], "inputs": [
        {"name": f"in_{name}", "shape": [1, 3], "datatype": name,
         "parameters": {"binary_data_size": 3 * int(web.np.dtype(kind).itemsize)}}
        for name, kind in web.NUMPY.items()
    ]}).encode()  # fmt: skip
    blob = bytes(3 * sum(web.np.dtype(kind).itemsize for kind in web.NUMPY.values()))
    data = post(web.path("dtypes"), text + blob, f"{JSON_LENGTH}: {len(text)}")
    yield Case(41, "FP16 as JSON", data, (400,), False)


def requested_outputs() -> Iterator[Case]:
    """Row 42: outputs that cannot be had."""

    def asking_for(*outputs: Any) -> bytes:
        return changed(lambda d: d.update(outputs=copy.deepcopy(list(outputs))))

    for name, outputs in {
        "unknown": [{"name": "z"}], "an input's name": [{"name": "x"}], "empty": [{"name": ""}],
        "no name": [{}], "a text": ["y"], "null": [None], "twice": [{"name": "y"}] * 2,
        "many": [{"name": "y"}] * 5000, "a good and a bad one": [{"name": "y"}, {"name": "Y"}],
        "a name of another type": [{"name": 1}],
    }.items():  # fmt: skip
        yield keeps(42, name, asking_for(*outputs))
    for parameters in (
        {"classification": 0}, {"classification": -1}, {"classification": 2**64},
        {"classification": 1.5},
        {"classification": "1"}, {"classification": None}, {"binary_data": 1},
        {"binary_data": "true"}, {"binary_data": None}, {"shared_memory_region": "r"},
        {"shared_memory_region": "r", "shared_memory_byte_size": 64, "binary_data": True},
        {"shared_memory_region": "../x", "classification": 1}, None, [], "x",
    ):  # fmt: skip
        yield keeps(42, str(parameters)[:60], asking_for({"name": "y", "parameters": parameters}))
    for parameters in (
        {"binary_data_output": 1}, {"binary_data_output": "x"}, {"binary_data_output": None},
        {"timeout": -1}, {"timeout": 1.5}, {"timeout": "1"}, {"timeout": 2**64},
        {"priority": -1}, {"priority": "high"}, {"sequence_id": 7}, {"sequence_id": "a"},
        {"sequence_start": True}, {"sequence_end": True}, {"triton_enable_empty_final": True},
        {"triton_": 1}, {"timeout": None}, {"timeout": True},
    ):  # fmt: skip
        body = changed(lambda d, p=parameters: d.update(parameters=p))
        yield keeps(42, f"parameters {parameters}", body)


def ids() -> Iterator[Case]:
    """Row 43: ids that are too long."""
    for size in (500, 4096, 9000, 100_000, 900_000):
        body = changed(lambda d, s=size: d.update(id="i" * s))
        yield keeps(43, f"{size} bytes", body)
    body = changed(lambda d: d.update(id="\0" * 300))
    yield keeps(43, "300 NULs", body)


BODIES = [*blobs(), *not_json(), *documents(), *shapes(), *types(), *requested_outputs(), *ids()]
