"""Model configurations as people publish them: each is honoured, noted or refused, with the reason.

The combinations of fields are those of some forty public config.pbtxt files for ONNX models
(vision, text, speech, tabular; written by hand and by exporters), in our own words.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lumen_uring.config import load
from lumen_uring.errors import ConfigError
from lumen_uring.settings.models import ModelConfig
from lumen_uring.settings.providers import ProviderConfig

IMAGE = """
    input [ { name: "images" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
    output [ { name: "scores" data_type: TYPE_FP32 dims: [ 1000 ] } ]
"""
TEXT = """
    input [ { name: "input_ids", data_type: TYPE_INT64, dims: [ -1 ] },
            { name: "attention_mask", data_type: TYPE_INT64, dims: [ -1 ] } ]
    output [ { name: "logits", data_type: TYPE_FP32, dims: [ -1, 2 ] } ]
"""


def write(folder: Path, text: str) -> Path:
    """The configuration of the model m, which has the versions 1 and 2."""
    for version in ("1", "2"):
        (folder / "m" / version).mkdir(parents=True)
        (folder / "m" / version / "model.onnx").touch()
    for name in ("labels.txt", "names.txt"):
        (folder / "m" / name).write_text("a\nb\n")
    path = folder / "m" / "config.pbtxt"
    path.write_text(text)
    return path


def served(folder: Path, text: str) -> tuple[list[ModelConfig], str]:
    write(folder, text)
    models = list(load(None, (), (), None, [str(folder)]).models)
    assert models[0].origin is not None
    return models, "\n".join(models[0].origin.notes)


# A file's lines: the settings that come of them, and the field that a note names.
HONOURED: dict[str, tuple[str, dict[str, object], tuple[str, ...]]] = {
    "the least": ('name: "m"\nplatform: "onnxruntime_onnx"', {}, ()),
    "a classifier on processors": (
        f"""name: "m" platform: "onnxruntime_onnx" max_batch_size : 8 {IMAGE}
        instance_group [ {{ kind: KIND_CPU }} ]
        dynamic_batching {{ preferred_batch_size: [ 1, 2, 4, 8 ]
            max_queue_delay_microseconds: 1000 }}""",
        {"batch_size": 8, "batch_delay_us": 1000, "batch_preferred": (1, 2, 4, 8)},
        (),
    ),
    "several instances": (
        f"backend: 'onnxruntime' max_batch_size: 64 {TEXT}"
        "instance_group { count: 4, gpus: [ ], kind: KIND_CPU }",
        {"max_rows": 64},
        ("instance_group.count: 4 is not looked at",),
    ),
    "a GPU": (
        "max_batch_size: 32\ninstance_group [ { count: 1\nkind: KIND_GPU\ngpus: [ 1 ] } ]",
        {"providers": (ProviderConfig(name="cuda", options={"device_id": "1"}),)},
        ("3 instance_group.kind: KIND_GPU is providers: [cuda]",),
    ),
    "TensorRT": (
        'optimization { execution_accelerators { gpu_execution_accelerator: [ { name: "tensorrt" '
        'parameters { key: "precision_mode" value: "FP16" } '
        'parameters { key: "max_workspace_size_bytes" value: "1073741824" } } ] } }',
        {
            "providers": (
                ProviderConfig(
                    name="tensorrt",
                    options={"trt_fp16_enable": "true", "trt_max_workspace_size": "1073741824"},
                ),
                ProviderConfig(name="cuda"),
            )
        },
        ("tensorrt is providers: [tensorrt, cuda]",),
    ),
    "CUDA's own search": (
        'instance_group { kind: KIND_GPU } optimization { execution_accelerators { '
        'gpu_execution_accelerator { name: "cuda" '
        'parameters { key: "cudnn_conv_algo_search" value: "1" } } } }',
        {
            "providers": (
                ProviderConfig(name="cuda", options={"cudnn_conv_algo_search": "HEURISTIC"}),
            )
        },
        ("KIND_GPU is providers: [cuda]",),
    ),
    "OpenVINO": (
        'optimization { execution_accelerators { cpu_execution_accelerator : [ { name : "openvino" '
        "} ] } }",
        {"providers": (ProviderConfig(name="openvino"),)},
        ("openvino is providers: [openvino]",),
    ),
    "a GPU's accelerator on processors": (
        "instance_group { kind: KIND_CPU } optimization { execution_accelerators { "
        'gpu_execution_accelerator { name: "tensorrt" } '
        'cpu_execution_accelerator { name: "openvino" } } }',
        {"providers": (ProviderConfig(name="openvino"),)},
        (
            "tensorrt is not looked at: no GPU runs the model",
            "openvino is providers: [openvino]",
        ),
    ),
    "an accelerator of processors on a GPU": (
        "instance_group { kind: KIND_GPU } optimization { execution_accelerators { "
        'cpu_execution_accelerator { name: "openvino" } } }',
        {"providers": (ProviderConfig(name="cuda"),)},
        ("openvino is not looked at: a GPU runs the model", "KIND_GPU is providers: [cuda]"),
    ),
    "a long wait for a batch": (
        f"max_batch_size: 32 {IMAGE} dynamic_batching {{ max_queue_delay_microseconds: 10000000 }}",
        {"batch_delay_us": 10_000_000},
        (),
    ),
    "a wait of days": (
        f"max_batch_size: 32 {IMAGE} "
        "dynamic_batching { max_queue_delay_microseconds: 99999999999 }",
        {"batch_delay_us": 2**32 - 2},
        ("a worker waits 4294967294 us at most",),
    ),
    "batches of a model without rows": (
        f"max_batch_size: 0 {TEXT} dynamic_batching {{ max_queue_delay_microseconds: 10 }}",
        {"batch_size": None},
        ("dynamic_batching: no batches: max_batch_size is 0",),
    ),
    "a bounded queue": (
        f"""max_batch_size: 4 {IMAGE} dynamic_batching {{ default_queue_policy {{
            timeout_action: REJECT default_timeout_microseconds: 5000000
            allow_timeout_override: true max_queue_size: 16 }} }}""",
        {"max_queued": 16, "queue_timeout_us": 5_000_000},
        (),
    ),
    "a queue that delays": (
        f"""max_batch_size: 8 {IMAGE} dynamic_batching {{ default_queue_policy {{
            timeout_action: DELAY default_timeout_microseconds: 5000 max_queue_size: 16 }}
            priority_queue_policy {{
                key: 2 value {{ timeout_action: REJECT max_queue_size: 8 }} }} }}""",
        {"max_queued": 16, "queue_timeout_us": 0},
        ("timeout_action is not looked at", "priority_queue_policy is not looked at"),
    ),
    "one priority, in order": (
        f"""max_batch_size: 8 {IMAGE} dynamic_batching {{ preserve_ordering: true
            priority_levels: 1 default_priority_level: 1 }}""",
        {"batch_size": 8},
        ("preserve_ordering is not looked at",),
    ),
    "threads": (
        f"""max_batch_size: 1 {IMAGE}
        parameters {{ key: "intra_op_thread_count" value: {{ string_value: "4" }} }}
        parameters {{ key: "inter_op_thread_count" value: {{ string_value: "1" }} }}
        parameters {{ key: "execution_mode" value: {{ string_value: "0" }} }}
        parameters {{ key: "enable_mem_pattern" value: {{ string_value: "0" }} }}""",
        {"intra_op_threads": 4},
        ("enable_mem_pattern is not looked at",),
    ),
    "parameters of other programs": (
        f"max_batch_size: 8 {TEXT} "
        'parameters: [ { key: "max_length", value: { string_value: "512" } },'
        '{ key: "pooling", value: { string_value: "mean" } } ]',
        {"max_rows": 8},
        ("max_length is not known", "pooling is not known"),
    ),
    "optimisation": (
        f"""max_batch_size: 16 {IMAGE} optimization {{ graph {{ level: 1 }}
            input_pinned_memory {{ enable: true }} output_pinned_memory {{ enable: true }}
            gather_kernel_buffer_threshold: 0 eager_batching: true }}""",
        {"max_rows": 16},
        ("optimization.graph is not looked at", "input_pinned_memory is not looked at"),
    ),
    "a cache and no decoupling": (
        f"max_batch_size: 8 {IMAGE} response_cache {{ enable: True }} "
        "model_transaction_policy { decoupled: False }",
        {"response_cache": True},
        (),
    ),
    "a detector of the quick start": (
        """name: "m" platform: "onnxruntime_onnx" max_batch_size : 0
        input [ { name: "data_0" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 224, 224 ]
                  reshape { shape: [ 1, 3, 224, 224 ] } } ]
        output [ { name: "fc6_1" data_type: TYPE_FP32 dims: [ 1000 ]
                   reshape { shape: [ 1, 1000, 1, 1 ] } label_filename: "labels.txt" } ]""",
        {"max_rows": 0},
        (),
    ),
    "labels of several outputs, free sizes": (
        """platform: "onnxruntime_onnx" max_batch_size: 0
        input { name: "input.1" data_type: TYPE_FP32  # format: FORMAT_NCHW
                dims: [ -1, 3, 480, 640] }
        output [ { name: "537" data_type: TYPE_FP32 dims: [ -1, 1, -1, -1 ]
                   label_filename: "names.txt" },
                 { name: "538" data_type: TYPE_FP32 dims: [ -1, 2, -1, -1]
                   label_filename: "names.txt" } ]
        instance_group { count: 1 gpus: 0 kind: KIND_CPU }""",
        {},
        (),
    ),
    "fixed rows, colons, commas": (
        """name: "m", backend: "onnxruntime", max_batch_size: 0
        input: [ { name: "x", data_type: TYPE_FP32, dims: [1, 3, 640, 640], } ]
        output: [ { name: "output0", data_type: TYPE_FP32, dims: [ 1, 84, 8400 ] }, ]""".replace(
            ", }", " }"
        ).replace("}, ]", "} ]"),
        {},
        (),
    ),
    "scalars": (
        """max_batch_size: 8
        input [ { name: "end_id" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } } ]
        output { name: "y" data_type: TYPE_INT64 dims: 1 }""",
        {"max_rows": 8},
        (),
    ),
    "an output without dims": (
        'max_batch_size: 8 input { name: "x" data_type: TYPE_STRING dims: [ 1 ] } '
        'output { name: "y" data_type: TYPE_FP32 }',
        {"max_rows": 8},
        (),
    ),
    "strings": (
        'backend: "onnxruntime" max_batch_size: 0 input [ { name: "text" data_type: TYPE_STRING '
        'dims: [ -1 ] } ] output [ { name: "tokens" data_type: TYPE_INT64 dims: [ -1 ] } ]',
        {},
        (),
    ),
    "a warm-up": (
        f"""max_batch_size: 4 {IMAGE} model_warmup [ {{ name: "first" batch_size: 4 count: 2
            inputs {{ key: "images" value: {{ data_type: TYPE_FP32 dims: [ 3, 224, 224 ]
                random_data: true }} }} }} ]""",
        {"max_rows": 4},
        (),
    ),
    "one version": (
        f"max_batch_size: 8 {IMAGE} version_policy: {{ specific {{ versions: 1 }} }}",
        {"name": "m"},
        (),
    ),
    "the newest version": (
        f"max_batch_size: 8 {IMAGE} version_policy: {{ latest: {{ num_versions: 1 }} }}",
        {"name": "m"},
        (),
    ),
    "all versions": (f"max_batch_size: 8 {IMAGE} version_policy: {{all{{}}}}", {"name": "m:1"}, ()),
    "tags of metrics": (
        f'max_batch_size: 8 {IMAGE} metric_tags {{ key: "team" value: "vision" }}',
        {"max_rows": 8},
        ("metric_tags is not looked at",),
    ),
    "a sequence": (
        """max_batch_size: 1
        input [ { name: "x" data_type: TYPE_FP32 dims: [ 16 ] } ]
        output [ { name: "y" data_type: TYPE_FP32 dims: [ 16 ] } ]
        sequence_batching { max_sequence_idle_microseconds: 5000000
          control_input [ { name: "START" control [
            { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ]
          oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 100 } }""",
        {"batch_size": None},
        ("oldest",),
    ),
}  # fmt: skip

# A refused file's lines: the line and the field, and the reason.
REFUSED: dict[str, tuple[str, str]] = {
    "two GPUs": (
        "instance_group [ { kind: KIND_GPU\ngpus: [ 0, 1 ] } ]",
        "2 instance_group.gpus: expected one GPU: all workers share it, found [0, 1]",
    ),
    "a processor of its own kind": (
        "instance_group { kind: KIND_MODEL }",
        "1 instance_group.kind: expected KIND_AUTO or KIND_CPU or KIND_GPU, found KIND_MODEL",
    ),
    "an accelerator of PyTorch": (
        'optimization { execution_accelerators { gpu_execution_accelerator: [ { name: "auto_io" } ]'
        " } }",
        "expected tensorrt or cuda, found auto_io",
    ),
    "TensorRT in 8 bits": (
        'optimization { execution_accelerators { gpu_execution_accelerator: [ { name: "tensorrt" '
        'parameters { key: "precision_mode" value: "INT8" } } ] } }',
        "expected precision_mode FP32 or FP16, found INT8",
    ),
    "priorities": (
        "max_batch_size: 16\ndynamic_batching {\npreserve_ordering: true\npriority_levels: 3\n"
        "default_priority_level: 1\n}",
        "4 dynamic_batching.priority_levels: expected 0 or 1: requests of all priorities wait in",
    ),
    "operators of a library": (
        'backend: "onnxruntime"\nmodel_operations: { op_library_filename: ["/opt/ops.so"] }',
        "2 model_operations: expected nothing: Lumen loads no libraries of operators",
    ),
    "a batch larger than the largest": (
        "max_batch_size: 8\ndynamic_batching {\npreferred_batch_size: [ 4, 16 ] }",
        "3 dynamic_batching.preferred_batch_size: expected whole numbers, 1..8 (max_batch_size), "
        "found 16",
    ),
    "another backend": ('backend: "python"', "1 backend: expected 'onnxruntime': Lumen"),
    "another platform": ('platform: "tensorrt_plan"', "1 platform: expected 'onnxruntime_onnx'"),
    "answers in pieces": (
        "model_transaction_policy {\n  decoupled: True\n}",
        "2 model_transaction_policy.decoupled: expected nothing: a request has one answer",
    ),
    "ragged batches": (
        'input { name: "x" data_type: TYPE_INT32 dims: [ -1 ]\nallow_ragged_batch: true }',
        "2 input.allow_ragged_batch: expected nothing",
    ),
    "inputs of batches": (
        "batch_input [ { kind: BATCH_ITEM_SHAPE target_name: 's' source_input: 'x' } ]",
        "1 batch_input: expected nothing: Lumen makes no inputs of batches",
    ),
    "parallel nodes": (
        'parameters { key: "execution_mode" value: { string_value: "1" } }',
        "execution_mode: expected 0: a Run goes node by node, found '1'",
    ),
    "a rate limiter": (
        'instance_group { rate_limiter { resources [ { name: "R1" count: 4 } ] } }',
        "1 instance_group.rate_limiter: expected nothing: Lumen's workers share all models",
    ),
    "strings for the warm-up": (
        'model_warmup { name: "s" inputs { key: "t" value { data_type: TYPE_STRING dims: [ 8 ]\n'
        'zero_data: true string_data: [ "a" ] } } }',
        "2 model_warmup.inputs.value.string_data: expected one of",
    ),
    "a field of no configuration": ("max_latency: 3", "1 max_latency: expected one of Triton's"),
    "a version that is not there": (
        "version_policy { specific { versions: [ 3 ] } }",
        "version_policy.specific.versions: expected versions that are there (1, 2), found 3",
    ),
    "an agent": (
        'model_repository_agents { agents [ { name: "checksum" } ] }',
        "1 model_repository_agents: expected nothing: Lumen has no agents",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HONOURED)
def test_what_is_honoured_or_noted(tmp_path: Path, case: str) -> None:
    text, settings, notes = HONOURED[case]
    models, said = served(tmp_path, text)
    assert {name: getattr(models[0], name) for name in settings} == settings
    for note in notes:
        assert note in said, said
    assert bool(notes) == bool(said), said


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path: Path, case: str) -> None:
    """By file, line and field, with the reason; and nothing else is wrong."""
    text, reason = REFUSED[case]
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(None, (), (), None, [str(tmp_path)])
    (line,) = [line for line in str(caught.value).splitlines() if str(path) in line]
    assert line.startswith(f"{path}:")
    assert reason in line


ENSEMBLE = """
    name: "both" platform: "ensemble" max_batch_size: 4
    input [ { name: "RAW" data_type: TYPE_FP32 dims: [ 16 ] } ]
    output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 16 ] } ]
    ensemble_scheduling { step [
      { model_name: "m" %s
        input_map [ { key: "x" value: "RAW" } ] output_map { key: "y" value: "between" } },
      { model_name: "m" model_version: -1
        input_map { key: "x" value: "between" } output_map { key: "y" value: "OUT" } } ] }
"""


@pytest.mark.parametrize(
    ("policy", "version", "names"),
    [
        ("latest { num_versions: 1 }", "", ["m", "m"]),
        ("latest { num_versions: 1 }", "model_version: -1", ["m", "m"]),
        ("latest { num_versions: 1 }", "model_version: 2", ["m", "m"]),
        ("specific { versions: 1 }", "model_version: 1", ["m", "m"]),
        ("all { }", "model_version: 1", ["m:1", "m:2"]),
        ("all { }", "", ["m:2", "m:2"]),
    ],
)
def test_versions_of_steps(tmp_path: Path, policy: str, version: str, names: list[str]) -> None:
    """A step names a version, or none: the highest that is served."""
    write(tmp_path, f"version_policy: {{ {policy} }}")
    (tmp_path / "both/1").mkdir(parents=True)
    (tmp_path / "both/config.pbtxt").write_text(ENSEMBLE % version)
    (entry,) = load(None, (), (), None, [str(tmp_path)]).ensembles
    assert [step.model for step in entry.steps] == names
    assert entry.max_rows == 4


def test_a_version_of_a_step_that_is_not_served(tmp_path: Path) -> None:
    write(tmp_path, "")
    (tmp_path / "both/1").mkdir(parents=True)
    (tmp_path / "both/config.pbtxt").write_text(ENSEMBLE % "model_version: 1")
    with pytest.raises(ConfigError, match=r"found 'm:1'"):
        load(None, (), (), None, [str(tmp_path)])
