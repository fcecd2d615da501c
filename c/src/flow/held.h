/* held.h: bytes that a connection may not parse yet. I/O thread only.
 *
 * Header buffers are few and for everybody: a connection that kept one while its requests are with
 * the workers, or wait, would keep it from health checks and from all others. So what cannot be
 * parsed in the turn it came in is moved to a page of this store, and the header buffer goes back
 * at once. There is a page for each connection, up to LM_HELD_PAGES_MAX; it costs memory from its
 * first use on. In connection.buffer a page is a number from LM_HEADER_BUFFERS on.
 */
#ifndef LM_FLOW_HELD_H
#define LM_FLOW_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/memory.h"

struct lm_held {
    struct lm_mapping memory;
    uint32_t *owners; /* of each page: its connection, or the next free page */
    uint32_t capacity;
    uint32_t free_head;
    uint32_t used;  /* pages from here on have never been touched */
    uint32_t taken; /* now */
    uint32_t at;    /* where lm_held_next goes on */
};

int lm_held_open(struct lm_held *held, uint32_t connections);
void lm_held_close(struct lm_held *held);
/* A page for a connection, as a buffer's number; -1: there is none left. */
int32_t lm_held_take(struct lm_held *held, uint32_t connection);
/* Copies bytes to a page for a connection. Returns the page's number, as a buffer's; -1: there is
 * no page left. */
int32_t lm_held_keep(struct lm_held *held, uint32_t connection, const uint8_t *bytes,
                     uint16_t count);
/* Each page in turn, with the connection it was taken for: it may have been given back since, which
 * the connection knows. false: that was the last one; the next call begins anew. */
bool lm_held_next(struct lm_held *held, uint32_t *connection_out, int32_t *buffer_out);
/* Gives the memory of many pages back when none is in use. */
void lm_held_trim(struct lm_held *held);

static inline bool lm_held_is_page(int32_t buffer) {
    return buffer >= LM_HEADER_BUFFERS;
}

static inline uint8_t *lm_held_bytes(const struct lm_held *held, int32_t buffer) {
    size_t page = (size_t)(buffer - LM_HEADER_BUFFERS);
    return (uint8_t *)held->memory.base + page * LM_HEADER_BUFFER_BYTES;
}

static inline void lm_held_return(struct lm_held *held, int32_t buffer) {
    uint32_t page = (uint32_t)(buffer - LM_HEADER_BUFFERS);
    held->owners[page] = held->free_head;
    held->free_head = page;
    held->taken--;
}

#endif
