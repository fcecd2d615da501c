/* pieces.c: see pieces.h. Added tokens, and the segments between them. */
#include "text/pieces.h"

#include "base/memory.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/stages.h"
#include "text/unigram.h"
#include "text/utf8.h"
#include "text/wordpiece.h"

/* ---- segments ---- */

struct segments {
    struct lm_text_reading reading;
    const uint8_t *start, *at, *end;
    const uint8_t *looked; /* up to here blanks are known to stay */
    bool is_open;          /* a segment has begun */
};

static void begin(struct segments *text) {
    text->is_open = true;
    text->reading.is_first = text->at == text->start;
    if (!text->reading.is_direct) lm_text_stages_begin(&text->reading);
}

static void end(struct segments *text) {
    if (text->reading.is_direct)
        lm_text_direct_end(&text->reading);
    else if (text->is_open)
        lm_text_stages_end(&text->reading);
    text->is_open = false;
}

/* Takes an added token of `bytes` bytes; false: words beside hide it, and its bytes are text. */
static bool take_added(struct segments *text, const struct lm_text_added *added, uint32_t bytes) {
    const struct lm_tokenizer *tokenizer = text->reading.tokenizer;
    const uint8_t *from = text->at, *to = text->at + bytes;
    if (added->flags & LM_TEXT_SINGLE_WORD &&
        lm_text_hides(tokenizer, text->start, text->at, bytes, text->end))
        return false;
    end(text);
    if (added->flags & LM_TEXT_RSTRIPS) to += lm_text_blanks(tokenizer, to, text->end);
    lm_text_push(&text->reading, added->id, (uint32_t)(from - text->start),
                 (uint32_t)(to - text->start));
    text->at = text->looked = to;
    return true;
}

/* Skips blanks that go: before a token that takes those on its left, or at a segment's ends.
 * Returns whether it did. */
static bool skip_blanks(struct segments *text) {
    const struct lm_tokenizer *tokenizer = text->reading.tokenizer;
    const uint32_t flags = tokenizer->header->flags;
    if (text->at < text->looked) return false;
    const uint32_t blanks = lm_text_blanks(tokenizer, text->at, text->end);
    const uint8_t *behind = text->at + blanks;
    struct lm_text_added added = {0, 0};
    if (!blanks) return false;
    text->looked = behind;
    uint32_t bytes =
        behind < text->end ? lm_text_find_added(tokenizer, 0, behind, text->end, &added) : 0;
    if (bytes && added.flags & LM_TEXT_SINGLE_WORD &&
        lm_text_hides(tokenizer, text->start, behind, bytes, text->end))
        bytes = 0;
    const bool goes = (bytes && added.flags & LM_TEXT_LSTRIPS) ||
                      (flags & LM_TEXT_STRIPS_LEFT && !text->is_open) ||
                      (flags & LM_TEXT_STRIPS_RIGHT && (bytes || behind == text->end));
    if (goes) text->at = behind;
    return goes;
}

/* Reads at least `bytes` bytes as text, whatever tokens they hold. False: this is no UTF-8. */
static bool read_chars(struct segments *text, uint32_t bytes) {
    const uint8_t *behind = text->at + bytes;
    while (text->reading.is_direct && text->at < behind) {
        text->at = lm_text_direct(&text->reading, text->at, text->end);
        if (!text->at) return false;
    }
    while (text->at < behind) {
        uint32_t length;
        const uint32_t point = lm_utf8_at(text->at, text->end, &length);
        if (!length) return false;
        if (!text->is_open) begin(text);
        const uint32_t from = (uint32_t)(text->at - text->start);
        lm_text_stages_put(&text->reading, (struct lm_text_char){point, from, from + length});
        text->at += length;
    }
    return true;
}

static bool read_text(struct segments *text) {
    const struct lm_tokenizer *tokenizer = text->reading.tokenizer;
    const bool may_skip = tokenizer->header->flags & LM_TEXT_SKIPS;
    while (text->at < text->end && text->reading.count <= text->reading.out->most) {
        struct lm_text_added added;
        if (may_skip && skip_blanks(text)) continue;
        const uint32_t bytes = lm_text_find_added(tokenizer, 0, text->at, text->end, &added);
        if (bytes && take_added(text, &added, bytes)) continue;
        if (!read_chars(text, bytes ? bytes : 1)) return false;
    }
    end(text);
    return true;
}

/* ---- a text ---- */

static size_t window_bytes(uint32_t window, bool has_places) {
    const size_t all = LM_TEXT_START + (size_t)window + LM_TEXT_WINDOW_SPARE;
    return lm_align_up(all, 8) + (has_places ? 2 * all * sizeof(uint32_t) : 0);
}

size_t lm_text_scratch_bytes(const struct lm_tokenizer *tokenizer, bool has_places) {
    const struct lm_text_header *header = tokenizer->header;
    if (header->flags & LM_TEXT_DIRECT && !has_places) return 0;
    size_t room = 0;
    if (header->model == LM_TEXT_UNIGRAM) room = lm_text_unigram_room(header->window);
    if (header->model == LM_TEXT_BPE) room = lm_text_bpe_room(header->window);
    return lm_align_up(window_bytes(header->window, has_places), 8) + room;
}

static void lay_out(struct lm_text_reading *reading, uint8_t *scratch) {
    struct lm_text_window *window = &reading->window;
    const bool has_places = reading->out->places != NULL;
    const uint32_t capacity = reading->tokenizer->header->window;
    const size_t all = LM_TEXT_START + (size_t)capacity + LM_TEXT_WINDOW_SPARE;
    *window = (struct lm_text_window){.bytes = scratch, .capacity = LM_TEXT_START + capacity};
    if (has_places) {
        window->from = (uint32_t *)(void *)(scratch + lm_align_up(all, 8));
        window->to = window->from + all;
    }
    reading->room = scratch + lm_align_up(window_bytes(capacity, has_places), 8);
}

uint32_t lm_text_pieces(const struct lm_tokenizer *tokenizer, const char *text, size_t bytes,
                        const struct lm_text_out *out) {
    struct segments segments; /* most of it is set where it is used */
    segments.reading.tokenizer = tokenizer;
    segments.reading.out = out;
    segments.reading.count = 0;
    segments.reading.is_direct = tokenizer->header->flags & LM_TEXT_DIRECT && !out->places;
    segments.start = segments.at = segments.looked = (const uint8_t *)text;
    segments.end = segments.start + bytes;
    segments.is_open = false;
    segments.reading.window.from = NULL;
    if (segments.reading.is_direct)
        segments.reading.word.used = segments.reading.word.chars = segments.reading.word.marks = 0;
    else
        lay_out(&segments.reading, out->scratch);
    return read_text(&segments) ? segments.reading.count : LM_TEXT_NO_UTF8;
}
