"""`lumen quantize FOLDER`: the INT8 graph of a text model, and how far it agrees on real text.

Called by commands/quantize.py, on the main thread. Weights become int8 with a scale for each
channel; activations are quantised as they come (ONNX Runtime's dynamic quantisation), so it needs
no data. Both graphs then answer the same texts, on one thread, in turns.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lumen_uring.errors import ConfigError, QuantizeError
from lumen_uring.files import expanded, put
from lumen_uring.offline import quantize_compare as compare
from lumen_uring.offline.quantize_graph import prepare, quiet, refused, tools
from lumen_uring.offline.sentences import SENTENCES

if TYPE_CHECKING:
    from lumen_uring.protocol.convert import Array
    from lumen_uring.settings.models import ModelConfig
    from lumen_uring.settings.text import TextConfig

_TEXTS_MAX: Final = 1000
_LONG_TOKENS: Final = 128
_OPERATORS: Final = ("MatMul", "Gemm", "Gather")  # the last one: tables of embeddings
_KINDS: Final = {"tensor(int64)": "i8", "tensor(int32)": "i4"}


@dataclass(frozen=True, slots=True)
class TextReport:
    """What is known at the end.

    `cosine_*` are of what a text is answered with: its vector, or the scores of its labels.
    `nearest`: for how many texts the most similar other one is the same (embeddings); `labels`: for
    how many texts, or tokens, the best label is the same (scores, entities).
    """

    model: str
    output: str | None
    texts: int
    bytes_before: int
    bytes_after: int
    short_ms: tuple[float, float]
    long_ms: tuple[float, float]
    cosine_mean: float
    cosine_min: float
    nearest: float | None
    labels: float | None
    processor: str

    @property
    def is_faster(self) -> bool:
        """Whether INT8 wins on a short text or on a long one."""
        return self.short_ms[1] < self.short_ms[0] or self.long_ms[1] < self.long_ms[0]

    def as_json(self) -> dict[str, Any]:
        """The figures under stable names."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The same for people."""
        short, long = (
            f"{before:.1f} to {after:.1f} ms ({before / after:.1f} times as fast)"
            for before, after in (self.short_ms, self.long_ms)
        )
        said = [
            f"size     {self.bytes_before / 1e6:.1f} to {self.bytes_after / 1e6:.1f} MB",
            f"speed    one thread of {self.processor}: a short text {short}; {_LONG_TOKENS} tokens "
            f"{long}",
            f"agrees   on {self.texts} texts: cosine {self.cosine_mean:.4f} on average, "
            f"{self.cosine_min:.4f} at least",
        ]
        if self.nearest is not None:
            said.append(f"         the most similar other text is the same for {self.nearest:.0%}")
        if self.labels is not None:
            said.append(f"         the best label is the same for {self.labels:.0%}")
        return said


def read_texts(path: str | None) -> Sequence[str]:
    """The texts to compare on: a line each, or those of sentences.py.

    Args:
        path: of the file; None: there is none.

    Raises:
        ConfigError: it cannot be read, or has less than two lines.
    """
    if path is None:
        return SENTENCES
    try:
        lines = expanded(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--texts {path}: expected lines of text, found: {error}.") from None
    texts = [line for line in lines if line.strip()][:_TEXTS_MAX]
    if len(texts) < 2:
        raise ConfigError(f"--texts {path}: expected at least two lines, found {len(texts)}.")
    return texts


def quantize_folder(folder: Path, output: Path, texts: Sequence[str], force: bool) -> TextReport:
    """Makes the graph, compares, and keeps it where it is faster here.

    Args:
        folder: of the model.
        output: the new graph.
        texts: to compare on.
        force: it is kept even if it is slower here.

    Raises:
        ConfigError: the folder cannot be served.
        QuantizeError: ONNX Runtime cannot quantise or run it.
    """
    model = _model_of(folder)
    text, path = model.text, Path(model.path)
    assert text is not None
    machine = compare.processor()
    with tempfile.TemporaryDirectory(prefix="lumen-quantize-") as scratch:
        made = Path(scratch, "int8.onnx")
        _quantize(path, made, Path(scratch), machine.needs_reduced_range)
        both = [compare.session(one) for one in (path, made)]
        with closing(_Answers(text)) as answers:
            found = _compare(both, answers, texts)
            times = [_times(both, answers, sample) for sample in _samples(texts)]
        size = made.stat().st_size
        report = TextReport(
            model=str(path),
            output=str(output),
            texts=len(texts),
            bytes_before=path.stat().st_size,
            bytes_after=size,
            short_ms=times[0],
            long_ms=times[1],
            processor=machine.name,
            **found,
        )
        if force or report.is_faster:
            output.parent.mkdir(exist_ok=True)
            put(made.read_bytes(), output)
            return report
    return TextReport(**{**asdict(report), "output": None})


def _model_of(folder: Path) -> ModelConfig:
    from lumen_uring.loading.inspection import settings_of

    models = [model for model in settings_of(str(folder), []).models if model.text is not None]
    if len(models) != 1:
        raise ConfigError(
            f"{folder}: expected the folder of one model of texts, found {len(models)} of them."
        )
    return models[0]


def _quantize(path: Path, made: Path, scratch: Path, reduced: bool) -> None:
    onnx, _ = tools()
    quantization = importlib.import_module("onnxruntime.quantization")
    prepared = prepare(onnx.load(str(path)), scratch, path.name)
    try:
        with quiet():
            quantization.quantize_dynamic(
                str(prepared),
                str(made),
                op_types_to_quantize=list(_OPERATORS),
                per_channel=True,
                reduce_range=reduced,
                weight_type=quantization.QuantType.QInt8,
                extra_options={"MatMulConstBOnly": True},
            )
    except Exception as error:
        raise refused(path.name, "quantises", error) from None


class _Answers:
    """What a text is answered with, from the output of a graph."""

    def __init__(self, text: TextConfig) -> None:
        from lumen_uring.ring.tokenizer import Tokenizer
        from lumen_uring.text.compile import compile_file

        assert text.tokenizer is not None
        self.text = text
        self._most = text.max_tokens or 512
        self._tokenizer = Tokenizer(compile_file(Path(text.tokenizer)))

    def close(self) -> None:
        self._tokenizer.close()

    def feeds(self, session: Any, text: str, tokens: int | None = None) -> dict[str, Array]:
        """The graph's inputs for a text, or for a number of tokens of it, again and again."""
        import numpy as np

        first = self.text.prompts.get(self.text.default_prompt or "", "") + text
        second = text if self.text.pairs else None
        found = self._tokenizer.encode(first, second, tokens_max=self._most)
        count = len(found[0]) if tokens is None else min(tokens, self._most)
        ids, types = (np.resize(row, count) for row in found)
        known = {
            "input_ids": ids,
            "attention_mask": np.ones(count),
            "token_type_ids": types,
            "input_type": types,
            "position_ids": np.arange(count),
        }
        return {
            one.name: np.array([known[one.name]], _KINDS[one.type]) for one in session.get_inputs()
        }

    def of(self, session: Any, text: str) -> Array:
        """A vector, scores, or the logits of each token."""
        import numpy as np

        outputs = [one for one in session.get_outputs() if one.type == "tensor(float)"]
        names = [one.name for one in outputs]
        task = self.text.task or "embedding"
        rank = 2 if task == "scores" or (task == "embedding" and not self.text.pooling) else 3
        usual = ("logits", "last_hidden_state", "token_embeddings", "sentence_embedding")
        wanted = [self.text.output] if self.text.output else [n for n in usual if n in names]
        fits = [one.name for one in outputs if len(one.shape) == rank]
        name = next((name for name in [*wanted, *fits] if name in fits), None)
        if name is None:
            raise QuantizeError(f"expected an output of {rank} dimensions, found {names}.")
        (found,) = session.run([name], self.feeds(session, text))
        row: Array = np.asarray(found[0], np.float64)
        return row if task != "embedding" or rank == 2 else _pool(self.text.pooling or (), row)


def _pool(pooling: Sequence[str], rows: Array) -> Array:
    """As c/src/text/pool.c."""
    import numpy as np

    places = np.arange(1, len(rows) + 1)[:, None]
    parts: dict[str, Callable[[], Array]] = {
        "cls": lambda: rows[0],
        "max": lambda: rows.max(0),
        "mean": lambda: rows.mean(0),
        "mean_sqrt_len": lambda: rows.sum(0) / np.sqrt(len(rows)),
        "weightedmean": lambda: (rows * places).sum(0) / places.sum(),
        "lasttoken": lambda: rows[-1],
    }
    return np.concatenate([parts[name]() for name in pooling])


def _compare(both: Sequence[Any], answers: _Answers, texts: Sequence[str]) -> dict[str, Any]:
    import numpy as np

    pairs = [[answers.of(session, text) for session in both] for text in texts]
    cosines = [_cosine(one.ravel(), other.ravel()) for one, other in pairs]
    found: dict[str, Any] = {"nearest": None, "labels": None}
    if answers.text.task in ("scores", "entities"):
        same = [one.argmax(-1) == other.argmax(-1) for one, other in pairs]
        found["labels"] = float(np.mean(np.concatenate([np.ravel(row) for row in same])))
    else:
        nearest = [_nearest(np.array([pair[which] for pair in pairs])) for which in (0, 1)]
        found["nearest"] = float(np.mean(nearest[0] == nearest[1]))
    return found | {"cosine_mean": float(np.mean(cosines)), "cosine_min": float(min(cosines))}


def _cosine(one: Array, other: Array) -> float:
    import numpy as np

    return float(one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-12))


def _nearest(vectors: Array) -> Array:
    """For each vector the place of the most similar other one."""
    import numpy as np

    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    similar = units @ units.T
    np.fill_diagonal(similar, -np.inf)
    nearest: Array = similar.argmax(1)
    return nearest


def _samples(texts: Sequence[str]) -> list[tuple[str, int | None]]:
    return [(min(texts, key=len), None), (max(texts, key=len), _LONG_TOKENS)]


def _times(
    both: Sequence[Any], answers: _Answers, sample: tuple[str, int | None]
) -> tuple[float, float]:
    """Milliseconds of both, in turns."""
    row = answers.feeds(both[0], *sample)
    times = list(compare.measure(both[0], both[1], row))[-1]
    return times.original_s * 1e3, times.int8_s * 1e3
