/* out.h: where the tokens of a text go. Of one call, on its thread. */
#ifndef LM_TEXT_OUT_H
#define LM_TEXT_OUT_H

#include <stdint.h>

#define LM_TEXT_NO_UTF8 UINT32_MAX
#define LM_TEXT_COUNT_MAX (UINT32_MAX - 8)

/* Where a token stands in its text, in bytes. */
struct lm_text_place {
    uint32_t from, to;
};

struct lm_text_out {
    int64_t *ids;
    struct lm_text_place *places; /* NULL: nobody asks */
    uint32_t capacity;            /* of each */
    uint32_t skipped;             /* so many tokens at the start are counted only */
    uint32_t most;                /* below LM_TEXT_COUNT_MAX: later tokens need not be counted */
    void *scratch; /* lm_text_scratch_bytes of them, aligned to 8; may be NULL where that is 0 */
};

#endif
