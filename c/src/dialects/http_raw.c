/* http_raw.c: see http_raw.h. */
#include "dialects/http_raw.h"

#include <stdio.h>

#include "base/limits.h"
#include "models/sizes.h"
#include "work/encoding.h"

/* A raw binary request of a string: it is the body, without a length. */
static bool check_raw_string(const struct lm_model *model, char *why, size_t why_bytes) {
    const struct lm_sizes row = {.rows = 1};
    if (model->input_count > 1 ||
        (model->free_count == 0 && lm_model_row_elements(model, &row) == 1))
        return true; /* several inputs: the same as for numbers */
    snprintf(why, why_bytes,
             "raw binary request: the body is one string, and a row of model '%s' has %s: send "
             "JSON before the bytes",
             model->name, model->free_count > 0 ? "free sizes" : "more");
    return false;
}

bool lm_http_ask_raw(const struct lm_model *model, uint64_t bytes, struct lm_oip_request *asked,
                     uint8_t *encoding_out, char *why, size_t why_bytes) {
    lm_oip_request_reset(asked);
    asked->sizes.rows = 1;
    if (model->string_inputs > 0 && !check_raw_string(model, why, why_bytes)) return false;
    if (model->free_count > 0 && model->string_inputs == 0 &&
        !lm_model_row_of_bytes(model, bytes, &asked->sizes)) {
        if (model->any_rank) {
            snprintf(why, why_bytes,
                     "raw binary request: bytes do not tell the shape of '%.64s' of model '%s', "
                     "which may be any: send JSON before the bytes",
                     model->free_dims[model->free_count - 1].name, model->name);
            return false;
        }
        snprintf(why, why_bytes,
                 "raw binary request: %llu bytes are no row of model '%s': its sizes must follow "
                 "from them ('%.64s' is free, of 1 to %u): send JSON before the bytes",
                 (unsigned long long)bytes, model->name, model->free_dims[0].name,
                 model->free_dims[0].max);
        return false;
    }
    if (model->input_count != 1) {
        snprintf(why, why_bytes, "a raw binary request is for models of one input, '%s' has %u",
                 model->name, model->input_count);
        return false;
    }
    *encoding_out = model->string_inputs > 0 ? LM_ENCODING_STRINGS
                                             : lm_encoding_of_row(model, &asked->sizes, bytes);
    if (*encoding_out == LM_ENCODING_COUNT) {
        char rows[LM_TEXT_BYTES_MAX / 4];
        lm_encoding_list_rows(model, &asked->sizes, rows, sizeof rows);
        snprintf(why, why_bytes,
                 "raw binary request: the body is input '%.64s': model '%.64s' takes %.100s, found "
                 "%llu: "
                 "send them with curl --data-binary @FILE",
                 model->inputs[0].name, model->name, rows, (unsigned long long)bytes);
        return false;
    }
    asked->blob_count = 1;
    asked->blob_bytes[0] = bytes;
    asked->requested_count = model->output_count;
    for (uint32_t o = 0; o < model->output_count; o++)
        asked->requested[o] =
            (struct lm_oip_requested_output){.output = (uint8_t)o, .binary = true};
    return true;
}
