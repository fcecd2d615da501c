/* bpe.c: see bpe.h. */
#include "text/bpe.h"

#include "text/utf8.h"

/* The lowest rank is found in a tree of the ranks, so that a long piece costs n log n. */

/* A token of the piece so far. Those that were joined to the one before are skipped by `next`. */
struct symbol {
    uint32_t id, from, to;
    uint32_t before, next; /* LM_TEXT_NO_ID: there is none */
    uint32_t made;         /* the id of this one and the next together */
};

size_t lm_text_bpe_room(uint32_t window) {
    size_t leaves = 1;
    while (leaves < (size_t)window + LM_TEXT_WINDOW_SPARE) leaves *= 2;
    return ((size_t)window + LM_TEXT_WINDOW_SPARE) * sizeof(struct symbol) +
           2 * leaves * sizeof(uint32_t);
}

struct piece {
    const struct lm_tokenizer *tokenizer;
    struct symbol *symbols;
    uint32_t *tree; /* of ranks: node n has the lower of 2n and 2n + 1 */
    uint32_t count, leaves;
};

static const struct lm_text_merge *find_merge(const struct lm_tokenizer *tokenizer, uint32_t left,
                                              uint32_t right) {
    const uint32_t bits = tokenizer->header->merge_bits, mask = (1u << bits) - 1;
    uint32_t at = (left * 0x9E3779B1u ^ right * 0x85EBCA6Bu) * 0xC2B2AE35u >> (32 - bits);
    for (;; at = (at + 1) & mask) {
        const struct lm_text_merge *merge = &tokenizer->merges[at];
        if (merge->id == LM_TEXT_NO_ID) return NULL;
        if (merge->left == left && merge->right == right) return merge;
    }
}

/* The rank of a symbol and the one behind it. */
static uint32_t look(struct piece *piece, uint32_t s) {
    struct symbol *symbol = &piece->symbols[s];
    if (symbol->next == LM_TEXT_NO_ID) return UINT32_MAX;
    const struct lm_text_merge *merge =
        find_merge(piece->tokenizer, symbol->id, piece->symbols[symbol->next].id);
    if (!merge) return UINT32_MAX;
    symbol->made = merge->id;
    return merge->rank;
}

static void plant(struct piece *piece) {
    piece->leaves = 1;
    while (piece->leaves < piece->count) piece->leaves *= 2;
    uint32_t *leaves = piece->tree + piece->leaves;
    for (uint32_t s = 0; s < piece->leaves; s++)
        leaves[s] = s < piece->count ? look(piece, s) : UINT32_MAX;
    for (uint32_t n = piece->leaves - 1; n > 0; n--)
        piece->tree[n] = piece->tree[2 * n] <= piece->tree[2 * n + 1] ? piece->tree[2 * n]
                                                                      : piece->tree[2 * n + 1];
}

static void set_rank(struct piece *piece, uint32_t s, uint32_t rank) {
    uint32_t n = piece->leaves + s;
    piece->tree[n] = rank;
    for (n /= 2; n > 0; n /= 2)
        piece->tree[n] = piece->tree[2 * n] <= piece->tree[2 * n + 1] ? piece->tree[2 * n]
                                                                      : piece->tree[2 * n + 1];
}

static void merge_all(struct piece *piece) {
    plant(piece);
    while (piece->tree[1] != UINT32_MAX) {
        uint32_t n = 1;
        while (n < piece->leaves) n = piece->tree[2 * n] == piece->tree[n] ? 2 * n : 2 * n + 1;
        const uint32_t s = n - piece->leaves;
        struct symbol *symbol = &piece->symbols[s];
        const uint32_t gone = symbol->next;
        symbol->id = symbol->made;
        symbol->to = piece->symbols[gone].to;
        symbol->next = piece->symbols[gone].next;
        if (symbol->next != LM_TEXT_NO_ID) piece->symbols[symbol->next].before = s;
        set_rank(piece, gone, UINT32_MAX);
        set_rank(piece, s, look(piece, s));
        if (symbol->before != LM_TEXT_NO_ID)
            set_rank(piece, symbol->before, look(piece, symbol->before));
    }
}

static void add(struct piece *piece, uint32_t id, uint32_t from, uint32_t to) {
    piece->symbols[piece->count++] = (struct symbol){.id = id, .from = from, .to = to};
}

/* Chars as the piece begins; what is unknown becomes its bytes, or unknown, or nothing. */
static void add_chars(struct piece *piece, const uint8_t *window, uint32_t from, uint32_t to) {
    const struct lm_text_header *header = piece->tokenizer->header;
    bool was_unknown = false;
    for (uint32_t at = from, length; at < to; at += length) {
        lm_utf8_at(window + at, window + to, &length);
        const uint32_t id = lm_text_token_of(piece->tokenizer, window + at, length);
        const bool fuses = was_unknown && header->flags & LM_TEXT_FUSES_UNKNOWN;
        was_unknown = false;
        if (id != LM_TEXT_NO_ID) {
            add(piece, id, at, at + length);
        } else if (header->flags & LM_TEXT_BYTE_FALLBACK) {
            for (uint32_t b = 0; b < length; b++)
                add(piece, piece->tokenizer->bytes[window[at + b]], at, at + length);
        } else if (header->unknown != LM_TEXT_NO_ID) {
            was_unknown = true;
            if (fuses)
                piece->symbols[piece->count - 1].to = at + length;
            else
                add(piece, header->unknown, at, at + length);
        }
    }
}

static void add_bytes(struct piece *piece, const uint8_t *window, uint32_t from, uint32_t to) {
    for (uint32_t at = from; at < to; at++) {
        const uint32_t id = piece->tokenizer->bytes[window[at]];
        if (id != LM_TEXT_NO_ID) add(piece, id, at, at + 1);
    }
}

void lm_text_bpe(struct lm_text_reading *reading, uint32_t from, uint32_t to) {
    const struct lm_tokenizer *tokenizer = reading->tokenizer;
    const struct lm_text_header *header = tokenizer->header;
    const uint8_t *window = reading->window.bytes;
    if (header->flags & LM_TEXT_IGNORES_MERGES) {
        const uint32_t id = lm_text_token_of(tokenizer, window + from, to - from);
        if (id != LM_TEXT_NO_ID) {
            lm_text_push_bytes(reading, id, from, to);
            return;
        }
    }
    struct piece piece = {.tokenizer = tokenizer, .symbols = reading->room};
    piece.tree = (uint32_t *)(void *)(piece.symbols + (to - from));
    if (header->flags & LM_TEXT_BYTE_LEVEL)
        add_bytes(&piece, window, from, to);
    else
        add_chars(&piece, window, from, to);
    if (piece.count == 0) return;
    for (uint32_t s = 0; s < piece.count; s++) {
        piece.symbols[s].before = s ? s - 1 : LM_TEXT_NO_ID;
        piece.symbols[s].next = s + 1 < piece.count ? s + 1 : LM_TEXT_NO_ID;
    }
    merge_all(&piece);
    for (uint32_t s = 0; s != LM_TEXT_NO_ID; s = piece.symbols[s].next)
        lm_text_push_bytes(reading, piece.symbols[s].id, piece.symbols[s].from,
                           piece.symbols[s].to);
}
