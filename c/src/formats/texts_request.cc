/* texts_request.cc: see texts_request.h. */
#include "formats/oip_fields.h"
#include "formats/texts_ids.h"
extern "C" {
#include "formats/http_route.h"
#include "formats/texts_kinds.h"
#include "formats/texts_request.h"
#include "models/text_model.h"
}

using namespace lm_oip;

namespace {

enum {
    INPUT,
    INPUTS,
    TEXTS,
    DOCUMENTS,
    QUERY,
    DIMENSIONS,
    ENCODING_FORMAT,
    TOP_N,
    NORMALIZE,
    TRUNCATE,
    TRUNCATION_DIRECTION,
    PROMPT_NAME,
    RAW_SCORES,
    RETURN_TEXT,
    RETURN_DOCUMENTS,
    PARAMETERS,
    PRIORITY,
    IDS,
    ADD_SPECIAL_TOKENS,
    SKIP_SPECIAL_TOKENS,
    COUNT
};
/* clang-format off */
constexpr std::string_view names[COUNT] = {
    "input", "inputs", "texts", "documents", "query", "dimensions", "encoding_format", "top_n",
    "normalize", "truncate", "truncation_direction", "prompt_name", "raw_scores", "return_text",
    "return_documents", "parameters", "priority", "ids", "add_special_tokens",
    "skip_special_tokens"};
/* clang-format on */

struct reading : complaint {
    reading(const complaint &say, struct lm_oip_parser *with, const struct lm_model *served,
            uint8_t asked)
        : complaint(say), body(&with->texts), model(served), route(asked) {
    }
    texts_body *body;
    const struct lm_model *model;
    uint8_t route;
    fields<COUNT> found;
};

const place request_place("request");

bool has(const reading &r, size_t field) {
    return r.found.there[field] && !r.found.values[field].is_null();
}

bool take_flag(const reading &r, size_t field, bool *out) {
    return !has(r, field) ||
           read_bool(r, r.found.values[field], request_place, names[field].data(), out);
}

/* ---- the texts ---- */

/* A text of a list: a string, or an object that has it as `text`. */
bool read_text(const element &from, std::string_view *out) {
    object document;
    element text;
    if (!from.get(*out)) return true;
    return !from.get(document) && !document["text"].get(text) && !text.get(*out);
}

bool wrong_text(const reading &r, const char *field, size_t row, const element &found) {
    const bool is_tokens =
        found.is_array() || found.type() == element_type::INT64; /* of OpenAI's tokenizer */
    return r.wrong("%s[%zu]: expected a text, found %s%s", field, row, kind(found),
                   is_tokens ? ": token ids are another tokenizer's (LangChain's OpenAIEmbeddings: "
                               "set check_embedding_ctx_length=False)"
                             : "");
}

bool take_text(const reading &r, const char *field, size_t row, const element &from,
               std::string_view *out) {
    if (!read_text(from, out)) return wrong_text(r, field, row, from);
    return out->size() <= LM_STRING_BYTES_MAX ||
           r.wrong("%s[%zu]: expected a text of at most %d bytes, found %zu", field, row,
                   LM_STRING_BYTES_MAX, out->size());
}

/* Texts of which each is in a list. */
bool take_texts(const reading &r, const char *field, const array &list) {
    size_t row = 0;
    std::string_view text;
    for (const element &one : list)
        if (!take_text(r, field, row++, one, &text)) return false;
    return list.size() > 0 || r.wrong("%s: expected at least one text, found none", field);
}

/* One text, or a list of at least one. */
bool read_list(const reading &r, size_t field) {
    const char *name = names[field].data();
    const element &from = r.found.values[field];
    if (!r.found.there[field]) return r.wrong("request: field \"%s\" is missing", name);
    if (from.is_string()) {
        r.body->is_one = true;
        return take_text(r, name, 0, from, &r.body->one);
    }
    if (from.get(r.body->list))
        return r.wrong("%s: expected a text or a list of texts, found %s", name, kind(from));
    return take_texts(r, name, r.body->list);
}

/* A text, a pair of texts, or a list of lists of one or two of them. */
bool read_inputs_of_predict(const reading &r, struct lm_texts_wish *wish) {
    const bool has_pairs = r.model->text->has_pairs;
    const element &from = r.found.values[INPUTS];
    array inner;
    std::string_view text;
    if (!r.found.there[INPUTS]) return read_list(r, INPUTS);
    if (from.is_string() && has_pairs)
        return r.wrong("inputs: expected a pair of texts, found a string");
    if (from.is_string()) return read_list(r, INPUTS);
    if (from.get(r.body->list))
        return r.wrong("inputs: expected a text, a pair or a list of lists, found %s", kind(from));
    size_t row = 0;
    if (r.body->list.size() > 0 && r.body->list.at(0).value_unsafe().is_string()) {
        if (r.body->list.size() > 2 || (r.body->list.size() == 2) != has_pairs)
            return r.wrong("inputs: expected %s, found a list of %zu texts (a list of lists is a "
                           "batch)",
                           has_pairs ? "a pair of texts" : "a text", r.body->list.size());
        for (const element &one : r.body->list) {
            if (!take_text(r, "inputs", row, one, row ? &r.body->second : &r.body->one))
                return false;
            row++;
        }
        r.body->is_one = true;
        r.body->has_second = has_pairs;
        return true;
    }
    if (r.body->list.size() == 0) return r.wrong("inputs: expected at least one text, found none");
    wish->is_batch = true;
    for (const element &one : r.body->list) {
        if (one.get(inner) || inner.size() != (has_pairs ? 2u : 1u))
            return r.wrong("inputs[%zu]: expected a list of %s, found %s", row,
                           has_pairs ? "two texts" : "one text", kind(one));
        for (const element &part : inner)
            if (!take_text(r, "inputs", row, part, &text)) return false;
        row++;
    }
    return true;
}

bool read_query(const reading &r) {
    if (!r.found.there[QUERY]) return r.wrong("request: field \"query\" is missing");
    r.body->has_query = true;
    return take_text(r, "query", 0, r.found.values[QUERY], &r.body->query);
}

bool read_similarity(const reading &r) {
    static constexpr std::string_view parts[2] = {"source_sentence", "sentences"};
    const place where("inputs");
    fields<2> found;
    object inputs;
    if (!r.found.there[INPUTS]) return r.wrong("request: field \"inputs\" is missing");
    if (!read_object(r, r.found.values[INPUTS], where, &inputs) ||
        !read_fields(r, inputs, where, parts, &found))
        return false;
    if (!found.there[0] ||
        !read_string(r, found.values[0], where, "source_sentence", &r.body->query))
        return found.there[0] ? false : r.wrong("inputs: \"source_sentence\" is missing");
    if (!found.there[1] || found.values[1].get(r.body->list))
        return r.wrong("inputs: sentences: expected a list of texts");
    r.body->query_is_row = true;
    return take_texts(r, "inputs.sentences", r.body->list);
}

bool read_tokens(const reading &r) {
    bool skips = true;
    if (!r.found.there[IDS]) return r.wrong("request: field \"ids\" is missing");
    if (!take_flag(r, SKIP_SPECIAL_TOKENS, &skips)) return false;
    r.body->tokenizer = &r.model->text->tokenizer;
    r.body->skips_special = skips;
    return read_ids(r, r.found.values[IDS], r.body);
}

bool read_texts(const reading &r, struct lm_texts_wish *wish) {
    wish->ask.runs_nothing = lm_http_is_tokens(r.route);
    wish->ask.all_tokens = r.route == LM_ROUTE_EMBED_ALL;
    if (wish->ask.all_tokens && r.model->text->output_rank != 3)
        return r.wrong("model '%.64s' has vectors of whole texts, none of tokens", r.model->name);
    if (r.route == LM_ROUTE_DECODE) return read_tokens(r);
    if (r.route == LM_ROUTE_EMBEDDINGS) return read_list(r, INPUT);
    if (r.route == LM_ROUTE_ENTITIES)
        wish->is_batch = r.found.there[INPUTS] && !r.found.values[INPUTS].is_string();
    if (r.route == LM_ROUTE_PREDICT_TEXT) return read_inputs_of_predict(r, wish);
    if (r.route == LM_ROUTE_SIMILARITY) return read_similarity(r);
    if (!lm_http_ranks(r.route)) return read_list(r, INPUTS);
    wish->is_list = r.route == LM_ROUTE_RERANK && r.found.there[TEXTS];
    return read_query(r) && read_list(r, wish->is_list ? TEXTS : DOCUMENTS);
}

/* ---- what else it asks ---- */

bool read_size(const reading &r, size_t field, uint32_t *out) {
    uint64_t value = 0;
    if (!has(r, field)) return true;
    if (!read_natural(r, r.found.values[field], request_place, names[field].data(), &value))
        return false;
    *out = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
    return value > 0 || r.wrong("%s: expected at least 1, found 0", names[field].data());
}

bool read_format(const reading &r, struct lm_texts_wish *wish) {
    std::string_view format;
    if (!has(r, ENCODING_FORMAT)) return true;
    if (!read_string(r, r.found.values[ENCODING_FORMAT], request_place, "encoding_format", &format))
        return false;
    wish->as_base64 = format == "base64";
    return format == "float" || format == "base64" ||
           r.wrong("encoding_format: expected float or base64, found '%s'", shown(format).text);
}

bool read_prompt(const reading &r, struct lm_texts_wish *wish) {
    std::string_view name;
    if (!has(r, PROMPT_NAME)) return true;
    if (!read_string(r, r.found.values[PROMPT_NAME], request_place, "prompt_name", &name))
        return false;
    wish->ask.prompt = lm_text_model_find_prompt(r.model->text, name.data(), name.size());
    if (wish->ask.prompt) return true;
    char known[256];
    lm_text_model_list_prompts(r.model->text, known, sizeof known);
    return r.wrong("prompt_name: expected %s, found '%s'", known, shown(name).text);
}

bool read_truncation(const reading &r, struct lm_texts_wish *wish) {
    std::string_view direction;
    bool cut = true;
    if (!take_flag(r, TRUNCATE, &cut)) return false;
    if (has(r, TRUNCATE)) wish->ask.cut = cut ? LM_TEXT_CUT : LM_TEXT_REFUSE;
    if (!has(r, TRUNCATION_DIRECTION)) return true;
    if (!read_string(r, r.found.values[TRUNCATION_DIRECTION], request_place, "truncation_direction",
                     &direction))
        return false;
    wish->ask.cuts_start = direction == "Left" || direction == "left";
    return wish->ask.cuts_start || direction == "Right" || direction == "right" ||
           r.wrong("truncation_direction: expected Right or Left, found '%s'",
                   shown(direction).text);
}

/* Cohere's: 0 is the highest, and all others go after whatever has it. */
bool read_priority(const reading &r, struct lm_texts_wish *wish) {
    uint64_t priority = 0;
    if (!has(r, PRIORITY)) return true;
    if (!read_natural(r, r.found.values[PRIORITY], request_place, "priority", &priority))
        return false;
    wish->turn = priority == 0 ? LM_TURN_FIRST : LM_TURN_BULK;
    return true;
}

/* Hugging Face's: how tokens become entities. */
bool read_parameters(const reading &r, struct lm_texts_wish *wish) {
    static constexpr std::string_view parts[1] = {"aggregation_strategy"};
    static constexpr std::string_view strategies[] = {"none", "simple", "first", "average", "max"};
    const place where("parameters");
    fields<1> found;
    object parameters;
    std::string_view strategy;
    if (!has(r, PARAMETERS)) return true;
    if (!read_object(r, r.found.values[PARAMETERS], where, &parameters) ||
        !read_fields(r, parameters, where, parts, &found))
        return false;
    if (!found.there[0] || found.values[0].is_null()) return true;
    if (!read_string(r, found.values[0], where, "aggregation_strategy", &strategy)) return false;
    for (size_t s = 0; s < std::size(strategies); s++)
        if (strategy == strategies[s]) wish->ask.aggregation = (uint8_t)(s + 1);
    return wish->ask.aggregation ||
           r.wrong(
               "parameters: aggregation_strategy: expected none, simple, first, average or max, "
               "found '%s'",
               shown(strategy).text);
}

bool read_wish(const reading &r, struct lm_texts_wish *wish) {
    const uint32_t values = r.model->text->values;
    /* Text Embeddings Inference normalises unless it is told not to; OpenAI always does. */
    wish->normalises = r.route == LM_ROUTE_EMBED || r.route == LM_ROUTE_EMBEDDINGS;
    bool normalises = wish->normalises;
    wish->adds_special = true;
    if (r.route == LM_ROUTE_ENTITIES && !read_parameters(r, wish)) return false;
    if (!read_format(r, wish) || !read_prompt(r, wish) || !read_truncation(r, wish) ||
        !read_priority(r, wish) || !read_size(r, DIMENSIONS, &wish->dimensions) ||
        !read_size(r, TOP_N, &wish->top) || !take_flag(r, NORMALIZE, &normalises) ||
        !take_flag(r, RAW_SCORES, &wish->ask.raw) ||
        !take_flag(r, ADD_SPECIAL_TOKENS, &wish->adds_special) ||
        !take_flag(r, RETURN_TEXT, &wish->with_texts) ||
        !take_flag(r, RETURN_DOCUMENTS, &wish->with_texts))
        return false;
    if (wish->dimensions > values)
        return r.wrong("dimensions: expected at most %u, found %u", values, wish->dimensions);
    if (has(r, NORMALIZE) && !normalises && r.model->text->normalises)
        return r.wrong("normalize: expected true: the model's own vectors have length 1");
    if (r.route == LM_ROUTE_EMBED) wish->normalises = normalises;
    return true;
}

/* Whether the model answers what the route asks for. */
bool is_of_route(const reading &r) {
    const struct lm_texts_kind *kind = lm_texts_kind_of(r.model);
    return lm_texts_fit(r.model, r.route) ||
           r.wrong("model '%.64s' %s, which is not what this path is for", r.model->name,
                   kind ? kind->does : "takes tensors, no text");
}

/* ---- as strings ---- */

void add_string(char **at, size_t *bytes, std::string_view text) {
    if (at) {
        const uint32_t length = (uint32_t)text.size();
        memcpy(*at, &length, sizeof length);
        memcpy(*at + sizeof length, text.data(), text.size());
        *at += sizeof length + text.size();
    }
    *bytes += sizeof(uint32_t) + text.size();
}

/* The strings of input 0 or 1, in order: counted, and written where there is a place. */
size_t put_strings(const texts_body &body, uint32_t input, char *to) {
    char **at = to ? &to : nullptr;
    size_t bytes = 0;
    std::string_view text;
    if (body.tokenizer) return put_ids(body, to);
    if (body.query_is_row) add_string(at, &bytes, body.query);
    if (body.is_one) {
        const bool is_query = body.has_query && input == 0;
        add_string(at, &bytes,
                   is_query                        ? body.query
                   : body.has_second && input == 1 ? body.second
                                                   : body.one);
        return bytes;
    }
    for (const element &one : body.list) {
        array pair;
        if (body.has_query && input == 0)
            text = body.query;
        else if (!one.get(pair))
            text = pair.at(input).value_unsafe().get_string().value_unsafe();
        else
            read_text(one, &text);
        add_string(at, &bytes, text);
    }
    return bytes;
}

} // namespace

enum lm_status lm_texts_parse(struct lm_oip_parser *parser, const char *text, size_t bytes,
                              char *why, size_t why_bytes) {
    const complaint say = {why, why_bytes};
    static const finder nothing = [](const char *, size_t, struct lm_oip_data *) { return 0u; };
    parser->texts = {};
    enum lm_status status = parse(parser, nothing, text, bytes, &parser->texts.root, say);
    if (status != LM_STATUS_OK) return status;
    for (simdjson::dom::key_value_pair field : parser->texts.root) {
        if (field.key != "model" || field.value.is_null()) continue;
        if (!read_string(say, field.value, request_place, "model", &parser->texts.model))
            return LM_STATUS_BAD_REQUEST;
    }
    return LM_STATUS_OK;
}

const char *lm_texts_model(const struct lm_oip_parser *parser, size_t *bytes_out) {
    *bytes_out = parser->texts.model.size();
    return parser->texts.model.data();
}

enum lm_status lm_texts_read(struct lm_oip_parser *parser, const struct lm_model *model,
                             uint8_t route, struct lm_oip_request *out, char *why,
                             size_t why_bytes) {
    reading r({why, why_bytes}, parser, model, route);
    lm_oip_request_reset(out);
    if (!is_of_route(r) || !read_fields(r, r.body->root, request_place, names, &r.found) ||
        !read_texts(r, &out->texts) || !read_wish(r, &out->texts))
        return LM_STATUS_BAD_REQUEST;
    const size_t rows = (r.body->is_one ? 1 : r.body->list.size()) + r.body->query_is_row;
    if (rows > model->max_rows) {
        r.wrong("expected at most %u texts, found %zu", model->max_rows, rows);
        return LM_STATUS_TOO_LARGE;
    }
    out->sizes.rows = (uint32_t)rows;
    return LM_STATUS_OK;
}

void lm_texts_bytes(const struct lm_oip_parser *parser, const struct lm_model *model,
                    size_t bytes_out[]) {
    for (uint32_t i = 0; i < model->input_count; i++)
        bytes_out[i] = put_strings(parser->texts, i, nullptr);
}

void lm_texts_write(const struct lm_oip_parser *parser, const struct lm_model *model,
                    void *const inputs[]) {
    for (uint32_t i = 0; i < model->input_count; i++)
        put_strings(parser->texts, i, (char *)inputs[i]);
}
