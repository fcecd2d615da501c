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

/* As many workers as `thread_count: 0` asks for. */
static uint32_t usable(void) {
    int cpus = lumen_usable_cpus(NULL, 0);
    return cpus < LUMEN_WORKERS_MAX ? (uint32_t)cpus : LUMEN_WORKERS_MAX;
}

static void is_in_force(lumen_server *server, const lumen_config *config) {
    const struct lm_line *line = lm_node_line(&server->shared.nodes[0]);
    bool is_auto = config->queue_type == LUMEN_QUEUE_AUTO;
    uint32_t most = config->queue_type == LUMEN_QUEUE_SPSC ? 1 : usable();
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

static void under_load(uint32_t queue_type, uint32_t allocator_type, uint32_t workers,
                       uint64_t *random) {
    struct client clients[CLIENTS] = {0};
    uint32_t threads = check_threads();
    bool is_auto = queue_type == LUMEN_QUEUE_AUTO;
    lumen_config config = config_of(queue_type, allocator_type, is_auto ? 1 : 2);
    config.io_threads = 1;
    config.thread_count = workers;
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
    const uint32_t most = usable() > 2 ? usable() : 2;
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
    config.thread_count = most + 1;
    says(lumen_change_workers(server, &config), LUMEN_E_UNSUPPORTED, "expected at most");
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
    const uint32_t most = usable() > 2 ? usable() : 2;
    lumen_server *server = start_run_by(&config, LUMEN_RUN_WORKER);
    int fd = dial(server);
    CHECK(server->shared.worker_count == server->shared.thread_count);
    for (uint32_t workers = 1; workers <= 2; workers++) {
        config.thread_count = workers;
        CHECK_AT("%s", lm_error_last());
        CHECK(lumen_change_workers(server, &config) == 0 && ask(fd, 0) == 3);
        is_in_force(server, &config);
    }
    config.thread_count = most + 1;
    says(lumen_change_workers(server, &config), LUMEN_E_UNSUPPORTED, "expected at most");
    close(fd);
    lumen_close(server);
}

/* Just these workers, a bit each, sleep until they are wanted. */
static bool sleepers_become(lumen_server *server, uint64_t workers) {
    struct lm_waitset *spare = &server->shared.nodes[0].spare;
    for (int tries = 0; tries < 10000; tries++) {
        if (lm_waitset_sleepers(spare) == workers) return true;
        usleep(1000);
    }
    return false;
}

/* Two workers that sleep, since they are not wanted, are both woken at once. */
static void all_come_back(void) {
    lumen_config config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    config.io_threads = 1;
    config.thread_count = 3;
    lumen_server *server = start_with(&config);
    for (int round = 0; round < 3; round++) {
        CHECK_AT("from one to three, round %d", round);
        config.thread_count = 1;
        CHECK(lumen_change_workers(server, &config) == 0 &&
              sleepers_become(server, 1 << 1 | 1 << 2));
        config.thread_count = 3;
        CHECK(lumen_change_workers(server, &config) == 0 && sleepers_become(server, 0));
    }
    lumen_close(server);
}

/* ---- more workers than there were ---- */

/* One worker, which may become two, on a machine of several cores. */
static lumen_server *start_one(lumen_config *config, uint32_t *threads_out) {
    *threads_out = check_threads();
    *config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 2);
    config->io_threads = config->thread_count = 1;
    return start_with(config);
}

static uint64_t answered_by(const lumen_server *server, uint32_t worker) {
    /* relaxed: a counter */
    return lm_load_relaxed_u64(&server->workers[worker].stats->worker.requests_ok);
}

/* Both workers, alone, answer. */
static void each_answers(lumen_server *server, uint16_t model, int expected) {
    int fds[2] = {dial(server), dial(server)};
    uint64_t before[2] = {answered_by(server, 0), answered_by(server, 1)};
    for (int w = 0; w < 2; w++) {
        /* The one that woke last sleeps on the top of the others: both at once reach both. */
        for (int times = 0; answered_by(server, (uint32_t)w) == before[w]; times++) {
            CHECK_AT("worker %d of two, after %d pairs", w, times);
            CHECK(times < 100000);
            for (int c = 0; c < 2; c++) send_to(fds[c], model);
            for (int c = 0; c < 2; c++) CHECK(receive_from(fds[c]) == expected);
        }
    }
    for (int c = 0; c < 2; c++) close(fds[c]);
}

static void more(void) {
    uint32_t threads;
    lumen_config config;
    lumen_server *server = start_one(&config, &threads);
    struct lm_shared *shared = &server->shared;
    const uint32_t blocks = shared->stats.header->block_count, most = shared->thread_count;
    lumen_info info;
    CHECK(most == usable() && server->thread_total == 1 &&
          !lm_worker_is_there(shared->workers + 1));
    const uint32_t running = check_threads();
    for (int round = 0; round < 3; round++) {
        config.thread_count = 2;
        CHECK_AT("%s", lm_error_last());
        CHECK(lumen_change_workers(server, &config) == 0);
        is_in_force(server, &config);
        CHECK(lumen_get_info(server, &info) == 0);
        CHECK(info.worker_cpus[1] == (shared->workers[1].pinned ? shared->workers[1].cpu : -1));
        /* They share the cores with the I/O thread from now on. */
        CHECK((lm_load_relaxed_u32(&shared->io_shares_cores) != 0) == (usable() == 2));
        CHECK(shared->stats.header->block_count == blocks + 1);
        CHECK(server->thread_total == 2 && check_threads() == running + 1);
        each_answers(server, 0, 3);
        config.thread_count = 1;
        CHECK(lumen_change_workers(server, &config) == 0);
        is_in_force(server, &config);
        CHECK(!lm_load_relaxed_u32(&shared->io_shares_cores));
    }
    config.thread_count = most + 1;
    says(lumen_change_workers(server, &config), LUMEN_E_UNSUPPORTED, "expected at most");
    lumen_stop(server, 0);
    while (lumen_wait(server, 1000) == LUMEN_E_AGAIN) continue;
    config.thread_count = 2;
    CHECK(lumen_change_workers(server, &config) == LUMEN_E_STATE);
    lumen_close(server);
    CHECK(check_threads_become(threads));
}

/* Requests whose bodies have begun to come keep their model, also when it has gone: it has what the
 * second worker needs. */
static void more_while_a_model_goes(void) {
    enum { WAITING = 6 };
    uint32_t threads, index;
    int fds[WAITING];
    lumen_config config;
    lumen_server *server = start_one(&config, &threads);
    lumen_model_config second = model_of("second", 1);
    second.batch_size = 4;
    CHECK(lumen_load_model(server, &second, 0, &index) == 0);
    const uint16_t number = server->numbers[index];
    const struct lm_model *model = server->set->models[index];
    for (int r = 0; r < WAITING; r++) {
        fds[r] = dial(server);
        send_part(fds[r], number, 0, REQUEST_BYTES - 1);
    }
    /* relaxed: a gauge */
    while (lm_load_relaxed_u64(&server->ios[0].stats->io.slots_in_use) < WAITING) usleep(1000);
    CHECK(lumen_unload_model(server, "second") == 0);
    config.thread_count = 2;
    CHECK(lumen_change_workers(server, &config) == 0);
    CHECK(model->sessions[1] && model->batches[1]);
    CHECK(lumen_settle(server, 10) == LUMEN_E_AGAIN);
    for (int r = 0; r < WAITING; r++) send_part(fds[r], number, REQUEST_BYTES - 1, REQUEST_BYTES);
    for (int r = 0; r < WAITING; r++) {
        CHECK(receive_from(fds[r]) == -3);
        close(fds[r]);
    }
    CHECK(lumen_settle(server, 20000) == 0);
    lumen_close(server);
    CHECK(check_threads_become(threads));
}

/* A model that was there, one that came before the second worker and one that comes after it; one
 * that has gone by then. */
static void more_while_models_come(void) {
    uint32_t threads, index;
    lumen_config config;
    lumen_server *server = start_one(&config, &threads);
    lumen_model_config second = model_of("second", 1), third = model_of("third", 2);
    lumen_model_config fourth = model_of("fourth", 1);
    second.batch_size = fourth.batch_size = 4;
    CHECK(lumen_load_model(server, &second, 0, &index) == 0 && index == 1);
    CHECK(lumen_load_model(server, &third, 0, &index) == 0 && index == 2);
    CHECK(lumen_unload_model(server, "third") == 0);
    config.thread_count = 2;
    CHECK(lumen_change_workers(server, &config) == 0);
    CHECK(lumen_load_model(server, &fourth, 0, &index) == 0);
    each_answers(server, 0, 3);
    each_answers(server, server->numbers[1], -3);
    each_answers(server, server->numbers[index], -3);
    CHECK(lumen_settle(server, 20000) == 0); /* what went has been freed */
    lumen_close(server);
    CHECK(check_threads_become(threads));
}

int main(void) {
    uint64_t random = check_seed();
    library = getenv("LUMEN_ORT");
    if (!library) check_skip("test_workers", "LUMEN_ORT does not name libonnxruntime.so");
    check_watchdog(300, "a change of workers");
    make_graphs();
    refused();
    workers_alone();
    all_come_back();
    if (usable() > 1) {
        more();
        more_while_models_come();
        more_while_a_model_goes();
        under_load(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1, &random);
    }
    under_load(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 2, &random);
    under_load(LUMEN_QUEUE_AUTO, LUMEN_ALLOCATOR_STANDARD, 2, &random);
    check_watchdog(0, "");
    return check_finish("test_workers");
}
