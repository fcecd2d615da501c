/* text_entities.c: see text_entities.h. */
#include "models/text_entities.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/limits.h"
#include "base/memory.h"
#include "lumen.h"
#include "text/names.h"
#include "text/utf8.h"

enum {
    LABELS_MAX = 4096,
    ENTITY_BYTES = 192, /* of JSON, beside its label and its word */
};

/* ---- labels ---- */

struct label {
    const char *at;
    uint32_t bytes;
};

/* A label without its B- or I-. */
static struct label tag_of(const struct lm_labels *names, uint32_t label) {
    struct label found = {NULL, 0};
    found.at = lm_labels_get(names, label, &found.bytes);
    if (found.bytes > 2 && found.at[1] == '-' && (found.at[0] == 'B' || found.at[0] == 'I')) {
        found.at += 2;
        found.bytes -= 2;
    }
    return found;
}

static bool is_same(struct label one, struct label other) {
    return one.bytes == other.bytes && memcmp(one.at, other.at, one.bytes) == 0;
}

int lm_text_entities_open(struct lm_text_entities *entities, const struct lm_labels *names,
                          uint32_t aggregation, uint32_t tokens_max) {
    const uint32_t count = names->count;
    if (count < 1 || count > LABELS_MAX)
        return lm_error(LUMEN_E_INVALID, "text: labels: expected 1 to %d of them, found %u",
                        LABELS_MAX, count);
    *entities = (struct lm_text_entities){
        .names = names,
        .labels = calloc(count, sizeof *entities->labels),
        .aggregation = aggregation,
        .tokens_max = tokens_max,
        .json_bytes = tokens_max * (ENTITY_BYTES + (size_t)names->bytes_max * LM_JSON_ESCAPE_MAX) +
                      (size_t)LM_STRING_BYTES_MAX * LM_JSON_ESCAPE_MAX + ENTITY_BYTES};
    if (!entities->labels) return lm_error(LUMEN_E_NOMEM, "no memory for %u labels", count);
    for (uint32_t l = 0; l < count; l++) {
        const struct label tag = tag_of(names, l);
        uint32_t same = 0, bytes;
        const char *whole = lm_labels_get(names, l, &bytes);
        while (!is_same(tag_of(names, same), tag)) same++;
        entities->labels[l] =
            (struct lm_entity_label){.tag = same,
                                     .begins = bytes > 2 && memcmp(whole, "B-", 2) == 0,
                                     .is_none = bytes == 1 && *whole == 'O'};
    }
    return 0;
}

void lm_text_entities_close(struct lm_text_entities *entities) {
    free(entities->labels);
    entities->labels = NULL;
}

/* ---- a room ---- */

struct room {
    struct lm_text_place *places;
    struct lm_entity_token *tokens;
    struct lm_entity *entities;
    uint8_t *json;
};

static struct room lay_out(const struct lm_text_entities *entities, void *memory) {
    const size_t most = entities->tokens_max;
    struct room room = {.places = memory};
    room.tokens = (struct lm_entity_token *)(room.places + most);
    room.entities = (struct lm_entity *)(room.tokens + most);
    room.json = (uint8_t *)(room.entities + most);
    return room;
}

size_t lm_text_entities_room(const struct lm_text_entities *entities) {
    const size_t each =
        sizeof(struct lm_text_place) + sizeof(struct lm_entity_token) + sizeof(struct lm_entity);
    return lm_align_up(entities->tokens_max * each + entities->json_bytes, 8);
}

struct lm_text_place *lm_text_entities_places(void *room) {
    return room;
}

/* ---- tokens ---- */

/* Whether a token goes on with the word of the one before: WordPiece's by its name, which is longer
 * than its text; others where no blank is before it. */
static bool goes_on(const struct lm_tokenizer *tokenizer, const uint8_t *text, size_t bytes,
                    struct lm_text_place place, uint32_t id) {
    const struct lm_text_name name = lm_text_name_of(tokenizer, id);
    if (id == tokenizer->header->unknown) return false;
    if (tokenizer->header->model == LM_TEXT_WORDPIECE)
        return lm_utf8_count(name.at, name.bytes) !=
               lm_utf8_count(text + place.from, place.to - place.from);
    return place.from > 0 && place.from < bytes && text[place.from - 1] != ' ' &&
           text[place.from] != ' ';
}

/* Without the blanks at its ends. */
static struct lm_text_place trimmed(const uint8_t *text, struct lm_text_place place) {
    while (place.from < place.to && text[place.from] <= ' ') place.from++;
    while (place.to > place.from && text[place.to - 1] <= ' ') place.to--;
    return place;
}

/* The tokens that are of the text, and their scores, which move together. */
static uint32_t take_tokens(const struct lm_text_entities *entities,
                            const struct lm_tokenizer *tokenizer, struct lm_text whole,
                            const int64_t *ids, uint32_t tokens, float *scores,
                            const struct room *room) {
    const size_t labels = entities->names->count;
    const uint8_t *text = (const uint8_t *)whole.at;
    uint32_t count = 0;
    for (uint32_t t = 0; t < tokens; t++) {
        const struct lm_text_place place = room->places[t];
        if (place.from == LM_TEXT_NO_ID) continue;
        memmove(scores + count * labels, scores + t * labels, labels * sizeof *scores);
        room->tokens[count++] = (struct lm_entity_token){
            trimmed(text, place), t,
            goes_on(tokenizer, text, whole.bytes, place, (uint32_t)ids[t])};
    }
    return count;
}

/* ---- JSON ---- */

struct writing {
    char *at, *end;
};

static void put(struct writing *w, const char *text) {
    const size_t bytes = strlen(text);
    if (bytes > (size_t)(w->end - w->at)) return;
    memcpy(w->at, text, bytes);
    w->at += bytes;
}

static void put_string(struct writing *w, const char *text, size_t bytes) {
    size_t written = 0;
    put(w, "\"");
    (void)lm_json_escape(text, bytes, w->at, (size_t)(w->end - w->at), &written);
    w->at += written;
    put(w, "\"");
}

static void put_number(struct writing *w, const char *name, uint32_t value) {
    char text[64];
    snprintf(text, sizeof text, ",\"%s\":%u", name, value);
    put(w, text);
}

/* The fewest digits that are this number again. */
static void put_score(struct writing *w, float score) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)score);
        if (strtof(text, NULL) == score) break;
    }
    put(w, ",\"score\":");
    put(w, text);
}

/* Where a place is in code points: what was counted so far. */
struct counted {
    const uint8_t *text;
    uint32_t bytes, chars;
};

static uint32_t chars_to(struct counted *counted, uint32_t byte) {
    if (byte < counted->bytes) counted->bytes = counted->chars = 0;
    counted->chars += lm_utf8_count(counted->text + counted->bytes, byte - counted->bytes);
    counted->bytes = byte;
    return counted->chars;
}

static void put_entity(struct writing *w, const struct lm_text_entities *entities,
                       const struct lm_tokenizer *tokenizer, const struct lm_entity *entity,
                       const int64_t *ids, bool is_token, struct counted *counted) {
    struct label label = tag_of(entities->names, entity->label);
    const uint32_t id = (uint32_t)ids[entity->index];
    const struct lm_text_name name = lm_text_name_of(tokenizer, id);
    const struct lm_text_place place = entity->place;
    if (is_token) label.at = lm_labels_get(entities->names, entity->label, &label.bytes);
    put(w, is_token ? "{\"entity\":" : "{\"entity_group\":");
    put_string(w, label.at, label.bytes);
    put_score(w, entity->score);
    if (is_token) put_number(w, "index", entity->index);
    put(w, ",\"word\":");
    if (is_token && id != tokenizer->header->unknown)
        put_string(w, (const char *)name.at, name.bytes);
    else
        put_string(w, (const char *)counted->text + place.from, place.to - place.from);
    put_number(w, "start", chars_to(counted, place.from));
    put_number(w, "end", chars_to(counted, place.to));
    put(w, "}");
}

const uint8_t *lm_text_entities_write(const struct lm_text_entities *entities,
                                      const struct lm_tokenizer *tokenizer, struct lm_text text,
                                      const int64_t *ids, uint32_t tokens, float *scores,
                                      uint32_t aggregation, void *memory) {
    const struct room room = lay_out(entities, memory);
    const uint32_t strategy = aggregation ? aggregation - 1 : entities->aggregation;
    const uint8_t *at = (const uint8_t *)text.at;
    const uint32_t count = take_tokens(entities, tokenizer, text, ids, tokens, scores, &room);
    const uint32_t found = lm_entities_find(entities->labels, entities->names->count, strategy,
                                            room.tokens, count, scores, room.entities);
    struct counted counted = {at, 0, 0};
    struct writing w = {(char *)room.json + sizeof(uint32_t),
                        (char *)room.json + entities->json_bytes};
    put(&w, "[");
    for (uint32_t e = 0; e < found; e++) {
        if (e) put(&w, ",");
        put_entity(&w, entities, tokenizer, &room.entities[e], ids,
                   strategy == LUMEN_AGGREGATE_NONE, &counted);
    }
    put(&w, "]");
    const uint32_t bytes = (uint32_t)(w.at - (char *)room.json - (ptrdiff_t)sizeof bytes);
    memcpy(room.json, &bytes, sizeof bytes); /* little-endian, as we are */
    return room.json;
}
