/* sequences_open.c: see sequences_open.h. */
#include "models/sequences_open.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/model.h"
#include "models/sequence_table.h"

/* What settings and sentences call the controls. */
static const char *const control_names[LM_CONTROL_COUNT] = {"start", "end", "ready", "id"};

static int take_name(char *to, const char *name, const char *what) {
    size_t bytes = name ? strlen(name) + 1 : 0;
    if (bytes < 2 || bytes > LM_TENSOR_NAME_BYTES_MAX)
        return lm_error(LUMEN_E_INVALID, "sequences: %s: expected a name of 1 to %d bytes", what,
                        LM_TENSOR_NAME_BYTES_MAX - 1);
    memcpy(to, name, bytes);
    return 0;
}

static int take_state(struct lm_sequence_state *state, const lumen_state *config) {
    int code = take_name(state->input, config->input, "state");
    if (!code) code = take_name(state->output, config->output, "state");
    if (code || !config->initial) return code;
    state->initial_bytes = (size_t)config->initial_bytes;
    state->initial = malloc(state->initial_bytes + 1);
    if (!state->initial) return lm_error(LUMEN_E_NOMEM, "no memory for an initial state");
    memcpy(state->initial, config->initial, state->initial_bytes);
    return 0;
}

int lm_sequences_open(struct lm_sequences **out, const lumen_sequences_config *config) {
    const char *const controls[LM_CONTROL_COUNT] = {config->start, config->end, config->ready,
                                                    config->id};
    *out = NULL;
    if (config->max_open < 1 || config->max_open > LUMEN_SEQUENCES_MAX)
        return lm_error(LUMEN_E_INVALID, "sequences: max_open: expected 1 to %d, found %u",
                        LUMEN_SEQUENCES_MAX, config->max_open);
    if (config->idle_ms < 1)
        return lm_error(LUMEN_E_INVALID, "sequences: idle_ms: expected at least 1, found 0");
    if (config->state_count > LUMEN_STATES_MAX)
        return lm_error(LUMEN_E_INVALID, "sequences: expected at most %d states, found %u",
                        LUMEN_STATES_MAX, config->state_count);
    struct lm_sequences *sequences = calloc(1, sizeof *sequences);
    if (sequences) sequences->states = calloc(config->state_count + 1, sizeof *sequences->states);
    if (!sequences || !sequences->states) {
        free(sequences);
        return lm_error(LUMEN_E_NOMEM, "no memory for sequences");
    }
    crypto_shorthash_keygen(sequences->secret);
    sequences->max_open = config->max_open;
    sequences->idle_ns = config->idle_ms * 1000000ull;
    sequences->state_count = config->state_count;
    int code = 0;
    for (uint32_t c = 0; !code && c < LM_CONTROL_COUNT; c++) {
        if (controls[c])
            code = take_name(sequences->controls[c].tensor.name, controls[c], control_names[c]);
    }
    for (uint32_t s = 0; !code && s < config->state_count; s++)
        code = take_state(&sequences->states[s], &config->states[s]);
    if (code) {
        lm_sequences_close(sequences, NULL);
        return code;
    }
    *out = sequences;
    return 0;
}

void lm_sequences_close(struct lm_sequences *sequences, const struct lm_ort *ort) {
    if (!sequences) return;
    const size_t each = 1 + 2 * (size_t)sequences->state_count;
    for (size_t v = 0; sequences->values && v < sequences->max_open * each; v++)
        lm_ort_value_close(ort, sequences->values[v]);
    for (uint32_t c = 0; c < LM_CONTROL_COUNT; c++) {
        for (uint32_t v = 0; v < 2 && ort; v++)
            lm_ort_value_close(ort, sequences->controls[c].values[v]);
    }
    for (uint32_t s = 0; s < sequences->state_count; s++) {
        if (ort) lm_ort_value_close(ort, sequences->states[s].initial_value);
        free(sequences->states[s].initial);
    }
    lm_mapping_close(&sequences->memory);
    free(sequences->states);
    free(sequences->values);
    free(sequences->keys);
    free(sequences->table);
    free(sequences->input_names);
    free(sequences);
}

/* ---- the graph's tensors ---- */

/* Every free dimension is 1. Returns the elements; 0: too many. */
static size_t settle_shape(struct lm_tensor *tensor) {
    size_t elements = 1;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (tensor->dims[d] < 1) tensor->dims[d] = 1;
        if (!lm_mul_size(elements, (size_t)tensor->dims[d], &elements)) return 0;
    }
    return elements;
}

static int check_control(uint32_t control, const struct lm_tensor *tensor, size_t elements) {
    bool is_id = tensor->dtype == ORT_INT32 || tensor->dtype == ORT_INT64 ||
                 tensor->dtype == ORT_UINT32 || tensor->dtype == ORT_UINT64 ||
                 tensor->dtype == ORT_STRING;
    bool is_flag =
        tensor->dtype == ORT_BOOL || tensor->dtype == ORT_INT32 || tensor->dtype == ORT_FLOAT;
    if (elements != 1)
        return lm_error(LUMEN_E_MODEL, "sequences: %s: expected one element, '%.64s' has %zu",
                        control_names[control], tensor->name, elements);
    if (control == LM_CONTROL_ID ? is_id : is_flag) return 0;
    return lm_error(
        LUMEN_E_MODEL, "sequences: %s: expected %s, '%.64s' has %s", control_names[control],
        control == LM_CONTROL_ID ? "INT32, INT64, UINT32, UINT64 or BYTES" : "BOOL, INT32 or FP32",
        tensor->name, lm_dtype_name(tensor->dtype));
}

static int settle_state(struct lm_sequence_state *state, const struct lm_tensor *tensor) {
    state->tensor = *tensor;
    size_t elements = settle_shape(&state->tensor), bytes = 0;
    const size_t each = lm_dtype_bytes(tensor->dtype);
    if (lm_is_string(tensor))
        return lm_error(LUMEN_E_MODEL, "sequences: state '%.64s': expected numbers, found strings",
                        tensor->name);
    if (elements == 0 || !lm_mul_size(elements, each, &bytes))
        return lm_error(LUMEN_E_MODEL, "sequences: state '%.64s': its size overflows",
                        tensor->name);
    state->tensor.row_bytes = bytes;
    if (!state->initial) {
        state->initial = calloc(1, bytes);
        if (!state->initial) return lm_error(LUMEN_E_NOMEM, "no memory for an initial state");
    } else if (state->initial_bytes != bytes) {
        return lm_error(LUMEN_E_MODEL,
                        "sequences: state '%.64s': expected an initial state of %zu bytes, found "
                        "%zu",
                        tensor->name, bytes, state->initial_bytes);
    }
    return 0;
}

bool lm_sequences_take_input(struct lm_sequences *sequences, const struct lm_tensor *tensor,
                             int *code) {
    for (uint32_t c = 0; c < LM_CONTROL_COUNT; c++) {
        struct lm_sequence_control *control = &sequences->controls[c];
        if (!control->tensor.name[0] || strcmp(control->tensor.name, tensor->name) != 0) continue;
        control->tensor = *tensor;
        *code = check_control(c, tensor, settle_shape(&control->tensor));
        control->tensor.row_bytes = lm_dtype_bytes(tensor->dtype);
        sequences->input_count++;
        return true;
    }
    for (uint32_t s = 0; s < sequences->state_count; s++) {
        struct lm_sequence_state *state = &sequences->states[s];
        if (strcmp(state->input, tensor->name) != 0) continue;
        *code = settle_state(state, tensor);
        state->has_input = true;
        sequences->input_count++;
        return true;
    }
    return false;
}

bool lm_sequences_take_output(struct lm_sequences *sequences, const struct lm_tensor *tensor,
                              int *code) {
    for (uint32_t s = 0; s < sequences->state_count; s++) {
        struct lm_sequence_state *state = &sequences->states[s];
        if (strcmp(state->output, tensor->name) != 0) continue;
        state->has_output = true;
        sequences->output_count++;
        bool fits = state->tensor.dtype == tensor->dtype &&
                    (tensor->rank == 0 || state->tensor.rank == tensor->rank);
        for (uint32_t d = 0; fits && d < tensor->rank; d++)
            fits = tensor->dims[d] < 0 || tensor->dims[d] == state->tensor.dims[d];
        if (!fits && state->has_input)
            *code = lm_error(LUMEN_E_MODEL,
                             "sequences: state '%.64s': expected an output of its type and shape, "
                             "where free sizes count as 1: '%.64s' has another",
                             state->input, tensor->name);
        return true;
    }
    return false;
}

/* Every name of the settings is a tensor of the graph. */
static int check_names(const struct lm_sequences *sequences, const struct lm_model *model) {
    const char *missing = NULL;
    bool is_output = false;
    for (uint32_t c = 0; c < LM_CONTROL_COUNT; c++) {
        const struct lm_tensor *tensor = &sequences->controls[c].tensor;
        if (tensor->name[0] && tensor->row_bytes == 0) missing = tensor->name;
    }
    for (uint32_t s = 0; s < sequences->state_count && !missing; s++) {
        const struct lm_sequence_state *state = &sequences->states[s];
        is_output = state->has_input;
        if (!state->has_input) missing = state->input;
        if (state->has_input && !state->has_output) missing = state->output;
    }
    if (missing)
        return lm_error(LUMEN_E_MODEL, "sequences: expected an %s of the graph, found '%.64s'",
                        is_output ? "output" : "input", missing);
    if (model->input_count < 1 || model->output_count < 1)
        return lm_error(LUMEN_E_MODEL,
                        "sequences: expected an input and an output beside controls and states");
    return 0;
}

/* ---- memory and values ---- */

static OrtValue *wrap(const struct lm_ort *ort, const struct lm_tensor *tensor, void *data) {
    return lm_ort_wrap(ort, data, tensor->row_bytes, tensor->dims, tensor->rank, tensor->dtype);
}

/* A tensor of the one string that lies there as on the wire. */
static OrtValue *text_value(const struct lm_ort *ort, const struct lm_tensor *tensor,
                            const void *wire) {
    struct lm_ort_growth growth = {0};
    OrtValue *value = lm_ort_strings_open(ort, tensor->dims, tensor->rank);
    if (value && lm_ort_strings_fill(ort, value, 0, 1, wire, &growth) != 0) {
        lm_ort_value_close(ort, value);
        return NULL;
    }
    return value;
}

/* False and true of that type; nobody writes to them. */
static int open_controls(struct lm_sequences *sequences, const struct lm_ort *ort) {
    static const uint64_t no, yes = 1; /* of bools and of integers of any size: little-endian */
    static const float one = 1;
    for (uint32_t c = 0; c < LM_CONTROL_COUNT; c++) {
        struct lm_sequence_control *control = &sequences->controls[c];
        if (!control->tensor.name[0]) continue;
        if (lm_is_string(&control->tensor)) {
            control->values[0] = text_value(ort, &control->tensor,
                                            "\1\0\0\0"
                                            "0");
            if (!control->values[0]) return LUMEN_E_ORT;
            continue;
        }
        const void *on = control->tensor.dtype == ORT_FLOAT ? (const void *)&one : &yes;
        control->values[0] = wrap(ort, &control->tensor, (void *)(uintptr_t)&no);
        control->values[1] = wrap(ort, &control->tensor, (void *)(uintptr_t)on);
        if (!control->values[0] || !control->values[1]) return LUMEN_E_ORT;
    }
    for (uint32_t s = 0; s < sequences->state_count; s++) {
        struct lm_sequence_state *state = &sequences->states[s];
        state->initial_value = wrap(ort, &state->tensor, state->initial);
        if (!state->initial_value) return LUMEN_E_ORT;
    }
    return 0;
}

static int name_all(struct lm_sequences *sequences, const struct lm_model *model) {
    uint32_t in = model->input_count, out = model->output_count;
    size_t count = in + out + LM_CONTROL_COUNT + 2 * (size_t)sequences->state_count;
    sequences->input_names = calloc(count, sizeof *sequences->input_names);
    if (!sequences->input_names) return lm_error(LUMEN_E_NOMEM, "no memory for sequences");
    sequences->output_names = sequences->input_names + in + sequences->input_count;
    memcpy(sequences->input_names, model->input_names, in * sizeof *model->input_names);
    memcpy(sequences->output_names, model->output_names, out * sizeof *model->output_names);
    for (uint32_t c = 0; c < LM_CONTROL_COUNT; c++) {
        const char *name = sequences->controls[c].tensor.name;
        if (name[0]) sequences->input_names[in++] = name;
    }
    for (uint32_t s = 0; s < sequences->state_count; s++) {
        sequences->input_names[in++] = sequences->states[s].input;
        sequences->output_names[out++] = sequences->states[s].output;
    }
    return 0;
}

int lm_sequences_settle(struct lm_sequences *sequences, const struct lm_model *model,
                        const struct lm_ort *ort) {
    size_t bytes = 0;
    int code = check_names(sequences, model);
    if (!code) code = name_all(sequences, model);
    if (code) return code;
    for (uint32_t s = 0; s < sequences->state_count; s++) {
        struct lm_sequence_state *state = &sequences->states[s];
        state->offset = sequences->half_bytes;
        sequences->half_bytes += lm_align_up(state->tensor.row_bytes, LM_CACHE_LINE);
    }
    const bool is_text = lm_is_string(&sequences->controls[LM_CONTROL_ID].tensor);
    sequences->id_bytes =
        is_text ? lm_align_up(sizeof(uint32_t) + LM_SEQUENCE_TEXT_BYTES_MAX, LM_CACHE_LINE)
                : LM_CACHE_LINE;
    if (!lm_mul_size(sequences->id_bytes + 2 * sequences->half_bytes, sequences->max_open,
                     &bytes) ||
        bytes > LM_SEQUENCES_BYTES_MAX)
        return lm_error(LUMEN_E_MODEL,
                        "sequences: %u states of %zu bytes are more than %llu in all: lower "
                        "max_open",
                        sequences->max_open, 2 * sequences->half_bytes,
                        (unsigned long long)LM_SEQUENCES_BYTES_MAX);
    code = lm_mapping_reserve(&sequences->memory, bytes);
    if (code) return code;
    sequences->table = aligned_alloc(LM_CACHE_LINE, sequences->max_open * sizeof *sequences->table);
    sequences->keys = calloc(sequences->max_open, sizeof *sequences->keys);
    sequences->values = calloc(sequences->max_open * (1 + 2 * (size_t)sequences->state_count),
                               sizeof *sequences->values);
    if (!sequences->table || !sequences->keys || !sequences->values)
        return lm_error(LUMEN_E_NOMEM, "no memory for sequences");
    memset(sequences->table, 0, sequences->max_open * sizeof *sequences->table);
    return open_controls(sequences, ort);
}

/* The control's tensor of this sequence; its text is another one for each. */
static int hold_id(struct lm_sequences *sequences, const struct lm_ort *ort, uint32_t at,
                   bool is_new) {
    OrtValue **value = lm_sequence_values(sequences, at);
    uint8_t *memory = lm_sequence_memory(sequences, at);
    const struct lm_tensor *tensor = &sequences->controls[LM_CONTROL_ID].tensor;
    if (!tensor->name[0]) return 0;
    if (!*value) {
        *value = lm_is_string(tensor) ? text_value(ort, tensor, memory) : wrap(ort, tensor, memory);
        return *value ? 0 : LUMEN_E_ORT;
    }
    struct lm_ort_growth growth = {0};
    if (!is_new || !lm_is_string(tensor)) return 0;
    return lm_ort_strings_fill(ort, *value, 0, 1, memory, &growth);
}

int lm_sequence_hold(struct lm_sequences *sequences, const struct lm_ort *ort, uint32_t at,
                     bool is_new) {
    OrtValue **values = lm_sequence_values(sequences, at) + 1;
    uint8_t *memory = lm_sequence_memory(sequences, at) + sequences->id_bytes;
    int code = hold_id(sequences, ort, at, is_new);
    if (code || sequences->table[at].has_values) return code;
    for (uint32_t v = 0; v < 2 * sequences->state_count; v++) {
        uint32_t half = v / sequences->state_count;
        const struct lm_sequence_state *state = &sequences->states[v % sequences->state_count];
        if (!values[v])
            values[v] =
                wrap(ort, &state->tensor, memory + half * sequences->half_bytes + state->offset);
        if (!values[v]) return LUMEN_E_ORT;
    }
    sequences->table[at].has_values = true;
    return 0;
}
