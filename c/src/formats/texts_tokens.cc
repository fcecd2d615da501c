/* texts_tokens.cc: see texts_tokens.h. */
#include <algorithm>
#include <cstdio>

#include "formats/json_writer.h"
extern "C" {
#include "base/memory.h"
#include "formats/http_route.h"
#include "formats/texts_tokens.h"
#include "models/text_model.h"
#include "text/names.h"
#include "text/pieces.h"
}

using namespace lm_json;

namespace {

enum {
    TOKEN_BYTES_MAX = 88, /* of a token's fields, but for its text */
    SPECIAL_MAX = 16,     /* around a text */
    NAME_BYTES_MAX = 256  /* of each of these, as JSON; a longer one may not fit */
};

/* ---- memory ---- */

const struct lm_text *prompt_of(const struct lm_texts_answer &answer) {
    const struct lm_text_model *text = answer.model->text;
    const uint32_t prompt =
        answer.wish->ask.prompt ? answer.wish->ask.prompt : text->default_prompt;
    return prompt ? &text->prompts[prompt - 1] : nullptr;
}

/* Of the longest text: its tokens, which are at most as many as its bytes, unless the tokenizer's
 * normalizer makes more chars of one; and the text behind a prompt. */
struct room {
    size_t tokens = 0;
    size_t bytes = 0; /* of all texts, with their prompts */

    explicit room(const struct lm_texts_answer &answer) {
        const struct lm_text *prompt = prompt_of(answer);
        const char *at = (const char *)answer.texts;
        for (uint32_t row = 0; at && row < answer.rows; row++) {
            const size_t length = next_string(at).size() + (prompt ? prompt->bytes : 0);
            tokens = std::max(tokens, length);
            bytes += length;
        }
        tokens += SPECIAL_MAX;
    }
};

struct tokens {
    std::string_view text;
    struct lm_text_room is;

    tokens(const room &of, const struct lm_texts_answer &answer, std::string_view row,
           void *scratch) {
        const struct lm_text *prompt = prompt_of(answer);
        int64_t *ids = (int64_t *)scratch;
        is = {ids, ids + of.tokens, nullptr, (uint32_t)of.tokens, nullptr, nullptr};
        is.places = (struct lm_text_place *)(is.types + of.tokens);
        char *copy = (char *)(is.places + of.tokens);
        is.scratch = copy + lm_align_up(of.tokens, sizeof *ids);
        text = row;
        if (!prompt) return;
        memcpy(copy, prompt->at, prompt->bytes);
        memcpy(copy + prompt->bytes, row.data(), row.size());
        text = {copy, prompt->bytes + row.size()};
    }
};

/* ---- the replies ---- */

/* RoBERTa's post-processor takes blanks at a token's ends out of its place: those that its name
 * has, where bytes have names, or of what is unknown. */
struct lm_text_place trimmed(const struct lm_tokenizer *tokenizer, std::string_view text,
                             struct lm_text_place place, int64_t id) {
    const struct lm_text_header *header = tokenizer->header;
    const bool is_byte_level = header->flags & LM_TEXT_BYTE_LEVEL;
    const std::string_view blanks = is_byte_level ? " " : " \t\n\v\f\r";
    if (!(header->flags & LM_TEXT_TRIMS) || (!is_byte_level && id != header->unknown)) return place;
    while (place.from < place.to && blanks.find(text[place.from]) < blanks.size()) place.from++;
    while (place.to > place.from && blanks.find(text[place.to - 1]) < blanks.size()) place.to--;
    return place;
}

void put_token(writer &w, const struct lm_tokenizer *tokenizer, const tokens &of, uint32_t at) {
    struct lm_text_place place = of.is.places[at];
    const struct lm_text_name name = lm_text_name_of(tokenizer, (uint32_t)of.is.ids[at]);
    const bool is_special = place.from == LM_TEXT_NO_ID;
    if (!is_special) place = trimmed(tokenizer, of.text, place, of.is.ids[at]);
    w.put(at ? ",{\"id\":" : "{\"id\":");
    w.number(of.is.ids[at]);
    w.put(",\"text\":");
    w.string(is_special ? std::string_view((const char *)name.at, name.bytes)
                        : of.text.substr(place.from, place.to - place.from));
    if (is_special) return w.put(",\"special\":true,\"start\":null,\"stop\":null}");
    w.put(",\"special\":false,\"start\":");
    w.number(place.from);
    w.put(",\"stop\":");
    w.number(place.to);
    w.put("}");
}

uint32_t encode(const struct lm_texts_answer &answer, const tokens &of) {
    const struct lm_tokenizer *tokenizer = &answer.model->text->tokenizer;
    if (answer.wish->adds_special)
        return lm_text_encode(tokenizer, {of.text.data(), of.text.size()}, {nullptr, 0},
                              of.is.capacity, LM_TEXT_CUT_NOTHING, &of.is);
    const struct lm_text_out out = {of.is.ids, of.is.places,   of.is.capacity,
                                    0,         of.is.capacity, of.is.scratch};
    const uint32_t count = lm_text_pieces(tokenizer, of.text.data(), of.text.size(), &out);
    return count > of.is.capacity && count < LM_TEXT_COUNT_MAX ? LM_TEXT_TOO_LONG : count;
}

/* false: a text cannot be taken, with a sentence. */
bool put_tokens(writer &w, const struct lm_texts_answer &answer, void *scratch, char *why,
                size_t why_bytes) {
    const room space(answer);
    const char *at = (const char *)answer.texts;
    w.put("[");
    for (uint32_t row = 0; row < answer.rows && !w.full; row++) {
        const tokens of(space, answer, next_string(at), scratch);
        const uint32_t count = encode(answer, of);
        if (count >= LM_TEXT_COUNT_MAX) {
            snprintf(why, why_bytes, "text %u: expected %s", row,
                     count == LM_TEXT_NO_UTF8 ? "UTF-8" : "at most as many tokens as bytes");
            return false;
        }
        w.put(row ? ",[" : "[");
        for (uint32_t t = 0; t < count && !w.full; t++)
            put_token(w, &answer.model->text->tokenizer, of, t);
        w.put("]");
    }
    w.put("]");
    return true;
}

/* The texts that the request's ids became when it was read. */
void put_texts(writer &w, const struct lm_texts_answer &answer) {
    const char *at = (const char *)answer.texts;
    w.put("[");
    for (uint32_t row = 0; row < answer.rows && !w.full; row++) {
        if (row) w.put(",");
        w.string(next_string(at));
    }
    w.put("]");
}

} // namespace

bool lm_texts_tokens_bytes_max(const struct lm_texts_answer *answer, size_t *json_bytes_out,
                               size_t *scratch_bytes_out) {
    const struct lm_text_model *text = answer->model->text;
    const room space(*answer);
    bound json = {2, false}, scratch = {lm_text_scratch_bytes(&text->tokenizer, true), false};
    json.add(space.bytes, LM_JSON_ESCAPE_MAX);
    json.add(answer->rows, 4);
    if (answer->route == LM_ROUTE_TOKENIZE) {
        json.add(space.bytes + (size_t)answer->rows * SPECIAL_MAX, TOKEN_BYTES_MAX);
        json.add(answer->rows, SPECIAL_MAX * (size_t)NAME_BYTES_MAX);
    }
    scratch.add(space.tokens, 2 * sizeof(int64_t) + sizeof(struct lm_text_place) + 1);
    scratch.add(1, sizeof(int64_t));
    *json_bytes_out = json.bytes;
    *scratch_bytes_out = scratch.bytes;
    return !json.overflows && !scratch.overflows;
}

enum lm_status lm_texts_tokens(const struct lm_texts_answer *answer, const struct lm_oip_room *room,
                               size_t *bytes_out, char *why, size_t why_bytes) {
    writer w = {room->json, room->json + room->json_bytes, false};
    if (answer->route == LM_ROUTE_DECODE)
        put_texts(w, *answer);
    else if (!put_tokens(w, *answer, room->scratch, why, why_bytes))
        return LM_STATUS_BAD_REQUEST;
    *bytes_out = (size_t)(w.at - room->json);
    if (!w.full) return LM_STATUS_OK;
    snprintf(why, why_bytes, "the reply is too large: it does not fit %zu bytes", room->json_bytes);
    return LM_STATUS_TOO_LARGE;
}
