"""model_file.py: what is read of a model's file, and when it is read again."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from lumen_uring.errors import ConfigError
from lumen_uring.loading import model_file
from lumen_uring.loading.model_file import Reading

CHUNK = 1 << 20


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "_readings", {})


def aged(path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int = 2) -> Path:
    """The same file, seen so much later."""
    later = os.stat(path).st_ctime_ns + seconds * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    return path


@pytest.mark.parametrize("at", [0, 7, CHUNK - 8, CHUNK - 1, CHUNK, 2 * CHUNK - 3])
def test_words_are_found_wherever_they_stand(tmp_path: Path, at: int) -> None:
    long = "n" * 300
    for word, weights, zipmap in (
        (b"\n\x08location\x12\x05w.bin", ("w.bin",), False),
        (b"\n\x08location\x12\xac\x02" + long.encode(), (long,), False),
        (b"\n\x08location\x12\x7fw.bin", (), False),
        (b"ZipMap", (), True),
    ):
        content = b"x" * at + word + b"y" * 9
        (tmp_path / "m").write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        assert model_file.read(tmp_path / "m") == Reading(digest, weights, zipmap)


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"model")
    first = model_file.read(aged(path, monkeypatch))
    monkeypatch.setattr(hashlib, "sha256", None)  # whoever read it again would fail
    assert model_file.read(path) is first
    told = model_file.known()
    monkeypatch.setattr(model_file, "_readings", {})
    model_file.learn(told)  # as another process does
    assert model_file.read(path) == first
    os.utime(path)  # it has changed, for all that is known
    with pytest.raises(TypeError):
        model_file.read(path)


def test_what_has_just_changed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writes of one size within a tick of the file system's clock look alike."""
    path = tmp_path / "m"
    path.write_bytes(b"model")
    model_file.read(aged(path, monkeypatch, 0))
    assert model_file.known() == []


def test_a_file_that_grows_meanwhile_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"model")
    aged(path, monkeypatch)

    class Growing:
        def __init__(self) -> None:
            self.inner = real()

        def update(self, chunk: bytes) -> None:
            with path.open("ab") as file:
                file.write(b"" if path.stat().st_size > 5 else b"more")
            self.inner.update(chunk)

        def hexdigest(self) -> str:
            return self.inner.hexdigest()

    real = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", Growing)
    model_file.read(path)
    assert model_file.known() == []


def test_the_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "_KEPT_MAX", 3)
    for number in range(10):
        path = tmp_path / str(number)
        path.write_bytes(b"%d" % number)
        model_file.read(aged(path, monkeypatch))
        assert 1 <= len(model_file.known()) <= 3


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        model_file.read(tmp_path / "none")
