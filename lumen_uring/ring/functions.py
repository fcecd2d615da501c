"""The functions of the C library, and which mirror stands for which of its structs.

Used by library.py, which sets the types of each function and compares each mirror, and by tests.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_char_p, c_double, c_int32, c_size_t, c_uint32, c_uint64
from typing import Final

from lumen_uring.ring import (
    budgets,
    report,
    stats_structs,
    structs,
    traces,
    traffic,
    upstream_structs,
)

MIRRORS: Final[dict[str, type[ctypes.Structure]]] = {
    "lumen_key_config": structs.LumenKeyConfig,
    "lumen_config": structs.LumenConfig,
    "lumen_model_config": structs.LumenModelConfig,
    "lumen_rule": structs.LumenRule,
    "lumen_dim": structs.LumenDim,
    "lumen_image_config": structs.LumenImageConfig,
    "lumen_option": structs.LumenOption,
    "lumen_provider": structs.LumenProvider,
    "lumen_expert": structs.LumenExpert,
    "lumen_experts_config": structs.LumenExpertsConfig,
    "lumen_errand": structs.LumenErrand,
    "lumen_step_tensor": structs.LumenStepTensor,
    "lumen_step": structs.LumenStep,
    "lumen_steps_config": structs.LumenStepsConfig,
    "lumen_warmup_tensor": structs.LumenWarmupTensor,
    "lumen_warmup": structs.LumenWarmup,
    "lumen_state": structs.LumenState,
    "lumen_sequences_config": structs.LumenSequencesConfig,
    "lumen_text_config": structs.LumenTextConfig,
    "lumen_declared": structs.LumenDeclared,
    "lumen_certificate": structs.LumenCertificate,
    "lumen_tls_config": structs.LumenTlsConfig,
    "lumen_upstream_address": upstream_structs.LumenUpstreamAddress,
    "lumen_upstream_config": upstream_structs.LumenUpstreamConfig,
    "lumen_fallback": upstream_structs.LumenFallback,
    "lumen_budget_config": budgets.LumenBudgetConfig,
    "lumen_budget": budgets.LumenBudget,
    "lumen_span": traces.LumenSpan,
    "lumen_traffic": traffic.LumenTraffic,
    "lumen_load_report": report.LumenLoadReport,
    "lumen_certificate_info": structs.LumenCertificateInfo,
    "lumen_process": structs.LumenProcess,
    "lumen_slot_class": structs.LumenSlotClass,
    "lumen_info": structs.LumenInfo,
    "lumen_stats_header": stats_structs.LumenStatsHeader,
    "lumen_stats_field": stats_structs.LumenStatsField,
    "lumen_stats_block": stats_structs.LumenStatsBlock,
    "lumen_load_config": stats_structs.LumenLoadConfig,
    "lumen_load_result": stats_structs.LumenLoadResult,
    "lumen_abi_field": structs.LumenAbiField,
}

_Config = ctypes.POINTER(structs.LumenConfig)
_ModelConfig = ctypes.POINTER(structs.LumenModelConfig)
_Info = ctypes.POINTER(structs.LumenInfo)
_Server = ctypes.c_void_p
_U32Pointer = ctypes.POINTER(c_uint32)

# Every function of the headers: name, restype, argtypes. Without these ctypes guesses int, and cuts
# pointers to 32 bits.
FUNCTIONS: Final[tuple[tuple[str, object, tuple[object, ...]], ...]] = (
    (
        "lumen_abi",
        ctypes.POINTER(structs.LumenAbiField),
        (ctypes.POINTER(c_uint32), ctypes.POINTER(c_uint32)),
    ),
    ("lumen_rules", ctypes.POINTER(structs.LumenRule), (ctypes.POINTER(c_uint32),)),
    ("lumen_version", c_char_p, ()),
    ("lumen_last_error", c_char_p, ()),
    ("lumen_open", ctypes.c_int, (_Config, ctypes.POINTER(_Server))),
    ("lumen_add_model", ctypes.c_int, (_Server, _ModelConfig, ctypes.POINTER(c_uint32))),
    ("lumen_check_engine", ctypes.c_int, (c_char_p, c_uint32)),
    ("lumen_start", ctypes.c_int, (_Server,)),
    ("lumen_set_metrics_port", ctypes.c_int, (_Server, c_uint32)),
    ("lumen_set_tls", ctypes.c_int, (_Server, ctypes.POINTER(structs.LumenTlsConfig))),
    (
        "lumen_look_at_certificate",
        ctypes.c_int,
        (
            ctypes.POINTER(structs.LumenCertificate),
            ctypes.POINTER(structs.LumenCertificateInfo),
        ),
    ),
    (
        "lumen_make_certificate",
        ctypes.c_int,
        (c_char_p, ctypes.POINTER(c_char), ctypes.POINTER(c_char), c_uint32),
    ),
    ("lumen_next_process", ctypes.c_int, (_Server, c_uint64, ctypes.POINTER(structs.LumenProcess))),
    ("lumen_process_started", ctypes.c_int, (_Server, c_uint64, c_int32)),
    ("lumen_process_is_up", ctypes.c_int, (_Server, c_uint64)),
    ("lumen_process_ended", ctypes.c_int, (_Server, c_uint64, c_uint32)),
    (
        "lumen_serve_process",
        ctypes.c_int,
        (ctypes.POINTER(structs.LumenProcess), c_char_p, _ModelConfig),
    ),
    ("lumen_get_info", ctypes.c_int, (_Server, _Info)),
    ("lumen_describe", ctypes.c_int64, (_Server, ctypes.POINTER(c_char), c_size_t)),
    ("lumen_plan", ctypes.c_int64, (_Server, c_char_p, ctypes.POINTER(c_char), c_size_t)),
    (
        "lumen_reload",
        ctypes.c_int,
        (_Server, _Config, ctypes.POINTER(structs.LumenModelConfig), c_uint32),
    ),
    (
        "lumen_load_model",
        ctypes.c_int,
        (_Server, _ModelConfig, c_uint32, ctypes.POINTER(c_uint32)),
    ),
    ("lumen_unload_model", ctypes.c_int, (_Server, c_char_p)),
    (
        "lumen_longest_idle",
        ctypes.c_int,
        (_Server, ctypes.POINTER(c_char_p), c_uint32, ctypes.POINTER(c_char), c_size_t),
    ),
    ("lumen_change_workers", ctypes.c_int, (_Server, _Config)),
    ("lumen_settle", ctypes.c_int, (_Server, c_uint32)),
    ("lumen_reopen", ctypes.c_int, (_Server, c_uint32)),
    ("lumen_news", ctypes.c_int, (_Server, ctypes.POINTER(c_char), c_size_t)),
    ("lumen_heartbeat", ctypes.c_int, (_Server,)),
    ("lumen_open_errands", ctypes.c_int, (_Server, c_uint32, c_uint64)),
    ("lumen_next_errand", ctypes.c_int, (_Server, c_uint32, ctypes.POINTER(structs.LumenErrand))),
    ("lumen_end_errands", ctypes.c_int, (_Server,)),
    (
        "lumen_finish_errand",
        ctypes.c_int,
        (_Server, c_uint32, c_uint32, c_char_p, c_uint32),
    ),
    ("lumen_hold_ready", ctypes.c_int, (_Server, c_uint32)),
    ("lumen_unready", ctypes.c_int, (_Server,)),
    ("lumen_stop", ctypes.c_int, (_Server, c_uint32)),
    ("lumen_wait", ctypes.c_int, (_Server, c_uint32)),
    ("lumen_close", None, (_Server,)),
    ("lumen_usable_cpus", ctypes.c_int, (ctypes.POINTER(c_int32), c_uint32)),
    (
        "lumen_feature",
        ctypes.c_int,
        (
            c_uint32,
            c_uint32,
            ctypes.POINTER(ctypes.c_int64),
            c_uint32,
            ctypes.c_void_p,
            ctypes.POINTER(c_double),
        ),
    ),
    (
        "lumen_http_site",
        ctypes.c_int,
        (ctypes.POINTER(c_char_p), c_uint32, c_char_p, c_char_p),
    ),
    (
        "lumen_tokenizer_open",
        ctypes.c_int,
        (ctypes.c_void_p, c_uint64, ctypes.POINTER(ctypes.c_void_p)),
    ),
    (
        "lumen_tokenizer_encode",
        ctypes.c_int64,
        (
            ctypes.c_void_p,
            c_char_p,
            c_uint64,
            c_char_p,
            c_uint64,
            ctypes.POINTER(ctypes.c_int64),
            ctypes.POINTER(ctypes.c_int64),
            c_uint32,
            c_uint32,
        ),
    ),
    (
        "lumen_tokenizer_decode",
        ctypes.c_int64,
        (
            ctypes.c_void_p,
            ctypes.POINTER(c_uint32),
            c_uint64,
            c_uint32,
            c_char_p,
            c_uint64,
        ),
    ),
    ("lumen_tokenizer_close", None, (ctypes.c_void_p,)),
    (
        "lumen_add_upstream",
        ctypes.c_int,
        (_Server, ctypes.POINTER(upstream_structs.LumenUpstreamConfig), ctypes.POINTER(c_uint32)),
    ),
    (
        "lumen_move_upstream",
        ctypes.c_int,
        (_Server, c_uint32, ctypes.POINTER(upstream_structs.LumenUpstreamAddress), c_uint32),
    ),
    (
        "lumen_set_fallbacks",
        ctypes.c_int,
        (_Server, ctypes.POINTER(upstream_structs.LumenFallback), c_uint32),
    ),
    (
        "lumen_set_budgets",
        ctypes.c_int,
        (_Server, ctypes.POINTER(budgets.LumenBudgetConfig), c_uint32),
    ),
    ("lumen_set_traces", ctypes.c_int, (_Server, c_double, c_uint32)),
    (
        "lumen_take_spans",
        ctypes.c_int,
        (
            _Server,
            ctypes.POINTER(traces.LumenSpan),
            c_uint32,
            _U32Pointer,
            ctypes.POINTER(c_uint64),
        ),
    ),
    (
        "lumen_report_load",
        ctypes.c_int,
        (_Server, ctypes.POINTER(report.LumenLoadReport)),
    ),
    (
        "lumen_set_traffic",
        ctypes.c_int,
        (_Server, ctypes.POINTER(traffic.LumenTraffic), c_uint32),
    ),
    (
        "lumen_load",
        ctypes.c_int,
        (
            ctypes.POINTER(stats_structs.LumenLoadConfig),
            ctypes.POINTER(stats_structs.LumenLoadResult),
            _U32Pointer,
        ),
    ),
)
