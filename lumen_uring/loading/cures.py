"""Commands that mend a model which Lumen refuses, for `lumen inspect`.

Called by commands/inspect.py, on the main thread. The refusal is C's own sentence; one that no
entry knows has no command, and says itself what to do.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

_SET_SHAPE: Final = (
    "python -c 'import onnx, sys; name, path, out = sys.argv[1:]; m = onnx.load(path); "
    "i = next(i for i in m.graph.input if i.name == name); kind = i.type.tensor_type.elem_type; "
    'i.CopyFrom(onnx.helper.make_tensor_value_info(name, kind, ["n", SIZE])); onnx.save(m, out)\' '
    "{input} {path} {plain}"
)
# Words of a refusal, and the command: {path} is the model's file, {plain} a new file beside it.
_CURES: Final[tuple[tuple[str, str], ...]] = (
    (r"Git LFS pointer", "git -C {folder} lfs pull"),
    (r"compressed with gzip", "gunzip -c {path} > {plain}"),
    (r"compressed with xz", "unxz -c {path} > {plain}"),
    (r"compressed with zstd", "unzstd -c {path} > {plain}"),
    (r"compressed with bzip2", "bunzip2 -c {path} > {plain}"),
    (r"tar archive", "tar -xf {path}"),
    (r"HDF5 file", "python -m tf2onnx.convert --keras {path} --output {plain}"),
    (r"TensorFlow Lite model", "python -m tf2onnx.convert --tflite {path} --output {plain}"),
    (r"update ONNX Runtime", "pip install -U onnxruntime"),
    (
        r"give one a size with fix_dims",
        "lumen inspect {path} --set 'models.0.fix_dims={{NAME: SIZE}}'",
    ),
    (r"input '(?P<input>[^']+)' has no shape in the graph", _SET_SHAPE),
    (r"expected batch_size 1", "lumen {path} --set models.0.batch_size=1"),
)


_LIMIT: Final = re.compile(
    r"server\.(max_request_bytes|arena_bytes): expected at least (?:max_request_bytes \()?(\d+)"
)


def limit_of(refusal: str) -> tuple[str, int] | None:
    """Finds the limit that a refusal wants raised: max_request_bytes or arena_bytes, and the least.

    Args:
        refusal: the sentence.

    >>> limit_of("server.arena_bytes: expected at least 123 for each I/O thread")
    ('arena_bytes', 123)
    """
    match = _LIMIT.search(refusal)
    return (match[1], int(match[2])) if match else None


def cure_of(refusal: str, path: str) -> str | None:
    """Finds the command that mends a refused model.

    Args:
        refusal: the sentence.
        path: the model's file, as the user wrote it.

    Returns:
        A line for a shell, where words in capitals are for the user to fill in; or None.

    >>> cure_of("it is compressed with gzip: run gunzip first", "a b.onnx")
    "gunzip -c 'a b.onnx' > 'a b.plain.onnx'"
    """
    for words, command in _CURES:
        match = re.search(words, refusal)
        if match is None:
            continue
        file = Path(path)
        places = {name: shlex.quote(text) for name, text in match.groupdict().items() if text}
        return command.format(
            path=shlex.quote(path),
            folder=shlex.quote(str(file.parent)),
            plain=shlex.quote(str(file.with_name(f"{file.stem}.plain.onnx"))),
            **places,
        )
    return None
