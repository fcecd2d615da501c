/* text_model.c: see text_model.h. The Runs; text_open.c opens it. */
#include "models/text_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/pieces.h"
#include "text/pool.h"

/* ---- tokens ---- */

static struct lm_text_room room_of(const struct lm_text_model *text, uint32_t worker) {
    int64_t *room = (int64_t *)((uint8_t *)text->rooms.base + worker * text->room_bytes);
    const uint32_t most = text->tokens_max;
    int64_t *const rest = room + 2 * (size_t)most;
    uint8_t *const scratch = (uint8_t *)(rest + most);
    const bool has_places = text->task == LUMEN_TEXT_ENTITIES;
    return (struct lm_text_room){
        room,    room + most,
        rest,    most,
        scratch, has_places ? lm_text_entities_places(scratch + text->scratch_bytes) : NULL};
}

/* A text behind a prompt, in the worker's room behind all else. */
static struct lm_text put_prompt(const struct lm_text_model *text, uint32_t worker, uint32_t prompt,
                                 struct lm_text first) {
    if (prompt == 0) return first;
    const struct lm_text before = text->prompts[prompt - 1];
    char *room = (char *)room_of(text, worker).scratch + text->scratch_bytes + text->entity_bytes;
    memcpy(room, before.at, before.bytes);
    memcpy(room + before.bytes, first.at, first.bytes);
    return (struct lm_text){room, before.bytes + first.bytes};
}

/* The number of a text's tokens; 0: it cannot be taken, with a sentence. */
static uint32_t encode(const struct lm_text_model *text, const struct lm_text_ask *ask,
                       struct lm_text first, struct lm_text second,
                       const struct lm_text_room *room) {
    const bool may_cut = ask->cut == LM_TEXT_AS_SET ? text->may_cut : ask->cut == LM_TEXT_CUT;
    const enum lm_text_cut cut = !may_cut          ? LM_TEXT_CUT_NOTHING
                                 : ask->cuts_start ? LM_TEXT_CUT_START
                                                   : LM_TEXT_CUT_END;
    uint32_t tokens = lm_text_encode(&text->tokenizer, first, second, text->tokens_max, cut, room);
    if (tokens == LM_TEXT_NO_UTF8) {
        lm_error(LUMEN_E_INVALID, "expected UTF-8");
    } else if (tokens == LM_TEXT_TOO_LONG) {
        lm_error(LUMEN_E_INVALID, "expected at most %u tokens, found more", text->tokens_max);
    } else if (tokens == LM_TEXT_TOO_SMALL) {
        lm_error(LUMEN_E_INVALID, "expected room for a token beside the special ones");
    } else {
        return tokens;
    }
    return 0;
}

/* To half the size, in place: the graph takes 32 bits. */
static void narrow(int64_t *numbers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const int32_t number = (int32_t)numbers[i];
        memcpy((uint8_t *)numbers + i * sizeof number, &number, sizeof number);
    }
}

/* ---- a Run ---- */

/* The graph's inputs over the room. Returns 0 or LUMEN_E_ORT. */
static int wrap_inputs(const struct lm_text_model *text, const struct lm_ort *ort,
                       const struct lm_text_room *room, uint32_t tokens, OrtValue **values) {
    int64_t *const data[LM_TEXT_INPUTS] = {[LM_TEXT_IDS] = room->ids,
                                           [LM_TEXT_MASK] = text->ones,
                                           [LM_TEXT_TYPES] = room->types,
                                           [LM_TEXT_POSITIONS] = text->positions};
    const int64_t dims[2] = {1, tokens};
    for (uint32_t i = 0; i < text->input_count; i++) {
        const enum lm_text_input what = text->inputs[i];
        const size_t each = lm_dtype_bytes(text->dtypes[i]);
        const bool is_rooms = what == LM_TEXT_IDS || what == LM_TEXT_TYPES;
        if (is_rooms && each == sizeof(int32_t)) narrow(data[what], tokens);
        values[i] = lm_ort_wrap(ort, data[what], tokens * each, dims, 2, text->dtypes[i]);
        if (!values[i]) return LUMEN_E_ORT;
    }
    return 0;
}

/* Finds the numbers that the graph made of `tokens` tokens. `width_out`: numbers of one vector. */
static int look_at_output(const struct lm_text_model *text, const struct lm_ort *ort,
                          OrtValue *output, uint32_t tokens, const float **data_out,
                          size_t *width_out) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    int64_t dims[LM_RANK_MAX] = {0};
    size_t rank = 0;
    void *data = NULL;
    OrtStatus *status = ort->api->GetTensorTypeAndShape(output, &info);
    if (!status) status = ort->api->GetDimensionsCount(info, &rank);
    if (!status && rank <= LM_RANK_MAX) status = ort->api->GetDimensions(info, dims, rank);
    if (!status) status = ort->api->GetTensorMutableData(output, &data);
    if (info) ort->api->ReleaseTensorTypeAndShapeInfo(info);
    int code = lm_ort_check(ort, status, "reading a text's output");
    if (code) return code;
    const bool fits =
        rank == text->output_rank && dims[0] == 1 && (rank == 2 || dims[1] == (int64_t)tokens);
    if (!fits)
        return lm_error(LUMEN_E_ORT, "output '%s': expected one row of %s, found another shape",
                        text->output_name, text->output_rank == 2 ? "numbers" : "vectors");
    *data_out = data;
    *width_out = (size_t)dims[rank - 1];
    return 0;
}

int lm_text_run_tokens(const struct lm_text_model *text, const struct lm_ort *ort,
                       OrtSession *session, const struct lm_text_room *room, uint32_t tokens,
                       OrtValue **output_out, const float **data_out, size_t *width_out) {
    OrtValue *values[LM_TEXT_INPUTS] = {0};
    const char *names[LM_TEXT_INPUTS], *const output_names[1] = {text->output_name};
    for (uint32_t i = 0; i < text->input_count; i++) names[i] = text->input_names[i];
    *output_out = NULL;
    int code = wrap_inputs(text, ort, room, tokens, values);
    if (!code)
        code = lm_ort_run(ort, session, names, (const OrtValue *const *)values, text->input_count,
                          output_names, output_out, 1);
    for (uint32_t i = 0; i < text->input_count; i++) lm_ort_value_close(ort, values[i]);
    if (!code) code = look_at_output(text, ort, *output_out, tokens, data_out, width_out);
    return code;
}

/* ---- what a text is answered with ---- */

static void activate(uint32_t activation, float *scores, size_t count) {
    float most = scores[0], sum = 0;
    for (size_t i = 1; i < count; i++) most = scores[i] > most ? scores[i] : most;
    for (size_t i = 0; activation == LUMEN_ACTIVATION_SIGMOID && i < count; i++)
        scores[i] = 1 / (1 + expf(-scores[i]));
    if (activation != LUMEN_ACTIVATION_SOFTMAX) return;
    for (size_t i = 0; i < count; i++) sum += scores[i] = expf(scores[i] - most);
    for (size_t i = 0; i < count; i++) scores[i] /= sum;
}

static void answer(const struct lm_text_model *text, const struct lm_text_ask *ask,
                   const float *data, uint32_t tokens, float *values) {
    if (ask->all_tokens) memcpy(values, data, (size_t)tokens * text->width * sizeof *values);
    if (ask->all_tokens) return;
    if (text->pooling)
        lm_pool(text->pooling, data, tokens, text->width, values);
    else
        memcpy(values, data, text->values * sizeof *values);
    if (text->normalises) lm_pool_normalise(values, text->values);
    if (!ask->raw) activate(text->activation, values, text->values);
}

/* Reads a text behind its prompt. The number of its tokens, as of encode. */
static uint32_t read_text(const struct lm_text_model *text, const struct lm_text_run *run,
                          struct lm_text first, struct lm_text second,
                          const struct lm_text_room *room) {
    const uint32_t prompt = run->ask.prompt ? run->ask.prompt : text->default_prompt;
    return encode(text, &run->ask, put_prompt(text, run->worker, prompt, first), second, room);
}

/* `values_out` of vectors and scores; `wire_out` of entities. */
static int run_one(const struct lm_text_model *text, const struct lm_text_run *run,
                   struct lm_text first, struct lm_text second, float *values_out,
                   const uint8_t **wire_out, int32_t *tokens_out) {
    const struct lm_text_room room = room_of(text, run->worker);
    OrtValue *output = NULL;
    const float *data = NULL;
    size_t width = 0;
    const uint32_t tokens = read_text(text, run, first, second, &room);
    if (tokens == 0) return LUMEN_E_INVALID;
    int code =
        lm_text_run_tokens(text, run->ort, run->session, &room, tokens, &output, &data, &width);
    if (!code && width != text->width)
        code = lm_error(LUMEN_E_ORT, "output '%s': expected vectors of %u numbers, found %zu",
                        text->output_name, text->width, width);
    if (!code && wire_out)
        *wire_out =
            lm_text_entities_write(&text->entities, &text->tokenizer, first, room.ids, tokens,
                                   (float *)(uintptr_t)data, run->ask.aggregation, room.places);
    else if (!code)
        answer(text, &run->ask, data, tokens, values_out);
    lm_ort_value_close(run->ort, output);
    *tokens_out = (int32_t)tokens;
    return code;
}

/* The next string of a tensor as on the wire, which was checked when it came. */
static struct lm_text next_text(const uint8_t **at) {
    uint32_t bytes;
    memcpy(&bytes, *at, sizeof bytes); /* little-endian, as we are */
    const struct lm_text text = {(const char *)*at + sizeof bytes, bytes};
    *at += sizeof bytes + bytes;
    return text;
}

static int at_text(const struct lm_text_run *run, uint32_t row, int code) {
    char reason[512];
    snprintf(reason, sizeof reason, "%s", lm_error_last());
    return lm_error(code, "text %u: %s", run->first + row, reason);
}

int lm_text_run_in_place(const struct lm_text_model *text, const struct lm_text_run *run,
                         void *const *inputs, void *const *outputs) {
    const uint8_t *first_at = inputs[0], *second_at = text->has_pairs ? inputs[1] : NULL;
    float *values = outputs[0];
    int32_t *tokens = outputs[1];
    if (run->ask.runs_nothing) {
        memset(values, 0, (size_t)run->rows * text->values * sizeof *values);
        memset(tokens, 0, run->rows * sizeof *tokens);
        return 0;
    }
    for (uint32_t row = 0; row < run->rows; row++, values += text->values) {
        const struct lm_text first = next_text(&first_at);
        const struct lm_text second =
            text->has_pairs ? next_text(&second_at) : (struct lm_text){NULL, 0};
        int code = run_one(text, run, first, second, values, NULL, &tokens[row]);
        if (code) return at_text(run, row, code);
    }
    return 0;
}

/* Of entities, whose output is a tensor of strings. */
static int run_entities(const struct lm_text_model *text, const struct lm_text_run *run,
                        const uint8_t *first_at, OrtValue *entities, int32_t *tokens) {
    struct lm_ort_growth growth = {0};
    if (run->ask.runs_nothing) memset(tokens, 0, run->rows * sizeof *tokens);
    for (uint32_t row = 0; !run->ask.runs_nothing && row < run->rows; row++) {
        const struct lm_text first = next_text(&first_at);
        const uint8_t *wire = NULL;
        int code = run_one(text, run, first, (struct lm_text){NULL, 0}, NULL, &wire, &tokens[row]);
        if (!code) code = lm_ort_strings_fill(run->ort, entities, row, 1, wire, &growth);
        if (code) return at_text(run, row, code);
    }
    return 0;
}

/* ---- on values ---- */

/* Strings of a tensor as on the wire, in memory that the caller frees; NULL with a sentence. */
static uint8_t *take_strings(const struct lm_ort *ort, const OrtValue *value, uint32_t count) {
    size_t bytes = 0;
    if (lm_ort_strings_measure(ort, value, 0, count, &bytes)) return NULL;
    uint8_t *wire = malloc(bytes + 1);
    if (!wire) {
        lm_error(LUMEN_E_NOMEM, "no memory for %zu bytes of texts", bytes);
        return NULL;
    }
    if (!lm_ort_strings_take(ort, value, 0, count, wire, bytes, &bytes)) return wire;
    free(wire);
    return NULL;
}

static int find_output(const struct lm_ort *ort, const int64_t *dims, size_t rank, int dtype,
                       OrtValue **value, void **data_out) {
    OrtStatus *status = NULL;
    if (!*value)
        status = ort->api->CreateTensorAsOrtValue(ort->allocator, dims, rank, dtype, value);
    if (!status) status = ort->api->GetTensorMutableData(*value, data_out);
    return lm_ort_check(ort, status, "making an output of texts");
}

/* A vector for each token: the texts are read once more, since the output is as long as all of them
 * have tokens. */
static int run_all_tokens(const struct lm_text_model *text, const struct lm_text_run *run,
                          const uint8_t *first_at, OrtValue **vectors, int32_t *tokens) {
    const struct lm_text_room room = room_of(text, run->worker);
    const uint8_t *at = first_at;
    int64_t dims[2] = {0, text->width};
    float *values = NULL;
    for (uint32_t row = 0; row < run->rows; row++) {
        const uint32_t count = read_text(text, run, next_text(&at), (struct lm_text){0}, &room);
        if (count == 0) return at_text(run, row, LUMEN_E_INVALID);
        dims[0] += count;
    }
    const int64_t most = LM_TEXT_VECTORS_BYTES_MAX / (int64_t)(text->width * sizeof *values);
    if (dims[0] > most)
        return lm_error(LUMEN_E_INVALID,
                        "expected at most %lld tokens in all texts together, found %lld",
                        (long long)most, (long long)dims[0]);
    int code = find_output(run->ort, dims, 2, ORT_FLOAT, vectors, (void **)&values);
    for (uint32_t row = 0; !code && row < run->rows; row++) {
        code = run_one(text, run, next_text(&first_at), (struct lm_text){0}, values, NULL,
                       &tokens[row]);
        if (code) return at_text(run, row, code);
        values += (size_t)tokens[row] * text->width;
    }
    return code;
}

int lm_text_run_on_values(const struct lm_text_model *text, struct lm_text_run *run,
                          OrtValue **values) {
    const struct lm_ort *ort = run->ort;
    const uint32_t count = text->has_pairs ? 2 : 1;
    OrtTensorTypeAndShapeInfo *info = NULL;
    size_t rows = 0;
    OrtStatus *status = ort->api->GetTensorTypeAndShape(values[0], &info);
    if (!status) status = ort->api->GetTensorShapeElementCount(info, &rows);
    if (info) ort->api->ReleaseTensorTypeAndShapeInfo(info);
    int code = lm_ort_check(ort, status, "reading texts");
    if (code) return code;
    void *inputs[2] = {NULL, NULL}, *outputs[2] = {NULL, NULL};
    const int64_t dims[2] = {(int64_t)rows, text->values};
    const bool is_entities = text->task == LUMEN_TEXT_ENTITIES;
    run->rows = (uint32_t)rows;
    for (uint32_t i = 0; !code && i < count; i++) {
        inputs[i] = take_strings(ort, values[i], run->rows);
        if (!inputs[i]) code = LUMEN_E_ORT;
    }
    if (!code && is_entities && !values[count]) {
        values[count] = lm_ort_strings_open(ort, dims, 1);
        code = values[count] ? 0 : LUMEN_E_ORT;
    }
    const bool has_vectors = !is_entities && !run->ask.all_tokens;
    if (!code && has_vectors)
        code = find_output(ort, dims, 2, ORT_FLOAT, &values[count], &outputs[0]);
    if (!code) code = find_output(ort, dims, 1, ORT_INT32, &values[count + 1], &outputs[1]);
    if (!code)
        code = is_entities   ? run_entities(text, run, inputs[0], values[count], outputs[1])
               : has_vectors ? lm_text_run_in_place(text, run, inputs, outputs)
                             : run_all_tokens(text, run, inputs[0], &values[count], outputs[1]);
    for (uint32_t i = 0; i < count; i++) free(inputs[i]);
    return code;
}

/* ---- its prompts, and its end ---- */

uint16_t lm_text_model_find_prompt(const struct lm_text_model *text, const char *name,
                                   size_t bytes) {
    uint32_t p = 0;
    for (; p < text->prompt_count; p++) {
        const char *known = text->prompt_names[p];
        if (strlen(known) == bytes && memcmp(known, name, bytes) == 0) return (uint16_t)(p + 1);
    }
    return 0;
}

void lm_text_model_list_prompts(const struct lm_text_model *text, char *out, size_t bytes) {
    size_t used = 0;
    snprintf(out, bytes, "none, for the model has no prompts");
    for (uint32_t p = 0; p < text->prompt_count && used < bytes; p++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%.64s", p ? ", " : "one of ",
                                 text->prompt_names[p]);
}

void lm_text_model_close(struct lm_text_model *text) {
    if (!text) return;
    lm_mapping_close(&text->file);
    lm_mapping_close(&text->rooms);
    lm_text_entities_close(&text->entities);
    free(text->ones);
    for (uint32_t p = 0; p < text->prompt_count; p++) {
        free((char *)(uintptr_t)text->prompts[p].at);
        free((char *)(uintptr_t)text->prompt_names[p]);
    }
    free(text->prompts);
    free(text->prompt_names);
    free(text);
}
