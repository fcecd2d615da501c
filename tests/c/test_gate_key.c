/* test_gate_key.c: a request's key is found again in another table of keys than its own: by its
 * owner, whatever number it had, from the turn on in which the thread saw that table. Each dialect
 * asks so for what a connection keeps: a request may wait for a slot meanwhile.
 */
#include "check.h"
#include "dialects/http_access.h"
#include "dialects/native.h"
#include "flow/gate.h"
#include "flow/reload.h"

enum { ANN, BEN, CID, KEYS };

static struct lm_shared shared;
static struct lm_io *io;

/* The keys of these names, in this order, in force from the next look on. */
static void put(struct lm_access *access, const char *const *names, uint32_t count) {
    lumen_key_config keys[KEYS] = {0};
    for (uint32_t k = 0; k < count; k++) {
        keys[k].name = names[k];
        keys[k].sha256[0] = (uint8_t)names[k][0];
    }
    CHECK(lm_keys_open(&access->keys, keys, count, 1) == 0);
    lm_store_release_u64(&shared.access, (uint64_t)(uintptr_t)access);
}

static void look(uint64_t now_ns) {
    io->now_ns = now_ns;
    lm_io_look(io);
}

static void kept_by_a_connection(uint32_t key, uint64_t owner, uint64_t then_ns, uint32_t now) {
    struct lm_connection native = {.in = {.started_ns = then_ns, .owner = owner}},
                         http = {.in = {.started_ns = then_ns}};
    native.in.native.key = http.in.call.key = key;
    http.in.call.owner = owner;
    CHECK(lm_native.key(io, &native) == now);
    CHECK(lm_http_key(io, &http) == now);
}

int main(void) {
    static struct lm_access first, second, none;
    static struct lm_node node;
    static struct lm_model_set models;
    static const struct lm_model model = {.index = 3};
    const char *const names[KEYS] = {"ann", "ben", "cid"}, *const others[] = {"cid", "ann"};
    const uint64_t ann = lm_key_owner("ann"), ben = lm_key_owner("ben"), cid = lm_key_owner("cid");
    io = calloc(1, sizeof *io);
    CHECK(io);
    io->shared = &shared;
    io->node = &node;
    io->models = &models;
    lm_store_release_u64(&shared.models, (uint64_t)(uintptr_t)&models);
    put(&first, names, KEYS);
    look(100);
    for (uint32_t k = 0; k < KEYS; k++) /* its own table: nobody asks for the owner */
        CHECK(lm_gate_key(io, k, 0, 101) == k);
    put(&second, others, 2);
    look(200);
    for (uint64_t then_ns = 101; then_ns <= 200; then_ns += 99) {
        CHECK(lm_gate_key(io, ANN, ann, then_ns) == 1);
        CHECK(lm_gate_key(io, BEN, ben, then_ns) == LM_KEY_GONE);
        CHECK(lm_gate_key(io, CID, cid, then_ns) == 0);
        CHECK(lm_gate_key(io, LM_NO_KEY, 0, then_ns) == LM_NO_KEY);
        kept_by_a_connection(ANN, ann, then_ns, 1);
        kept_by_a_connection(BEN, ben, then_ns, LM_KEY_GONE);
    }
    look(300); /* the same table */
    CHECK(lm_gate_key(io, 1, 0, 201) == 1);
    CHECK(lm_gate_allows(io, LM_NO_KEY, &model) && lm_gate_allows(io, 1, &model));
    CHECK(!lm_gate_allows(io, LM_KEY_GONE, &model) && !lm_gate_allows(io, 2, &model));
    put(&none, NULL, 0);
    look(400); /* everybody may do everything */
    CHECK(lm_gate_key(io, 1, ann, 201) == LM_NO_KEY);
    kept_by_a_connection(1, ann, 201, LM_NO_KEY);
    lm_keys_close(&none.keys);
    lm_keys_close(&first.keys);
    lm_keys_close(&second.keys);
    free(io);
    return check_finish("test_gate_key");
}
