"""`lumen key`: a token for a client, and settings that take it."""

from __future__ import annotations

import hashlib
import re
import string
from pathlib import Path

import pytest
import yaml

from lumen_uring.cli import main
from lumen_uring.commands.key import make_token
from lumen_uring.config import load


def test_the_printed_lines_let_the_printed_token_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["key", "ada"]) == 0
    out = capsys.readouterr().out
    (token,) = re.findall(r"^    ([A-Za-z0-9]{32})$", out, re.MULTILINE)
    lines = out[out.index("  keys:") :]
    path = tmp_path / "config.yaml"
    path.write_text(f"server:\n{lines}models: [{{name: digits, path: 'builtin:digits'}}]\n")
    (key,) = load(path).server.keys
    assert key.name == "ada"
    assert key.digest() == hashlib.sha256(token.encode()).digest()
    assert key.models == "all"
    assert not key.admin
    assert token not in yaml.safe_dump(yaml.safe_load(path.read_text()))


def test_tokens_differ() -> None:
    tokens = {make_token() for _ in range(100)}
    assert len(tokens) == 100
    assert set("".join(tokens)) == set(string.ascii_letters + string.digits)


@pytest.mark.parametrize("name", ["", "a b", "a\n", "x" * 64, "ä"])
def test_a_name_that_is_none(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lumen: NAME: expected 1 to 63 letters")


def test_a_name_that_yaml_would_misread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "1.5"]) == 0
    out = capsys.readouterr().out
    path = tmp_path / "config.yaml"
    path.write_text(f"server:\n{out[out.index('  keys:') :]}models: [{{name: a, path: b}}]\n")
    assert load(path).server.keys[0].name == "1.5"
