/* decode.c: see decode.h. */
#include "text/decode.h"

#include <string.h>

#include "text/names.h"
#include "text/utf8.h"

static const uint8_t unreadable[3] = {0xEF, 0xBF, 0xBD}; /* U+FFFD */

static void put(struct lm_text_decoding *d, const void *bytes, size_t count) {
    if (d->out) memcpy(d->out + d->bytes, bytes, count);
    d->bytes += count;
}

/* ---- bytes that are UTF-8 together ---- */

/* Takes a byte. false: it does not go on with what is held, if anything is, nor begins a char. */
static bool takes(struct lm_text_bytes *utf8, uint8_t byte) {
    if (utf8->needed > 0) {
        if (byte < utf8->least || byte > utf8->most) return false;
        utf8->needed--;
        utf8->held = utf8->needed ? utf8->held + 1 : 0;
        utf8->least = 0x80;
        utf8->most = 0xBF;
        return true;
    }
    if (byte < 0x80) return true;
    if (byte < 0xC2 || byte > 0xF4) return false;
    *utf8 = (struct lm_text_bytes){.held = 1,
                                   .needed = byte < 0xE0   ? 1
                                             : byte < 0xF0 ? 2
                                                           : 3,
                                   .least = 0x80,
                                   .most = 0xBF};
    if (byte == 0xE0) utf8->least = 0xA0;
    if (byte == 0xED) utf8->most = 0x9F; /* no surrogates */
    if (byte == 0xF0) utf8->least = 0x90;
    if (byte == 0xF4) utf8->most = 0x8F;
    return true;
}

/* The bytes that are held begin no char after all: U+FFFD stands for all of them. */
static void give_up(struct lm_text_decoding *d) {
    d->bytes -= d->utf8.held;
    d->utf8 = (struct lm_text_bytes){0};
    put(d, unreadable, sizeof unreadable);
}

/* A byte of a text whose unreadable parts are replaced one by one. */
static void put_byte(struct lm_text_decoding *d, uint8_t byte) {
    const bool goes_on = d->utf8.needed > 0;
    bool taken = takes(&d->utf8, byte);
    if (!taken && goes_on) {
        give_up(d);
        taken = takes(&d->utf8, byte);
    }
    if (taken)
        put(d, &byte, 1);
    else
        put(d, unreadable, sizeof unreadable);
}

/* The end of tokens that are bytes each: all of them are a text, or none is. */
static void end_run(struct lm_text_decoding *d) {
    if (d->is_broken || d->utf8.needed > 0) {
        d->bytes = d->run_start;
        for (uint64_t b = 0; b < d->run; b++) put(d, unreadable, sizeof unreadable);
    }
    d->run = 0;
    d->is_broken = false;
    d->utf8 = (struct lm_text_bytes){0};
}

/* ---- tokens, by the decoder ---- */

static uint32_t mark_bytes(uint32_t mark) {
    return mark >> 24 ? 4 : mark >> 16 ? 3 : mark >> 8 ? 2 : mark ? 1 : 0;
}

static bool begins(struct lm_text_name name, const char *with, size_t bytes) {
    return name.bytes >= bytes && memcmp(name.at, with, bytes) == 0;
}

/* Whether a token stands at the word before it: WordPiece's clean-up. No token has a blank. */
static bool stands_close(struct lm_text_name name) {
    static const char *const close[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    for (size_t c = 0; c < sizeof close / sizeof *close; c++)
        if (begins(name, close[c], strlen(close[c]))) return true;
    return false;
}

static void put_wordpiece(struct lm_text_decoding *d, struct lm_text_name name) {
    const struct lm_text_header *header = d->tokenizer->header;
    const uint32_t prefix = mark_bytes(header->mark);
    if (prefix > 0 && d->has_begun && begins(name, (const char *)&header->mark, prefix)) {
        name.at += prefix;
        name.bytes -= prefix;
    } else if (d->has_begun && !(header->flags & LM_TEXT_CLEANS && stands_close(name))) {
        put(d, " ", 1);
    }
    put(d, name.at, name.bytes);
}

/* The byte that a char of a byte-level token stands for; above 255: none. */
static uint32_t byte_of(uint32_t point) {
    static const uint8_t firsts[] = {0x00, 0x7F, 0xAD}, ends[] = {0x21, 0xA1, 0xAE};
    uint32_t number = 256;
    const bool stays = (point >= 0x21 && point < 0x7F) || (point >= 0xA1 && point < 0x100);
    if (stays && point != 0xAD) return point;
    for (size_t part = 0; part < sizeof firsts; part++)
        for (uint32_t byte = firsts[part]; byte < ends[part]; byte++)
            if (number++ == point) return byte;
    return number;
}

/* Names are UTF-8. */
static void put_byte_level(struct lm_text_decoding *d, struct lm_text_name name) {
    const uint8_t *const end = name.at + name.bytes;
    uint32_t length = 1;
    bool is_bytes = true;
    for (const uint8_t *at = name.at; at < end && length > 0; at += length)
        is_bytes = is_bytes && byte_of(lm_utf8_at(at, end, &length)) < 256;
    for (const uint8_t *at = name.at; at < end; at += length) {
        const uint32_t point = is_bytes ? lm_utf8_at(at, end, &length) : 0;
        if (!is_bytes || length == 0) length = 1;
        put_byte(d, is_bytes ? (uint8_t)byte_of(point) : *at);
    }
}

/* Called for each char: whether it is the text's first one, which Strip takes if it is a blank. */
static bool comes_first(struct lm_text_decoding *d) {
    const struct lm_text_header *header = d->tokenizer->header;
    const bool is_first = !d->has_first;
    d->has_first = true;
    return is_first && header->decoder == LM_TEXT_FROM_PARTS &&
           !(header->flags & LM_TEXT_KEEPS_FIRST);
}

/* A token whose marks are blanks. The first one's go, or one of them. */
static void put_marked(struct lm_text_decoding *d, struct lm_text_name name) {
    const struct lm_text_header *header = d->tokenizer->header;
    const uint32_t mark = mark_bytes(header->mark);
    const bool drops = !d->has_begun && header->decoder == LM_TEXT_FROM_METASPACE &&
                       !(header->flags & LM_TEXT_KEEPS_FIRST);
    while (name.bytes > 0) {
        const bool is_mark = mark > 0 && begins(name, (const char *)&header->mark, mark);
        const uint32_t step = is_mark ? mark : 1;
        const uint8_t byte = is_mark ? ' ' : *name.at;
        const bool goes = (is_mark && drops) || (comes_first(d) && byte == ' ');
        if (!goes) put(d, &byte, 1);
        name.at += step;
        name.bytes -= step;
    }
}

/* The byte that is written as <0x41>; above 255: it is another token. */
static uint32_t written_byte(struct lm_text_name name) {
    uint32_t byte = 0;
    if (name.bytes != 6 || !begins(name, "<0x", 3) || name.at[5] != '>') return 256;
    for (uint32_t d = 3; d < 5; d++) {
        const uint8_t digit = name.at[d], lower = digit | 0x20;
        if (digit >= '0' && digit <= '9')
            byte = byte << 4 | (uint32_t)(digit - '0');
        else if (lower >= 'a' && lower <= 'f')
            byte = byte << 4 | (uint32_t)(lower - 'a' + 10);
        else
            return 256;
    }
    return byte;
}

static void put_part(struct lm_text_decoding *d, struct lm_text_name name) {
    const uint32_t number =
        d->tokenizer->header->flags & LM_TEXT_JOINS_BYTES ? written_byte(name) : 256;
    if (number > 255) {
        end_run(d);
        put_marked(d, name);
        return;
    }
    const uint8_t byte = (uint8_t)number;
    if (d->run++ == 0) d->run_start = d->bytes;
    if (!d->is_broken) d->is_broken = !takes(&d->utf8, byte);
    if (!comes_first(d) || byte != ' ') put(d, &byte, 1);
}

bool lm_text_decodes(const struct lm_tokenizer *tokenizer) {
    return tokenizer->header->decoder != LM_TEXT_NO_DECODER;
}

void lm_text_decode(struct lm_text_decoding *d, uint32_t id) {
    const struct lm_text_name name = lm_text_name_of(d->tokenizer, id);
    if (name.bytes == 0 || (d->skips_special && lm_text_is_special(d->tokenizer, id))) return;
    switch ((enum lm_text_decoder)d->tokenizer->header->decoder) {
    case LM_TEXT_JOINED:
        if (d->has_begun) put(d, " ", 1);
        put(d, name.at, name.bytes);
        break;
    case LM_TEXT_FROM_WORDPIECE: put_wordpiece(d, name); break;
    case LM_TEXT_FROM_BYTE_LEVEL: put_byte_level(d, name); break;
    case LM_TEXT_FROM_METASPACE: put_marked(d, name); break;
    case LM_TEXT_FROM_PARTS: put_part(d, name); break;
    case LM_TEXT_NO_DECODER:
    case LM_TEXT_DECODERS: break;
    }
    d->has_begun = true;
}

void lm_text_decode_end(struct lm_text_decoding *d) {
    if (d->run > 0)
        end_run(d);
    else if (d->utf8.needed > 0)
        give_up(d);
}
