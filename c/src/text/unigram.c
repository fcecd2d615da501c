/* unigram.c: see unigram.h. */
#include "text/unigram.h"

#include "text/utf8.h"

/* For each place in a piece: the best way to it. */
struct best {
    double score;
    uint32_t id, from; /* the last token; LM_TEXT_NO_ID in `from`: there is no way yet */
};

size_t lm_text_unigram_room(uint32_t window) {
    const size_t places = (size_t)window + LM_TEXT_WINDOW_SPARE;
    return places * (sizeof(struct best) + sizeof(uint32_t));
}

static void offer(struct best *to, double score, uint32_t id, uint32_t from) {
    if (to->from != LM_TEXT_NO_ID && score <= to->score) return;
    *to = (struct best){score, id, from};
}

static void find_best(const struct lm_tokenizer *tokenizer, const uint8_t *piece, uint32_t bytes,
                      struct best *best) {
    const struct lm_text_header *header = tokenizer->header;
    for (uint32_t b = 0; b <= bytes; b++) best[b] = (struct best){0, 0, LM_TEXT_NO_ID};
    for (uint32_t at = 0, length; at < bytes; at += length) {
        const double before = best[at].score;
        bool is_known = false; /* this char, as a token of its own */
        uint32_t node = header->root;
        lm_utf8_at(piece + at, piece + bytes, &length);
        for (uint32_t b = at; b < bytes; b++) {
            node = lm_text_child_of(tokenizer, node, piece[b]);
            if (!node) break;
            if (!tokenizer->values[node]) continue;
            const uint32_t id = tokenizer->values[node] - 1;
            offer(&best[b + 1], tokenizer->scores[id] + before, id, at);
            is_known = is_known || b + 1 - at == length;
        }
        if (!is_known)
            offer(&best[at + length], header->unknown_score + before, header->unknown, at);
    }
}

/* Neighbours that are unknown are one token, or their bytes; the name of what is unknown is not. */
static void push_unknown(struct lm_text_reading *reading, uint32_t from, uint32_t to) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    const uint8_t *window = reading->window.bytes;
    bool has_bytes = tokenizer->header->flags & LM_TEXT_BYTE_FALLBACK &&
                     lm_text_token_of(tokenizer, window + from, to - from) == LM_TEXT_NO_ID;
    for (uint32_t b = from; b < to && has_bytes; b++)
        has_bytes = tokenizer->bytes[window[b]] != LM_TEXT_NO_ID;
    if (!has_bytes) {
        lm_text_push_bytes(reading, tokenizer->header->unknown, from, to);
        return;
    }
    for (uint32_t b = from; b < to; b++)
        lm_text_push_bytes(reading, tokenizer->bytes[window[b]], from, to);
}

void lm_text_unigram(struct lm_text_reading *reading, uint32_t from, uint32_t to) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    const struct lm_text_header *header = tokenizer->header;
    const uint32_t bytes = to - from;
    struct best *best = reading->room;
    uint32_t *next = (uint32_t *)(void *)(best + bytes + 1);
    find_best(tokenizer, reading->window.bytes + from, bytes, best);
    for (uint32_t at = bytes; at > 0; at = best[at].from) next[best[at].from] = at;
    for (uint32_t at = 0, end; at < bytes; at = end) {
        end = next[at];
        if (best[end].id != header->unknown) {
            lm_text_push_bytes(reading, best[end].id, from + at, from + end);
            continue;
        }
        while (end < bytes && best[next[end]].id == header->unknown) end = next[end];
        push_unknown(reading, from + at, from + end);
    }
}
