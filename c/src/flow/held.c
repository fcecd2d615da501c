/* held.c: see held.h. */
#include "flow/held.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "flow/io.h"

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

bool lm_held_keep(struct lm_io *io, struct lm_connection *connection) {
    struct lm_held *held = &io->held;
    int32_t buffer = connection->buffer;
    uint16_t left = (uint16_t)(connection->buffer_end - connection->buffer_at);
    if (lm_held_is_page(buffer)) return true;
    uint32_t page = held->free_head;
    if (page == NO_PAGE && held->used == held->capacity) return false;
    if (page == NO_PAGE) {
        page = held->used++;
    } else {
        held->free_head = held->owners[page];
    }
    held->owners[page] = connection->index;
    held->taken++;
    connection->buffer = (int32_t)page + LM_HEADER_BUFFERS;
    memcpy(lm_held_bytes(held, connection->buffer),
           lm_ring_buffer(io->ring, buffer) + connection->buffer_at, left);
    connection->buffer_at = 0;
    connection->buffer_end = left;
    lm_io_buffer_return(io, buffer);
    return true;
}

uint32_t lm_held_next(struct lm_held *held, const struct lm_connection *connections) {
    while (held->at < held->used) {
        uint32_t page = held->at++, owner = held->owners[page];
        /* Of a free page the word is another page's number, and never more than a connection's. */
        if (owner != NO_PAGE && connections[owner].buffer == (int32_t)page + LM_HEADER_BUFFERS)
            return owner;
    }
    held->at = 0;
    return LM_NO_CONNECTION;
}

void lm_held_trim(struct lm_held *held) {
    if (held->taken > 0 || held->used < TRIM_FROM) return;
    (void)madvise(held->memory.base, (size_t)held->used * LM_HEADER_BUFFER_BYTES, MADV_DONTNEED);
    held->used = 0;
    held->free_head = NO_PAGE;
}
