"""The built-in models: what they answer, how they are found, cached and repaired."""

from __future__ import annotations

import collections
import importlib.util
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import needs
import numpy as np
import onnxruntime
import pytest
from PIL import Image

from lumen_uring.errors import ConfigError
from lumen_uring.models import BUILTIN, builtin_path, squeezenet

if TYPE_CHECKING:
    from types import ModuleType

    import numpy.typing as npt
    import onnx

ROOT = Path(__file__).resolve().parent.parent
TRAIN_SCRIPT = ROOT / "tools" / "train_digits.py"
DIGIT_IMAGES = ROOT / "tests" / "data" / "digits"
DENORMAL_MAX = float(np.finfo(np.float32).tiny)


@pytest.fixture
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def untrained() -> bytes:
    return squeezenet.model_bytes()


def open_session(model: bytes | str) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def classify(images: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    session = open_session(str(builtin_path("digits")))
    (probabilities,) = session.run(None, {"image": images.reshape(-1, 1, 8, 8)})
    assert probabilities.shape == (len(images), 10)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    classes: npt.NDArray[np.int64] = probabilities.argmax(axis=1)
    return classes


def load_train_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_digits", TRAIN_SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# digits


def test_digits_recognises_the_held_out_fifth() -> None:
    _, held_out, _, classes = load_train_script().load_split()
    assert np.mean(classify(held_out) == classes) >= 0.97


def test_digits_interface() -> None:
    path = builtin_path("digits")
    assert path.stat().st_size < 200_000
    session = open_session(str(path))
    (image,), (probabilities,) = session.get_inputs(), session.get_outputs()
    assert (image.name, image.type, image.shape) == ("image", "tensor(float)", ["N", 1, 8, 8])
    assert probabilities.name == "probabilities"
    assert (probabilities.type, probabilities.shape) == ("tensor(float)", ["N", 10])


@pytest.mark.parametrize("digit", range(10))
def test_digits_sample_image(digit: int) -> None:
    with Image.open(DIGIT_IMAGES / f"digit_{digit}.png") as image:
        assert (image.mode, image.size) == ("L", (64, 64))
        reduced = np.asarray(image.resize((8, 8), Image.Resampling.BOX))
    assert set(np.unique(reduced)) <= {round(value * 255 / 16) for value in range(17)}
    assert classify(reduced.astype(np.float32)[None]) == [digit]


def test_digits_sample_images_are_held_out_originals() -> None:
    _, held_out, _, classes = load_train_script().load_split()
    for digit in range(10):
        with Image.open(DIGIT_IMAGES / f"digit_{digit}.png") as image:
            reduced = np.asarray(image.resize((8, 8), Image.Resampling.BOX))
        assert (held_out[classes == digit] == reduced.reshape(-1)).all(axis=1).any()


def test_digits_training_is_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_train_script()
    monkeypatch.setattr(script, "EPOCH_COUNT", 1)  # each epoch takes the same steps
    images, _, classes, _ = script.load_split()
    first, second = (script.to_onnx(script.train(images, classes)) for _ in range(2))
    assert first == second


# squeezenet


def parse(model: bytes) -> onnx.ModelProto:
    import onnx

    return onnx.load_model_from_string(model)


def outline(model: onnx.ModelProto) -> list[tuple[object, ...]]:
    """Each node in order: operator, what makes each input, weight shapes, window attributes."""
    from onnx import helper

    shapes = {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    makers = {"data_0": -1}
    nodes: list[tuple[object, ...]] = []
    for index, node in enumerate(model.graph.node):
        sources = [shapes.get(name) or makers[name] for name in node.input]
        makers[node.output[0]] = index
        window = {
            attribute.name: helper.get_attribute_value(attribute)
            for attribute in node.attribute
            # Newer opsets moved Dropout's ratio to an input and want Softmax's axis said.
            if (node.op_type, attribute.name) not in {("Dropout", "ratio"), ("Softmax", "axis")}
        }
        nodes.append((node.op_type, sources, window))
    return nodes


def test_squeezenet_is_the_real_architecture(untrained: bytes) -> None:
    path = needs.shared_file("models/squeezenet/model.onnx")
    real, ours = parse(path.read_bytes()), parse(untrained)
    assert collections.Counter(node.op_type for node in ours.graph.node) == collections.Counter(
        node.op_type for node in real.graph.node
    )
    assert {weight.name: list(weight.dims) for weight in ours.graph.initializer} == {
        weight.name: list(weight.dims) for weight in real.graph.initializer
    }
    assert outline(ours) == outline(real)
    weights = {weight.name for weight in real.graph.initializer}
    assert list(ours.graph.input) == [i for i in real.graph.input if i.name not in weights]
    assert list(ours.graph.output) == list(real.graph.output)


def test_squeezenet_says_that_it_is_untrained(untrained: bytes) -> None:
    model = parse(untrained)
    assert "UNTRAINED" in model.graph.doc_string
    assert "UNTRAINED" in model.doc_string
    assert {entry.key: entry.value for entry in model.metadata_props}["trained"] == "no"
    assert "untrained weights, for speed only" in BUILTIN["squeezenet"]


def test_squeezenet_bytes_follow_the_seed(untrained: bytes) -> None:
    assert squeezenet.model_bytes() == untrained
    assert squeezenet.model_bytes(seed=1) != untrained


def test_squeezenet_is_valid_and_its_activations_are_ordinary_numbers(untrained: bytes) -> None:
    import onnx

    model = parse(untrained)
    onnx.checker.check_model(model, full_check=True)
    # Dropout's and Relu's values too: a layer of zeros or denormals would time unlike a real one.
    names = [node.output[0] for node in model.graph.node]
    del model.graph.output[:]
    for name in names:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    session = open_session(model.SerializeToString())
    pixels = np.random.RandomState(0).randint(0, 256, (2, 3, 224, 224)).astype(np.float32)
    for name, values in zip(names, session.run(names, {"data_0": pixels}), strict=True):
        magnitudes = np.abs(values)
        assert np.isfinite(values).all(), name
        assert not ((magnitudes > 0) & (magnitudes <= DENORMAL_MAX)).any(), name
        assert np.mean(magnitudes > 0) > 0.2, name
        assert 1e-4 < magnitudes.max() < 1e4, name
    assert names[-1] == "softmaxout_1"
    assert values.shape == (2, 1000, 1, 1)
    np.testing.assert_allclose(values.sum(axis=1), 1, rtol=1e-5)


# finding and caching


def test_every_builtin_is_found(cache_home: Path) -> None:
    assert set(BUILTIN) == {"digits", "squeezenet"}
    for name in BUILTIN:
        open_session(str(builtin_path(name)))
    assert builtin_path("squeezenet") == cache_home / "lumen" / squeezenet.FILE_NAME


def test_unknown_builtin_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"'resnet'.*expected one of digits, squeezenet"):
        builtin_path("resnet")


def test_pinned_digest_is_this_version_s(cache_home: Path) -> None:
    # Fails where the graph changed without a new digest: each start would write the file anew.
    assert squeezenet.is_valid(builtin_path("squeezenet"))


def test_valid_cached_file_is_kept(cache_home: Path) -> None:
    before = builtin_path("squeezenet").stat()
    after = builtin_path("squeezenet").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped"])
def test_damaged_cached_file_is_rewritten(cache_home: Path, untrained: bytes, damage: str) -> None:
    path = builtin_path("squeezenet")
    middle = len(untrained) // 2
    flipped = untrained[:middle] + bytes([untrained[middle] ^ 1]) + untrained[middle + 1 :]
    path.write_bytes({"empty": b"", "truncated": untrained[:-1], "flipped": flipped}[damage])
    assert builtin_path("squeezenet") == path
    assert path.read_bytes() == untrained
    assert [entry.name for entry in path.parent.iterdir()] == [squeezenet.FILE_NAME]


def test_unusable_cache_falls_back_to_a_private_folder_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file where a folder is needed: refused to root as well, unlike a read-only folder.
    (tmp_path / "cache").write_text("in the way")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with pytest.warns(RuntimeWarning, match="XDG_CACHE_HOME"):
        path = builtin_path("squeezenet")
    assert squeezenet.is_valid(path)
    assert path.parent.parent == tmp_path / "tmp"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with pytest.warns(RuntimeWarning, match="XDG_CACHE_HOME"):
        assert builtin_path("squeezenet") == path


def test_a_stranger_s_temporary_folder_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"lumen-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="XDG_CACHE_HOME"):
        assert squeezenet.is_valid(builtin_path("squeezenet"))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_nowhere_to_write_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="Set XDG_CACHE_HOME"):
        builtin_path("squeezenet")


def test_relative_cache_home_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    path = builtin_path("squeezenet")
    assert path == tmp_path / ".cache" / "lumen" / squeezenet.FILE_NAME


def test_a_temporary_folder_that_others_may_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"lumen-{os.getuid()}"
    assert squeezenet._private_temp_dir() == own
    assert squeezenet._private_temp_dir() == own
    for mode, is_used in ((0o700, True), (0o755, True), (0o720, False), (0o702, False)):
        own.chmod(mode)
        assert (squeezenet._private_temp_dir() == own) is is_used
    own.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: own.stat().st_uid + 1)
    (tmp_path / f"lumen-{own.stat().st_uid + 1}").mkdir(mode=0o700)
    assert squeezenet._private_temp_dir().name != own.name  # that of another user


def test_a_write_that_fails_leaves_nothing(
    cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither half a file nor one under another name; and without onnx it says what to install."""
    monkeypatch.setattr(squeezenet, "model_bytes", lambda: b"other bytes")
    monkeypatch.setattr(Path, "rename", lambda *_paths: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        squeezenet.cached_path()
    assert list((cache_home / "lumen").iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))

    def missing() -> bytes:
        raise ImportError("No module named 'onnx'")

    monkeypatch.setattr(squeezenet, "model_bytes", missing)
    with pytest.raises(ConfigError, match="pip install onnx"):
        squeezenet.cached_path()
    assert list((cache_home / "lumen").iterdir()) == []
    assert stat.S_IMODE((cache_home / "lumen").stat().st_mode) == 0o700
