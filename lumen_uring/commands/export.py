"""`lumen export`: writes the ONNX file of a text model's folder that has weights alone.

Called by cli.py, on the main thread; offline/export_text.py does the work.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lumen_uring.errors import ConfigError
from lumen_uring.files import expanded
from lumen_uring.options import Subparsers


def add(subparsers: Subparsers) -> None:
    """Declares the command.

    Args:
        subparsers: of the main parser.
    """
    parser = subparsers.add_parser(
        "export",
        help="write the ONNX file of a text model that has weights alone",
        description="Writes FOLDER/onnx/model.onnx from FOLDER/model.safetensors, for BERT, "
        "RoBERTa, XLM-R, CamemBERT and DistilBERT. It needs neither PyTorch nor transformers.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="of Hugging Face or sentence-transformers")
    parser.add_argument("-o", "--output", metavar="FILE", help="(FOLDER/onnx/model.onnx)")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command.

    Args:
        arguments: of the command line.

    Returns:
        The exit status.

    Raises:
        ConfigError: the folder is of another model, or a file is there already.
    """
    from lumen_uring.offline.export_text import export

    folder = expanded(arguments.folder)
    output = Path(arguments.output or folder / "onnx" / "model.onnx")
    if output.exists() and not arguments.force:
        raise ConfigError(f"{output} is there already: --force replaces it.")
    for line in export(folder, output):
        print(line)
    if arguments.output is None:
        print(f"Serve it: lumen {folder}")
    return 0
