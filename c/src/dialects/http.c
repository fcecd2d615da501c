/* http.c: see http.h. */
#include "dialects/http.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dialects/http_admit.h"
#include "dialects/http_answer.h"
#include "dialects/http_block.h"
#include "dialects/http_code.h"
#include "dialects/http_figures.h"
#include "dialects/http_receive.h"
#include "dialects/http_refuse.h"
#include "dialects/http_reply.h"
#include "dialects/http_shm.h"
#include "dialects/upstream.h"
#include "formats/http_page.h"
#include "formats/oip_metadata.h"

int lm_http_open(struct lm_io *io) {
    struct lm_http_side *http = calloc(1, sizeof *http);
    io->http = http;
    if (!http) return lm_error(LUMEN_E_NOMEM, "no memory for HTTP");
    http->blocks = calloc(LM_HTTP_BLOCKS, sizeof *http->blocks);
    http->draft_bytes = lm_oip_stats_bytes_max(LM_PAGE_MODELS);
    const size_t figures_bytes = lm_http_figures_bytes_max(LM_PAGE_MODELS);
    if (figures_bytes > http->draft_bytes) http->draft_bytes = figures_bytes;
    if (io->shared->shm && http->draft_bytes < LM_HTTP_SHM_BYTES_MAX)
        http->draft_bytes = LM_HTTP_SHM_BYTES_MAX;
    http->draft = malloc(http->draft_bytes);
    if (!http->blocks || !http->draft)
        return lm_error(LUMEN_E_NOMEM, "no memory for the heads of HTTP requests");
    http->free_block = LM_NO_BLOCK;
    int code = lm_oip_parser_open(&http->parser, LM_HTTP_JSON_BYTES_MAX);
    if (!code) lm_oip_parser_share(http->parser, io->shared->shm);
    return code;
}

void lm_http_close(struct lm_io *io) {
    if (!io->http) return;
    lm_oip_parser_close(io->http->parser);
    if (io->shared) lm_spill_close(&io->shared->spills, &io->http->stats);
    free(io->http->blocks);
    free(io->http->draft);
    free(io->http);
    io->http = NULL;
}

/* ---- what flow/ asks ---- */

void lm_http_forget(struct lm_io *io, struct lm_connection *connection) {
    lm_http_block_give(io, connection);
    /* relaxed: this thread's own */
    if (connection->in.call.exchange && lm_load_relaxed_u32(&connection->gone))
        lm_upstream_client_left(io, connection);
}

uint64_t lm_http_bytes_expected(const struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    if (call->expects_continue) return 0; /* the client waits to be asked */
    return call->chunked ? 1 : connection->in.discard_bytes;
}

void lm_http_answer_for(struct lm_io *io, struct lm_connection *connection,
                        struct lm_request *request, enum lm_status status, const char *why) {
    (void)request;
    lm_http_answer_error(
        io, connection,
        lm_http_code(connection->in.call.route, status, io->shared->config.overload_status),
        "Retry-After: 1\r\n", why);
}

void lm_http_complete_row(const struct lm_request *request, struct lm_trace_record *row) {
    const struct lm_oip_request *asked = request->asked;
    size_t bytes = asked->id_bytes < sizeof row->http_id ? asked->id_bytes : 0;
    row->is_http = true;
    row->code = (uint16_t)lm_http_code(request->wish.route, (enum lm_status)request->status,
                                       request->io->shared->config.overload_status);
    memcpy(row->http_id, asked->id, bytes);
    row->http_id[bytes] = '\0';
}

const struct lm_dialect lm_http = {.name = "http", .one_at_a_time = true, LM_HTTP_ENTRIES};
