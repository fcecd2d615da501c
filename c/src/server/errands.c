/* errands.c: the control program's side of requests that it answers itself; see errands.h.
 */
#include "parts/errands.h"
#include "base/error.h"
#include "lumen.h"
#include "server/state.h"

int lumen_open_errands(lumen_server *server, uint32_t kinds, uint64_t upload_bytes) {
    struct lm_shared *shared = &server->shared;
    if (server->state != SERVER_OPEN || shared->errands)
        return lm_error(LUMEN_E_STATE, "lumen_open_errands comes once, before lumen_start");
    if (upload_bytes > UINT32_MAX)
        return lm_error(LUMEN_E_INVALID, "upload_bytes: expected at most %u, found %llu",
                        UINT32_MAX, (unsigned long long)upload_bytes);
    return lm_errands_open(&shared->errands, LUMEN_IO_THREADS_MAX, kinds, upload_bytes);
}

static int check(const lumen_server *server) {
    if (server->shared.errands) return 0;
    return lm_error(LUMEN_E_STATE, "lumen_open_errands comes before lumen_start");
}

int lumen_end_errands(lumen_server *server) {
    int code = check(server);
    if (!code) lm_errands_end(server->shared.errands);
    return code;
}

int lumen_next_errand(lumen_server *server, uint32_t timeout_ms, lumen_errand *errand_out) {
    int code = check(server);
    if (code) return code;
    struct lm_errand *errand = lm_errands_next(server->shared.errands, timeout_ms);
    if (!errand) return LUMEN_E_AGAIN;
    *errand_out = (lumen_errand){.id = lm_errands_id(server->shared.errands, errand),
                                 .kind = errand->kind,
                                 .name = errand->name,
                                 .body = errand->upload.bytes ? errand->upload.base : errand->text,
                                 .body_bytes = (uint32_t)errand->text_bytes};
    return 0;
}

int lumen_finish_errand(lumen_server *server, uint32_t id, uint32_t code, const char *body,
                        uint32_t body_bytes) {
    int failed = check(server);
    if (failed) return failed;
    struct lm_errand *errand = lm_errands_taken(server->shared.errands, id);
    if (!errand)
        return lm_error(LUMEN_E_INVALID, "errand: expected one that is taken, found %u", id);
    uint32_t io = errand->io; /* the entry is the I/O thread's from here on */
    failed = lm_errands_finish(errand, code, body, body_bytes);
    struct lm_ring *ring = server->ios[io].ring;
    if (ring) lm_ring_wake(ring); /* it stays until lumen_close */
    return failed;
}

int lumen_hold_ready(lumen_server *server, uint32_t hold) {
    /* relaxed: says nothing about other memory */
    lm_store_relaxed_u32(&server->shared.is_held, hold != 0);
    return 0;
}
