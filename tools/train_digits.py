"""Train the packaged `digits` model and write it and its sample images.

Run by a developer (`python tools/train_digits.py`), never by the server. It makes
`lumen_uring/models/digits.onnx` and `tests/data/digits/digit_<class>.png`, prints the accuracy on
the held-out fifth, and exits 1 without writing anything where that is below 97 %.

Model: image [N,1,8,8] float32, 0..255, white on black -> 64-128-64-10 perceptron -> softmax.
Data: scikit-learn's `load_digits`, which is the test set of "Optical Recognition of Handwritten
Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998, doi:10.24432/C50P49.
Licence of the data and of the images made from it: CC BY 4.0. Changes made to the data: the
values 0..16 are scaled to 0..255, and sample images are enlarged eightfold.

The held-out fifth takes part in nothing but the printed figure and the sample images. The
network's size, its weight decay and the shifts below were chosen by four-fold cross-validation
inside the other four fifths (98.96 % there). Both parts hold digits by the same 13 writers, so the
figure says nothing about the handwriting of a stranger.

Two runs with the same packages on the same kind of CPU write the same bytes; another BLAS kernel
rounds differently, and training amplifies that.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

SEED = 0
ACCURACY_MIN = 0.97
HELD_OUT_FRACTION = 0.2
SIDE_PIXELS = 8
SAMPLE_SCALE = 8
SHIFT_ROWS = (-0.5, 0.0, 0.5)
SHIFT_COLUMNS = (-1.0, -0.5, 0.0, 0.5, 1.0)
EPOCH_COUNT = 60
# Old enough for ONNX Runtime 1.17.
OPSET_VERSION = 13
IR_VERSION = 8

ROOT = Path(__file__).resolve().parent.parent
MODEL_PATH = ROOT / "lumen_uring" / "models" / "digits.onnx"
IMAGES_DIR = ROOT / "tests" / "data" / "digits"

DOC = (
    "Handwritten digits, 8x8, 0..255, white on black. Trained by tools/train_digits.py on "
    "'Optical Recognition of Handwritten Digits', E. Alpaydin and C. Kaynak, UCI Machine "
    "Learning Repository, 1998, doi:10.24432/C50P49, CC BY 4.0."
)


def load_split() -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Load the digits and set a stratified fifth aside.

    Returns:
        Training images, held-out images (float32 [n, 64], whole numbers 0..255), training
        classes, held-out classes (int64 [n], 0..9).
    """
    from sklearn.datasets import load_digits  # type: ignore[import-untyped,unused-ignore]
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped,unused-ignore]

    data = load_digits()
    # Rounded as a PNG rounds them, so that training sees what the server will see.
    images = np.rint(data.data * (255.0 / 16.0)).astype(np.float32)
    classes = data.target.astype(np.int64)
    train_x, held_x, train_y, held_y = train_test_split(
        images, classes, test_size=HELD_OUT_FRACTION, stratify=classes, random_state=SEED
    )
    return train_x, held_x, train_y, held_y


def shifted(images: FloatArray, rows: float, columns: float) -> FloatArray:
    """Move every image by a part of a pixel, filling with black.

    Args:
        images: float32 [n, 64].
        rows: downwards, -1..1 pixels.
        columns: to the right, -1..1 pixels.

    Returns:
        float32 [n, 64], linearly interpolated.
    """
    padded = np.pad(images.reshape(-1, SIDE_PIXELS, SIDE_PIXELS), ((0, 0), (2, 2), (2, 2)))
    top, left = int(np.floor(rows)), int(np.floor(columns))
    result = np.zeros((len(images), SIDE_PIXELS, SIDE_PIXELS), np.float32)
    for row, row_weight in ((top, 1 - (rows - top)), (top + 1, rows - top)):
        for column, column_weight in ((left, 1 - (columns - left)), (left + 1, columns - left)):
            part = padded[:, 2 - row :, 2 - column :][:, :SIDE_PIXELS, :SIDE_PIXELS]
            result += np.float32(row_weight * column_weight) * part
    return result.reshape(len(images), -1)


def train(images: FloatArray, classes: IntArray) -> list[tuple[FloatArray, FloatArray]]:
    """Fit the perceptron on the images and their shifted copies.

    Returns:
        Weight [inputs, outputs] and bias [outputs] of each layer, float32. The first layer takes
        0..255: the division by 255 is in its weights.
    """
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped,unused-ignore]
    from sklearn.neural_network import MLPClassifier  # type: ignore[import-untyped,unused-ignore]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

    shifts = [(rows, columns) for rows in SHIFT_ROWS for columns in SHIFT_COLUMNS]
    inputs = np.concatenate([shifted(images, *shift) for shift in shifts]) / np.float32(255)
    network = MLPClassifier(
        (128, 64),
        alpha=1e-2,
        batch_size=64,
        learning_rate_init=2e-3,
        max_iter=EPOCH_COUNT,
        n_iter_no_change=EPOCH_COUNT,
        random_state=SEED,
    )
    # One thread: the order of a parallel sum is not fixed, and with it the last bits.
    with threadpool_limits(1), warnings.catch_warnings():
        # A fixed number of epochs is the plan, not a failure to converge.
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(inputs, np.tile(classes, len(shifts)))
    weights = [weight.astype(np.float32) for weight in network.coefs_]
    weights[0] = weights[0] / np.float32(255)
    biases = [bias.astype(np.float32) for bias in network.intercepts_]
    return list(zip(weights, biases, strict=True))


def to_onnx(layers: list[tuple[FloatArray, FloatArray]]) -> bytes:
    """Write the layers as an ONNX model: Flatten, Gemm with Relu between, Softmax."""
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes = [helper.make_node("Flatten", ["image"], ["flat"], name="flatten", axis=1)]
    initializers = []
    value = "flat"
    for index, (weight, bias) in enumerate(layers, start=1):
        layer = f"dense{index}"
        initializers.append(numpy_helper.from_array(weight, f"{layer}_weight"))
        initializers.append(numpy_helper.from_array(bias, f"{layer}_bias"))
        inputs = [value, f"{layer}_weight", f"{layer}_bias"]
        nodes.append(helper.make_node("Gemm", inputs, [f"{layer}_sum"], name=layer))
        value = f"{layer}_sum"
        if index < len(layers):
            nodes.append(helper.make_node("Relu", [value], [layer], name=f"relu{index}"))
            value = layer
    nodes.append(helper.make_node("Softmax", [value], ["probabilities"], name="softmax", axis=1))
    float32 = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", float32, ["N", 1, SIDE_PIXELS, SIDE_PIXELS])],
        [helper.make_tensor_value_info("probabilities", float32, ["N", 10])],
        initializers,
        doc_string=DOC,
    )
    model = helper.make_model(
        graph,
        producer_name="lumen",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET_VERSION)],
        doc_string=DOC,
    )
    checker.check_model(model, full_check=True)
    # Deterministic: protobuf alone does not promise the same bytes for the same message.
    return bytes(model.SerializeToString(deterministic=True))


def predict(model: bytes, images: FloatArray) -> IntArray:
    """Run the finished model on float32 [n, 64] images; returns classes, int64 [n]."""
    import onnxruntime as ort  # type: ignore[import-untyped,unused-ignore]

    session: Any = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    feed = images.reshape(-1, 1, SIDE_PIXELS, SIDE_PIXELS)
    (probabilities,) = session.run(["probabilities"], {"image": feed})
    predicted: IntArray = np.asarray(probabilities).argmax(axis=1)
    return predicted


def write_samples(
    directory: Path, images: FloatArray, classes: IntArray, predicted: IntArray
) -> None:
    """Write one correctly classified held-out image of each class, enlarged without smoothing.

    Reducing it to 8x8 with PIL's BOX filter gives back the exact pixels.
    """
    from PIL import Image

    directory.mkdir(parents=True, exist_ok=True)
    for digit in range(10):
        index = int(np.flatnonzero((classes == digit) & (predicted == digit))[0])
        pixels = images[index].reshape(SIDE_PIXELS, SIDE_PIXELS).astype(np.uint8)
        side = SIDE_PIXELS * SAMPLE_SCALE
        enlarged = Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST)
        enlarged.save(directory / f"digit_{digit}.png", optimize=True)


def main(arguments: list[str] | None = None) -> int:
    """Train, judge, write. Returns 0, or 1 where the model is not good enough."""
    parser = argparse.ArgumentParser(description="Train the packaged digits model.")
    parser.add_argument("--model", type=Path, default=MODEL_PATH, help="where the model goes")
    parser.add_argument("--images", type=Path, default=IMAGES_DIR, help="where the samples go")
    options = parser.parse_args(arguments)

    train_x, held_x, train_y, held_y = load_split()
    model = to_onnx(train(train_x, train_y))
    predicted = predict(model, held_x)
    right_count = int((predicted == held_y).sum())
    accuracy = right_count / len(held_y)
    print(
        f"held-out accuracy {accuracy:.2%} ({right_count} of {len(held_y)}), "
        f"trained on {len(train_y)}, {len(model)} bytes"
    )
    if accuracy < ACCURACY_MIN:
        print(f"Below {ACCURACY_MIN:.0%}: nothing was written.", file=sys.stderr)
        return 1
    options.model.parent.mkdir(parents=True, exist_ok=True)
    options.model.write_bytes(model)
    write_samples(options.images, held_x, held_y, predicted)
    print(f"wrote {options.model} and ten images to {options.images}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
