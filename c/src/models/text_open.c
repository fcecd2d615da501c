/* text_open.c: opens a model of texts (text_model.h): which of the graph's tensors are what, and
 * the tensors that its clients see. Control thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/load.h"
#include "models/model.h"
#include "models/text_model.h"
#include "text/pieces.h"
#include "text/pool.h"

static const char *const input_names[LM_TEXT_INPUTS] = {[LM_TEXT_IDS] = "input_ids",
                                                        [LM_TEXT_MASK] = "attention_mask",
                                                        [LM_TEXT_TYPES] = "token_type_ids",
                                                        [LM_TEXT_POSITIONS] = "position_ids"};

/* Names that graphs give their outputs. The first one that a graph has counts. */
static const char *const vectors[] = {"last_hidden_state", "token_embeddings", NULL};
static const char *const sentences[] = {"sentence_embedding", NULL};
static const char *const scores[] = {"logits", NULL};

static int check(const lumen_text_config *config) {
    const struct {
        const char *name;
        uint32_t found, least, most;
    } fields[] = {{"task", config->task, 0, LUMEN_TEXT_ENTITIES},
                  {"pooling", config->pooling, 0, LUMEN_POOLING_ALL},
                  {"activation", config->activation, 0, LUMEN_ACTIVATION_SOFTMAX},
                  {"aggregation", config->aggregation, 0, LUMEN_AGGREGATE_MAX},
                  {"max_tokens", config->tokens_max, 3, LUMEN_TEXT_TOKENS_MAX}};
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
        if (fields[f].found >= fields[f].least && fields[f].found <= fields[f].most) continue;
        return lm_error(LUMEN_E_INVALID, "text: %s: expected %u to %u, found %u", fields[f].name,
                        fields[f].least, fields[f].most, fields[f].found);
    }
    return 0;
}

static int open_tokenizer(struct lm_text_model *text, const char *path) {
    char reason[512];
    int code = lm_file_map(&text->file, path);
    if (!code) code = lm_tokenizer_open(&text->tokenizer, text->file.base, text->file.bytes);
    if (!code) return 0;
    snprintf(reason, sizeof reason, "%s", lm_error_last());
    return lm_error(code, "text: tokenizer: %s", reason);
}

static int take_prompts(struct lm_text_model *text, const lumen_text_config *config) {
    const uint32_t count = config->prompt_count;
    if (count > LUMEN_PROMPTS_MAX || config->default_prompt > count)
        return lm_error(LUMEN_E_INVALID,
                        "text: expected at most %d prompts and one of them as the default, found "
                        "%u, and %u",
                        LUMEN_PROMPTS_MAX, count, config->default_prompt);
    text->prompts = calloc(count + 1, sizeof *text->prompts);
    text->prompt_names = calloc(count + 1, sizeof *text->prompt_names);
    if (!text->prompts || !text->prompt_names)
        return lm_error(LUMEN_E_NOMEM, "no memory for prompts");
    for (uint32_t p = 0; p < count; p++) {
        const size_t bytes = strlen(config->prompts[p].value);
        if (bytes > LM_PROMPT_BYTES_MAX)
            return lm_error(LUMEN_E_INVALID,
                            "text: expected prompts of at most %d bytes, found %zu",
                            LM_PROMPT_BYTES_MAX, bytes);
        text->prompt_names[p] = strdup(config->prompts[p].name);
        text->prompts[p] = (struct lm_text){strdup(config->prompts[p].value), bytes};
        if (!text->prompt_names[p] || !text->prompts[p].at)
            return lm_error(LUMEN_E_NOMEM, "no memory for prompts");
        text->prompt_count = p + 1;
        if (bytes > text->prompt_bytes_max) text->prompt_bytes_max = bytes;
    }
    text->default_prompt = config->default_prompt;
    return 0;
}

/* ---- the graph's tensors ---- */

static int take_input(struct lm_text_model *text, const struct lm_tensor *tensor) {
    uint32_t what = 0;
    while (what < LM_TEXT_INPUTS && strcmp(tensor->name, input_names[what]) != 0) what++;
    if (strcmp(tensor->name, "input_type") == 0) what = LM_TEXT_TYPES;
    if (what == LM_TEXT_INPUTS)
        return lm_error(LUMEN_E_MODEL,
                        "text: expected inputs input_ids, attention_mask, token_type_ids and "
                        "position_ids, found '%.64s'",
                        tensor->name);
    if (tensor->dtype != ORT_INT64 && tensor->dtype != ORT_INT32)
        return lm_error(LUMEN_E_MODEL, "text: input '%.64s': expected INT64 or INT32, found %s",
                        tensor->name, lm_dtype_name(tensor->dtype));
    if (tensor->rank != 2 || tensor->dims[0] > 1 || tensor->dims[1] >= 0)
        return lm_error(LUMEN_E_MODEL,
                        "text: input '%.64s': expected a text's tokens in two dimensions, of which "
                        "the second is free, found %u dimensions (export the model with a dynamic "
                        "sequence axis)",
                        tensor->name, tensor->rank);
    const uint32_t at = text->input_count++;
    memcpy(text->input_names[at], tensor->name, sizeof tensor->name);
    text->dtypes[at] = tensor->dtype;
    text->inputs[at] = (enum lm_text_input)what;
    return 0;
}

static int take_inputs(struct lm_text_model *text, const struct lm_model *model) {
    if (model->input_count > LM_TEXT_INPUTS)
        return lm_error(LUMEN_E_MODEL, "text: expected at most %d inputs, found %u", LM_TEXT_INPUTS,
                        model->input_count);
    bool has_ids = false;
    for (uint32_t i = 0; i < model->input_count; i++) {
        int code = take_input(text, &model->inputs[i]);
        if (code) return code;
        has_ids = has_ids || text->inputs[i] == LM_TEXT_IDS;
    }
    return has_ids ? 0 : lm_error(LUMEN_E_MODEL, "text: expected an input input_ids, found none");
}

static const struct lm_tensor *find(const struct lm_model *model, const char *name) {
    for (uint32_t o = 0; o < model->output_count; o++)
        if (strcmp(model->outputs[o].name, name) == 0) return &model->outputs[o];
    return NULL;
}

static const struct lm_tensor *find_first(const struct lm_model *model, const char *const *names) {
    const struct lm_tensor *found = NULL;
    for (; *names && !found; names++) found = find(model, *names);
    return found;
}

/* The only output of floats of that rank; NULL: there are none, or several. */
static const struct lm_tensor *find_only(const struct lm_model *model, uint32_t rank) {
    const struct lm_tensor *found = NULL;
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        if (output->dtype != ORT_FLOAT || output->rank != rank) continue;
        if (found) return NULL;
        found = output;
    }
    return found;
}

/* By the setting, by known names, by the one shape that fits; never one of several. */
static const struct lm_tensor *choose(const struct lm_model *model, const lumen_text_config *config,
                                      bool of_tokens) {
    const char *const *names = config->task != LUMEN_TEXT_EMBEDDING ? scores
                               : of_tokens                          ? vectors
                                                                    : sentences;
    if (config->output) return find(model, config->output);
    const struct lm_tensor *found = find_first(model, names);
    return found ? found : find_only(model, of_tokens ? 3 : 2);
}

static int take_output(struct lm_text_model *text, const struct lm_model *model,
                       const lumen_text_config *config) {
    const bool is_entities = text->task == LUMEN_TEXT_ENTITIES;
    const struct lm_tensor *output = choose(model, config, text->pooling != 0 || is_entities);
    if (!output && text->pooling && find_first(model, sentences)) { /* it pools by itself */
        text->pooling = 0;
        output = choose(model, config, false);
    }
    const uint32_t rank = text->pooling || is_entities ? 3 : 2;
    char known[512] = "";
    size_t used = 0;
    for (uint32_t o = 0; o < model->output_count && used < sizeof known; o++) {
        const struct lm_tensor *one = &model->outputs[o];
        used += (size_t)snprintf(known + used, sizeof known - used, "%s'%.48s' %s of %u dimensions",
                                 o ? ", " : "", one->name, lm_dtype_name(one->dtype), one->rank);
    }
    if (!output || output->dtype != ORT_FLOAT || output->rank != rank)
        return lm_error(LUMEN_E_MODEL,
                        "text: expected one output of FP32 with %u dimensions (%s; text.output "
                        "names it), found %s",
                        rank, rank == 3 ? "a vector for each token" : "a row for each text", known);
    memcpy(text->output_name, output->name, sizeof output->name);
    text->output_rank = rank;
    return 0;
}

/* ---- rooms and constants ---- */

static int open_rooms(struct lm_text_model *text) {
    const size_t most = text->tokens_max;
    const bool is_entities = text->task == LUMEN_TEXT_ENTITIES;
    text->scratch_bytes = lm_text_scratch_bytes(&text->tokenizer, is_entities);
    if (is_entities) text->entity_bytes = lm_text_entities_room(&text->entities);
    text->room_bytes = 3 * most * sizeof(int64_t) + text->scratch_bytes + text->entity_bytes;
    if (text->prompt_count) text->room_bytes += text->prompt_bytes_max + LM_STRING_BYTES_MAX;
    text->room_bytes = lm_align_up(text->room_bytes, LM_SLOT_ALIGN);
    text->ones = calloc(2 * most, sizeof *text->ones);
    if (!text->ones) return lm_error(LUMEN_E_NOMEM, "no memory for %zu tokens", most);
    text->positions = text->ones + most;
    int dtypes[LM_TEXT_INPUTS] = {0};
    for (uint32_t i = 0; i < text->input_count; i++) dtypes[text->inputs[i]] = text->dtypes[i];
    for (size_t t = 0; t < most; t++) {
        const int32_t one = 1, position = (int32_t)t;
        text->ones[t] = 1;
        text->positions[t] = position;
        if (dtypes[LM_TEXT_MASK] == ORT_INT32) memcpy((int32_t *)text->ones + t, &one, 4);
        if (dtypes[LM_TEXT_POSITIONS] == ORT_INT32)
            memcpy((int32_t *)text->positions + t, &position, 4);
    }
    return lm_mapping_reserve(&text->rooms, (LM_SHADOW_ROOM + 1) * text->room_bytes);
}

/* A Run of the last token of the vocabulary: it tells the width, and whether the graph's table has
 * as many rows. */
static int try_last_token(struct lm_text_model *text, const struct lm_model *model,
                          const struct lm_ort *ort) {
    int64_t *ids = text->rooms.base;
    const struct lm_text_room room = {ids, ids + 1, NULL, text->tokens_max, NULL, NULL};
    OrtValue *output = NULL;
    const float *data;
    size_t width = 0;
    char reason[512];
    ids[0] = text->tokenizer.header->vocabulary - 1;
    int code = lm_text_run_tokens(text, ort, model->sessions[0], &room, 1, &output, &data, &width);
    lm_ort_value_close(ort, output);
    snprintf(reason, sizeof reason, "%s", code ? lm_error_last() : "");
    if (code)
        return lm_error(LUMEN_E_MODEL,
                        "text: expected a tokenizer of this model, whose last token is %u; a Run "
                        "of that token fails: %s",
                        text->tokenizer.header->vocabulary - 1, reason);
    if (width < 1 || width > LM_TEXT_WIDTH_MAX)
        return lm_error(LUMEN_E_MODEL, "text: output '%s': expected 1 to %d numbers, found %zu",
                        text->output_name, LM_TEXT_WIDTH_MAX, width);
    if (text->task == LUMEN_TEXT_ENTITIES && width != model->labels.count)
        return lm_error(LUMEN_E_MODEL,
                        "text: output '%s': expected a number for each of %u labels, found %zu",
                        text->output_name, model->labels.count, width);
    text->width = (uint32_t)width;
    text->values = text->pooling ? text->width * lm_pool_parts(text->pooling) : text->width;
    return 0;
}

/* ---- what clients see ---- */

static void put(struct lm_tensor *tensor, const char *name, int dtype, uint32_t values) {
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->dtype = dtype;
    tensor->rank = values ? 2 : 1;
    tensor->dims[0] = -1;
    tensor->dims[1] = values;
    tensor->rows_free = tensor->shape_known = true;
    tensor->element_bytes = lm_dtype_bytes(dtype);
    tensor->row_bytes = tensor->element_bytes * (values ? values : 1);
}

static int put_signature(struct lm_model *model) {
    const struct lm_text_model *text = model->text;
    const uint32_t inputs = text->has_pairs ? 2 : 1, outputs = 2;
    lm_model_drop_tensors(model);
    int code = lm_model_hold_tensors(model, inputs, outputs);
    if (code) return code;
    model->input_count = model->string_inputs = inputs;
    model->output_count = outputs;
    model->string_outputs = text->task == LUMEN_TEXT_ENTITIES;
    model->optional_count = model->free_count = 0;
    model->any_rank = false;
    model->outputs_known = model->rows_free = true;
    model->rows_name[0] = '\0';
    memset(model->free_dims, 0, sizeof model->free_dims);
    put(&model->inputs[0], "text", ORT_STRING, 0);
    if (text->has_pairs) put(&model->inputs[1], "text_pair", ORT_STRING, 0);
    if (text->task == LUMEN_TEXT_ENTITIES)
        put(&model->outputs[0], "entities", ORT_STRING, 0);
    else
        put(&model->outputs[0], text->task == LUMEN_TEXT_SCORES ? "scores" : "embedding", ORT_FLOAT,
            text->values);
    put(&model->outputs[1], "tokens", ORT_INT32, 0);
    for (uint32_t i = 0; i < inputs; i++) model->input_names[i] = model->inputs[i].name;
    for (uint32_t o = 0; o < outputs; o++) model->output_names[o] = model->outputs[o].name;
    return 0;
}

int lm_model_open_text(struct lm_model *model, const struct lm_ort *ort,
                       const lumen_text_config *config) {
    int code = check(config);
    if (code) return code;
    struct lm_text_model *text = model->text = calloc(1, sizeof *text);
    if (!text) return lm_error(LUMEN_E_NOMEM, "no memory for a model of texts");
    text->task = config->task;
    text->pooling = config->task == LUMEN_TEXT_EMBEDDING ? config->pooling : 0;
    text->activation = config->task == LUMEN_TEXT_SCORES ? config->activation : 0;
    text->normalises = config->normalise != 0;
    text->has_pairs = config->has_pairs != 0;
    text->may_cut = config->may_cut != 0;
    text->tokens_max = config->tokens_max;
    model->runner = LM_RUNNER_TEXT;
    code = text->task == LUMEN_TEXT_ENTITIES
               ? lm_text_entities_open(&text->entities, &model->labels, config->aggregation,
                                       config->tokens_max)
               : 0;
    if (!code) code = open_tokenizer(text, config->tokenizer);
    if (!code) code = take_prompts(text, config);
    if (!code) code = take_inputs(text, model);
    if (!code) code = take_output(text, model, config);
    if (!code) code = open_rooms(text);
    if (!code) code = try_last_token(text, model, ort);
    return code ? code : put_signature(model);
}
