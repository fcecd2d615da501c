/* held.c: see held.h. */
#include "flow/held.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomics.h"
#include "base/error.h"

enum { NO_PAGE = UINT32_MAX, TRIM_FROM = 256 /* pages */ };

int lm_held_open(struct lm_held *held, uint32_t connections) {
    uint32_t pages = connections < LM_HELD_PAGES_MAX ? connections : LM_HELD_PAGES_MAX;
    /* Parsers may look a cache line ahead. */
    size_t bytes = (size_t)pages * LM_HEADER_BUFFER_BYTES + LM_CACHE_LINE;
    *held = (struct lm_held){.capacity = pages, .free_head = NO_PAGE};
    int code = lm_mapping_reserve(&held->memory, bytes);
    if (code) return code;
    (void)madvise(held->memory.base, held->memory.bytes, MADV_NOHUGEPAGE); /* a page at a time */
    held->owners = calloc(pages, sizeof *held->owners);
    if (!held->owners)
        return lm_error(LUMEN_E_NOMEM, "no memory for a table of %u connections", connections);
    return 0;
}

void lm_held_close(struct lm_held *held) {
    lm_mapping_close(&held->memory);
    free(held->owners);
    *held = (struct lm_held){0};
}

int32_t lm_held_take(struct lm_held *held, uint32_t connection) {
    uint32_t page = held->free_head;
    if (page == NO_PAGE && held->used == held->capacity) return -1;
    if (page == NO_PAGE) {
        page = held->used++;
    } else {
        held->free_head = held->owners[page];
    }
    held->owners[page] = connection;
    held->taken++;
    return (int32_t)page + LM_HEADER_BUFFERS;
}

int32_t lm_held_keep(struct lm_held *held, uint32_t connection, const uint8_t *bytes,
                     uint16_t count) {
    const int32_t buffer = lm_held_take(held, connection);
    if (buffer >= 0) memcpy(lm_held_bytes(held, buffer), bytes, count);
    return buffer;
}

bool lm_held_next(struct lm_held *held, uint32_t *connection_out, int32_t *buffer_out) {
    while (held->at < held->used) {
        uint32_t page = held->at++;
        if (held->owners[page] == NO_PAGE) continue;
        /* Of a free page the word is another page's number, and never more than a connection's. */
        *connection_out = held->owners[page];
        *buffer_out = (int32_t)page + LM_HEADER_BUFFERS;
        return true;
    }
    held->at = 0;
    return false;
}

void lm_held_trim(struct lm_held *held) {
    if (held->taken > 0 || held->used < TRIM_FROM) return;
    lm_mapping_forget(&held->memory, 0, (size_t)held->used * LM_HEADER_BUFFER_BYTES);
    held->used = 0;
    held->free_head = NO_PAGE;
}
