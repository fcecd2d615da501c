"""Text that people bring: with byte order marks and line ends of Windows, and in other encodings;
each kind of file that the server reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lumen_uring.config import load
from lumen_uring.control.calls import CallError, object_of
from lumen_uring.errors import ConfigError
from lumen_uring.loading.model_cache import labels
from lumen_uring.options import token_of
from lumen_uring.settings import text_files
from lumen_uring.settings.models import ModelConfig

SETTINGS = """\
# größer
server:
  name: "lumen-1"
models:
  - {name: digits, path: "builtin:digits"}
"""
CONFIG = """\
# größer
name: "m"
platform: "onnxruntime_onnx"
max_batch_size: 0
"""


def settings(path: Path) -> object:
    return load(path).server.name


def names(path: Path) -> object:
    return labels(ModelConfig(name="m", path="m.onnx", labels=str(path)))


def configuration(path: Path) -> object:
    folder = path.parent / "repository" / "m"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.onnx").write_bytes(b"x")
    path.rename(folder / "config.pbtxt")
    config = load(None, [f"repository.paths=[{folder.parent}]", "models=[]"])
    return [model.name for model in config.models]


def token(path: Path) -> object:
    from argparse import Namespace

    return token_of(Namespace(token=None, token_file=str(path)))


KINDS: dict[Callable[[Path], object], tuple[str, object]] = {
    settings: (SETTINGS, "lumen-1"),
    names: ("Katze\nHündin\n", "Katze\nHündin".encode()),
    configuration: (CONFIG, ["m"]),
    token: ("t" * 20 + "\n", "t" * 20),
}
BOTH = pytest.mark.parametrize("read", KINDS, ids=lambda read: read.__name__)


@BOTH
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "mark"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_what_editors_write_is_read(
    tmp_path: Path, read: Callable[[Path], object], mark: bytes, end: bytes
) -> None:
    text, expected = KINDS[read]
    path = tmp_path / "file"
    path.write_bytes(mark + text.encode().replace(b"\n", end))
    assert read(path) == expected


@BOTH
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_another_encoding_is_named(
    tmp_path: Path, read: Callable[[Path], object], encoding: str
) -> None:
    path = tmp_path / "file"
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    path.write_bytes(mark + KINDS[read][0].encode(encoding))
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert read is token or "UTF-16 (save it as UTF-8)" in str(caught.value)


def test_where_a_byte_is_wrong() -> None:
    assert text_files.decode(b"") == ""
    for raw, found in [
        (b"ab\xff", "byte 0xff at offset 2"),
        (b"\xef\xbb\xbfab\xe9c", "byte 0xe9 at offset 5"),
    ]:
        with pytest.raises(text_files.NotUtf8Error, match=found):
            text_files.decode(raw)


def test_the_body_of_a_call_may_have_a_mark() -> None:
    assert object_of(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    with pytest.raises(CallError):
        object_of('{"a": 1}'.encode("utf-16"))
