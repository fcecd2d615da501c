"""Writes the ONNX graph of a text encoder from its weights: BERT, RoBERTa (XLM-R, CamemBERT) and
DistilBERT, with `onnx` and numpy alone.

Called by commands/export.py, on the main thread. The graph is the published arithmetic; a setting
that it does not have is refused by its name, and so are weights that it would leave out.

Source: transformers, modeling_bert.py, modeling_roberta.py and modeling_distilbert.py
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from lumen_uring import files
from lumen_uring.errors import ConfigError
from lumen_uring.offline.safetensors import Array, Weights

_OPSET: Final = 17  # the first with LayerNormalization
_PROTOBUF_BYTES_MAX: Final = (1 << 31) - (64 << 20)  # larger weights lie beside the graph
_CONFIG_BYTES_MAX: Final = 1 << 20
_ROBERTA: Final = ("roberta", "xlm-roberta", "camembert")
_ACTIVATIONS: Final = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
# Weights that belong to no output: heads of the training, and numbers that are positions.
_UNUSED: Final = ("pooler.", "position_ids", "lm_head.", "cls.", "vocab_", "mlm.")


def export(folder: Path, output: Path) -> list[str]:
    """Writes the graph.

    Args:
        folder: with config.json and model.safetensors.
        output: the graph's file; weights of more than 2 GB lie beside it.

    Returns:
        Lines that say which file was written, and of which model.

    Raises:
        ConfigError: a file is missing or wrong, or the model is another one.
    """
    path = folder / "config.json"
    config = _config(path)
    weights = Weights(folder / "model.safetensors")
    graph = _Graph(path, config, weights)
    model = graph.build()
    left = [name for name in weights.left() if not any(part in name for part in _UNUSED)]
    if left:
        raise ConfigError(
            f"{folder}: expected the weights of {graph.kind} alone, found also {left[0]}"
            f"{f' and {len(left) - 1} others' if len(left) > 1 else ''}."
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    size = sum(tensor.ByteSize() for tensor in model.graph.initializer)
    if size > _PROTOBUF_BYTES_MAX:
        onnx.save(model, output, save_as_external_data=True, location=f"{output.name}_data")
    else:
        files.put(model.SerializeToString(), output)
    outputs = ", ".join(one.name for one in model.graph.output)
    return [f"{output}: {graph.kind}, {graph.layers} layers, {size / 1e6:.0f} MB, -> {outputs}"]


def _config(path: Path) -> dict[str, Any]:
    raw = files.take(path, _CONFIG_BYTES_MAX)
    try:
        found = json.loads(raw)
    except ValueError as error:
        raise ConfigError(f"{path}: expected JSON, found: {error}.") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected an object, found a {type(found).__name__}.")
    return found


class _Graph:
    """One encoder: nodes and constants in order, and the names of what they make."""

    def __init__(self, path: Path, config: dict[str, Any], weights: Weights) -> None:
        self._path = path
        self._config = config
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, Any] = {}
        kind = config.get("model_type")
        self.kind = "roberta" if kind in _ROBERTA else str(kind)
        if self.kind not in ("bert", "roberta", "distilbert"):
            known = ", ".join(("bert", "distilbert", *_ROBERTA))
            raise ConfigError(f"{path}: model_type: expected {known}, found {kind!r}.")
        self._is_distil = self.kind == "distilbert"
        self.layers = self._whole("n_layers" if self._is_distil else "num_hidden_layers")
        self._heads = self._whole("n_heads" if self._is_distil else "num_attention_heads")
        self._width = self._whole("dim" if self._is_distil else "hidden_size")
        self._epsilon = 1e-12 if self._is_distil else self._epsilon_of()
        name = "activation" if self._is_distil else "hidden_act"
        self._activation = str(config.get(name, "gelu"))
        if self._activation not in _ACTIVATIONS:
            expected = ", ".join(_ACTIVATIONS)
            raise ConfigError(f"{path}: {name}: expected {expected}, found {self._activation}.")
        positions = config.get("position_embedding_type", "absolute")
        if positions != "absolute":
            raise ConfigError(
                f"{path}: position_embedding_type: expected absolute, found {positions!r}."
            )
        if config.get("is_decoder"):
            raise ConfigError(
                f"{path}: is_decoder: expected false, found {config['is_decoder']!r}."
            )
        if self._width % self._heads:
            raise ConfigError(
                f"{path}: expected a width that {self._heads} heads share, found {self._width}."
            )
        prefixes = ("", "bert.", "roberta.", "distilbert.")
        names = set(weights.names)
        self._prefix = next(
            (one for one in prefixes if f"{one}embeddings.word_embeddings.weight" in names), ""
        )

    def _whole(self, name: str, default: int | None = None, least: int = 1) -> int:
        value = self._config.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(
                f"{self._path}: {name}: expected a number of {least} or more, found {value!r}."
            )
        return value

    def _epsilon_of(self) -> float:
        value = self._config.get("layer_norm_eps", 1e-12)
        if not isinstance(value, float) or not 0 < value < 1:
            raise ConfigError(
                f"{self._path}: layer_norm_eps: expected a number between 0 and 1, found {value!r}."
            )
        return value

    # ---- nodes ----

    def _node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def _constant(self, value: Any, kind: Any = np.float32) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants[name] = np.asarray(value, kind, order="C")
        return name

    def _take(self, name: str, *others: str) -> Array:
        return self._weights.take(*(f"{self._prefix}{one}" for one in (name, *others)))

    def _linear(self, at: str, weight: Array, bias: Array) -> str:
        product = self._node("MatMul", [at, self._constant(weight.T)])
        return self._node("Add", [product, self._constant(bias)])

    def _dense(self, at: str, name: str) -> str:
        return self._linear(at, self._take(f"{name}.weight"), self._take(f"{name}.bias"))

    def _norm(self, at: str, name: str) -> str:
        scale = self._take(f"{name}.weight", f"{name}.gamma")
        bias = self._take(f"{name}.bias", f"{name}.beta")
        inputs = [at, self._constant(scale), self._constant(bias)]
        return self._node("LayerNormalization", inputs, axis=-1, epsilon=self._epsilon)

    def _activated(self, at: str) -> str:
        if self._activation == "relu":
            return self._node("Relu", [at])
        half = self._constant(0.5)
        if self._activation == "gelu":
            inner = self._node("Erf", [self._node("Div", [at, self._constant(math.sqrt(2))])])
        else:  # the approximation by tanh
            cube = self._node("Mul", [self._node("Mul", [at, at]), at])
            sum_ = self._node("Add", [at, self._node("Mul", [cube, self._constant(0.044715)])])
            inner = self._node(
                "Tanh", [self._node("Mul", [sum_, self._constant(math.sqrt(2 / math.pi))])]
            )
        more = self._node("Add", [inner, self._constant(1.0)])
        return self._node("Mul", [self._node("Mul", [at, more]), half])

    # ---- the encoder ----

    def _positions(self, mask: str) -> str:
        """Of each token: from 0 on, or as RoBERTa counts them, behind that of the padding."""
        count = self._node("CumSum", [mask, self._constant(1, np.int64)])
        if self.kind != "roberta":
            return self._node("Sub", [count, self._constant(1, np.int64)])
        padding = self._whole("pad_token_id", 1, least=0)
        real = self._node("Mul", [count, mask])
        return self._node("Add", [real, self._constant(padding, np.int64)])

    def _embedded(self) -> str:
        table = self._take("embeddings.word_embeddings.weight")
        if table.ndim != 2 or table.shape[1] != self._width:
            raise ConfigError(
                f"embeddings.word_embeddings.weight: expected {self._width} columns, "
                f"found {list(table.shape)}."
            )
        words = self._constant(table)
        places = self._constant(self._take("embeddings.position_embeddings.weight"))
        ids = self._node("Gather", [words, "input_ids"])
        where = self._positions("attention_mask")
        if self.kind != "roberta":  # padding has no place of its own: the first stands for it
            where = self._node("Max", [where, self._constant(0, np.int64)])
        at = self._node("Add", [ids, self._node("Gather", [places, where])])
        if not self._is_distil:
            types = self._constant(self._take("embeddings.token_type_embeddings.weight"))
            kinds = "token_type_ids"
            if self.kind == "roberta":  # all are 0, and no client sends them
                kinds = self._node("Mul", ["input_ids", self._constant(0, np.int64)])
            at = self._node("Add", [at, self._node("Gather", [types, kinds])])
        return self._norm(at, "embeddings.LayerNorm")

    def _bias_of_mask(self) -> str:
        """0 for tokens, next to minus infinity for padding: [batch, 1, 1, sequence]."""
        mask = self._node("Cast", ["attention_mask"], to=1)
        wide = self._node("Unsqueeze", [mask, self._constant([1, 2], np.int64)])
        missing = self._node("Sub", [self._constant(1.0), wide])
        return self._node("Mul", [missing, self._constant(np.finfo(np.float32).min)])

    def _attention(self, at: str, names: Sequence[str], bias: str) -> str:
        """Queries, keys and values of all heads in one product."""
        each = self._width // self._heads
        weights = [self._take(f"{name}.weight") for name in names]
        biases = [self._take(f"{name}.bias") for name in names]
        scale = np.float32(1 / math.sqrt(each))
        weights[0], biases[0] = weights[0] * scale, biases[0] * scale
        whole = self._linear(at, np.concatenate(weights), np.concatenate(biases))
        shape = self._constant([0, 0, 3, self._heads, each], np.int64)
        split = self._node("Reshape", [whole, shape])
        parts = []
        for part in range(3):
            one = self._node("Gather", [split, self._constant(part, np.int64)], axis=2)
            parts.append(
                self._node("Transpose", [one], perm=[0, 2, 3, 1] if part == 1 else [0, 2, 1, 3])
            )
        scores = self._node("Add", [self._node("MatMul", parts[:2]), bias])
        shares = self._node("Softmax", [scores], axis=-1)
        mixed = self._node(
            "Transpose", [self._node("MatMul", [shares, parts[2]])], perm=[0, 2, 1, 3]
        )
        return self._node("Reshape", [mixed, self._constant([0, 0, self._width], np.int64)])

    def _layer(self, at: str, number: int, bias: str) -> str:
        if self._is_distil:
            base = f"transformer.layer.{number}"
            inner = [f"{base}.attention.{name}_lin" for name in "qkv"]
            out, norm_1 = f"{base}.attention.out_lin", f"{base}.sa_layer_norm"
            wide, narrow, norm_2 = (
                f"{base}.ffn.lin1",
                f"{base}.ffn.lin2",
                f"{base}.output_layer_norm",
            )
        else:
            base = f"encoder.layer.{number}"
            inner = [f"{base}.attention.self.{name}" for name in ("query", "key", "value")]
            out, norm_1 = f"{base}.attention.output.dense", f"{base}.attention.output.LayerNorm"
            wide, narrow = f"{base}.intermediate.dense", f"{base}.output.dense"
            norm_2 = f"{base}.output.LayerNorm"
        seen = self._dense(self._attention(at, inner, bias), out)
        at = self._norm(self._node("Add", [seen, at]), norm_1)
        grown = self._dense(self._activated(self._dense(at, wide)), narrow)
        return self._norm(self._node("Add", [grown, at]), norm_2)

    def _scores(self, at: str) -> str:
        """A classifier's head, on the first token; its names have no prefix but the pooler's."""
        first = self._node("Gather", [at, self._constant(0, np.int64)], axis=1)
        if self.kind == "bert":
            first = self._node("Tanh", [self._dense(first, "pooler.dense")])
        prefix, self._prefix = self._prefix, ""
        if self.kind == "roberta":
            first = self._node("Tanh", [self._dense(first, "classifier.dense")])
            found = self._dense(first, "classifier.out_proj")
        elif self._is_distil:
            first = self._node("Relu", [self._dense(first, "pre_classifier")])
            found = self._dense(first, "classifier")
        else:
            found = self._dense(first, "classifier")
        self._prefix = prefix
        return found

    def build(self) -> onnx.ModelProto:
        """The whole model.

        Raises:
            ConfigError: a weight is missing.
        """
        at, bias = self._embedded(), self._bias_of_mask()
        for number in range(self.layers):
            at = self._layer(at, number, bias)
        architectures = self._config.get("architectures") or [""]
        if not isinstance(architectures, list):
            raise ConfigError(
                f"{self._path}: architectures: expected a list of names, found {architectures!r}."
            )
        has_scores = str(architectures[0]).endswith("ForSequenceClassification")
        name = "logits" if has_scores else "last_hidden_state"
        at = self._scores(at) if has_scores else at
        self._nodes.append(helper.make_node("Identity", [at], [name], name))
        dims = ["batch", "sequence"]
        names = ["input_ids", "attention_mask"]
        names += ["token_type_ids"] if self.kind == "bert" else []
        inputs = [helper.make_tensor_value_info(one, TensorProto.INT64, dims) for one in names]
        shape: list[Any] = ["batch", None] if has_scores else [*dims, self._width]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        constants = [numpy_helper.from_array(value, key) for key, value in self._constants.items()]
        graph = helper.make_graph(self._nodes, self.kind, inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = 8
        return model
