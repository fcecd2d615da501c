/* texts_reply.cc: see texts_reply.h. */
#include <sodium.h>

#include <algorithm>
#include <cstdio>

#include "formats/classes.h"
#include "formats/json_writer.h"
extern "C" {
#include "formats/http_route.h"
#include "formats/texts_reply.h"
#include "formats/texts_tokens.h"
#include "models/text_model.h"
#include "text/pool.h"
}

using namespace lm_json;

namespace {

enum {
    ROW_BYTES_MAX = 96,    /* of a row's fields, but for its numbers, label and text */
    REPLY_BYTES_MAX = 512, /* beside the rows */
    FLOAT_BYTES_MAX = 16   /* with its comma */
};

/* One reply, and how far it is written. */
struct writing {
    const struct lm_texts_answer &is;
    writer w;
    void *scratch;
    bool is_sayable = true;

    const float *row(uint32_t at) const {
        return (const float *)is.outputs[0].data + (size_t)at * is.model->text->values;
    }
    void put(float value) {
        is_sayable = is_sayable && lm_json::is_sayable(value);
        put_number(w, value);
    }
};

uint64_t tokens_of(const struct lm_texts_answer &answer) {
    const int32_t *tokens = (const int32_t *)answer.outputs[1].data;
    uint64_t sum = 0;
    for (uint32_t row = 0; row < answer.rows; row++) sum += (uint64_t)tokens[row];
    return sum;
}

/* ---- embeddings ---- */

uint32_t dimensions_of(const struct lm_texts_answer &answer) {
    return answer.wish->dimensions ? answer.wish->dimensions : answer.model->text->values;
}

/* A row as the client wants it: the first numbers, of length 1. */
const float *shaped(const writing &a, uint32_t at) {
    const uint32_t dimensions = dimensions_of(a.is);
    const bool is_whole = dimensions == a.is.model->text->values;
    const bool has_length_1 = is_whole && a.is.model->text->normalises;
    if (has_length_1 || (is_whole && !a.is.wish->normalises)) return a.row(at);
    float *vector = (float *)a.scratch;
    memcpy(vector, a.row(at), dimensions * sizeof *vector);
    if (a.is.wish->normalises || a.is.model->text->normalises)
        lm_pool_normalise(vector, dimensions);
    return vector;
}

void put_base64(writing &a, const float *vector, size_t bytes) {
    const size_t digits = sodium_base64_ENCODED_LEN(bytes, sodium_base64_VARIANT_ORIGINAL);
    for (size_t i = 0; i < bytes / sizeof *vector; i++)
        a.is_sayable = a.is_sayable && lm_json::is_sayable(vector[i]);
    a.w.full = a.w.full || digits > a.w.room(); /* with a terminator, which is overwritten */
    if (a.w.full) return;
    sodium_bin2base64(a.w.at, digits, (const unsigned char *)vector, bytes,
                      sodium_base64_VARIANT_ORIGINAL);
    a.w.at += digits - 1;
}

void put_numbers(writing &a, const float *numbers, uint32_t count) {
    a.w.put("[");
    for (uint32_t i = 0; i < count && !a.w.full; i++) {
        if (i) a.w.put(",");
        a.put(numbers[i]);
    }
    a.w.put("]");
}

void put_vector(writing &a, uint32_t at) {
    const uint32_t dimensions = dimensions_of(a.is);
    const float *vector = shaped(a, at);
    if (a.is.wish->as_base64) {
        a.w.put("\"");
        put_base64(a, vector, dimensions * sizeof *vector);
        a.w.put("\"");
        return;
    }
    put_numbers(a, vector, dimensions);
}

void put_openai(writing &a) {
    const uint64_t tokens = tokens_of(a.is);
    a.w.put("{\"object\":\"list\",\"data\":[");
    for (uint32_t row = 0; row < a.is.rows && !a.w.full; row++) {
        a.w.put(row ? ",{\"object\":\"embedding\",\"index\":"
                    : "{\"object\":\"embedding\",\"index\":");
        a.w.number(row);
        a.w.put(",\"embedding\":");
        put_vector(a, row);
        a.w.put("}");
    }
    a.w.put("],\"model\":");
    a.w.string(a.is.model->base);
    a.w.put(",\"usage\":{\"prompt_tokens\":");
    a.w.number(tokens);
    a.w.put(",\"total_tokens\":");
    a.w.number(tokens);
    a.w.put("}}");
}

void put_embed(writing &a) {
    a.w.put("[");
    for (uint32_t row = 0; row < a.is.rows && !a.w.full; row++) {
        if (row) a.w.put(",");
        put_vector(a, row);
    }
    a.w.put("]");
}

/* A list of vectors for each text. */
void put_embed_all(writing &a) {
    const uint32_t width = a.is.model->text->width;
    const float *vector = (const float *)a.is.outputs[0].data;
    const int32_t *tokens = (const int32_t *)a.is.outputs[1].data;
    a.w.put("[");
    for (uint32_t row = 0; row < a.is.rows; row++) {
        a.w.put(row ? ",[" : "[");
        for (int32_t t = 0; t < tokens[row] && !a.w.full; t++, vector += width) {
            if (t) a.w.put(",");
            put_numbers(a, vector, width);
        }
        a.w.put("]");
    }
    a.w.put("]");
}

/* The cosine of the first text and each other one. */
void put_similarity(writing &a) {
    const uint32_t values = a.is.model->text->values;
    const float *source = a.row(0);
    a.w.put("[");
    for (uint32_t row = 1; row < a.is.rows && !a.w.full; row++) {
        const float *other = a.row(row);
        double dot = 0, one = 0, two = 0;
        for (uint32_t i = 0; i < values; i++) {
            dot += (double)source[i] * other[i];
            one += (double)source[i] * source[i];
            two += (double)other[i] * other[i];
        }
        if (row > 1) a.w.put(",");
        a.put(one > 0 && two > 0 ? (float)(dot / std::sqrt(one * two)) : 0);
    }
    a.w.put("]");
}

/* ---- scores ---- */

/* So many places by their scores. */
void rank(uint32_t *ranking, uint32_t count, const float *scores, size_t step) {
    for (uint32_t i = 0; i < count; i++) ranking[i] = i;
    std::sort(ranking, ranking + count, lm_classes::ranks_before<float>{scores, step});
}

void put_labels(writing &a, uint32_t row) {
    const uint32_t values = a.is.model->text->values;
    uint32_t *ranking = (uint32_t *)a.scratch;
    rank(ranking, values, a.row(row), 1);
    a.w.put("[");
    for (uint32_t i = 0; i < values && !a.w.full; i++) {
        uint32_t bytes = 0;
        const char *label = lm_labels_get(&a.is.model->labels, ranking[i], &bytes);
        a.w.put(i ? ",{\"score\":" : "{\"score\":");
        a.put(a.row(row)[ranking[i]]);
        a.w.put(",\"label\":");
        a.w.string(label ? std::string_view(label, bytes) : std::string_view());
        a.w.put("}");
    }
    a.w.put("]");
}

void put_predictions(writing &a) {
    if (!a.is.wish->is_batch) return put_labels(a, 0);
    a.w.put("[");
    for (uint32_t row = 0; row < a.is.rows && !a.w.full; row++) {
        if (row) a.w.put(",");
        put_labels(a, row);
    }
    a.w.put("]");
}

/* The text of a row: found by walking, for few are asked for. */
std::string_view text_of(const struct lm_texts_answer &answer, uint32_t row) {
    const char *at = (const char *)answer.texts;
    std::string_view text;
    for (uint32_t i = 0; at && i <= row; i++) text = next_string(at);
    return text;
}

/* Cohere's, Jina's and Text Embeddings Inference's form of one result. */
void put_result(writing &a, uint32_t row) {
    const bool is_list = a.is.wish->is_list;
    a.w.put("{\"index\":");
    a.w.number(row);
    if (a.is.wish->with_texts) {
        a.w.put(is_list ? ",\"text\":" : ",\"document\":{\"text\":");
        a.w.string(text_of(a.is, row));
        if (!is_list) a.w.put("}");
    }
    a.w.put(is_list ? ",\"score\":" : ",\"relevance_score\":");
    a.put(a.row(row)[0]);
    a.w.put("}");
}

void put_ranking(writing &a) {
    const uint32_t values = a.is.model->text->values;
    uint32_t *ranking = (uint32_t *)a.scratch;
    const uint32_t top = a.is.wish->top && a.is.wish->top < a.is.rows ? a.is.wish->top : a.is.rows;
    rank(ranking, a.is.rows, a.row(0), values);
    const bool is_list = a.is.wish->is_list;
    if (!is_list) {
        a.w.put("{\"model\":");
        a.w.string(a.is.model->base);
        a.w.put(",\"results\":");
    }
    a.w.put("[");
    for (uint32_t i = 0; i < top && !a.w.full; i++) {
        if (i) a.w.put(",");
        put_result(a, ranking[i]);
    }
    a.w.put("]");
    if (is_list) return;
    a.w.put(",\"meta\":{\"api_version\":{\"version\":");
    a.w.put(a.is.route == LM_ROUTE_RERANK_V2 ? "\"2\"" : "\"1\"");
    a.w.put("},\"billed_units\":{\"search_units\":1}},\"usage\":{\"total_tokens\":");
    a.w.number(tokens_of(a.is));
    a.w.put("}}");
}

/* Entities, which are JSON already: a list for each text. */
void put_entities(writing &a) {
    const char *at = (const char *)a.is.outputs[0].data;
    if (a.is.wish->is_batch) a.w.put("[");
    for (uint32_t row = 0; row < a.is.rows && !a.w.full; row++) {
        if (row) a.w.put(",");
        a.w.put(next_string(at));
    }
    if (a.is.wish->is_batch) a.w.put("]");
}

void put_by_route(writing &a) {
    if (a.is.route == LM_ROUTE_ENTITIES) return put_entities(a);
    if (a.is.route == LM_ROUTE_EMBEDDINGS) return put_openai(a);
    if (a.is.route == LM_ROUTE_EMBED) return put_embed(a);
    if (a.is.route == LM_ROUTE_EMBED_ALL) return put_embed_all(a);
    if (a.is.route == LM_ROUTE_SIMILARITY) return put_similarity(a);
    if (a.is.route == LM_ROUTE_PREDICT_TEXT) return put_predictions(a);
    put_ranking(a);
}

} // namespace

bool lm_texts_reply_bytes_max(const struct lm_texts_answer *answer, size_t *json_bytes_out,
                              size_t *scratch_bytes_out) {
    if (lm_http_is_tokens(answer->route))
        return lm_texts_tokens_bytes_max(answer, json_bytes_out, scratch_bytes_out);
    const struct lm_model *model = answer->model;
    const size_t values = model->text->values;
    const size_t name = strlen(model->base) * LM_JSON_ESCAPE_MAX;
    const size_t label = (size_t)model->labels.bytes_max * LM_JSON_ESCAPE_MAX + ROW_BYTES_MAX;
    const bool is_embedding = model->text->task == LUMEN_TEXT_EMBEDDING;
    const size_t each = is_embedding ? (size_t)FLOAT_BYTES_MAX : FLOAT_BYTES_MAX + label;
    bound json = {REPLY_BYTES_MAX + name, false}, scratch = {0, false};
    if (answer->route == LM_ROUTE_ENTITIES) json.add(answer->outputs[0].bytes, 1);
    if (answer->route == LM_ROUTE_EMBED_ALL) {
        const size_t numbers = answer->outputs[0].bytes / sizeof(float);
        json.add(numbers, FLOAT_BYTES_MAX);
        json.add(numbers / model->text->width, 4); /* brackets */
    }
    json.add(answer->rows, ROW_BYTES_MAX);
    json.add(answer->rows, values * each);
    if (answer->wish->with_texts) json.add(answer->text_bytes, LM_JSON_ESCAPE_MAX);
    scratch.add(answer->rows > values ? answer->rows : values, sizeof(uint32_t));
    *json_bytes_out = json.bytes;
    *scratch_bytes_out = scratch.bytes;
    return !json.overflows && !scratch.overflows;
}

enum lm_status lm_texts_reply(const struct lm_texts_answer *answer, const struct lm_oip_room *room,
                              size_t *bytes_out, char *why, size_t why_bytes) {
    if (lm_http_is_tokens(answer->route))
        return lm_texts_tokens(answer, room, bytes_out, why, why_bytes);
    writing a = {*answer, {room->json, room->json + room->json_bytes, false}, room->scratch};
    put_by_route(a);
    if (!a.is_sayable) {
        snprintf(why, why_bytes, "output '%.64s' holds NaN or infinity, which no number of JSON is",
                 answer->outputs[0].tensor->name);
        return LM_STATUS_INFERENCE_FAILED;
    }
    *bytes_out = (size_t)(a.w.at - room->json);
    if (!a.w.full) return LM_STATUS_OK;
    snprintf(why, why_bytes, "the reply is too large: it does not fit %zu bytes", room->json_bytes);
    return LM_STATUS_TOO_LARGE;
}
