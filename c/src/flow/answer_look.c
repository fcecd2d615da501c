/* answer_look.c: see answer_look.h. */
#include "flow/answer_look.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "flow/access_log.h"
#include "flow/answer_cache.h"
#include "flow/refusal.h"
#include "flow/reply.h"
#include "flow/slots.h"
#include "flow/submit.h"
#include "models/layout.h"

/* ---- what a request is ---- */

enum shape { TEXT, PICTURE, RAW, PARTS };

/* The bytes of its body, in as many parts as it has. */
struct body {
    enum shape shape;
    uint32_t count;
    size_t bytes;
    struct lm_slice parts[LM_TENSORS_MAX];
};

static void add_part(struct body *body, const void *at, size_t bytes) {
    body->parts[body->count++] = (struct lm_slice){at, bytes};
    body->bytes += bytes;
}

/* The same picture in a form is the same file: what is around it is drawn anew each time. */
static void find_picture(struct body *body, const struct lm_request *request) {
    char unused[LM_TEXT_BYTES_MAX];
    const struct lm_slice file = lm_carrier_file(request, unused, sizeof unused);
    body->shape = PICTURE;
    add_part(body, file.at, file.bytes);
}

static void find_body(struct body *body, const struct lm_request *request) {
    const struct lm_model *model = request->model;
    const struct lm_layout *layout = &request->layout;
    *body = (struct body){.shape = TEXT};
    if (request->is_unread) {
        if (lm_carrier_of(request)->is_file) {
            find_picture(body, request);
        } else {
            add_part(body, request->body.text, request->body.bytes);
        }
        return;
    }
    if (layout->raw) {
        size_t bytes = layout->raw_bytes;
        body->shape = RAW;
        if (request->encoding == LM_ENCODING_RGB8)
            lm_model_payload_bytes(model, LM_ENCODING_RGB8, &request->sizes, &bytes);
        add_part(body, layout->raw, bytes);
        return;
    }
    body->shape = PARTS;
    for (uint32_t i = 0; i < model->input_count; i++) {
        size_t bytes = layout->string_bytes[i];
        if (!lm_is_string(&model->inputs[i]))
            lm_tensor_bytes(&model->inputs[i], &request->sizes, &bytes);
        add_part(body, layout->inputs[i], bytes);
    }
}

/* All that the outputs follow from. false: nothing of it is to be kept. */
static bool digest(struct lm_io *io, struct lm_request *request) {
    struct body body;
    find_body(&body, request);
    if (body.bytes > LM_CACHED_BYTES_MAX) return false;
    struct {
        uint64_t generation;
        int64_t json_bytes;
        struct lm_sizes sizes;
        uint32_t shape, encoding, coding, route;
    } about;
    memset(&about, 0, sizeof about);
    about.generation = request->model->generation;
    about.sizes = request->sizes;
    about.shape = body.shape;
    about.encoding = request->encoding;
    if (body.shape == TEXT) {
        about.json_bytes = request->body.json_bytes;
        about.route = request->wish.route;
        if (lm_carrier_of(request)->is_coded) about.coding = request->body.coding;
    }
    struct lm_hash hash;
    lm_hash_begin(&hash, &io->answers->key);
    lm_hash_add(&hash, &about, sizeof about);
    for (uint32_t p = 0; p < body.count; p++)
        lm_hash_add(&hash, body.parts[p].at, body.parts[p].bytes);
    request->keeping.digest = lm_hash_end(&hash);
    return true;
}

/* ---- an answer from the cache ---- */

/* What a text asked for, which nobody has read. */
static void read_asked(struct lm_cache_cursor *cursor, struct lm_oip_request *asked) {
    lm_cache_read(cursor, asked, LM_ASKED_FIXED);
    lm_cache_read(cursor, asked->requested, asked->requested_count * sizeof *asked->requested);
    lm_cache_read(cursor, asked->id, asked->id_bytes);
}

/* An answer as it is taken out. */
struct answer {
    struct lm_cached entry;
    const void *data[LM_TENSORS_MAX];
    size_t bytes[LM_TENSORS_MAX];
};

/* Copies the outputs to the slot. false: it has no room for them. */
static bool take_out(struct lm_cache_cursor *cursor, struct lm_request *request,
                     struct answer *answer) {
    const uint32_t count = request->model->output_count;
    lm_cache_read(cursor, &answer->entry, sizeof answer->entry);
    lm_cache_read(cursor, answer->bytes, count * sizeof *answer->bytes);
    lm_cache_read(cursor, request->prefix, answer->entry.block_bytes);
    if (answer->entry.asked_bytes) read_asked(cursor, request->asked);
    for (uint32_t o = 0; o < count; o++) {
        void *place = request->is_unread ? NULL : request->layout.outputs[o];
        if (!place) place = lm_slot_alloc(request->slot, answer->bytes[o]);
        if (!place) return false;
        lm_cache_read(cursor, place, answer->bytes[o]);
        answer->data[o] = place;
    }
    return true;
}

static void record(struct lm_io *io, const struct lm_request *request, uint64_t began_ns) {
    struct lm_stats_block *stats = io->stats;
    const uint32_t model = request->model->index;
    const uint64_t now_ns = lm_now_ns(), total_ns = now_ns - request->started_ns;
    if (request->status == LM_STATUS_OK) {
        lm_add_single_writer_u64(&stats->io.requests_ok, 1);
        lm_add_single_writer_u64(&stats->io.cache_hits, 1);
        lm_add_single_writer_u64(&stats->models[model].io.model_ok, 1);
        /* relaxed: a gauge */
        lm_store_relaxed_u64(&stats->models[model].io.model_last_ms, lm_unix_ms());
        lm_add_single_writer_u64(&stats->models[model].io.model_ok_ns, total_ns);
        lm_add_single_writer_u64(&stats->models[model].io.model_cache_hits, 1);
        lm_add_single_writer_u64(&stats->models[model].io.model_cache_hit_ns,
                                 request->inferred_ns - began_ns);
    } else { /* the outputs do not fit the form that was asked for */
        lm_refusal_count(io, (enum lm_status)request->status, LM_NO_MODEL);
        lm_add_single_writer_u64(&stats->models[model].io.model_unfit, 1);
    }
    lm_histogram_record(&stats->stages[LM_STAGE_RECEIVE],
                        request->received_ns - request->started_ns);
    if (request->outcome == LM_OUTCOME_SENT) { /* else it is recorded with the rest of it */
        lm_histogram_record(&stats->stages[LM_STAGE_SEND], now_ns - request->inferred_ns);
        lm_histogram_record(&stats->stages[LM_STAGE_TOTAL], total_ns);
        lm_model_histogram_record(&stats->models[model].stages[LM_MODEL_STAGE_TOTAL], total_ns);
    }
    lm_access_log_own(io, request,
                      &(struct lm_access_own){.kind = LUMEN_SPAN_KEPT, .sent_ns = now_ns});
}

static void answer_request(struct lm_io *io, struct lm_request *request,
                           const struct answer *answer, uint64_t began_ns) {
    const struct lm_experts *experts = &request->model->experts;
    const uint32_t expert = answer->entry.expert;
    size_t sent_bytes;
    request->popped_ns = request->preprocessed_ns = request->inferred_ns = lm_now_ns();
    request->sizes = answer->entry.sizes;
    request->carrier = (uint8_t)answer->entry.carrier;
    request->expert = expert ? experts->models[expert - 1] : NULL;
    request->expert_at = (uint8_t)(expert ? expert - 1 : 0);
    request->batch_rows = 0;
    request->width = 0;
    request->in_batch = request->goes_on = false;
    request->keeping.is_hit = true;
    lm_request_dialect(request)->compose_outputs(request, answer->data, answer->bytes,
                                                 answer->entry.block_bytes);
    lm_slots_answered(request); /* first: whoever reads the reply may ask again at once */
    request->outcome =
        (uint8_t)lm_reply_try(lm_io_connection(io, request->connection), request, &sent_bytes);
    lm_add_single_writer_u64(&io->stats->io.bytes_out, sent_bytes);
    record(io, request, began_ns);
}

/* Whether a worker would still run it: only then may the cache answer in its place. Workers say why
 * not. */
static bool is_wanted(const struct lm_io *io, const struct lm_request *request) {
    const struct lm_connection *connection = &io->connections[request->connection];
    /* relaxed: written by this thread */
    return !lm_load_relaxed_u32(&connection->gone) && request->deadline_ns > lm_now_ns();
}

/* The deadline may be in the text. */
static bool is_in_time(const struct lm_request *request) {
    const uint64_t timeout_us = request->is_unread ? request->asked->timeout_us : 0;
    return timeout_us == 0 || lm_deadline_after(request->started_ns, timeout_us) > lm_now_ns();
}

/* true: it is answered. */
static bool look_up(struct lm_io *io, struct lm_request *request) {
    const uint64_t began_ns = lm_now_ns();
    const size_t used = request->slot->used;
    struct lm_cache_cursor cursor;
    struct answer answer;
    if (!is_wanted(io, request) || !digest(io, request)) return false;
    if (lm_response_cache_find(&io->answers->entries, &request->keeping.digest, &cursor)) {
        bool fits = take_out(&cursor, request, &answer) && is_in_time(request);
        if (fits && lm_request_claim(request)) {
            answer_request(io, request, &answer, began_ns);
            return true;
        }
        request->slot->used = used; /* for its worker */
        return false;
    }
    request->keeping.wanted = request->keeping.for_cache = true;
    lm_add_single_writer_u64(&io->stats->io.cache_misses, 1);
    lm_add_single_writer_u64(&io->stats->models[request->model->index].io.model_cache_misses, 1);
    lm_add_single_writer_u64(&io->stats->models[request->model->index].io.model_cache_miss_ns,
                             lm_now_ns() - began_ns);
    return false;
}

void lm_answers_run(struct lm_io *io) {
    const uint64_t until_ns = io->now_ns + LM_CACHE_LOOKS_NS;
    uint32_t slot;
    while (io->now_ns < until_ns && lm_spsc_pop(&io->answers->waiting, &slot)) {
        struct lm_request *request = &io->requests[slot];
        if (look_up(io, request)) {
            lm_reply_returned(io, slot);
        } else {
            lm_submit_run(io, request);
        }
        io->now_ns = lm_now_ns(); /* large requests take their time */
    }
}
