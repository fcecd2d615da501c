/* sequence_table.h: an entry of the table of open sequences, for sequences.c and sequences_open.c
 * alone. The thread that made `state` BUSY owns all of it but the words that are atomic. */
#ifndef LM_MODELS_SEQUENCE_TABLE_H
#define LM_MODELS_SEQUENCE_TABLE_H

#include "models/sequences.h"

enum { LM_SEQUENCE_IS_FREE, LM_SEQUENCE_IS_OPEN, LM_SEQUENCE_IS_BUSY };

struct lm_sequence {
    LM_CACHE_ALIGNED lm_atomic_u64 state; /* LM_SEQUENCE_IS_* */
    lm_atomic_u64 used_ns;                /* when it was last left */
    lm_atomic_u64 owner;                  /* whose it is, or was */
    uint32_t half;                        /* that has its state; a Run makes the other one */
    bool has_values;                      /* ONNX Runtime's values are there, whose it ever is */
};

/* The key of the sequence in the table; never 0. */
uint64_t lm_sequence_key(const struct lm_sequences *sequences, const struct lm_sequence_ask *ask);
/* Its id, then the states of either half. */
static inline OrtValue **lm_sequence_values(const struct lm_sequences *sequences, uint32_t at) {
    return sequences->values + (size_t)at * (1 + 2 * sequences->state_count);
}
static inline uint8_t *lm_sequence_memory(const struct lm_sequences *sequences, uint32_t at) {
    return (uint8_t *)sequences->memory.base +
           at * (sequences->id_bytes + 2 * sequences->half_bytes);
}
/* Its owner: wraps its memory once, when it is first used, and for the first Run of a sequence
 * copies the id to a tensor of strings. Returns 0 or LUMEN_E_ORT. */
int lm_sequence_hold(struct lm_sequences *sequences, const struct lm_ort *ort, uint32_t at,
                     bool is_new);

#endif
