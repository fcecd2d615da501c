"""The banner: everything a person needs to know about a server that has just started."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from lumen_uring.config import load
from lumen_uring.ring.description import EngineInfo, SlotClass
from lumen_uring.serving import banner as banner_module
from lumen_uring.serving.banner import banner, memory_limit_bytes, warnings

INFO = EngineInfo(
    port=8000,
    io_threads=1,
    workers=2,
    models=1,
    arena_bytes=256 << 20,
    ready_us=1,
    slots=128,
    slot_classes=(SlotClass(1024, 64), SlotClass(1 << 20, 64)),
    worker_cpus=(0, -1),
    io_backend="io_uring",
    io_detail="DEFER_TASKRUN",
    ort_version="1.31.1",
    stats_path="/dev/shm/lumen-8000",
    notes=("no huge pages",),
)
DIGITS = {
    "index": 0,
    "name": "digits",
    "max_rows": 512,
    "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}],
    "outputs": [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}],
    "rgb8": None,
}


def test_the_banner_names_everything() -> None:
    lines = banner(load(), INFO, {"models": [DIGITS]}, ["cache not kept"], 0.5)
    text = "\n".join(lines)
    for part in (
        "serves on 127.0.0.1:8000 (ONNX Runtime 1.31.1)",
        "digits: image FP32[n,1,8,8] -> probabilities FP32[n,10]",
        "2 (core 0, unpinned)",
        "io_uring, 1 thread(s) (DEFER_TASKRUN)",
        "128 slots in 256MiB, of 1KiB to 1MiB each",
        "/dev/shm/lumen-8000",
        "note     cache not kept",
        "note     no huge pages",
        "in 0.50 s",
        "Try: curl 'http://127.0.0.1:8000/v2/models/digits/infer' -d '{\"inputs\":[{",
    ):
        assert part in text


def test_the_banner_of_other_servers() -> None:
    config = load(None, ["server.host='::1'"], ["bench=builtin:squeezenet"])
    table = {
        **DIGITS,
        "name": "bench",
        "inputs": [{"name": "row", "datatype": "FP32", "shape": [-1, 9]}],
    }
    info = dataclasses.replace(INFO, port=9000, notes=(), slot_classes=())
    text = "\n".join(banner(config, info, {"models": [table]}, [], 0.5))
    assert "serves on [::1]:9000" in text
    assert "bench (untrained weights, for speed only)" in text
    assert (
        "Try: curl 'http://[::1]:9000/v2/models/bench/infer' -d "
        '\'{"inputs":[{"name":"row","datatype":"FP32","shape":[1,9],"data":[0,0,0,0,0,0,0,0,0]}]}\''
    ) in text
    assert "socket" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{tokenizer: t, pooling: mean}", '/v1/embeddings\' -d \'{"model":"m","input":"a text"}\''),
        ("{tokenizer: t, task: scores}", '/predict\' -d \'{"model":"m","inputs":"a text"}\''),
        (
            "{tokenizer: t, task: scores, pairs: true}",
            '/rerank\' -d \'{"model":"m","query":"a question","texts":["an answer","another"]}\'',
        ),
    ],
)
def test_what_to_try_of_texts(text: str, expected: str) -> None:
    config = load(None, [f"models.0.text={text}"], ["m=builtin:digits"])
    lines = banner(config, INFO, {"models": [{**DIGITS, "name": "m"}]}, [], 0.5)
    assert lines[-1] == f"Try: curl 'http://127.0.0.1:8000{expected}"


BERT = {
    **DIGITS,
    "name": "bert",
    "inputs": [
        {
            "name": name,
            "datatype": "INT64",
            "shape": [-1, -1],
            "dims": ["batch_size", "sequence_length"],
        }
        for name in ("input_ids", "attention_mask")
    ],
    "outputs": [
        {
            "name": "hidden",
            "datatype": "FP32",
            "shape": [-1, -1, 384],
            "dims": ["batch_size", "sequence_length", 384],
            "shape_known": True,
        },
        {
            "name": "found",
            "datatype": "INT64",
            "shape": [2, -1],
            "dims": [2, -1],
            "shape_known": False,
        },
    ],
    "free_dims": [{"name": "sequence_length", "max": 512, "default": True}],
    "slot_bytes": 25 * 2**20 + 5,
}


def test_the_banner_of_free_dimensions() -> None:
    config = load(None, (), ["bert=bert.onnx"])
    lines = banner(config, INFO, {"models": [BERT]}, [], 0.5)
    assert lines[1:3] == [
        "  model    bert: input_ids INT64[n,sequence_length], "
        "attention_mask INT64[n,sequence_length] -> hidden FP32[n,sequence_length,384], "
        "found INT64[2,?]",
        "  sizes    bert: sequence_length 1..512 (default); the largest request takes 26MiB of "
        "memory; max_dims sets others",
    ]
    assert lines[-1] == (
        "Try: curl 'http://127.0.0.1:8000/v2/models/bert/infer' -d '{\"inputs\":["
        '{"name":"input_ids","datatype":"INT64","shape":[1,1],"data":[0]},'
        '{"name":"attention_mask","datatype":"INT64","shape":[1,1],"data":[0]}]}\''
    )
    dims = [{"name": "height", "max": 9}, {"name": "width", "max": 7, "default": False}]
    picture = {
        **DIGITS,
        "inputs": [
            {
                "name": "x",
                "datatype": "FP32",
                "shape": [1, 3, -1, -1],
                "dims": [1, 3, "height", "width"],
            }
        ],
        "free_dims": dims,
        "slot_bytes": 1025,
    }
    lines = banner(load(), INFO, {"models": [picture]}, [], 0.5)
    assert "x FP32[1,3,height,width] ->" in lines[1]
    assert lines[2] == (
        "  sizes    digits: height 1..9, width 1..7; the largest request takes 2KiB of memory"
    )
    assert lines[-1] == "Try: curl 'http://127.0.0.1:8000/v2/models/digits'"


def test_the_banner_of_a_model_that_takes_pictures() -> None:
    pixels = {"height": 224, "width": 224, "layout": "NCHW", "channel_order": "BGR"}
    values = {"mean": [1, 2, 3], "scale": [0.5, 0.5, 0.5], "pad_value": 114}
    photo = {
        **DIGITS,
        "inputs": [{"name": "x", "datatype": "FP16", "shape": [-1, 3, 224, 224]}],
        "image": {**pixels, **values, "fit": "letterbox", "resize": 0, "filter": "box"},
    }
    text = "\n".join(banner(load(), INFO, {"models": [photo]}, [], 0.5))
    assert (
        "  pictures digits: JPEG or PNG, fitted into 224 x 224 with a margin of 114 (box), bgr, "
        "(value - [1, 2, 3]) * 0.5\n"
    ) in text
    url = "http://127.0.0.1:8000/v2/models/digits/infer"
    assert next_step(photo) == f"Try: curl -T PICTURE.jpg '{url}?top=5'"
    assert next_step({**photo, "labels": ["a"]}) == f"Try: curl -T PICTURE.jpg '{url}'"
    # One that is short enough to type needs no file.
    assert ' -d \'{"inputs":[{' in next_step({**DIGITS, "image": photo["image"]})
    boxes = {"name": "boxes", "datatype": "FP32", "shape": [-1, 84, 8400]}
    assert next_step({**photo, "outputs": [boxes]}) == f"Try: curl -T PICTURE.jpg '{url}'"


def test_the_banner_of_a_unix_socket() -> None:
    config = load(None, ["server.unix_socket=/run/s", "server.unix_socket_mode=0600"])
    text = "\n".join(banner(config, INFO, {"models": [DIGITS]}, [], 0.5))
    assert "socket   unix:/run/s (mode 0600)" in text


def next_step(table: dict[str, object], *overrides: str, port: int = 8000) -> str:
    config = load(None, overrides)
    info = dataclasses.replace(INFO, port=port)
    return banner(config, info, {"models": [table]}, [], 0.5)[-1]


def test_what_to_try_is_a_command_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    photo = {
        **DIGITS,
        "name": "photo",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, 224, 224]}],
        "rgb8": {"width": 224, "height": 224},
    }
    large = {
        **DIGITS,
        "name": "large",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1000]}],
    }
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert next_step(photo) == "Try: lumen predict --model photo PICTURE.png"
    assert next_step(photo, "server.host=0.0.0.0", port=1) == (
        "Try: lumen predict --port 1 --model photo PICTURE.png"
    )
    assert next_step(photo, "server.host='10.0.0.5'") == (
        "Try: lumen predict --host 10.0.0.5 --model photo PICTURE.png"
    )
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert f"Try: {sys.executable} -m lumen_uring predict --model photo" in next_step(photo)
    assert next_step(large) == "Try: curl 'http://127.0.0.1:8000/v2/models/large'"
    key = 'server.keys=[{name: a, sha256: "' + "ab" * 32 + '"}]'
    assert "curl -H 'Authorization: Bearer TOKEN' 'http://" in next_step(DIGITS, key)
    assert "'http://[::1]:8000/" in next_step(DIGITS, "server.host='::'")


def test_what_to_look_out_for(tmp_path: Path) -> None:
    def notes(*overrides: str) -> str:
        return "; ".join(warnings(load(None, overrides), INFO))

    assert "no keys: any client that reaches 0.0.0.0 may send requests" in notes(
        "server.host=0.0.0.0"
    )
    key = 'server.keys=[{name: a, sha256: "' + "ab" * 32 + '"}]'
    for quiet in (["server.host='::1'"], ["server.host=0.0.0.0", key]):
        assert "no keys" not in notes(*quiet)
    assert memory_limit_bytes(tmp_path) is None
    for name, text, limit in [
        ("memory/memory.limit_in_bytes", "9223372036854771712", None),
        ("memory/memory.limit_in_bytes", "4096", 4096),
        ("memory.max", "max", None),
        ("memory.max", "8192", 8192),
    ]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
        assert memory_limit_bytes(tmp_path) == limit


def test_versions_that_are_not_served_are_told() -> None:
    models = "models=[{name: 'a:1', path: x}, {name: 'a:2', path: x}]"
    for traffic, told in (
        ("{a: {versions: {1: 1, 2: 9}}}", ""),
        ("{a: {versions: {1: 1, 3: 0, 4: 9}}}", "there is no version 3, 4: the others"),
        ("{b: {versions: {1: 1}}}", "traffic.b: no model of this name is served"),
    ):
        notes = warnings(load(None, [models, f"traffic={traffic}"]), INFO)
        found = [note for note in notes if note.startswith("traffic")]
        assert len(found) == bool(told)
        assert told in "".join(found)


def test_batches_on_cuda_are_told(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    tensorrt = "{tensorrt: {trt_fp16_enable: true}}"
    for providers, size, told in (
        ("[cuda]", 2, True),
        (f"[{tensorrt}, {{CUDAExecutionProvider: {{device_id: 0}}}}]", 2, True),
        ("[cuda]", 1, False),
        (f"[{tensorrt}]", 2, False),
        ("[openvino]", 2, False),
    ):
        entry = f"{{name: m, path: {tmp_path}/m.onnx, providers: {providers}"
        for settings in (
            [f"models=[{entry}, batch_size: {size}}}]"],
            [f"models=[{entry}}}]", f"engine.batch_size={size}"],
        ):
            notes = warnings(load(None, settings), INFO)
            assert ["model m: batches on cuda" in note for note in notes] == [True] * told


def test_a_memory_limit_below_the_arena_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """INFO's arena has 256 MiB."""
    for limit, told in ((None, False), (256 << 20, False), ((256 << 20) - 1, True), (1, True)):
        monkeypatch.setattr(banner_module, "memory_limit_bytes", lambda found=limit: found)
        notes = warnings(load(), INFO)
        assert (len(notes) == 1) is told
        assert all("is below server.arena_bytes: the kernel may end it" in note for note in notes)
    monkeypatch.setattr(banner_module, "memory_limit_bytes", lambda: 100 << 20)
    assert "group, 100MiB, is below" in warnings(load(), INFO)[0]


@pytest.mark.parametrize(
    ("shape", "datatype", "data"),
    [
        ([-1, 64], "FP32", [0] * 64),
        ([-1, 65], "FP32", None),
        ([2, -1], "FP32", None),
        ([0, 3], "FP32", None),
        ([], "INT64", [0]),
        ([3], "BOOL", [False] * 3),
        ([-1, 2], "FP16", None),
        ([-1, 2], "BF16", None),
    ],
)
def test_which_inputs_a_person_would_type(
    shape: list[int], datatype: str, data: list[object] | None
) -> None:
    tensor = {"name": "x", "datatype": datatype, "shape": shape}
    typed = banner_module._zeros(tensor)
    if data is None:
        assert typed is None
        return
    rows = [1 if size < 0 else size for size in shape]
    assert typed == {"name": "x", "datatype": datatype, "shape": rows, "data": data}
    assert banner_module._zeros({**tensor, "name": "it's"}) is None


def test_where_to_try_it_is_said_where_it_is_not_the_usual_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grey = {
        **DIGITS, "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1, 28, 28]}],
    }  # fmt: skip
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    end = "--model digits PICTURE.png"
    assert next_step(grey) == f"Try: lumen predict {end}"
    assert next_step(grey, port=8002) == f"Try: lumen predict --port 8002 {end}"
    assert next_step(grey, "server.host='::'") == f"Try: lumen predict --host ::1 {end}"
    two = {**grey, "inputs": [*grey["inputs"], *grey["inputs"]]}  # type: ignore[misc]
    assert next_step(two).startswith("Try: curl 'http://127.0.0.1:8000/v2/models/digits'")
    unknown = {**DIGITS, "outputs": [
        {"name": "y", "datatype": "FP32", "shape": [-1, 10], "shape_known": False},
        {"name": "z", "datatype": "INT64", "shape": [-1]},
    ]}  # fmt: skip
    text = "\n".join(banner(load(), INFO, {"models": [unknown]}, [], 0.5, "http://m"))
    assert "-> y FP32[?,10], z INT64[n]" in text
    assert "  metrics  http://m" in text.splitlines()
