/* sequences_text.c: see sequences_text.h. */
#include "formats/sequences_text.h"

#include <inttypes.h>

#include "base/json_text.h"
#include "models/sequences.h"

static void write_shape(FILE *out, const struct lm_tensor *tensor) {
    fputc('[', out);
    for (uint32_t d = 0; d < tensor->rank; d++)
        fprintf(out, "%s%" PRId64, d ? "," : "", tensor->dims[d]);
    fputc(']', out);
}

static void write_tensor(FILE *out, const char *name, const struct lm_tensor *tensor) {
    fputs("{\"name\":", out);
    lm_json_write(out, name);
    fprintf(out, ",\"datatype\":\"%s\",\"shape\":", lm_dtype_name(tensor->dtype));
    write_shape(out, tensor);
}

void lm_sequences_describe(FILE *out, const struct lm_sequences *sequences) {
    static const char *const roles[] = {[LM_CONTROL_START] = "start",
                                        [LM_CONTROL_END] = "end",
                                        [LM_CONTROL_READY] = "ready",
                                        [LM_CONTROL_ID] = "id"};
    const char *before = "";
    fprintf(out, "{\"max_open\":%u,\"idle_ms\":%" PRIu64 ",\"inputs\":[", sequences->max_open,
            sequences->idle_ns / 1000000);
    for (uint32_t c = 0; c < LM_CONTROL_COUNT; c++) {
        const struct lm_tensor *tensor = &sequences->controls[c].tensor;
        if (!tensor->name[0]) continue;
        fputs(before, out);
        write_tensor(out, tensor->name, tensor);
        fprintf(out, ",\"is\":\"%s\"}", roles[c]);
        before = ",";
    }
    for (uint32_t s = 0; s < sequences->state_count; s++) {
        fputs(before, out);
        write_tensor(out, sequences->states[s].input, &sequences->states[s].tensor);
        fputs(",\"is\":\"state\"}", out);
        before = ",";
    }
    fputs("],\"outputs\":[", out);
    for (uint32_t s = 0; s < sequences->state_count; s++) {
        if (s) fputc(',', out);
        write_tensor(out, sequences->states[s].output, &sequences->states[s].tensor);
        fputs(",\"is\":\"state\"}", out);
    }
    fputs("]}", out);
}

static const char *type_of(const struct lm_tensor *tensor) {
    return lm_is_string(tensor) ? "STRING" : lm_dtype_name(tensor->dtype);
}

static void write_values(FILE *out, const char *word, bool has, const char *values) {
    fprintf(out, ",\"%s_false_true\":[%s]", word, has ? values : "");
}

static void write_controls(FILE *out, const struct lm_sequences *sequences) {
    static const char *const kinds[] = {[LM_CONTROL_START] = "START",
                                        [LM_CONTROL_END] = "END",
                                        [LM_CONTROL_READY] = "READY",
                                        [LM_CONTROL_ID] = "CORRID"};
    const char *before = "";
    for (uint32_t c = 0; c < LM_CONTROL_COUNT; c++) {
        const struct lm_tensor *tensor = &sequences->controls[c].tensor;
        const bool is_flag = c != LM_CONTROL_ID;
        if (!tensor->name[0]) continue;
        fprintf(out, "%s{\"name\":", before);
        lm_json_write(out, tensor->name);
        fprintf(out, ",\"control\":[{\"kind\":\"CONTROL_SEQUENCE_%s\"", kinds[c]);
        write_values(out, "int32", is_flag && tensor->dtype == ORT_INT32, "0,1");
        write_values(out, "fp32", is_flag && tensor->dtype == ORT_FLOAT, "0,1");
        write_values(out, "bool", is_flag && tensor->dtype == ORT_BOOL, "false,true");
        fprintf(out, ",\"data_type\":\"TYPE_%s\"}]}", is_flag ? "INVALID" : type_of(tensor));
        before = ",";
    }
}

void lm_sequences_write_config(FILE *out, const struct lm_sequences *sequences) {
    fprintf(out,
            "{\"max_sequence_idle_microseconds\":%" PRIu64
            ",\"oldest\":{\"max_candidate_sequences\":%u,\"preferred_batch_size\":[],"
            "\"max_queue_delay_microseconds\":0,\"preserve_ordering\":false},\"control_input\":[",
            sequences->idle_ns / 1000, sequences->max_open);
    write_controls(out, sequences);
    fputs("],\"state\":[", out);
    for (uint32_t s = 0; s < sequences->state_count; s++) {
        const struct lm_sequence_state *state = &sequences->states[s];
        fputs(s ? ",{\"input_name\":" : "{\"input_name\":", out);
        lm_json_write(out, state->input);
        fputs(",\"output_name\":", out);
        lm_json_write(out, state->output);
        fprintf(out, ",\"data_type\":\"TYPE_%s\",\"dims\":", type_of(&state->tensor));
        write_shape(out, &state->tensor);
        fputs(",\"initial_state\":[]}", out);
    }
    fputs("],\"iterative_sequence\":false}", out);
}
