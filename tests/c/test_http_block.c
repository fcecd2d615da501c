/* test_http_block.c: blocks are given out one by one, and nothing of a block's last request is left
 * for its next one: each request leaves its own regions and drops its own files, once. What regions
 * and files do then is the test's own.
 */
#include "check.h"
#include "dialects/http_block.h"
#include "formats/oip_request.h"
#include "parts/errands.h"

static uint32_t left, dropped; /* how often */

static void leave(struct lm_shm_regions *regions, const struct lm_oip_request *asked) {
    (void)regions, (void)asked;
    left++;
}

static void drop(struct lm_errands *errands, struct lm_errand *errand) {
    (void)errands, (void)errand;
    dropped++;
}

/* The file itself, which calls these. */
#define lm_oip_leave_regions leave
#define lm_errands_drop drop
#include "dialects/http_block.c"

static struct lm_shared shared;
static struct lm_http_side side = {.free_block = LM_NO_BLOCK};
static struct lm_io thread = {.shared = &shared, .http = &side};
static struct lm_connection connections[LM_HTTP_BLOCKS + 1];

static struct lm_http_block *take(uint32_t c) {
    return lm_http_block_take(&thread, &connections[c]);
}

static void each_to_one(void) {
    CHECK_AT("each to one");
    for (uint32_t c = 0; c < LM_HTTP_BLOCKS; c++) {
        thread.now_ns = c;
        const struct lm_http_block *block = take(c);
        CHECK(block == &side.blocks[c] && block->connection == c && block->taken_ns == c);
    }
    CHECK(!take(LM_HTTP_BLOCKS) && !lm_http_block(&thread, &connections[LM_HTTP_BLOCKS]));
    lm_http_block_give(&thread, &connections[7]);
    lm_http_block_give(&thread, &connections[7]); /* it has none any more */
    CHECK(take(LM_HTTP_BLOCKS) == &side.blocks[7] && !take(7));
    lm_http_block_give(&thread, &connections[LM_HTTP_BLOCKS]);
    for (uint32_t c = 0; c < LM_HTTP_BLOCKS; c++) lm_http_block_give(&thread, &connections[c]);
    CHECK(left == 0 && dropped == 0);
}

static void nothing_is_left(void) {
    static struct lm_errand errand;
    CHECK_AT("nothing is left");
    struct lm_http_block *block = take(0);
    block->used = 9;
    block->holds_shm = true;
    block->upload = &errand;
    lm_http_block_give(&thread, &connections[0]);
    CHECK(left == 1 && dropped == 1 && block->connection == LM_NO_CONNECTION);
    CHECK(take(1) == block && block->used == 0 && !block->upload && !block->is_kept);
    lm_http_block_give(&thread, &connections[1]);
    CHECK(left == 1 && dropped == 1);
}

/* A call that lasts may keep blocks, of which the most are for others. */
static void kept_by_a_call(void) {
    enum { MOST = LM_HTTP_BLOCKS / 4 };
    uint16_t kept[MOST];
    CHECK_AT("kept by a call");
    for (uint32_t c = 0; c < MOST; c++) {
        const struct lm_http_block *block = take(c);
        kept[c] = lm_http_block_keep(&thread, &connections[c], 0);
        CHECK(block == &side.blocks[kept[c]] && block->is_kept);
        CHECK(!lm_http_block(&thread, &connections[c]));
    }
    const struct lm_http_block *block = take(0);
    CHECK(lm_http_block_keep(&thread, &connections[0], 0) == LM_NO_BLOCK && !block->is_kept);
    lm_http_block_drop(&thread, kept[0]);
    CHECK(lm_http_block_keep(&thread, &connections[0], 1) == LM_NO_BLOCK);
    CHECK(lm_http_block_keep(&thread, &connections[0], 0) != LM_NO_BLOCK);
    block = take(1);
    CHECK(block == &side.blocks[kept[0]] && !block->is_kept);
}

int main(void) {
    side.blocks = calloc(LM_HTTP_BLOCKS, sizeof *side.blocks);
    CHECK(side.blocks != NULL);
    for (uint32_t c = 0; c <= LM_HTTP_BLOCKS; c++)
        connections[c] = (struct lm_connection){.index = c, .in.block = LM_NO_BLOCK};
    each_to_one();
    nothing_is_left();
    kept_by_a_call();
    free(side.blocks);
    return check_finish("test_http_block");
}
