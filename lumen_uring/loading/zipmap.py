"""Serves classifiers whose converter put a ZipMap at the end: the ZipMap is cut off.

skl2onnx, onnxmltools and their kin make a sequence of maps of the probabilities, class by class.
No tensor can say that, and nobody needs it: the ZipMap's input has the same numbers, one column a
class, and its attributes name the classes. Called by loading/add.py, on the main thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lumen_uring.errors import ConfigError
from lumen_uring.loading import model_file

if TYPE_CHECKING:
    import onnx

OUTPUT: Final = "probabilities"
_ROWS: Final = "rows"


@contextmanager
def cut(path: Path) -> Iterator[tuple[Path, bytes | None, str | None]]:
    """Gives a model without its ZipMaps, as a file that lasts as long as the context.

    Args:
        path: the model's file; it is not changed.

    Yields:
        The file to load: `path` itself where there is no ZipMap; the classes as a labels file has
        them, one a line, or None; and a sentence about what was done, or None.
    """
    edited = _edited(path) if _mentions_zipmap(path) else None
    if edited is None:
        yield path, None, None
        return
    model, classes = edited
    note = (
        f"{path.name}: its ZipMap is left out; output {OUTPUT!r} has a column for each of "
        f"{len(classes)} classes"
    )
    descriptor = os.memfd_create(path.name)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(model.SerializeToString())
        yield Path(f"/proc/self/fd/{descriptor}"), _lines(classes), note
    finally:
        os.close(descriptor)


def _mentions_zipmap(path: Path) -> bool:
    """Whether the operator's name is in the file: most models are not parsed."""
    try:
        return model_file.read(path).mentions_zipmap
    except ConfigError:  # loading it says so
        return False


def _edited(path: Path) -> tuple[onnx.ModelProto, list[str]] | None:
    """The model without a ZipMap that makes one of its outputs; None where none does, or where it
    cannot be read: then ONNX Runtime says what is wrong."""
    try:
        # Late, for such models alone: a server whose models need no edit does without its memory.
        import onnx
    except ImportError:
        return None
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception:  # protobuf has errors of its own
        return None
    graph = model.graph
    used = {name for node in graph.node for name in node.input}
    outputs = {output.name for output in graph.output}
    zipmaps = [
        node
        for node in graph.node
        if node.op_type == "ZipMap"
        and node.output[0] in outputs - used
        and OUTPUT not in outputs - {node.output[0]}
    ]
    if len(zipmaps) != 1:
        return None
    (zipmap,) = zipmaps
    classes = _classes(zipmap)
    graph.node.remove(zipmap)
    if zipmap.input[0] != OUTPUT:
        graph.node.append(onnx.helper.make_node("Identity", [zipmap.input[0]], [OUTPUT]))
    kind = onnx.TensorProto.FLOAT
    columns = onnx.helper.make_tensor_value_info(OUTPUT, kind, [_ROWS, len(classes)])
    for output in graph.output:
        if output.name == zipmap.output[0]:
            output.CopyFrom(columns)
    _name_rows(graph)
    return model, classes


def _classes(zipmap: onnx.NodeProto) -> list[str]:
    for attribute in zipmap.attribute:
        if attribute.name == "classlabels_strings":
            return [label.decode("utf-8", "replace") for label in attribute.strings]
        if attribute.name == "classlabels_int64s":
            return [str(label) for label in attribute.ints]
    return []


def _name_rows(graph: onnx.GraphProto) -> None:
    """Gives the first dimensions one name: classifiers have a row of each output for each row of
    their inputs, and their converters leave it to the reader to know that."""
    for value in (*graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) and not dims[0].HasField("dim_value"):
            dims[0].dim_param = _ROWS


def _lines(classes: list[str]) -> bytes | None:
    """As a labels file; None where a name would not be a line of its own."""
    if any(not name or "\n" in name for name in classes):
        return None
    return "".join(f"{name}\n" for name in classes).encode() or None
