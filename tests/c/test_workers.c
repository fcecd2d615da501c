/* test_workers.c: the number of workers, their queue and the memory of slots, changed while clients
 * ask without a pause: every request is answered once and rightly, and a change is in force once
 * the call has returned. LUMEN_ORT names libonnxruntime.so. */
#include <pthread.h>

#include "base/clock.h"
#include "live.h"

enum { CLIENTS = 3, ROUNDS = 300 };

static lm_atomic_u32 stop;

struct client {
    lumen_server *server;
    pthread_t thread;
    uint64_t answers;
};

static void *keep_asking(void *argument) {
    struct client *client = argument;
    int fd = dial(client->server);
    bool right = true;
    while (!lm_load_relaxed_u32(&stop)) { /* relaxed: a hint */
        right = right && ask(fd, 0) == 3;
        client->answers++;
    }
    CHECK(right);
    close(fd);
    return NULL;
}

static void is_in_force(lumen_server *server, const lumen_config *config) {
    const struct lm_line *line = lm_node_line(&server->shared.nodes[0]);
    bool is_auto = config->queue_type == LUMEN_QUEUE_AUTO;
    uint32_t most = config->queue_type == LUMEN_QUEUE_SPSC ? 1 : 2;
    lumen_info info;
    CHECK(line->queue.type == (is_auto ? LUMEN_QUEUE_MPMC : config->queue_type));
    CHECK(line->workers == (config->thread_count ? config->thread_count : most));
    CHECK(lumen_get_info(server, &info) == 0 && info.workers == line->workers);
    CHECK(server->shared.config.allocator_type == config->allocator_type);
}

/* `auto` is for a server that was started with it, and gathers no batches. */
static void draw(lumen_config *config, bool is_auto, uint64_t *random) {
    const uint32_t types[] = {LUMEN_QUEUE_MPMC, LUMEN_QUEUE_SCQ, LUMEN_QUEUE_SPSC,
                              LUMEN_QUEUE_NAIVE, is_auto ? LUMEN_QUEUE_AUTO : LUMEN_QUEUE_BATCHED};
    config->queue_type = types[check_below(random, 5)];
    config->thread_count =
        config->queue_type == LUMEN_QUEUE_SPSC ? check_below(random, 2) : check_below(random, 3);
    config->allocator_type =
        check_below(random, 2) ? LUMEN_ALLOCATOR_ARENA : LUMEN_ALLOCATOR_STANDARD;
}

static void under_load(uint32_t queue_type, uint32_t allocator_type, uint64_t *random) {
    struct client clients[CLIENTS] = {0};
    uint32_t threads = check_threads();
    bool is_auto = queue_type == LUMEN_QUEUE_AUTO;
    lumen_config config = config_of(queue_type, allocator_type, is_auto ? 1 : 2);
    config.io_threads = 1;
    config.batch_delay_us = 100;
    lumen_server *server = start_with(&config);
    lm_store_relaxed_u32(&stop, 0);
    for (int c = 0; c < CLIENTS; c++) {
        clients[c].server = server;
        CHECK(pthread_create(&clients[c].thread, NULL, keep_asking, &clients[c]) == 0);
    }
    int fd = dial(server);
    for (int round = 0; round < ROUNDS; round++) {
        draw(&config, is_auto, random);
        int code = lumen_change_workers(server, &config);
        CHECK_AT("round %d, queue %u, %u workers, allocator %u: %s", round, config.queue_type,
                 config.thread_count, config.allocator_type, lm_error_last());
        CHECK(code == 0);
        is_in_force(server, &config);
        if (check_below(random, 2)) CHECK(ask(fd, 0) == 3);
    }
    lm_store_relaxed_u32(&stop, 1);
    for (int c = 0; c < CLIENTS; c++) {
        pthread_join(clients[c].thread, NULL);
        CHECK(clients[c].answers > 0);
    }
    close(fd);
    lumen_close(server); /* also the workers that are not wanted end */
    CHECK(check_threads_become(threads));
}

static void refused(void) {
    lumen_config config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    lumen_server *server = start_with(&config);
    int fd = dial(server);
    config.queue_type = LUMEN_QUEUE_INLINE;
    says(lumen_change_workers(server, &config), LUMEN_E_UNSUPPORTED,
         "engine.queue_type cannot change without a restart");
    config.queue_type = LUMEN_QUEUE_AUTO;
    says(lumen_change_workers(server, &config), LUMEN_E_UNSUPPORTED, "sessions of their own");
    config.queue_type = LUMEN_QUEUE_SPSC;
    config.thread_count = config.io_threads = 1;
    says(lumen_change_workers(server, &config), LUMEN_E_INVALID, "found 1 and 2");
    config.queue_type = LUMEN_QUEUE_BATCHED;
    says(lumen_change_workers(server, &config), LUMEN_E_INVALID, "engine.batch_size");
    config.queue_type = LUMEN_QUEUE_MPMC;
    config.thread_count = 3;
    says(lumen_change_workers(server, &config), LUMEN_E_UNSUPPORTED, "was started with 2");
    config.allocator_type = LUMEN_ALLOCATOR_STANDARD; /* nothing of it is in force */
    CHECK(lumen_change_workers(server, &config) == LUMEN_E_UNSUPPORTED);
    config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    is_in_force(server, &config);
    CHECK(lumen_change_workers(server, &config) == 0 && ask(fd, 0) == 3);
    CHECK(lm_node_line(&server->shared.nodes[0])->number == 0);
    close(fd);
    lumen_close(server);
    config.queue_type = LUMEN_QUEUE_INLINE;
    config.thread_count = 0;
    server = start_with(&config);
    CHECK(lumen_change_workers(server, &config) == 0);
    config.queue_type = LUMEN_QUEUE_MPMC;
    says(lumen_change_workers(server, &config), LUMEN_E_UNSUPPORTED, "has no workers");
    lumen_close(server);
}

/* I/O threads of their own sessions are for a queue that becomes auto, not for one that is. */
static void workers_alone(void) {
    lumen_config config = config_of(LUMEN_QUEUE_AUTO, LUMEN_ALLOCATOR_ARENA, 1);
    lumen_server *server = start_run_by(&config, LUMEN_RUN_WORKER);
    int fd = dial(server);
    CHECK(server->shared.worker_count == server->shared.thread_count);
    for (uint32_t workers = 1; workers <= 2; workers++) {
        config.thread_count = workers;
        CHECK_AT("%s", lm_error_last());
        CHECK(lumen_change_workers(server, &config) == 0 && ask(fd, 0) == 3);
        is_in_force(server, &config);
    }
    config.thread_count = 3;
    says(lumen_change_workers(server, &config), LUMEN_E_UNSUPPORTED, "was started with 2");
    close(fd);
    lumen_close(server);
}

int main(void) {
    uint64_t random = check_seed();
    library = getenv("LUMEN_ORT");
    if (!library) check_skip("test_workers", "LUMEN_ORT does not name libonnxruntime.so");
    check_watchdog(300, "a change of workers");
    make_graphs();
    refused();
    workers_alone();
    under_load(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, &random);
    under_load(LUMEN_QUEUE_AUTO, LUMEN_ALLOCATOR_STANDARD, &random);
    check_watchdog(0, "");
    return check_finish("test_workers");
}
