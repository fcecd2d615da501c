/* handle.c: a tokenizer for Python (lumen.h): commands and tests. Any thread. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lumen.h"
#include "text/decode.h"
#include "text/encode.h"
#include "text/pieces.h"

struct lumen_tokenizer {
    struct lm_tokenizer tokenizer;
    uint64_t file[]; /* a copy, aligned */
};

int lumen_tokenizer_open(const void *file, uint64_t bytes, lumen_tokenizer **handle_out) {
    lumen_tokenizer *handle = malloc(sizeof *handle + bytes);
    *handle_out = NULL;
    if (!handle) return lm_error(LUMEN_E_NOMEM, "no memory for a tokenizer");
    memcpy(handle->file, file, bytes);
    int code = lm_tokenizer_open(&handle->tokenizer, handle->file, bytes);
    if (code) {
        free(handle);
        return code;
    }
    *handle_out = handle;
    return 0;
}

int64_t lumen_tokenizer_encode(const lumen_tokenizer *handle, const char *first,
                               uint64_t first_bytes, const char *second, uint64_t second_bytes,
                               int64_t *ids, int64_t *types, uint32_t capacity, uint32_t cut) {
    if (cut > LM_TEXT_CUT_START)
        return lm_error(LUMEN_E_INVALID, "cut: expected 0 to %d, found %u", LM_TEXT_CUT_START, cut);
    const size_t rest_bytes = (capacity + 1) * sizeof(int64_t);
    int64_t *rest = malloc(rest_bytes + lm_text_scratch_bytes(&handle->tokenizer, false));
    if (!rest) return lm_error(LUMEN_E_NOMEM, "no memory for %u tokens", capacity);
    const struct lm_text_room room = {ids, types, rest, capacity, rest + capacity + 1, NULL};
    uint32_t count = lm_text_encode(&handle->tokenizer, (struct lm_text){first, first_bytes},
                                    (struct lm_text){second, second_bytes}, capacity,
                                    (enum lm_text_cut)cut, &room);
    free(rest);
    if (count == LM_TEXT_NO_UTF8) return lm_error(LUMEN_E_INVALID, "the text is no UTF-8");
    if (count == LM_TEXT_TOO_LONG)
        return lm_error(LUMEN_E_INVALID, "expected at most %u tokens, found more", capacity);
    if (count == LM_TEXT_TOO_SMALL)
        return lm_error(LUMEN_E_INVALID, "%u tokens are no more than the special ones", capacity);
    return count;
}

int64_t lumen_tokenizer_decode(const lumen_tokenizer *handle, const uint32_t *ids, uint64_t count,
                               uint32_t skips_special, char *out, uint64_t capacity) {
    const struct lm_tokenizer *tokenizer = &handle->tokenizer;
    struct lm_text_decoding counted = {.tokenizer = tokenizer, .skips_special = skips_special != 0};
    if (!lm_text_decodes(tokenizer))
        return lm_error(LUMEN_E_UNSUPPORTED, "this tokenizer's decoder is not implemented");
    for (uint64_t i = 0; i < count; i++) {
        if (ids[i] >= tokenizer->header->vocabulary)
            return lm_error(LUMEN_E_INVALID, "expected ids below %u, found %u",
                            tokenizer->header->vocabulary, ids[i]);
        lm_text_decode(&counted, ids[i]);
    }
    lm_text_decode_end(&counted);
    if (counted.bytes > capacity) return (int64_t)counted.bytes;
    struct lm_text_decoding written = {
        .tokenizer = tokenizer, .skips_special = skips_special != 0, .out = out};
    for (uint64_t i = 0; i < count; i++) lm_text_decode(&written, ids[i]);
    lm_text_decode_end(&written);
    return (int64_t)written.bytes;
}

void lumen_tokenizer_close(lumen_tokenizer *handle) {
    free(handle);
}
