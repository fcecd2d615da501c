"""From a model's entry to its file and the place of its optimised graph."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from lumen_uring.errors import ConfigError
from lumen_uring.loading import add as loading
from lumen_uring.loading import model_cache, model_file, weights
from lumen_uring.loading.model_cache import cache_place, cpu_flags_hash, labels, resolve
from lumen_uring.settings.models import ModelConfig


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


def test_weights_in_other_files_are_part_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = outside(tmp_path / "m", "w.bin")
    (tmp_path / "m" / "w.bin").write_bytes(b"weights")
    place = cache_place(model, "1")
    assert place.path is not None
    assert (place.weights, place.note) == (tmp_path / "m", None)
    assert place.copy == place.path.parent / f"{place.path.name[:32]}-weights"
    (tmp_path / "m" / "w.bin").write_bytes(b"Weights")
    assert cache_place(model, "1").path != place.path
    (tmp_path / "m" / "w.bin").unlink()
    assert cache_place(model, "1") == model_cache.CachePlace(None, None)


def test_weights_are_looked_for_beside_a_link_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hugging Face's cache has files named by their digest, and a folder of links to them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    snapshot.mkdir()
    outside(blobs, "model.onnx_data").rename(blobs / "1")
    (blobs / "2").write_bytes(b"weights")
    (snapshot / "model.onnx").symlink_to(blobs / "1")
    (snapshot / "model.onnx_data").symlink_to(blobs / "2")
    given = snapshot / "model.onnx"
    assert cache_place(given.resolve(), "1").path is None
    assert cache_place(given.resolve(), "1", None, str(given)).weights == snapshot


@pytest.mark.parametrize("name", ["../w.bin", "a/../../w.bin", "/etc/hostname"])
def test_weights_outside_the_folder_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "w.bin").write_bytes(b"weights")
    assert cache_place(outside(tmp_path / "m", name), "1").path is None


def test_a_copy_of_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole or not there, also where two processes make it at once."""
    monkeypatch.setattr(model_file, "_readings", {})
    model = outside(tmp_path / "m", "sub/w.bin")
    (tmp_path / "m" / "sub").mkdir()
    source = tmp_path / "m" / "sub" / "w.bin"
    source.write_bytes(b"weights")
    to, names = tmp_path / "copy", ["sub/w.bin"]
    arguments = (model, tmp_path / "m", names)
    assert weights.copy(*arguments, to) == to / "model.onnx"
    assert (to / "sub" / "w.bin").read_bytes() == b"weights"
    assert (to / "model.onnx").read_bytes() == model.read_bytes()
    source.write_bytes(b"others")
    weights.copy(*arguments, to)  # is there
    assert (to / "sub" / "w.bin").read_bytes() == b"weights"
    with weights.held(to / weights.GRAPH):
        weights.forget(to)
        assert to.is_dir()
    weights.forget(to)
    weights.forget(to)
    assert not to.exists()
    real = weights._copy_bytes

    def written_meanwhile(reading: BinaryIO, writing: BinaryIO) -> str:
        source.write_bytes(b"written while it was read")
        return real(reading, writing)

    monkeypatch.setattr(weights, "_copy_bytes", written_meanwhile)
    with pytest.raises(ConfigError, match="was written while it was loaded: load it again"):
        weights.copy(*arguments, to)

    def made_by_another(reading: BinaryIO, writing: BinaryIO) -> str:
        to.mkdir(exist_ok=True)
        (to / "model.onnx").write_bytes(b"theirs")
        return real(reading, writing)

    monkeypatch.setattr(weights, "_copy_bytes", made_by_another)
    assert weights.copy(*arguments, to).read_bytes() == b"theirs"
    weights.forget(to)

    def full(_reading: BinaryIO, _writing: BinaryIO) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(weights, "_copy_bytes", full)
    with pytest.raises(weights.NoRoomError, match=r"25 bytes in .*: No space left"):
        weights.copy(*arguments, to)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


EXTERNAL = b"\n\x08location\x12"


def outside(folder: Path, name: str) -> Path:
    """A file that says of some initializer that it lies in the file of that name."""
    folder.mkdir()
    text = name.encode()
    (folder / "model.onnx").write_bytes(b"graph" + EXTERNAL + bytes([len(text)]) + text)
    return folder / "model.onnx"


@pytest.mark.parametrize("size", [1 << 20, 2 << 20])
@pytest.mark.parametrize("before", range(len(EXTERNAL) + 1))
def test_a_mark_of_other_weights_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, before: int
) -> None:
    """The file is read a MiB at a time: the mark may begin in one piece and end in the next."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = tmp_path / "m.onnx"
    model.write_bytes(bytes(size - before) + EXTERNAL + b"\1w")
    assert cache_place(model, "1").path is None
    model.write_bytes(bytes(size - before) + EXTERNAL[:-1] + b"!" + bytes(3))
    assert cache_place(model, "1").path is not None


def test_a_mark_is_not_forgotten_over_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the hash is of the whole file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = tmp_path / "m.onnx"
    model.write_bytes(EXTERNAL + b"\1w" + bytes(3 << 20))
    assert cache_place(model, "1") == model_cache.CachePlace(None, None)
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


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_cache, "_used", set())


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
    (folder / "no-file").mkdir()  # of now
    assert model_cache.trim(most) == []  # nobody here has loaded them
    assert left(folder) == kept | {"no-file"}


def test_a_load_uses_all_of_its_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = fill(tmp_path, a_1_ort=(100, 30.0), a_engine1_bin=(100, 40.0), b_1_ort=(100, 20.0))
    model_cache.used(model_cache.CachePlace(folder / "a-1.ort", None))
    copy = folder / "c-weights"
    copy.mkdir()
    (copy / "w.bin").write_bytes(bytes(50))
    os.utime(copy, (0, 0))
    model_cache.used(model_cache.CachePlace(None, "no cache"))
    model_cache.used(model_cache.CachePlace(None, None, folder, copy))
    assert model_cache.trim(250) == []
    assert left(folder) == {"a-1.ort", "a-engine1.bin", "c-weights"}
    [said] = model_cache.trim(1)
    assert "repository.cache_bytes, 1 bytes, has no room for all that was loaded" in said
    assert "(3 of the cache's files)" in said
    assert left(folder) == set()


def test_what_a_killed_process_left_goes_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert model_cache.trim(1) == []  # no cache yet
    folder = fill(tmp_path, a_1_ort=(100, 90_000.0), x_1_tmp=(9, 90_000.0), y_1_tmp=(9, 10.0))
    for folders in ("z.1.tmp", "u.1.tmp"):
        (folder / folders).mkdir()
        (folder / folders / "w.bin").write_bytes(b"half")
    os.utime(folder / "z.1.tmp", (0, 0))
    assert model_cache.trim(0) == []
    assert left(folder) == {"a-1.ort", "y-1.tmp", "u.1.tmp"}


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
