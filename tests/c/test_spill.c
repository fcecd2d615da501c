/* test_spill.c: memory beside slots: chains of pieces, the count that bounds them, and how they are
 * given back in parts.
 */
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "check.h"
#include "parts/spill.h"

static struct lm_spill_limit limit;

static uint64_t used(void) {
    return lm_load_relaxed_u64(&limit.bytes); /* relaxed: one thread */
}

static void takes(struct lm_spill **chain, size_t bytes) {
    void *memory = NULL;
    CHECK(lm_spill_take(&limit, chain, bytes, &memory) == 0);
    CHECK((uintptr_t)memory % LM_SLOT_ALIGN == 0);
    memset(memory, 0x5a, bytes);
}

static void chains(void) {
    struct lm_spill *chain = NULL, *other = NULL;
    CHECK_AT("chains");
    lm_spill_open(&limit, 64 << 20);
    takes(&chain, 1);
    takes(&chain, 3 << 20);
    takes(&other, 100000);
    CHECK(used() >= (3 << 20) + 100001);
    lm_spill_join(&chain, &other);
    CHECK(!other && chain && chain->next && chain->next->next && !chain->next->next->next);
    lm_spill_join(&chain, &other); /* of nothing */
    CHECK(chain && !other);
    lm_spill_close(&limit, &chain);
    CHECK(!chain && used() == 0);
}

/* A large piece takes several turns, and the count falls with each. */
static void parts(void) {
    struct lm_spill *chain = NULL;
    uint32_t turns = 0;
    CHECK_AT("parts");
    lm_spill_open(&limit, 64 << 20);
    takes(&chain, 4096);
    takes(&chain, 3 * (size_t)LM_UNMAP_BYTES - 4096);
    for (uint64_t before = used(); chain; before = used(), turns++) {
        lm_spill_unmap(&limit, &chain);
        CHECK(before - used() <= LM_UNMAP_BYTES && used() < before);
    }
    CHECK(used() == 0 && turns >= 3 && turns <= 4);
}

static void bounds(void) {
    struct lm_spill *chain = NULL;
    void *memory = NULL;
    CHECK_AT("bounds");
    lm_spill_open(&limit, 1 << 20);
    CHECK(lm_spill_take(&limit, &chain, (1 << 20) + 1, &memory) == LUMEN_E_ORT);
    CHECK(strstr(lm_error_last(), "server.spill_bytes allows 1048576: raise that"));
    CHECK(!chain && used() == 0);
    takes(&chain, 600000);
    CHECK(!lm_spill_is_short(&limit));
    CHECK(lm_spill_take(&limit, &chain, 600000, &memory) == LUMEN_E_NOMEM);
    CHECK(strstr(lm_error_last(), "other answers have what server.spill_bytes allows (1048576)"));
    takes(&chain, 300000);
    CHECK(lm_spill_is_short(&limit));
    lm_spill_close(&limit, &chain);
    takes(&chain, 600000);
    lm_spill_close(&limit, &chain);
    CHECK(used() == 0);
    lm_spill_open(&limit, 0);
    CHECK(limit.bytes_max >= 16 << 20);
}

int main(void) {
    chains();
    parts();
    bounds();
    return check_finish("test_spill");
}
