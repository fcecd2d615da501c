/* test_reload.c: what a reload keeps of the buckets, and whom a request is charged to after it; and
 * tables that are replaced while threads read them: each is freed, none while somebody can see it
 * (what a sanitizer looks for), and a thread never goes back to an older one. */
#include <pthread.h>
#include <sched.h>

#include "base/error.h"
#include "check.h"
#include "flow/access_log.h"
#include "flow/dialect.h"
#include "flow/gate.h"
#include "flow/reload.h"

enum { READERS = 3, ROUNDS = 3000 };

static struct lm_shared shared;
static struct lm_io ios[READERS];
static lm_atomic_u32 stop;

/* A table whose parts all say its number. */
static struct lm_access *table(uint32_t number, const struct lm_access *before) {
    struct lm_access *made;
    lumen_key_config key = {.name = "ada", .rate = 1e-3, .burst = number};
    lumen_config config = {.keys = &key, .key_count = 1, .rate = 1e-3, .burst = number};
    CHECK(lm_access_open(&made, &config, before, 0) == 0);
    made->hosts.count = number % (LUMEN_HOSTS_MAX + 1);
    return made;
}

static void *reader(void *argument) {
    struct lm_io *io = argument;
    uint64_t last = 0;
    bool whole = true;
    while (!lm_load_relaxed_u32(&stop)) { /* relaxed: a hint */
        lm_io_look(io);
        const struct lm_access *now = io->access;
        const struct lm_token_bucket *of_key = &now->keys.entries[0].bucket;
        uint64_t number = of_key->burst_units >> of_key->shift;
        whole = whole && number >= last && now->hosts.count == number % (LUMEN_HOSTS_MAX + 1) &&
                now->bucket.burst_units >> now->bucket.shift == number;
        last = number;
    }
    CHECK(whole);
    return NULL;
}

static uint32_t tables(void) {
    uint32_t count = 0;
    for (struct lm_access *at = lm_reload_in_force(&shared); at; at = at->retired) count++;
    return count;
}

static void replaced_while_they_are_read(void) {
    pthread_t threads[READERS];
    shared.ios = ios;
    shared.io_count = READERS;
    lm_store_relaxed_u64(&shared.access, (uintptr_t)table(1, NULL));
    for (uint32_t i = 0; i < READERS; i++) {
        ios[i].shared = &shared;
        ios[i].node = &shared.nodes[0];
        CHECK(pthread_create(&threads[i], NULL, reader, &ios[i]) == 0);
    }
    for (uint32_t round = 2; round < ROUNDS; round++) {
        lm_reload_publish(&shared, table(round, lm_reload_in_force(&shared)));
        if (round % 3) lm_reload_reap(&shared);
    }
    while (lm_reload_reap(&shared), tables() > 1) sched_yield();
    uint64_t asked = lm_reload_ask(&shared);
    while (!lm_reload_all_turned(&shared, asked)) sched_yield();
    lm_store_relaxed_u32(&stop, 1);
    for (uint32_t i = 0; i < READERS; i++) pthread_join(threads[i], NULL);
    /* Nobody looks any more: what is replaced now waits for the end. */
    lm_reload_publish(&shared, table(ROUNDS, NULL));
    lm_reload_reap(&shared);
    CHECK(tables() == 2 && !lm_reload_all_turned(&shared, lm_reload_ask(&shared)));
    lm_reload_close(&shared);
    CHECK(!lm_reload_in_force(&shared));
}

/* How many tokens are left at time 0. */
static uint32_t left(struct lm_token_bucket *bucket) {
    uint32_t count = 0;
    while (count < 100 && lm_token_bucket_acquire(bucket, 1, 0)) count++;
    return count;
}

/* A reload that changes something else gives nobody a fresh burst. */
static void buckets_go_on(void) {
    lumen_key_config keys[2] = {
        {.name = "ada", .rate = 1, .burst = 10, .token_rate = 1, .token_burst = 10, .sha256 = {1}},
        {.name = "bob", .rate = 1, .burst = 10, .sha256 = {2}}};
    lumen_key_config later[3] = {keys[1], keys[0], keys[0]};
    later[0].burst = 20; /* bob's has changed, ada's has not and moves to another place */
    later[2].name = "eve";
    later[2].sha256[0] = 3;
    lumen_config config = {.rate = 1, .burst = 10, .keys = keys, .key_count = 2};
    lumen_model_config model = {.name = "m", .rate = 1, .burst = 10};
    struct lm_access *before, *after;

    CHECK(lm_access_open(&before, &config, NULL, 0) == 0);
    CHECK(lm_access_set_model(before, 0, &model, NULL, 0) == 0);
    CHECK(lm_token_bucket_acquire(&before->bucket, 7, 0));
    CHECK(lm_token_bucket_acquire(&before->model_buckets[0], 6, 0));
    CHECK(lm_token_bucket_acquire(&before->keys.entries[0].bucket, 8, 0));
    CHECK(lm_token_bucket_acquire(&before->keys.entries[1].bucket, 9, 0));
    lm_token_bucket_charge(&before->keys.entries[0].token_bucket, 8, 0);
    config.keys = later;
    config.key_count = 3;
    CHECK(lm_access_open(&after, &config, before, 0) == 0);
    CHECK(lm_access_set_model(after, 0, &model, before, 0) == 0);
    model.rate = -1;
    CHECK(lm_access_set_model(after, 1, &model, before, 0) == LUMEN_E_INVALID);
    CHECK(left(&after->bucket) == 3 && left(&after->model_buckets[0]) == 4);
    CHECK(left(&after->keys.entries[0].bucket) == 20);
    CHECK(left(&after->keys.entries[1].bucket) == 2);
    CHECK(left(&after->keys.entries[2].bucket) == 10);
    CHECK(left(&after->keys.entries[1].token_bucket) == 2);
    CHECK(left(&after->keys.entries[2].token_bucket) == 10);
    lm_access_close(before);
    lm_access_close(after);
    later[2].name = "ada";
    CHECK(lm_access_open(&after, &config, NULL, 0) == LUMEN_E_INVALID && !after);
    lm_access_close(NULL);
}

/* Buckets whose rate and burst are the same go on, with the time they began at; where one of the
 * two differs they start full. A model's bucket is its own, and everything else is the new table's.
 */
static void what_a_table_takes_over(void) {
    static const struct {
        double rate;
        uint32_t burst;
        uint32_t left; /* 500 ms later */
    } cases[] = {{2, 10, 3 + 1}, {2, 11, 11}, {4, 10, 10}, {2.0000001, 10, 10}};
    const uint64_t start_ns = 7000000000, later_ns = start_ns + 500001000;
    const char *hosts[] = {"one.example", "two.example"};
    lumen_config config = {.rate = 2, .burst = 10, .hosts = hosts, .host_count = 1};
    lumen_model_config model = {.name = "m", .rate = 2, .burst = 10};
    struct lm_access *before, *after;
    CHECK(lm_access_open(&before, &config, NULL, start_ns) == 0);
    CHECK(before->hosts.count == 1);
    for (uint32_t m = 0; m < 2; m++)
        CHECK(lm_access_set_model(before, m, &model, NULL, start_ns) == 0);
    CHECK(lm_token_bucket_acquire(&before->bucket, 7, start_ns));
    CHECK(lm_token_bucket_acquire(&before->model_buckets[0], 7, start_ns));
    CHECK(lm_token_bucket_acquire(&before->model_buckets[1], 9, start_ns));
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        CHECK_AT("a rate of %g, a burst of %u", cases[c].rate, cases[c].burst);
        config.rate = model.rate = cases[c].rate;
        config.burst = model.burst = cases[c].burst;
        config.host_count = 2;
        CHECK(lm_access_open(&after, &config, before, later_ns) == 0);
        for (uint32_t m = 0; m < 2; m++)
            CHECK(lm_access_set_model(after, m, &model, before, later_ns) == 0);
        CHECK(after->hosts.count == 2);
        CHECK(strcmp(after->hosts.names[0], hosts[0]) == 0 &&
              strcmp(after->hosts.names[1], hosts[1]) == 0);
        uint32_t left_all = cases[c].left, left_second = c == 0 ? 1 + 1 : cases[c].left;
        CHECK(lm_token_bucket_wait_ns(&after->bucket, left_all, later_ns) == 0);
        CHECK(lm_token_bucket_wait_ns(&after->bucket, left_all + 1, later_ns) > 0);
        CHECK(lm_token_bucket_acquire(&after->model_buckets[0], left_all, later_ns));
        CHECK(!lm_token_bucket_acquire(&after->model_buckets[0], 1, later_ns));
        CHECK(lm_token_bucket_acquire(&after->model_buckets[1], left_second, later_ns));
        CHECK(!lm_token_bucket_acquire(&after->model_buckets[1], 1, later_ns));
        CHECK(!lm_access_bucket(after, 2));
        lm_access_close(after);
    }
    model.rate = 2e9;
    CHECK(lm_access_set_model(before, 3, &model, NULL, 0) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "model 'm': rate: expected 0 (none) or 0.001 to 1e+09 a second"));
    lm_access_close(before);
}

/* The tokens of a request are its key's, not those of the key that has its number since. */
static void charged_to_its_own_key(void) {
    enum { START_NS = 1000, BURST = 10, TOKENS = 8 };
    static struct lm_io io = {.now_ns = START_NS, .access_since_ns = START_NS - 1};
    lumen_key_config key = {.name = "ada", .token_rate = 1, .token_burst = BURST, .sha256 = {1}};
    lumen_config config = {.keys = &key, .key_count = 1};
    struct lm_request before = {.started_ns = START_NS - 1, .tokens = TOKENS},
                      since = {.started_ns = START_NS, .tokens = TOKENS},
                      other = {.started_ns = START_NS, .tokens = TOKENS, .key = 1};
    CHECK(lm_access_open(&io.access, &config, NULL, START_NS) == 0);
    const struct lm_token_bucket *bucket = &io.access->keys.entries[0].token_bucket;
    lm_gate_charge(&io, &before);
    lm_gate_charge(&io, &other);
    CHECK(lm_token_bucket_wait_ns(bucket, BURST, START_NS) == 0);
    lm_gate_charge(&io, &since);
    CHECK(lm_token_bucket_wait_ns(bucket, BURST - TOKENS, START_NS) == 0);
    CHECK(lm_token_bucket_wait_ns(bucket, BURST - TOKENS + 1, START_NS) > 0);
    lm_access_close(io.access);
}

static uint32_t first_key(const struct lm_io *io, const struct lm_connection *connection) {
    (void)io, (void)connection;
    return 0;
}

/* Nor does the access log name that key. */
static void named_by_its_own_key(void) {
    enum { START_NS = 1000 };
    static const struct lm_dialect dialect = {.key = first_key};
    static struct lm_shared of_log = {.access_logged = true, .dialects = {&dialect}};
    static struct lm_request request;
    struct lm_io io = {.shared = &of_log, .access_since_ns = START_NS - 1};
    struct lm_connection connection = {.fd = -1};
    lumen_key_config key = {.name = "ada", .sha256 = {1}};
    lumen_config config = {.keys = &key, .key_count = 1};
    CHECK(lm_access_open(&io.access, &config, NULL, START_NS) == 0);
    for (uint32_t later = 0; later < 2; later++) {
        connection.in.started_ns = START_NS - 1 + later;
        lm_access_log_admit(&io, &connection, &request);
        CHECK(strcmp(request.client.key, later ? "ada" : "") == 0);
    }
    lm_access_close(io.access);
}

int main(void) {
    check_watchdog(120, "tables that are freed");
    buckets_go_on();
    what_a_table_takes_over();
    charged_to_its_own_key();
    named_by_its_own_key();
    replaced_while_they_are_read();
    return check_finish("test_reload");
}
