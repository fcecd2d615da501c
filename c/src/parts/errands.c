/* errands.c: see errands.h. */
#include "parts/errands.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "lumen.h"

struct lm_errands {
    int wake;              /* an eventfd: something was submitted */
    lm_atomic_u32 is_over; /* nobody waits for one any more */
    uint32_t io_count;
    uint32_t kinds;
    uint64_t upload_bytes;
    lm_atomic_u64 tickets;
    struct lm_errand table[][LM_ERRANDS_PER_IO];
};

int lm_errands_open(struct lm_errands **errands_out, uint32_t io_count, uint32_t kinds,
                    uint64_t upload_bytes) {
    struct lm_errands *errands = calloc(1, sizeof *errands + io_count * sizeof errands->table[0]);
    if (!errands) return lm_error(LUMEN_E_NOMEM, "no memory for calls to the control program");
    errands->io_count = io_count;
    errands->kinds = kinds;
    errands->upload_bytes = upload_bytes;
    errands->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (errands->wake < 0) {
        free(errands);
        return lm_error(LUMEN_E_IO, "no descriptor for calls to the control program");
    }
    *errands_out = errands;
    return 0;
}

void lm_errands_close(struct lm_errands *errands) {
    if (!errands) return;
    for (uint32_t i = 0; i < errands->io_count; i++) {
        for (uint32_t e = 0; e < LM_ERRANDS_PER_IO; e++) {
            free(errands->table[i][e].reply);
            lm_mapping_close(&errands->table[i][e].upload);
        }
    }
    close(errands->wake);
    free(errands);
}

bool lm_errands_take(const struct lm_errands *errands, uint32_t kind) {
    return errands->kinds >> kind & 1;
}

uint64_t lm_errands_upload_bytes(const struct lm_errands *errands) {
    return errands->upload_bytes;
}

/* ---- the I/O thread ---- */

struct lm_errand *lm_errands_at(struct lm_errands *errands, uint32_t io, uint32_t e) {
    return &errands->table[io][e];
}

struct lm_errand *lm_errands_acquire(struct lm_errands *errands, uint32_t io) {
    for (uint32_t e = 0; e < LM_ERRANDS_PER_IO; e++) {
        struct lm_errand *errand = &errands->table[io][e];
        /* F1: acquire: the control program has done with it; pairs with F2 */
        if (lm_load_acquire_u32(&errand->state) != LM_ERRAND_FREE || errand->is_filling) continue;
        errand->io = io;
        errand->text_bytes = 0;
        errand->is_upload = false;
        return errand;
    }
    return NULL;
}

struct lm_errand *lm_errands_begin_upload(struct lm_errands *errands, uint32_t io, size_t bytes) {
    for (uint32_t e = 0; e < LM_ERRANDS_PER_IO; e++) {
        const struct lm_errand *other = &errands->table[io][e];
        /* relaxed: a hint; what the control program has yet to free is no reason to refuse */
        uint32_t state = lm_load_relaxed_u32(&other->state);
        bool waits = state == LM_ERRAND_WAITS || state == LM_ERRAND_TAKEN;
        if (other->is_upload && (other->is_filling || waits)) return NULL;
    }
    struct lm_errand *errand = lm_errands_acquire(errands, io);
    /* A page is touched when bytes arrive for it. */
    if (!errand || lm_mapping_reserve(&errand->upload, bytes + 1) != 0) return NULL;
    errand->is_filling = errand->is_upload = true;
    return errand;
}

static void wake_up(const struct lm_errands *errands) {
    const uint64_t one = 1;
    ssize_t written = write(errands->wake, &one, sizeof one);
    (void)written; /* full: the control program is awake */
}

void lm_errands_drop(struct lm_errands *errands, struct lm_errand *errand) {
    errand->is_filling = false;
    errand->is_asked = 0;
    /* relaxed: published by the store below. Nobody waits: the control program frees the memory. */
    lm_store_relaxed_u32(&errand->end, 1);
    lm_store_release_u32(&errand->state, LM_ERRAND_WAITS); /* as H1 */
    wake_up(errands);
}

void lm_errands_submit(struct lm_errands *errands, struct lm_errand *errand) {
    errand->is_asked = 1;
    errand->is_filling = false;
    /* Memory that was mapped ends with zeros. */
    if (!errand->upload.bytes) errand->text[errand->text_bytes] = '\0';
    /* relaxed: published by H1 */
    lm_store_relaxed_u32(&errand->end, 0);
    errand->ticket = lm_count_relaxed_u64(&errands->tickets, 1);
    /* H1: release: the entry is filled in; pairs with H2 */
    lm_store_release_u32(&errand->state, LM_ERRAND_WAITS);
    wake_up(errands);
}

bool lm_errand_is_finished(const struct lm_errand *errand) {
    /* N2: acquire: the answer; pairs with N1 */
    return errand->is_asked && lm_load_acquire_u32(&errand->end) == 1;
}

void lm_errand_give(struct lm_errand *errand) {
    errand->is_asked = 0;
    /* G3: release: the answer is not looked at any more; pairs with G4 */
    lm_store_release_u32(&errand->state, LM_ERRAND_SPENT);
}

void lm_errand_abandon(struct lm_errand *errand) {
    errand->is_asked = 0;
    /* N3: acq_rel: the second of the two frees the entry; pairs with N1 */
    if (lm_exchange_acq_rel_u32(&errand->end, 1) == 1) lm_errand_give(errand);
}

/* ---- the control program ---- */

static void reclaim(struct lm_errand *errand) {
    free(errand->reply);
    errand->reply = NULL;
    lm_mapping_close(&errand->upload);
    /* F2: release: nothing of it is looked at any more; pairs with F1 */
    lm_store_release_u32(&errand->state, LM_ERRAND_FREE);
}

static struct lm_errand *oldest(struct lm_errands *errands) {
    struct lm_errand *first = NULL;
    for (uint32_t at = 0; at < errands->io_count * LM_ERRANDS_PER_IO; at++) {
        struct lm_errand *errand = &errands->table[0][0] + at;
        /* H2: acquire: the entry is filled in; pairs with H1 */
        /* G4: acquire: the answer is sent; pairs with G3 */
        uint32_t state = lm_load_acquire_u32(&errand->state);
        bool is_done = state == LM_ERRAND_SPENT;
        /* One whose client left before anybody looked; as N2, pairs with N3 */
        if (state == LM_ERRAND_WAITS) is_done = lm_load_acquire_u32(&errand->end) == 1;
        if (is_done) reclaim(errand);
        if (is_done || state != LM_ERRAND_WAITS) continue;
        if (!first || errand->ticket < first->ticket) first = errand;
    }
    return first;
}

struct lm_errand *lm_errands_next(struct lm_errands *errands, uint32_t timeout_ms) {
    struct pollfd wake = {.fd = errands->wake, .events = POLLIN};
    for (bool waited = false;; waited = true) {
        uint64_t unused;
        ssize_t got = read(errands->wake, &unused, sizeof unused); /* before the look */
        (void)got;
        struct lm_errand *errand = oldest(errands);
        if (errand) {
            /* relaxed: the I/O thread looks at `end` alone meanwhile */
            lm_store_relaxed_u32(&errand->state, LM_ERRAND_TAKEN);
            return errand;
        }
        /* relaxed: guards nothing; the eventfd wakes a call that has missed it */
        if (waited || lm_load_relaxed_u32(&errands->is_over)) return NULL;
        if (poll(&wake, 1, (int)timeout_ms) <= 0) return NULL;
    }
}

void lm_errands_end(struct lm_errands *errands) {
    lm_store_relaxed_u32(&errands->is_over, 1); /* relaxed: as above */
    wake_up(errands);
}

uint32_t lm_errands_id(const struct lm_errands *errands, const struct lm_errand *errand) {
    return (uint32_t)(errand - &errands->table[0][0]);
}

struct lm_errand *lm_errands_taken(struct lm_errands *errands, uint32_t id) {
    if (id >= errands->io_count * LM_ERRANDS_PER_IO) return NULL;
    struct lm_errand *errand = &errands->table[0][0] + id;
    /* relaxed: this program's own write */
    return lm_load_relaxed_u32(&errand->state) == LM_ERRAND_TAKEN ? errand : NULL;
}

int lm_errands_finish(struct lm_errand *errand, uint32_t code, const char *reply, size_t bytes) {
    int failed = 0;
    errand->code = code;
    errand->reply_bytes = (uint32_t)bytes;
    errand->reply = malloc(bytes ? bytes : 1);
    if (errand->reply) {
        if (bytes) memcpy(errand->reply, reply, bytes);
    } else {
        failed = lm_error(LUMEN_E_NOMEM, "no memory for an answer of %zu bytes", bytes);
        errand->code = 500;
        errand->reply_bytes = 0;
    }
    /* N1: acq_rel: the answer is there, or nobody waits for it; pairs with N2, N3 */
    if (lm_exchange_acq_rel_u32(&errand->end, 1) == 1) reclaim(errand);
    return failed;
}
