/* http_block.h: where the head, or the JSON before the blobs, of a request that comes in pieces is
 * put together. Each I/O thread has a fixed number of blocks, so a thousand clients that dribble
 * heads cost a fixed amount of memory. I/O thread only.
 */
#ifndef LM_DIALECTS_HTTP_BLOCK_H
#define LM_DIALECTS_HTTP_BLOCK_H

#include "flow/state.h"

struct lm_http_block {
    uint32_t connection; /* LM_NO_CONNECTION: free */
    uint32_t used;       /* bytes */
    uint64_t taken_ns;
    uint16_t next_free;
    char region[LM_SHM_NAME_BYTES_MAX]; /* that is being registered, or the model that is asked for
                                         * (http_demand.h) */
    struct lm_errand *upload;    /* where the body goes that brings a model; NULL: to `bytes` */
    bool holds_shm;              /* the regions of `asked` */
    bool is_kept;                /* by a call, for as long as it lasts (lm_http_block_keep) */
    struct lm_oip_request asked; /* of a request that waits for a slot */
    struct lm_oip_lists lists;
    char bytes[LM_HTTP_HEAD_BYTES_MAX + LM_OIP_PADDING];
};

_Static_assert(LM_HTTP_JSON_BYTES_MAX <= LM_HTTP_HEAD_BYTES_MAX, "a block holds either");

/* One I/O thread's state for HTTP. */
struct lm_http_side {
    struct lm_http_block *blocks;
    struct lm_oip_parser *parser;
    char *draft; /* for the statistics, which are written anew each time */
    size_t draft_bytes;
    struct lm_spill *stats; /* of many models, as they were at stats_ns (http_stats.h); or NULL */
    char *stats_text;
    size_t stats_bytes;
    uint64_t stats_ns;
    uint16_t free_block;
    uint16_t blocks_kept;
    uint16_t blocks_used; /* the first so many have been used; the others are untouched */
};

/* The connection's block, or NULL. */
struct lm_http_block *lm_http_block(struct lm_io *io, const struct lm_connection *connection);
/* NULL: none is free; lm_http_refuse_for_block makes one so. */
struct lm_http_block *lm_http_block_take(struct lm_io *io, struct lm_connection *connection);
void lm_http_block_give(struct lm_io *io, struct lm_connection *connection);

/* The connection's block is its no more, and is nobody's else until it is dropped. `kept` are so
 * for the same client: no more than may be for others. Returns its index; LM_NO_BLOCK: it may not
 * be. */
uint16_t lm_http_block_keep(struct lm_io *io, struct lm_connection *connection, uint32_t kept);
void lm_http_block_drop(struct lm_io *io, uint16_t index);

#endif
