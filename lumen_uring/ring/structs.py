"""ctypes mirrors of the public structs and constants of c/include/.

Used by library.py, which compares every field's offset and size with the library's own table at
load, by engine.py and by stats.py. Holds declarations only; it never calls anything.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_uint8,
    c_uint32,
    c_uint64,
)
from typing import Any, Final

ABI_VERSION: Final = 19

E_INVALID: Final = -1
E_AGAIN: Final = -8
ERROR_NAMES: Final[dict[int, str]] = {
    -1: "LUMEN_E_INVALID",
    -2: "LUMEN_E_NOMEM",
    -3: "LUMEN_E_IO",
    -4: "LUMEN_E_UNSUPPORTED",
    -5: "LUMEN_E_ORT",
    -6: "LUMEN_E_MODEL",
    -7: "LUMEN_E_STATE",
    -8: "LUMEN_E_AGAIN",
}

KEY_ADMIN: Final = 1
KEY_BULK: Final = 2
KEY_SUBJECT: Final = 4
LOAD_GENTLY: Final = 1

WORKERS_MAX: Final = 64
SLOT_CLASSES_MAX: Final = 16


class LumenKeyConfig(ctypes.Structure):
    """lumen_key_config: a client's key."""

    _fields_ = [
        ("name", c_char_p),
        ("sha256", c_uint8 * 32),
        ("rate", c_double),
        ("token_rate", c_double),
        ("models", ctypes.POINTER(c_char_p)),
        ("model_count", c_uint32),
        ("burst", c_uint32),
        ("token_burst", c_uint32),
        ("flags", c_uint32),
    ]


class LumenConfig(ctypes.Structure):
    """lumen_config: what lumen_open takes. config_struct.py gives it its fields."""


class LumenDim(ctypes.Structure):
    """lumen_dim: the size of one free dimension of a model."""

    _fields_ = [
        ("name", c_char_p),
        ("size", c_uint32),
        ("fixed", c_uint32),
    ]


class LumenImageConfig(ctypes.Structure):
    """lumen_image_config: what becomes of a picture's file before a model sees it."""

    _fields_ = [
        ("filter", c_uint32),
        ("fit", c_uint32),
        ("resize", c_uint32),
        ("pad_value", c_uint32),
        ("upright", c_uint32),
        ("fast", c_uint32),
        ("lenient", c_uint32),
        ("resize_ratio", c_float),
        ("max_pixels", c_uint64),
        ("max_whole_pixels", c_uint64),
    ]


class LumenOption(ctypes.Structure):
    """lumen_option: a text under a name."""

    _fields_ = [
        ("name", c_char_p),
        ("value", c_char_p),
    ]


class LumenProvider(ctypes.Structure):
    """lumen_provider: an execution provider and its options."""

    _fields_ = [
        ("name", c_char_p),
        ("options", ctypes.POINTER(LumenOption)),
        ("option_count", c_uint32),
        ("reserved", c_uint32),
    ]


class LumenExpert(ctypes.Structure):
    """lumen_expert: one of the models that a virtual model may run."""

    _fields_ = [
        ("model", c_uint32),
        ("reserved", c_uint32),
        ("bound", c_double),
    ]


class LumenExpertsConfig(ctypes.Structure):
    """lumen_experts_config: the rule of a virtual model."""

    _fields_ = [
        ("feature", c_uint32),
        ("count", c_uint32),
        ("tensor", c_char_p),
        ("experts", ctypes.POINTER(LumenExpert)),
    ]


class LumenStepTensor(ctypes.Structure):
    """lumen_step_tensor: another name for a tensor of a step's model."""

    _fields_ = [("tensor", c_char_p), ("name", c_char_p)]


class LumenStep(ctypes.Structure):
    """lumen_step: one of the models that an ensemble runs."""

    _fields_ = [
        ("model", c_uint32),
        ("input_count", c_uint32),
        ("inputs", ctypes.POINTER(LumenStepTensor)),
        ("output_count", c_uint32),
        ("is_closed", c_uint32),
        ("outputs", ctypes.POINTER(LumenStepTensor)),
    ]


class LumenStepsConfig(ctypes.Structure):
    """lumen_steps_config: the steps of an ensemble."""

    _fields_ = [
        ("count", c_uint32),
        ("output_count", c_uint32),
        ("steps", ctypes.POINTER(LumenStep)),
        ("outputs", ctypes.POINTER(c_char_p)),
    ]


class LumenState(ctypes.Structure):
    """lumen_state: a state of a sequence."""

    _fields_ = [
        ("input", c_char_p),
        ("output", c_char_p),
        ("initial", c_char_p),
        ("initial_bytes", c_uint64),
    ]


class LumenSequencesConfig(ctypes.Structure):
    """lumen_sequences_config: what a model's sequences are."""

    _fields_ = [
        ("start", c_char_p),
        ("end", c_char_p),
        ("ready", c_char_p),
        ("id", c_char_p),
        ("states", ctypes.POINTER(LumenState)),
        ("state_count", c_uint32),
        ("max_open", c_uint32),
        ("idle_ms", c_uint32),
        ("reserved", c_uint32),
    ]


class LumenTextConfig(ctypes.Structure):
    """lumen_text_config: what a model makes of texts."""

    _fields_ = [
        ("tokenizer", c_char_p),
        ("output", c_char_p),
        ("task", c_uint32),
        ("pooling", c_uint32),
        ("normalise", c_uint32),
        ("activation", c_uint32),
        ("has_pairs", c_uint32),
        ("tokens_max", c_uint32),
        ("may_cut", c_uint32),
        ("prompt_count", c_uint32),
        ("prompts", ctypes.POINTER(LumenOption)),
        ("default_prompt", c_uint32),
        ("aggregation", c_uint32),
    ]


class LumenWarmupTensor(ctypes.Structure):
    """lumen_warmup_tensor: an input of a warm-up request."""

    _fields_ = [
        ("name", c_char_p),
        ("shape", ctypes.POINTER(c_uint32)),
        ("rank", c_uint32),
        ("fill", c_uint32),
        ("data", c_char_p),
        ("bytes", c_uint64),
    ]


class LumenWarmup(ctypes.Structure):
    """lumen_warmup: a request that each worker runs first."""

    _fields_ = [
        ("name", c_char_p),
        ("inputs", ctypes.POINTER(LumenWarmupTensor)),
        ("input_count", c_uint32),
        ("count", c_uint32),
    ]


class LumenDeclared(ctypes.Structure):
    """lumen_declared: what a model's configuration file says of a tensor."""

    _fields_ = [
        ("name", c_char_p),
        ("label_file", c_char_p),
        ("format", c_uint32),
        ("is_output", c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", c_uint32),
        ("no_rows", c_uint32),
    ]


# Of lumen_model_config what is no ordinary setting; config_struct.py puts those before.
MODEL_FIELDS: Final[list[tuple[str, Any]]] = [
    ("name", c_char_p),
    ("path", c_char_p),
    ("cache_path", c_char_p),
    ("mean", c_float * 3),
    ("scale", c_float * 3),
    ("batch_delay_us", c_uint32),
    ("rate", c_double),
    ("burst", c_uint32),
    ("label_bytes", c_uint32),
    ("labels", c_char_p),
    ("dims", ctypes.POINTER(LumenDim)),
    ("dim_count", c_uint32),
    ("image", ctypes.POINTER(LumenImageConfig)),
    ("experts", ctypes.POINTER(LumenExpertsConfig)),
    ("steps", ctypes.POINTER(LumenStepsConfig)),
    ("engine_path", c_char_p),
    ("engine_why", c_char_p),
    ("provider_count", c_uint32),
    ("providers", ctypes.POINTER(LumenProvider)),
    ("version", c_uint32),
    ("warmup_count", c_uint32),
    ("warmups", ctypes.POINTER(LumenWarmup)),
    ("sequences", ctypes.POINTER(LumenSequencesConfig)),
    ("text", ctypes.POINTER(LumenTextConfig)),
    ("file_name", c_char_p),
    ("declared", ctypes.POINTER(LumenDeclared)),
    ("declared_count", c_uint32),
    ("preferred", ctypes.POINTER(c_uint32)),
    ("preferred_count", c_uint32),
    ("upstream", c_uint32),
    ("upstream_model", c_char_p),
    ("process_key", c_uint64),
]


class LumenModelConfig(ctypes.Structure):
    """lumen_model_config: what lumen_add_model takes. Its fields are set by config_struct.py."""


class LumenRule(ctypes.Structure):
    """lumen_rule: a setting that models of a kind may only have some values of."""

    _fields_ = [
        ("kind", c_uint32),
        ("reserved", c_uint32),
        ("beside", c_char_p),
        ("setting", c_char_p),
        ("allowed", c_uint64),
        ("expected", c_char_p),
        ("because", c_char_p),
    ]


class LumenCertificate(ctypes.Structure):
    """lumen_certificate: one that the server shows, and its key."""

    _fields_ = [
        ("certificate", c_char_p),
        ("key", c_char_p),
        ("source", c_char_p),
        ("hosts", ctypes.POINTER(c_char_p)),
        ("host_count", c_uint32),
        ("reserved", c_uint32),
    ]


class LumenTlsConfig(ctypes.Structure):
    """lumen_tls_config: a port where clients speak TLS."""

    _fields_ = [
        ("port", c_uint32),
        ("only", c_uint32),
        ("clients", c_uint32),
        ("certificate_count", c_uint32),
        ("certificates", ctypes.POINTER(LumenCertificate)),
        ("client_ca", c_char_p),
    ]


class LumenCertificateInfo(ctypes.Structure):
    """lumen_certificate_info: what a certificate says."""

    _fields_ = [
        ("not_before", c_int64),
        ("not_after", c_int64),
        ("is_rsa", c_uint32),
        ("reserved", c_uint32),
        ("names", c_char * 1024),
    ]


class LumenProcess(ctypes.Structure):
    """lumen_process: what the process of a model needs to know."""

    _fields_ = [
        ("bytes", c_uint64),
        ("at", c_uint64),
        ("fd", c_int32),
        *((name, c_uint32) for name in ("number", "workers", "flush_denormals")),
        *((name, c_uint32) for name in ("gently", "reserved")),
    ]


class LumenErrand(ctypes.Structure):
    """lumen_errand."""

    _fields_ = (
        ("id", c_uint32),
        ("kind", c_uint32),
        ("name", c_char_p),
        ("body", c_char_p),
        ("body_bytes", c_uint32),
        ("reserved", c_uint32),
    )


class LumenSlotClass(ctypes.Structure):
    """lumen_slot_class: slots of one size."""

    _fields_ = [
        ("slot_bytes", c_uint64),
        ("slot_count", c_uint32),
        ("reserved", c_uint32),
    ]


class LumenInfo(ctypes.Structure):
    """lumen_info: what lumen_start arrived at."""

    _fields_ = [
        ("port", c_uint32),
        ("io_threads", c_uint32),
        ("workers", c_uint32),
        ("models", c_uint32),
        ("arena_bytes", c_uint64),
        ("ready_us", c_uint64),
        ("slots", c_uint32),
        ("slot_class_count", c_uint32),
        ("tls_port", c_uint32),
        ("reserved", c_uint32),
        ("slot_classes", LumenSlotClass * SLOT_CLASSES_MAX),
        ("worker_cpus", c_int32 * WORKERS_MAX),
        ("io_backend", c_char * 16),
        ("io_detail", c_char * 128),
        ("ort_version", c_char * 32),
        ("stats_path", c_char * 64),
        ("budgets_path", c_char * 64),
        ("nodes", c_char * 1024),
        ("notes", c_char * 1024),
    ]


class LumenAbiField(ctypes.Structure):
    """lumen_abi_field: one entry of the table that lumen_abi gives."""

    _fields_ = [
        ("struct_name", c_char_p),
        ("field_name", c_char_p),
        ("offset", c_uint32),
        ("size", c_uint32),
    ]


ERRANDS: Final = ("index", "load", "unload", "trace", "logging", "demand")  # lumen_errand_kind
