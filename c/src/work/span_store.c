/* span_store.c: see span_store.h. */
#include "work/span_store.h"

#include <stdlib.h>

#include "base/error.h"

int lm_span_store_open(struct lm_span_store *store) {
    pthread_mutex_init(&store->lock, NULL);
    store->spans = calloc(LUMEN_SPANS_KEPT, sizeof *store->spans);
    return store->spans ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for traces");
}

void lm_span_store_close(struct lm_span_store *store) {
    if (!store->spans) return;
    pthread_mutex_destroy(&store->lock);
    free(store->spans);
    store->spans = NULL;
}

void lm_span_store_add(struct lm_span_store *store, const lumen_span *span) {
    pthread_mutex_lock(&store->lock);
    if (store->count < LUMEN_SPANS_KEPT) {
        store->spans[(store->at + store->count++) % LUMEN_SPANS_KEPT] = *span;
    } else {
        store->lost++;
    }
    pthread_mutex_unlock(&store->lock);
}

uint32_t lm_span_store_take(struct lm_span_store *store, lumen_span *spans, uint32_t most,
                            uint64_t *lost_out) {
    pthread_mutex_lock(&store->lock);
    const uint32_t count = store->count < most ? store->count : most;
    for (uint32_t s = 0; s < count; s++) {
        spans[s] = store->spans[store->at];
        store->at = (store->at + 1) % LUMEN_SPANS_KEPT;
    }
    store->count -= count;
    *lost_out = store->lost;
    pthread_mutex_unlock(&store->lock);
    return count;
}
