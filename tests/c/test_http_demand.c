/* test_http_demand.c: requests for models that are not loaded: each model is asked for once, so
 * many at a time, and so many requests wait. Who may enter, and what a refusal says, is not looked
 * at.
 */
#include "check.h"
#include "dialects/http_admit.h"
#include "dialects/http_block.h"
#include "dialects/http_demand.h"
#include "dialects/http_refuse.h"
#include "flow/admit.h"
#include "flow/gate.h"
#include "flow/receive.h"
#include "flow/slot_wait.h"
#include "lumen.h"
#include "parts/errands.h"

static enum lm_status refused;

static void refuse(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                   const char *why) {
    (void)io, (void)connection, (void)why;
    refused = status;
}

static bool enter(struct lm_io *io, const struct lm_model *model, uint32_t key,
                  struct lm_refusal *refusal) {
    (void)io, (void)refusal;
    CHECK(!model && key == LM_NO_KEY);
    return true;
}

static void wait_until(struct lm_io *io, struct lm_connection *connection, uint64_t timeout_us) {
    (void)io, (void)connection, (void)timeout_us;
}

static void turn_away(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                      const char *why) {
    refuse(io, connection, status, why);
    lm_http_block_give(io, connection);
    lm_connection_move(io, connection, LM_LIST_NONE);
}

static uint32_t admitted; /* how many */

static void admit(struct lm_io *io, struct lm_connection *connection, bool is_in) {
    CHECK(is_in && lm_model_set_find(io->models, connection->in.call.model));
    admitted++;
}

/* The file itself, which calls these. */
#define lm_slot_wait_turn_away turn_away
#define lm_http_admit_infer admit
#define lm_http_refuse_status refuse
#define lm_http_refuse_for_block lm_http_block_take
#define lm_gate_enter enter
#define lm_admit_wait wait_until
#include "dialects/http_demand.c"

enum { CONNECTIONS = LM_SLOT_WAITERS_MAX + 1 };

static struct lm_shared shared;
static struct lm_http_side side = {.free_block = LM_NO_BLOCK};
static struct lm_connection connections[CONNECTIONS];
static struct lm_io thread = {.shared = &shared, .http = &side, .connections = connections};

static bool is_waiting(uint32_t c) {
    return connections[c].list == LM_LIST_ASKING;
}

static void ask_for(uint32_t c, const char *name) {
    struct lm_http_match match = {.version = LM_HTTP_VERSION_ANY};
    snprintf(match.name, sizeof match.name, "%s", name);
    refused = LM_STATUS_OK;
    CHECK_AT("connection %u asks for %s", c, name);
    CHECK(lm_http_demand_take(&thread, &connections[c], &match));
    CHECK(is_waiting(c) == (refused == LM_STATUS_OK));
}

static void leave(uint32_t c) {
    lm_http_block_give(&thread, &connections[c]);
    lm_connection_move(&thread, &connections[c], LM_LIST_NONE);
}

static void each_model_once(void) {
    ask_for(0, "a");
    ask_for(1, "a");
    CHECK(thread.errands_out == 1);
    ask_for(2, "b");
    CHECK(thread.errands_out == 2 && is_waiting(0) && is_waiting(1) && is_waiting(2));
    for (uint32_t c = 3; c < LM_ERRANDS_PER_IO + 3; c++) {
        ask_for(c, (const char[]){(char)('a' + c), '\0'});
        CHECK(is_waiting(c)); /* it is asked for later */
        CHECK(thread.errands_out == (c < DEMANDS_MAX ? c : DEMANDS_MAX));
    }
}

static void so_many_wait(void) {
    for (uint32_t c = LM_ERRANDS_PER_IO + 3; c < LM_SLOT_WAITERS_MAX; c++) ask_for(c, "a");
    CHECK(thread.lists[LM_LIST_ASKING].count == LM_SLOT_WAITERS_MAX);
    const uint32_t last = LM_SLOT_WAITERS_MAX;
    for (uint32_t n = 0; n < 2; n++) {
        ask_for(last, "a");
        CHECK(refused == LM_STATUS_OVERLOADED && !is_waiting(last));
    }
    leave(7);
    ask_for(last, "a");
    CHECK(is_waiting(last));
}

/* The model is there, and the keys are others than when the request came. */
static void rights_that_a_reload_took(void) {
    static struct lm_model model = {.name = "a", .base = "a", .version = 1};
    static struct lm_model_set set;
    static char draft[16];
    const char *const others[] = {"b"};
    const lumen_key_config keys[] = {
        {.name = "all", .sha256 = {1}},
        {.name = "b", .sha256 = {2}, .models = others, .model_count = 1}};
    const lumen_config config = {.keys = keys, .key_count = 2};
    CHECK(lm_access_open(&thread.access, &config, NULL, 0) == 0);
    lm_keys_name_model(&thread.access->keys, 0, model.name, model.base);
    CHECK(lm_model_set_add(&set, &model) == 0);
    thread.models = &set;
    side.draft = draft;
    for (uint32_t c = 0; c < CONNECTIONS; c++)
        if (is_waiting(c)) leave(c);
    for (uint32_t key = 0; key < 3; key++) {
        ask_for(0, "a");
        connections[0].in.call.key = key;
        connections[0].in.started_ns = thread.access_since_ns + 1;
        connections[0].timer_ns = UINT64_MAX;
        admitted = 0;
        lm_http_demand_look(&thread);
        CHECK(!is_waiting(0) && admitted == (key == 0));
        CHECK(refused == (key == 0 ? LM_STATUS_OK : LM_STATUS_UNAUTHORISED));
        connections[0].in.call.key = LM_NO_KEY;
    }
    lm_model_set_close(&set);
    lm_access_close(thread.access);
}

int main(void) {
    side.blocks = calloc(LM_HTTP_BLOCKS, sizeof *side.blocks);
    CHECK(side.blocks != NULL);
    CHECK(lm_errands_open(&shared.errands, 1, 1u << LUMEN_ERRAND_DEMAND, 0) == 0);
    for (uint32_t l = 0; l < LM_LIST_COUNT; l++)
        thread.lists[l] = (struct lm_list){LM_NO_CONNECTION, LM_NO_CONNECTION, 0};
    for (uint32_t c = 0; c < CONNECTIONS; c++)
        connections[c] = (struct lm_connection){
            .index = c,
            .in.block = LM_NO_BLOCK,
            .in.call = {.route = LM_ROUTE_INFER, .key = LM_NO_KEY, .any_version = true}};
    each_model_once();
    so_many_wait();
    rights_that_a_reload_took();
    lm_errands_close(shared.errands);
    free(side.blocks);
    return check_finish("test_http_demand");
}
