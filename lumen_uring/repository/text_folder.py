"""Reads the folder of a text model, as Hugging Face's tools and sentence-transformers write it.

Called by folders.py. What decides the numbers (pooling, normalising, the limit of tokens, what
becomes of scores) is taken from the folder's files alone: nothing is guessed, and what is not
implemented is refused by its name.

Source: sentence_transformers (Transformer, Pooling, Normalize, CrossEncoder), transformers
(PretrainedConfig, text classification)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lumen_uring.repository.files import FoundModel, Place, name_of, names_of
from lumen_uring.repository.model_config import Asked
from lumen_uring.settings.text import LABELS_MAX, POOLINGS, TOKENS_MAX

CONFIG: Final = "config.json"
_MODULES: Final = "modules.json"
_TOKENIZER: Final = "tokenizer.json"
_PROMPTS: Final = "config_sentence_transformers.json"
# The names that the file of the length limit had, in sentence-transformers.
_LIMITS: Final = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# By what their tokens' positions begin at: 1 + the number of the padding token.
_OFFSET_MODELS: Final = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl")
_OLD_POOLINGS: Final = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_ACTIVATIONS: Final = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "none",
}
_TEXT_KEYS: Final = ("architectures", "model_type")


def is_one(folder: Path) -> bool:
    """Whether a folder is of a text model: a tokenizer beside what says what it is of.

    Args:
        folder: of any kind.
    """
    has_config = (folder / _MODULES).is_file() or (folder / CONFIG).is_file()
    return has_config and (folder / _TOKENIZER).is_file()


def find(place: Place, folder: Path, said: Mapping[str, Any]) -> FoundModel | None:
    """The model of a folder.

    Args:
        place: that it lies in.
        folder: of the model.
        said: by its entry in the settings, which counts more than the files: of `text`.

    Returns:
        The model; None after a problem.
    """
    before = len(place.problems.lines)
    reader = _Reader(place, folder, said)
    text = reader.read()
    file = reader.file()
    if len(place.problems.lines) > before or file is None:
        return None
    asked = Asked(settings={"text": text})
    asked.notes.append(_summary(file.relative_to(folder), {**text, **said}, reader.notes))
    return FoundModel(name_of(folder), str(folder), {1: file}, asked, versions=(1,))


def _summary(file: Path, text: Mapping[str, Any], notes: list[str]) -> str:
    """What was decided, in one line."""
    pooling = text.get("pooling")
    parts = [str(file)]
    if pooling is not None:
        parts.append(f"{'+'.join(pooling) or 'no'} pooling")
        parts.append("normalised" if text.get("normalize") else "not normalised")
    elif text.get("task") == "entities":
        parts.append(f"entities of {len(text.get('labels', ()))} labels")
    else:
        parts.append(f"{len(text.get('labels', ()))} labels, {text.get('activation', 'none')}")
    if text.get("pairs"):
        parts.append("pairs of texts")
    parts.append(f"at most {text.get('max_tokens')} tokens")
    if text.get("prompts"):
        default = text.get("default_prompt")
        parts.append(
            f"prompts {', '.join(text['prompts'])}" + (f" (default {default})" if default else "")
        )
    return "text: " + "; ".join([*parts, *notes])


class _Reader:
    def __init__(self, place: Place, folder: Path, said: Mapping[str, Any]) -> None:
        self._place = place
        self._folder = folder
        self._said = said
        self.notes: list[str] = []
        self._config = self._object(CONFIG)

    # ---- files ----

    def _object(self, name: str) -> dict[str, Any]:
        """A file's object; an empty one where there is no such file, or after a problem."""
        path = self._folder / name
        if not path.is_file():
            return {}
        found = self._place.document(path)
        if isinstance(found, dict):
            return found
        if found is not None:
            self._place.problems.add(str(path), "an object", f"a {type(found).__name__}")
        return {}

    def _value(self, name: str, config: Mapping[str, Any], key: str, kind: Any, what: str) -> Any:
        """Of a file; None where it is missing or null, or after a problem."""
        value = config.get(key)
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        self._wrong(name, f"{key}: {what}", repr(value)[:60])
        return None

    def _wrong(self, name: str, expected: str, found: str) -> None:
        self._place.problems.add(str(self._folder / name), expected, found)

    # ---- what the model is ----

    def read(self) -> dict[str, Any]:
        tokenizer = self._folder / _TOKENIZER
        text: dict[str, Any] = {"max_tokens": self._limit()}
        if self._place.holds(tokenizer):
            text["tokenizer"] = str(tokenizer.absolute())
        architectures = self._value(CONFIG, self._config, "architectures", list, "a list of names")
        architecture = str(next(iter(architectures or ()), ""))
        if (self._folder / _MODULES).is_file():
            text |= self._modules()
        elif architecture.endswith("ForSequenceClassification"):
            text |= self._scores()
        elif architecture.endswith("ForTokenClassification"):
            text |= {"task": "entities", "labels": self._labels()}
        elif architecture.endswith(("ForCausalLM", "LMHeadModel")):
            what = "a model of embeddings, of scores or of entities"
            self._wrong(CONFIG, what, f"{architecture}, which is not implemented")
        else:
            text |= {"task": "embedding", **self._unsaid_pooling()}
        return text | self._prompts()

    def _unsaid_pooling(self) -> dict[str, Any]:
        """No file says how a text's vector is made of its tokens'."""
        if "pooling" not in self._said:
            self._wrong(
                _MODULES,
                "it, or text.pooling in an entry of `models` (such as --model NAME=FOLDER --set "
                "models.0.text.pooling=mean): nothing else says how the vectors of tokens become "
                "one",
                "no such file",
            )
        return {}

    def _modules(self) -> dict[str, Any]:
        modules = self._place.document(self._folder / _MODULES)
        found: dict[str, Any] = {"task": "embedding", "normalize": False}
        if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
            if modules is not None:
                self._wrong(_MODULES, "a list of modules", f"a {type(modules).__name__}")
            return found
        for one in modules:
            name = str(one.get("type", "")).rpartition(".")[2]
            if name == "Pooling":
                found |= self._pooling(str(one.get("path", "")))
            elif name == "Normalize":
                found["normalize"] = True
            elif name != "Transformer" or one.get("path", "") not in ("", "."):
                what = "the modules Transformer, Pooling and Normalize"
                self._wrong(_MODULES, what, f"{name or 'one without a type'}: not implemented")
        return found if "pooling" in found else found | self._unsaid_pooling()

    def _pooling(self, path: str) -> dict[str, Any]:
        """Both forms: a flag for each mode, and since version 5.4 a list of modes."""
        name = f"{path}/config.json"
        config = self._object(name)
        modes = self._value(name, config, "pooling_mode", (str, list), "a mode, or a list of them")
        if isinstance(modes, str):
            modes = [modes]
        if modes is None:
            flags = {mode: config.get(flag, False) for mode, flag in _OLD_POOLINGS.items()}
            modes = [mode for mode, is_set in flags.items() if is_set] or ["mean"]
            if not config:
                self._wrong(name, "the settings of a pooling", "none")
        unknown = [str(mode) for mode in modes if mode not in POOLINGS]
        if unknown:
            self._wrong(name, f"modes of {', '.join(POOLINGS)}", unknown[0])
        if config.get("include_prompt", True) is not True:
            self._wrong(name, "include_prompt: true", "false: prompts without a part in the vector")
        return {"pooling": [mode for mode in POOLINGS if mode in modes]}

    def _labels(self) -> list[str]:
        """The names of scores, by their numbers."""
        config = self._config
        labels = self._value(CONFIG, config, "id2label", dict, "the scores' names by number") or {}
        count = self._value(CONFIG, config, "num_labels", int, "a number of scores") or 0
        count = len(labels) or count
        if not 0 < count <= LABELS_MAX:
            expected = f"id2label, the names of 1 to {LABELS_MAX} scores"
            self._wrong(CONFIG, expected, str(count) if count else "none")
            count = 1
        return [str(labels.get(str(at), f"LABEL_{at}")).replace("\n", " ") for at in range(count)]

    def _scores(self) -> dict[str, Any]:
        names = self._labels()
        found: dict[str, Any] = {
            "task": "scores",
            "labels": names,
            "activation": self._activation(len(names)),
        }
        if self._is_cross_encoder():
            found["pairs"] = True
        return found

    def _is_cross_encoder(self) -> bool:
        has_own = isinstance(self._config.get("sentence_transformers"), dict)
        return has_own or "sbert_ce_default_activation_function" in self._config

    def _activation(self, count: int) -> str:
        own = self._config.get("sentence_transformers")
        what = f"an activation of {', '.join(_ACTIVATIONS)}"
        named = isinstance(own, dict) and self._value(CONFIG, own, "activation_fn", str, what)
        old = "sbert_ce_default_activation_function"
        named = named or self._value(CONFIG, self._config, old, str, what)
        if named is not None:
            if named in _ACTIVATIONS:
                return _ACTIVATIONS[str(named)]
            self._wrong(CONFIG, what, repr(named))
        kind = self._value(CONFIG, self._config, "problem_type", str, "a name")
        known = {
            None: "sigmoid" if count == 1 else "softmax",
            "single_label_classification": "softmax",
            "multi_label_classification": "sigmoid",
            "regression": "none",
        }
        if kind not in known:
            expected = ", ".join(name for name in known if name)
            self._wrong(CONFIG, f"problem_type of {expected}", repr(kind))
        return known.get(kind, "none")

    # ---- limits and prompts ----

    def _limit(self) -> int:
        """The most tokens of a text, as sentence-transformers finds it: never tokenizer.json's."""
        for name in _LIMITS:
            most = self._value(
                name, self._object(name), "max_seq_length", int, "a number of tokens"
            )
            if most is not None:
                return self._within(name, most)
        config, what = self._config, "a number of tokens"
        positions = self._value(CONFIG, config, "max_position_embeddings", int, what)
        name = "tokenizer_config.json"
        own = self._value(name, self._object(name), "model_max_length", (int, float), what)
        found = [TOKENS_MAX]
        if positions is not None:
            kind = config.get("model_type")
            padding = self._value(CONFIG, config, "pad_token_id", int, "a token's number")
            offset = (padding or 0) + 1 if kind in _OFFSET_MODELS else 0
            found.append(positions - offset)
        if own is not None and own < TOKENS_MAX:  # 1e30 says that none is known
            found.append(int(max(own, 0)))
        if len(found) == 1 and "max_tokens" not in self._said:
            what = "max_position_embeddings, the most tokens of a text"
            self._wrong(CONFIG, what, "none (text.max_tokens in an entry of `models` says it)")
        return self._within(CONFIG, min(found))

    def _within(self, name: str, most: int) -> int:
        if 3 <= most <= TOKENS_MAX:
            return most
        self._wrong(name, f"a limit of 3 to {TOKENS_MAX} tokens", str(most))
        return 3

    def _prompts(self) -> dict[str, Any]:
        config = self._object(_PROMPTS)
        prompts = config.get("prompts") or {}
        default = self._value(_PROMPTS, config, "default_prompt_name", str, "a prompt's name")
        if not isinstance(prompts, dict):
            self._wrong(_PROMPTS, "prompts, a mapping of names to texts", repr(prompts)[:60])
            return {}
        found = {str(name): str(text) for name, text in prompts.items() if text}
        if default is not None and default in found:
            return {"prompts": found, "default_prompt": str(default)}
        return {"prompts": found}

    # ---- the graph ----

    def file(self) -> Path | None:
        """The graph: model.onnx, or of the folder `onnx`; or the variant that was asked for."""
        variant = self._said.get("variant")
        there = {
            path.stem: path
            for folder in (self._folder / "onnx", self._folder)
            for path in (self._place.models(folder) if folder.is_dir() else ())
            if path.stem == "model" or path.stem.startswith("model_")
        }
        names = [stem.removeprefix("model").removeprefix("_") for stem in there]
        wanted = there.get("model" if variant is None else f"model_{variant}")
        if wanted is None and variant is None and len(there) == 1:
            (wanted,) = there.values()
        if wanted is None:
            self._no_file(variant, names)
            return None
        others = [name for name in names if name and f"model_{name}" != wanted.stem]
        if others:
            self.notes.append(f"other variants: {', '.join(sorted(others))}")
        return wanted if self._place.holds(wanted) else None

    def _no_file(self, variant: str | None, names: list[str]) -> None:
        known = [name for name in names if name]
        if variant is not None or known:
            expected = f"text.variant, one of {', '.join(sorted(known)) or 'none'}"
            found = "several and none chosen" if variant is None else repr(variant)
            self._wrong("onnx", expected, found)
        elif any(self._folder.glob("*.safetensors")) or any(self._folder.glob("*.bin")):
            self._wrong(
                "",
                "model.onnx or onnx/model.onnx",
                f"weights alone: `lumen export {self._folder}` writes it of BERT, RoBERTa and "
                f"DistilBERT; `optimum-cli export onnx --model {self._folder} NEW_FOLDER` of "
                "others",
            )
        else:
            self._wrong("", "model.onnx or onnx/model.onnx", names_of(self._folder))
