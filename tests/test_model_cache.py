"""From a model's entry to its file and the place of its optimised graph."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path

import pytest

from lumen_uring import loading, model_cache
from lumen_uring.errors import ConfigError
from lumen_uring.model_cache import cache_place, cpu_flags_hash, labels, resolve
from lumen_uring.model_settings import ModelConfig


def test_files_are_found_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.onnx").write_bytes(b"model")
    monkeypatch.chdir(tmp_path)
    assert resolve("m.onnx") == tmp_path / "m.onnx"
    with pytest.raises(ConfigError, match=r"none\.onnx does not exist: give the path"):
        resolve("none.onnx")
    with pytest.raises(ConfigError, match="is a directory"):
        resolve(".")
    os.mkfifo("pipe.onnx")
    with pytest.raises(ConfigError, match="is a pipe, a socket or a device"):
        resolve("pipe.onnx")


def test_builtin_models() -> None:
    assert resolve("builtin:digits").is_file()
    with pytest.raises(ConfigError, match="nope"):
        resolve("builtin:nope")


def test_the_place_depends_on_model_runtime_and_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "m.onnx"
    model.write_bytes(b"model")
    place = cache_place(model, "1.31.1")
    digest = hashlib.sha256(b"model").hexdigest()[:32]
    assert place.note is None
    assert place.path == (
        tmp_path / "cache" / "lumen" / f"{digest}-1.31.1-{cpu_flags_hash()[:8]}.ort"
    )
    assert stat.S_IMODE(place.path.parent.stat().st_mode) == 0o700
    assert not place.path.exists()
    assert cache_place(model, "1.31.1") == place
    model.write_bytes(b"other")
    assert cache_place(model, "1.31.1") != place
    model.write_bytes(b"model")
    assert cache_place(model, "1.31.2") != place
    assert cache_place(model, "1.31.1", {}) == place
    sizes: list[dict[str, int]] = [
        {"h": 2}, {"h": 3}, {"w": 2}, {"h": 2, "w": 3}, {"h": 3, "w": 2}, {'h": 2, "w': 3},
    ]  # fmt: skip
    assert len({place.path} | {cache_place(model, "1.31.1", fix).path for fix in sizes}) == 7
    swapped = cache_place(model, "1.31.1", {"w": 3, "h": 2})
    assert swapped == cache_place(model, "1.31.1", {"h": 2, "w": 3})
    monkeypatch.setattr(model_cache, "cpu_flags_hash", lambda: "0123456789")
    other = cache_place(model, "1.31.1")
    assert other.path is not None
    assert other.path.name == f"{digest}-1.31.1-01234567.ort"


def test_weights_in_another_file_are_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    weights = numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [weights],
    )
    inside, outside = tmp_path / "inside.onnx", tmp_path / "outside.onnx"
    onnx.save(helper.make_model(graph), inside)
    onnx.save(helper.make_model(graph), outside, save_as_external_data=True, size_threshold=0)
    assert cache_place(inside, "1").path is not None
    place = cache_place(outside, "1")
    assert place.path is None
    assert place.note is not None
    assert "another file" in place.note


EXTERNAL = b"\n\x08location\x12"


@pytest.mark.parametrize("size", [1 << 20, 2 << 20])
@pytest.mark.parametrize("before", range(len(EXTERNAL) + 1))
def test_a_mark_of_other_weights_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, before: int
) -> None:
    """The file is read a MiB at a time: the mark may begin in one piece and end in the next."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = tmp_path / "m.onnx"
    model.write_bytes(bytes(size - before) + EXTERNAL + bytes(3))
    assert cache_place(model, "1").path is None
    model.write_bytes(bytes(size - before) + EXTERNAL[:-1] + b"!" + bytes(3))
    assert cache_place(model, "1").path is not None


def test_a_mark_is_not_forgotten_over_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the hash is of the whole file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = tmp_path / "m.onnx"
    model.write_bytes(EXTERNAL + bytes(3 << 20))
    place = cache_place(model, "1")
    assert (place.path, place.note) == (
        None,
        "the optimised graph of m.onnx is not kept, each start makes it anew: "
        "its weights lie in another file, whose changes the cache would not see",
    )
    raw = bytes((2 << 20) + 1) + b"end"
    model.write_bytes(raw)
    place = cache_place(model, "1")
    assert place.path is not None
    assert place.path.name.startswith(hashlib.sha256(raw).hexdigest()[:32] + "-1-")
    with pytest.raises(ConfigError, match=r"none\.onnx cannot be read: No such file"):
        cache_place(tmp_path / "none.onnx", "1")


def test_processor_flags_in_any_order_are_the_same(tmp_path: Path) -> None:
    one, two, arm = tmp_path / "1", tmp_path / "2", tmp_path / "3"
    one.write_text("processor\t: 0\nflags\t\t: avx2 fma\nflags\t\t: x\n")
    two.write_text("flags : fma avx2\n")
    arm.write_text("Features : asimd\n")
    assert cpu_flags_hash(one) == cpu_flags_hash(two) != cpu_flags_hash(arm)
    assert cpu_flags_hash(one) == hashlib.sha256(b"avx2 fma").hexdigest()
    assert cpu_flags_hash(arm) == hashlib.sha256(b"asimd").hexdigest()
    assert cpu_flags_hash(tmp_path / "none") == hashlib.sha256(b"").hexdigest()


def test_home_is_used_without_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"model")
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        place = cache_place(model, "1")
        assert place.path is not None
        assert place.path.parent == tmp_path / ".cache" / "lumen"


def test_a_place_that_cannot_be_made_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(model))
    place = cache_place(model, "1")
    assert place.path is None
    assert place.note is not None
    assert "set XDG_CACHE_HOME" in place.note


def test_a_folder_that_others_may_write_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for mode in (0o777, 0o770, 0o702, 0o720):
        (tmp_path / "lumen").mkdir(exist_ok=True)
        (tmp_path / "lumen").chmod(mode)
        place = cache_place(model, "1")
        assert place.path is None
        assert place.note is not None
        assert f"others may write {tmp_path}/lumen: use chmod go-w" in place.note
    (tmp_path / "lumen").chmod(0o755)
    assert cache_place(model, "1").path is not None
    # As root with the rights of another user: what counts is who this process acts as.
    owner = (tmp_path / "lumen").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    place = cache_place(model, "1")
    assert place.path is None
    assert place.note is not None
    assert f"{tmp_path}/lumen belongs to another user" in place.note
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert cache_place(model, "1").path is not None
    monkeypatch.setattr(os, "access", lambda *_asked: False)
    assert "(Permission denied)" in (cache_place(model, "1").note or "")


def test_the_folder_of_builtin_models_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        place = cache_place(resolve("builtin:squeezenet"), "1")
    finally:
        os.umask(before)
    assert place.note is None
    assert stat.S_IMODE((tmp_path / "cache" / "lumen").stat().st_mode) == 0o700


def test_labels_are_lines(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    entry = ModelConfig(name="a", path="builtin:squeezenet", labels=str(path))
    path.write_bytes("cat\r\n\nkey\u2028hole\n".encode())
    assert labels(entry) == "cat\n\nkey\u2028hole".encode()
    for raw, says in (
        (b"", "one class per line"),
        (b"a\0b", "one class per line"),
        (b"\xff", "expected UTF-8, found byte 0xff at offset 0"),
        (b"ok \xe9\n", "expected UTF-8, found byte 0xe9 at offset 3"),
        (b" \n\t", "one class per line"),
        (b"x" * ((4 << 20) + 1), "at most 4194304 bytes in all, found 4194305 bytes of"),
    ):
        path.write_bytes(raw)
        with pytest.raises(ConfigError, match=says):
            labels(entry)
    for raw, kept in (
        (b"x" * (4 << 20), b"x" * (4 << 20)),
        (b"a\nb\n\n", b"a\nb\n"),  # the last class has no name
        (b"a\r\nb\rc\r\n", b"a\nb\rc"),
        (b"a", b"a"),
    ):
        path.write_bytes(raw)
        assert labels(entry) == kept
    path.unlink()
    with pytest.raises(ConfigError, match=r"labels of model a at .*: No such file"):
        labels(entry)
    os.mkfifo(path)
    with pytest.raises(ConfigError, match=r"expected a text file, found that it is a pipe"):
        labels(entry)


def test_models_without_a_file_of_labels() -> None:
    assert labels(ModelConfig(name="a", path="a.onnx")) is None
    assert labels(ModelConfig(name="a", path="builtin:squeezenet")) is None
    shipped = labels(ModelConfig(name="a", path="builtin:digits"))
    assert shipped == b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9"


# ---- how much of it there is ----


def fill(directory: Path, **entries: tuple[int, float]) -> Path:
    """Files of so many bytes, used so many seconds ago."""
    folder = directory / "lumen"
    folder.mkdir()
    now = time.time()
    for name, (size, age_s) in entries.items():
        path = folder / name.replace("_", "-", 1).replace("_", ".")
        path.write_bytes(bytes(size))
        os.utime(path, (now - age_s, now - age_s))
    return folder


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("most", "kept"),
    [
        (0, {"a-1.ort", "b-1.ort", "c-1.ort"}),
        (600, {"a-1.ort", "b-1.ort", "c-1.ort"}),
        (599, {"b-1.ort", "c-1.ort"}),
        (300, {"c-1.ort"}),
        (299, set()),
    ],
)
def test_what_was_not_used_for_longest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, kept: set[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    entries = {"a_1_ort": (100, 30.0), "b_1_ort": (200, 20.0), "c_1_ort": (300, 10.0)}
    folder = fill(tmp_path, **entries)
    (folder / "no-file").mkdir()
    gone = model_cache.trim(most)
    assert left(folder) == kept | {"no-file"}
    assert {*gone} == {"a-1.ort", "b-1.ort", "c-1.ort"} - kept


def test_a_load_uses_all_of_its_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = fill(tmp_path, a_1_ort=(100, 30.0), a_engine1_bin=(100, 40.0), b_1_ort=(100, 20.0))
    model_cache.used(model_cache.CachePlace(folder / "a-1.ort", None))
    model_cache.used(model_cache.CachePlace(None, "no cache"))
    assert model_cache.trim(200) == ["b-1.ort"]


def test_what_a_killed_process_left_goes_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert model_cache.trim(1) == []  # no cache yet
    folder = fill(tmp_path, a_1_ort=(100, 90_000.0), x_1_tmp=(9, 90_000.0), y_1_tmp=(9, 10.0))
    assert model_cache.trim(0) == ["x-1.tmp"]
    assert left(folder) == {"a-1.ort", "y-1.tmp"}


def test_what_came_during_a_load_is_not_kept_as_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache's entry has the name of the file that was read first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"first")
    model = ModelConfig(name="m", path=str(path), engine="onnxruntime")
    entries: list[Path] = []

    def put(new: bytes | None) -> list[str]:
        def load(_model: object, _file: Path, cached: Path, *_rest: object) -> None:
            if new is not None:
                path.write_bytes(new)
            cached.write_bytes(b"a graph")
            entries.append(cached)

        return loading.add_model(None, "1", model, path, b"a\nb", load)  # type: ignore[arg-type]

    assert put(None) == []
    assert entries[-1].exists()
    [said] = put(b"other")
    assert "was written while it was loaded" in said
    assert not entries[-1].exists()
