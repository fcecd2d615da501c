/* http_block.c: see http_block.h. */
#include "dialects/http_block.h"

struct lm_http_block *lm_http_block(struct lm_io *io, const struct lm_connection *connection) {
    return connection->in.block == LM_NO_BLOCK ? NULL : &io->http->blocks[connection->in.block];
}

struct lm_http_block *lm_http_block_take(struct lm_io *io, struct lm_connection *connection) {
    struct lm_http_side *http = io->http;
    if (http->free_block == LM_NO_BLOCK && http->blocks_used == LM_HTTP_BLOCKS) return NULL;
    connection->in.block = http->free_block;
    if (connection->in.block == LM_NO_BLOCK) connection->in.block = http->blocks_used++;
    struct lm_http_block *block = &http->blocks[connection->in.block];
    if (connection->in.block == http->free_block) http->free_block = block->next_free;
    block->connection = connection->index;
    block->taken_ns = io->now_ns;
    block->used = 0;
    block->upload = NULL;
    block->holds_shm = block->is_kept = false;
    return block;
}

void lm_http_block_give(struct lm_io *io, struct lm_connection *connection) {
    struct lm_http_block *block = lm_http_block(io, connection);
    if (!block) return;
    if (block->upload) lm_errands_drop(io->shared->errands, block->upload);
    if (block->holds_shm) lm_oip_leave_regions(io->shared->shm, &block->asked);
    block->connection = LM_NO_CONNECTION;
    block->next_free = io->http->free_block;
    io->http->free_block = connection->in.block;
    connection->in.block = LM_NO_BLOCK;
}

uint16_t lm_http_block_keep(struct lm_io *io, struct lm_connection *connection, uint32_t kept) {
    const uint16_t index = connection->in.block;
    if (io->http->blocks_kept + kept >= LM_HTTP_BLOCKS / 4) return LM_NO_BLOCK;
    io->http->blocks_kept++;
    io->http->blocks[index].is_kept = true;
    connection->in.block = LM_NO_BLOCK;
    return index;
}

void lm_http_block_drop(struct lm_io *io, uint16_t index) {
    struct lm_http_block *block = &io->http->blocks[index];
    io->http->blocks_kept--;
    block->is_kept = false;
    block->connection = LM_NO_CONNECTION;
    block->next_free = io->http->free_block;
    io->http->free_block = index;
}
