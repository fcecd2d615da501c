/* answer_cache.c: see answer_cache.h. */
#include "flow/answer_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

int lm_answers_open(struct lm_io *io, uint32_t slots) {
    const struct lm_shared *shared = io->shared;
    const uint64_t all = shared->config.response_cache_bytes, bytes = all / shared->io_count;
    bool is_used = false;
    if (all == 0) return 0;
    if (bytes < LM_RESPONSE_CACHE_BYTES_MIN) {
        return lm_error(LUMEN_E_INVALID,
                        "server.response_cache_bytes: expected 0 or at least %llu (64 KiB for each "
                        "I/O thread), found %llu",
                        (unsigned long long)shared->io_count * LM_RESPONSE_CACHE_BYTES_MIN,
                        (unsigned long long)all);
    }
    io->answers = calloc(1, sizeof *io->answers);
    if (!io->answers) return lm_error(LUMEN_E_NOMEM, "no memory for a response cache");
    lm_hash_key_draw(&io->answers->key);
    int code = lm_response_cache_open(&io->answers->entries, (size_t)bytes);
    if (!code) code = lm_spsc_open(&io->answers->waiting, slots);
    for (uint32_t m = 0; m < io->models->count; m++)
        is_used = is_used || io->models->models[m]->caches;
    if (!code && is_used) lm_response_cache_touch(&io->answers->entries);
    return code;
}

void lm_answers_close(struct lm_io *io) {
    if (!io->answers) return;
    lm_response_cache_close(&io->answers->entries);
    lm_spsc_close(&io->answers->waiting);
    free(io->answers);
    io->answers = NULL;
}

bool lm_answers_take(struct lm_io *io, const struct lm_request *request) {
    if (!io->answers || !request->model->caches || lm_carrier_of(request)->is_shared) return false;
    /* Never full: there is a place for every slot. */
    bool kept = lm_spsc_push(&io->answers->waiting, request->slot->index);
    LM_ASSERT(kept);
    return true;
}

/* ---- an answer for the cache ---- */

static size_t asked_bytes(const struct lm_oip_request *asked) {
    return LM_ASKED_FIXED + asked->requested_count * sizeof *asked->requested + asked->id_bytes;
}

static void write_asked(struct lm_cache_cursor *cursor, const struct lm_oip_request *asked) {
    lm_cache_write(cursor, asked, LM_ASKED_FIXED);
    lm_cache_write(cursor, asked->requested, asked->requested_count * sizeof *asked->requested);
    lm_cache_write(cursor, asked->id, asked->id_bytes);
}

void lm_answers_say(struct lm_request *request, const void *const *data, const size_t *bytes,
                    size_t block_bytes, bool is_in_batch) {
    struct lm_keeping *keeping = &request->keeping;
    const struct lm_model *model = request->model;
    if (!keeping->wanted) return;
    for (uint32_t o = 0; o < model->output_count; o++) {
        void *at = (void *)(uintptr_t)data[o];
        /* Others were copied there when they were taken out of the batch. */
        if (is_in_batch && model->outputs[o].shape_known && !lm_is_string(&model->outputs[o])) {
            at = request->layout.outputs[o];
            if (bytes[o]) memcpy(at, data[o], bytes[o]);
        }
        keeping->outputs[o] = (struct iovec){at, bytes[o]};
    }
    keeping->block_bytes = block_bytes;
    keeping->whole = true;
}

static void keep(struct lm_response_cache *cache, const struct lm_request *request) {
    const struct lm_keeping *keeping = &request->keeping;
    const struct lm_oip_request *asked = request->asked;
    const uint32_t count = request->model->output_count;
    struct lm_cached entry;
    struct lm_cache_cursor cursor;
    size_t bytes[LM_TENSORS_MAX], sum = 0;
    memset(&entry, 0, sizeof entry);
    entry.sizes = request->sizes;
    entry.carrier = request->carrier;
    entry.block_bytes = (uint32_t)keeping->block_bytes;
    entry.expert = request->expert ? 1u + request->expert_at : 0;
    entry.asked_bytes = request->is_unread ? (uint32_t)asked_bytes(asked) : 0;
    for (uint32_t o = 0; o < count; o++) {
        bytes[o] = keeping->outputs[o].iov_len;
        sum += bytes[o];
    }
    if (sum > LM_CACHED_BYTES_MAX) return;
    if (!lm_response_cache_add(cache, &keeping->digest,
                               sizeof entry + count * sizeof *bytes + entry.block_bytes +
                                   entry.asked_bytes + sum,
                               &cursor))
        return;
    lm_cache_write(&cursor, &entry, sizeof entry);
    lm_cache_write(&cursor, bytes, count * sizeof *bytes);
    lm_cache_write(&cursor, request->prefix, entry.block_bytes);
    if (entry.asked_bytes) write_asked(&cursor, asked);
    for (uint32_t o = 0; o < count; o++)
        lm_cache_write(&cursor, keeping->outputs[o].iov_base, bytes[o]);
}

/* Whether the reply follows from the outputs alone: of a request that the cache answers nobody
 * reads the texts. */
static bool is_of_outputs(const struct lm_request *request) {
    return request->encoding != LM_ENCODING_TEXTS || !lm_texts_wish_repeats(&request->asked->texts);
}

void lm_answers_keep(struct lm_io *io, struct lm_request *request) {
    if (!request->keeping.whole || request->status != LM_STATUS_OK || !is_of_outputs(request))
        return;
    struct lm_response_cache *cache = &io->answers->entries;
    const uint64_t began_ns = lm_now_ns();
    keep(cache, request);
    lm_add_single_writer_u64(&io->stats->models[request->model->index].io.model_cache_miss_ns,
                             lm_now_ns() - began_ns);
    /* relaxed: own words */
    lm_store_relaxed_u64(&io->stats->io.cache_evictions, cache->evictions);
    lm_store_relaxed_u64(&io->stats->io.cache_entries, cache->entries);
    lm_store_relaxed_u64(&io->stats->io.cache_bytes, lm_response_cache_used(cache));
}
