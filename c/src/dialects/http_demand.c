/* http_demand.c: see http_demand.h. */
#include "dialects/http_demand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dialects/http_access.h"
#include "dialects/http_admit.h"
#include "dialects/http_block.h"
#include "dialects/http_refuse.h"
#include "dialects/http_texts.h"
#include "flow/admit.h"
#include "flow/gate.h"
#include "flow/receive.h"
#include "flow/slot_wait.h"
#include "flow/traffic.h"
#include "lumen.h"
#include "parts/errands.h"

enum { DEMANDS_MAX = LM_ERRANDS_PER_IO - 2 }; /* other calls find an entry too */

static bool is_for(const struct lm_errand *errand, const char *name) {
    return errand->is_asked && errand->kind == LUMEN_ERRAND_DEMAND &&
           strcmp(errand->name, name) == 0;
}

/* Asks for a model, unless somebody has; where too many are asked for, another time. */
static void ask(struct lm_io *io, const char *name) {
    uint32_t count = 0;
    for (uint32_t e = 0; e < LM_ERRANDS_PER_IO; e++) {
        const struct lm_errand *errand = lm_errands_at(io->shared->errands, io->index, e);
        if (is_for(errand, name)) return;
        count += errand->is_asked && errand->kind == LUMEN_ERRAND_DEMAND;
    }
    struct lm_errand *errand =
        count < DEMANDS_MAX ? lm_errands_acquire(io->shared->errands, io->index) : NULL;
    if (!errand) return;
    errand->kind = LUMEN_ERRAND_DEMAND;
    errand->connection = LM_NO_CONNECTION;
    memcpy(errand->name, name, strlen(name) + 1);
    io->errands_out++;
    lm_errands_submit(io->shared->errands, errand);
}

bool lm_http_demand_take(struct lm_io *io, struct lm_connection *connection,
                         const struct lm_http_match *match) {
    const struct lm_errands *errands = io->shared->errands;
    const struct lm_http_call *call = &connection->in.call;
    if (!errands || !lm_errands_take(errands, LUMEN_ERRAND_DEMAND)) return false;
    if (!lm_http_is_inference(call->route) || match->version == 0) return false;
    char name[LM_NAME_BYTES_MAX];
    const int bytes = call->any_version
                          ? snprintf(name, sizeof name, "%s", match->name)
                          : snprintf(name, sizeof name, "%s:%u", match->name, match->version);
    if (bytes >= (int)sizeof name) return false;
    if (call->key != LM_NO_KEY &&
        !lm_keys_allow_name(&io->access->keys, call->key, name, match->name)) {
        char why[LM_TEXT_BYTES_MAX];
        snprintf(why, sizeof why, "this key may not use model '%s'", name);
        lm_http_refuse_status(io, connection, LM_STATUS_UNAUTHORISED, why);
        return true;
    }
    struct lm_refusal refusal; /* whoever asks too often has nothing loaded either */
    if (!lm_gate_enter(io, NULL, call->key, &refusal)) {
        lm_http_refuse_request(io, connection, &refusal);
        return true;
    }
    const bool many_wait = io->lists[LM_LIST_ASKING].count >= LM_SLOT_WAITERS_MAX;
    struct lm_http_block *block = lm_http_block(io, connection);
    if (!block && !many_wait) block = lm_http_refuse_for_block(io, connection);
    if (!block || many_wait) {
        lm_http_refuse_status(io, connection, LM_STATUS_OVERLOADED,
                              "too many requests wait for a model that is being loaded");
        return true;
    }
    block->used = 0; /* of the head, which has been read */
    memcpy(block->region, name, sizeof name);
    ask(io, name);
    lm_admit_wait(io, connection, call->timeout_us);
    lm_connection_move(io, connection, LM_LIST_ASKING);
    return true;
}

/* The model of NAME, of whose versions the highest, or NAME:VERSION. */
static const struct lm_model *find(const struct lm_model_set *set, const char *name) {
    const struct lm_model *model = lm_model_set_version(set, name, 0);
    char base[LM_NAME_BYTES_MAX];
    if (model || (model = lm_model_set_named(set, name))) return model;
    memcpy(base, name, strlen(name) + 1);
    char *colon = strrchr(base, ':');
    if (!colon) return NULL;
    *colon = '\0';
    return lm_model_set_version(set, base, (uint32_t)strtoul(colon + 1, NULL, 10));
}

bool lm_http_demand_keep(struct lm_io *io, const struct lm_connection *connection,
                         const uint8_t *bytes, size_t count) {
    struct lm_http_block *block = lm_http_block(io, connection);
    if (!block || connection->list != LM_LIST_ASKING || count > sizeof block->bytes) return false;
    memcpy(block->bytes, bytes, count);
    block->used = (uint32_t)count;
    return true;
}

/* Goes on as if its head had just come; what was kept behind it follows. */
static void go_on(struct lm_io *io, struct lm_connection *connection,
                  const struct lm_model *model) {
    const struct lm_http_block *block = lm_http_block(io, connection);
    const size_t kept = block->used;
    memcpy(io->http->draft, block->bytes, kept);
    lm_http_block_give(io, connection);
    lm_connection_move(io, connection, LM_LIST_NONE);
    lm_http_take_model(connection, model);
    lm_http_admit_infer(io, connection, true);
    if (lm_receive_give(io, connection, (const uint8_t *)io->http->draft, kept) < kept)
        lm_slot_wait_turn_away(io, connection, LM_STATUS_OVERLOADED,
                               "no slot is free, and what the request brought cannot be kept");
    lm_connection_mark(io, connection);
}

static void look(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_http_block *block = lm_http_block(io, connection);
    const struct lm_http_call *call = &connection->in.call;
    const struct lm_model *model = find(io->models, block->region);
    if (connection->timer_ns <= io->now_ns) {
        lm_slot_wait_turn_away(io, connection, LM_STATUS_DEADLINE,
                               "the deadline passed before the model was loaded");
    } else if (!model) {
        ask(io, block->region);
    } else if (!lm_gate_allows(io, lm_http_key(io, connection), model)) {
        lm_slot_wait_turn_away(io, connection, LM_STATUS_UNAUTHORISED,
                               "this key may not use the model");
    } else {
        if (call->any_version) model = lm_traffic_choose(io, io->models, model, call->session);
        go_on(io, connection, model);
    }
}

void lm_http_demand_look(struct lm_io *io) {
    uint32_t next;
    for (uint32_t i = io->lists[LM_LIST_ASKING].head; i != LM_NO_CONNECTION; i = next) {
        struct lm_connection *connection = lm_io_connection(io, i);
        next = connection->next;
        look(io, connection);
    }
}

/* Refuses the requests that wait for the model of this name. */
static void refuse_all(struct lm_io *io, const char *name, enum lm_status status, const char *why) {
    uint32_t next;
    for (uint32_t i = io->lists[LM_LIST_ASKING].head; i != LM_NO_CONNECTION; i = next) {
        struct lm_connection *connection = lm_io_connection(io, i);
        const struct lm_http_block *block = lm_http_block(io, connection);
        next = connection->next;
        if (strcmp(block->region, name) == 0) lm_slot_wait_turn_away(io, connection, status, why);
    }
}

void lm_http_demand_answered(struct lm_io *io, struct lm_errand *errand) {
    const enum lm_status status =
        errand->code == 404 ? LM_STATUS_UNKNOWN_MODEL : LM_STATUS_OVERLOADED;
    char why[LM_TEXT_BYTES_MAX], name[LM_NAME_BYTES_MAX];
    const size_t bytes = errand->reply_bytes < sizeof why ? errand->reply_bytes : sizeof why - 1;
    const bool is_there = errand->code < 400;
    if (bytes) memcpy(why, errand->reply, bytes);
    why[bytes] = '\0';
    memcpy(name, errand->name, sizeof name);
    lm_errand_give(errand);
    if (!is_there) refuse_all(io, name, status, why);
    lm_http_demand_look(io); /* also those for whom there was no entry */
}
