/* spill.c: see spill.h. */
#include "parts/spill.h"

#include <sys/mman.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/memory.h"

enum { AUTO_SHARE = 4 /* of the memory */ };

_Static_assert(sizeof(struct lm_spill) <= LM_SLOT_ALIGN, "a piece's memory begins behind it");

void lm_spill_open(struct lm_spill_limit *limit, uint64_t bytes_max) {
    limit->bytes_max = bytes_max ? bytes_max : lm_memory_usable() / AUTO_SHARE;
    lm_store_relaxed_u64(&limit->bytes, 0); /* relaxed: no other thread runs */
}

/* relaxed, here and below: a count, which says nothing of other memory. */
static bool charge(struct lm_spill_limit *limit, uint64_t bytes) {
    uint64_t before = lm_count_relaxed_u64(&limit->bytes, bytes); /* relaxed: a count */
    if (bytes <= limit->bytes_max && before <= limit->bytes_max - bytes) return true;
    (void)lm_sub_relaxed_u64(&limit->bytes, bytes); /* relaxed: a count */
    return false;
}

int lm_spill_take(struct lm_spill_limit *limit, struct lm_spill **chain, size_t bytes,
                  void **memory_out) {
    struct lm_mapping mapping;
    if (bytes > limit->bytes_max) {
        return lm_error(LUMEN_E_ORT,
                        "the answer has %zu bytes more than its slot holds, and "
                        "server.spill_bytes allows %llu: raise that",
                        bytes, (unsigned long long)limit->bytes_max);
    }
    /* Addresses alone: pages come when they are written. */
    int code = lm_mapping_reserve(&mapping, bytes + LM_SLOT_ALIGN);
    if (code) return code;
    if (!charge(limit, mapping.bytes)) {
        lm_mapping_close(&mapping);
        return lm_error(LUMEN_E_NOMEM,
                        "the answer has %zu bytes more than its slot holds, and other answers "
                        "have what server.spill_bytes allows (%llu): ask again",
                        bytes, (unsigned long long)limit->bytes_max);
    }
    struct lm_spill *piece = mapping.base;
    *piece = (struct lm_spill){.next = *chain, .bytes = mapping.bytes};
    *chain = piece;
    *memory_out = (uint8_t *)mapping.base + LM_SLOT_ALIGN;
    return 0;
}

bool lm_spill_is_short(const struct lm_spill_limit *limit) {
    /* relaxed: a count */
    return lm_load_relaxed_u64(&limit->bytes) > limit->bytes_max - limit->bytes_max / 4;
}

void lm_spill_join(struct lm_spill **chain, struct lm_spill **other) {
    struct lm_spill *last = *other;
    if (!last) return;
    while (last->next) last = last->next;
    last->next = *chain;
    *chain = *other;
    *other = NULL;
}

void lm_spill_unmap(struct lm_spill_limit *limit, struct lm_spill **chain) {
    for (size_t left = LM_UNMAP_BYTES; *chain && left > 0;) {
        struct lm_spill *piece = *chain;
        size_t part = piece->bytes < left ? piece->bytes : left;
        uint8_t *from = (uint8_t *)piece + (piece->bytes -= part);
        if (piece->bytes == 0) *chain = piece->next;
        munmap(from, part);
        (void)lm_sub_relaxed_u64(&limit->bytes, part); /* relaxed: a count */
        left -= part;
    }
}

void lm_spill_close(struct lm_spill_limit *limit, struct lm_spill **chain) {
    while (*chain) lm_spill_unmap(limit, chain);
}
