/* http_routes.c: see http_routes.h. */
#include "dialects/http_routes.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "dialects/http_access.h"
#include "dialects/http_answer.h"
#include "dialects/http_block.h"
#include "dialects/http_code.h"
#include "dialects/http_documents.h"
#include "dialects/http_figures.h"
#include "dialects/http_refuse.h"
#include "dialects/http_stats.h"
#include "models/process.h"
#include "work/state.h"

static void count_ok(struct lm_io *io) {
    lm_add_single_writer_u64(&io->stats->io.requests_ok, 1);
}

static void answer_text(struct lm_io *io, struct lm_connection *connection, const char *type,
                        const struct lm_oip_document *document) {
    count_ok(io);
    lm_http_answer(io, connection,
                   &(struct lm_http_answer){.code = 200,
                                            .type = type,
                                            .body = document->text,
                                            .body_bytes = document->bytes,
                                            .body_is_shared = true});
}

static void answer_yes(struct lm_io *io, struct lm_connection *connection, const char *body) {
    count_ok(io);
    struct lm_http_answer answer = {
        .code = 200, .body = body, .body_bytes = strlen(body), .body_is_shared = true};
    lm_http_answer(io, connection, &answer);
}

static void answer_empty(struct lm_io *io, struct lm_connection *connection) {
    count_ok(io);
    lm_http_answer(io, connection,
                   &(struct lm_http_answer){.code = 200, .body = "", .body_is_shared = true});
}

static void answer_figures(struct lm_io *io, struct lm_connection *connection) {
    size_t bytes = lm_http_figures_write(io, io->http->draft, io->http->draft_bytes);
    count_ok(io);
    lm_http_answer(
        io, connection,
        &(struct lm_http_answer){.code = 200, .body = io->http->draft, .body_bytes = bytes});
}

static void answer_unready(struct lm_io *io, struct lm_connection *connection, const char *why) {
    lm_add_single_writer_u64(&io->stats->io.requests_refused, 1);
    lm_add_single_writer_u64(&io->stats->io.requests_unready, 1);
    lm_http_answer_error(io, connection, 503, "Retry-After: 1\r\n", why);
}

/* Endpoints that change the server: for an admin key, or from this machine where there are no keys.
 * What they would change is not there yet. */
static void answer_control(struct lm_io *io, struct lm_connection *connection, const char *what) {
    const char *refusal = lm_http_control_refusal(connection);
    char why[LM_TEXT_BYTES_MAX];
    lm_refusal_count(io, refusal ? LM_STATUS_UNAUTHORISED : LM_STATUS_BAD_REQUEST, LM_NO_MODEL);
    if (refusal) {
        lm_http_answer_error(io, connection, 403, NULL, refusal);
        return;
    }
    snprintf(why, sizeof why, "%s: not supported by this server", what);
    lm_http_answer_error(io, connection, 501, NULL, why);
}

/* The status of all regions, where there are none; of one it is not there. */
static void answer_no_regions(struct lm_io *io, struct lm_connection *connection) {
    if (!connection->in.call.names_region && !lm_http_control_refusal(connection)) {
        answer_yes(io, connection, "[]");
    } else {
        answer_control(io, connection, "shared memory regions");
    }
}

const char *lm_http_why_unready(const struct lm_io *io, uint32_t index,
                                char text[LM_TEXT_BYTES_MAX]) {
    const struct lm_model *model = lm_model_set_find(io->models, index);
    if (lm_shared_is_leaving(io->shared)) return "the server is shutting down";
    if (io->worker_hangs) return "a model does not return";
    if (model && lm_model_is_elsewhere(model)) {
        /* relaxed: as the phase */
        const bool is_down =
            lm_load_relaxed_u32(&io->shared->upstreams.at[model->upstream - 1]->is_down);
        return is_down ? "its upstream does not answer" : NULL;
    }
    if (model) return lm_model_why_down(model, text, LM_TEXT_BYTES_MAX);
    /* relaxed: as the phase */
    const bool is_held = index == LM_NO_MODEL && lm_load_relaxed_u32(&io->shared->is_held);
    return is_held ? "a model could not be loaded" : NULL;
}

/* Whether the server, or its model, takes requests now. */
static void answer_ready(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    const struct lm_http_documents *documents = io->models->documents;
    const bool is_server = call->route == LM_ROUTE_READY;
    char text[LM_TEXT_BYTES_MAX];
    const char *why = lm_http_why_unready(io, is_server ? LM_NO_MODEL : call->model, text);
    if (why) {
        answer_unready(io, connection, why);
    } else if (is_server) {
        answer_yes(io, connection, "{\"ready\":true}");
    } else {
        answer_text(io, connection, NULL,
                    call->route == LM_ROUTE_V1_MODEL ? &documents->of[call->model]->state_of_v1
                                                     : &documents->of[call->model]->ready);
    }
}

static void answer_info(struct lm_io *io, struct lm_connection *connection,
                        const struct lm_oip_document *info) {
    if (info->text)
        answer_text(io, connection, NULL, info);
    else
        lm_http_refuse_status(io, connection, LM_STATUS_UNKNOWN_MODEL,
                              "the server has no model of texts, which /info is about");
}

/* The call's model was, when the head came. false: the call is answered. */
static bool is_there(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    if (call->model == LM_NO_MODEL || lm_model_set_find(io->models, call->model)) return true;
    lm_refusal_count(io, LM_STATUS_UNKNOWN_MODEL, LM_NO_MODEL);
    lm_http_answer_error(io, connection, 404, NULL,
                         "the model was unloaded while the request came");
    return false;
}

/* Clients look for the first words, which are Triton's. */
static const char no_control[] =
    "explicit model load / unload is not allowed if polling is enabled, or where "
    "repository.control is not explicit";

void lm_http_answer_route(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    const struct lm_http_documents *documents = io->models->documents;
    if (!is_there(io, connection)) return;
    const struct lm_http_model_documents *of_model =
        call->model == LM_NO_MODEL ? NULL : documents->of[call->model];
    switch ((enum lm_http_route)call->route) {
    /* Triton's clients look at the code, KServe's at the body. */
    case LM_ROUTE_LIVE: answer_yes(io, connection, "{\"live\":true}"); break;
    case LM_ROUTE_READY:
    case LM_ROUTE_MODEL_READY:
    case LM_ROUTE_V1_MODEL: answer_ready(io, connection); break;
    case LM_ROUTE_V1_MODELS: answer_text(io, connection, NULL, &documents->names); break;
    case LM_ROUTE_PAGE:
        answer_text(io, connection, "text/html; charset=utf-8", &documents->page);
        break;
    case LM_ROUTE_INFO: answer_info(io, connection, &documents->info); break;
    case LM_ROUTE_SERVER_METADATA: answer_text(io, connection, NULL, &documents->server); break;
    case LM_ROUTE_MODEL_METADATA: answer_text(io, connection, NULL, &of_model->metadata); break;
    case LM_ROUTE_V1_METADATA: answer_text(io, connection, NULL, &of_model->signature); break;
    case LM_ROUTE_MODEL_CONFIG: answer_text(io, connection, NULL, &of_model->config); break;
    case LM_ROUTE_REPOSITORY_INDEX: answer_text(io, connection, NULL, &documents->index); break;
    case LM_ROUTE_MODEL_STATS:
    case LM_ROUTE_ALL_STATS: lm_http_answer_stats(io, connection); break;
    case LM_ROUTE_FIGURES: answer_figures(io, connection); break;
    case LM_ROUTE_REPOSITORY_LOAD:
    case LM_ROUTE_REPOSITORY_UNLOAD: answer_control(io, connection, no_control); break;
    case LM_ROUTE_TRACE_SETTING:
    case LM_ROUTE_LOGGING: /* http_errands.c has them where a control program answers */
        answer_control(io, connection, "settings of traces and of the log");
        break;
    case LM_ROUTE_SYSTEM_SHM_UNREGISTER:
    case LM_ROUTE_CUDA_SHM_UNREGISTER:
        answer_empty(io, connection); /* it is not there, as asked */
        break;
    case LM_ROUTE_SYSTEM_SHM_STATUS:
    case LM_ROUTE_CUDA_SHM_STATUS: answer_no_regions(io, connection); break;
    case LM_ROUTE_SYSTEM_SHM_REGISTER:
    case LM_ROUTE_CUDA_SHM_REGISTER: answer_control(io, connection, "shared memory regions"); break;
    case LM_ROUTE_INFER: /* http_head.c has taken these */
    case LM_ROUTE_GRPC_INFER:
    case LM_ROUTE_PREDICT:
    case LM_ROUTE_INVOCATIONS:
    case LM_ROUTE_EMBEDDINGS:
    case LM_ROUTE_TEXTS:
    case LM_ROUTE_EMBED:
    case LM_ROUTE_PREDICT_TEXT:
    case LM_ROUTE_EMBED_ALL:
    case LM_ROUTE_TOKENIZE:
    case LM_ROUTE_DECODE:
    case LM_ROUTE_SIMILARITY:
    case LM_ROUTE_RERANK:
    case LM_ROUTE_RERANK_V1:
    case LM_ROUTE_RERANK_V2:
    case LM_ROUTE_CHAT:
    case LM_ROUTE_COMPLETIONS:
    case LM_ROUTE_RESPONSES:
    case LM_ROUTE_ENTITIES: break;
    }
}
