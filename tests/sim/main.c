/* main.c: deterministic simulation of the server's threads, its ring and its clients.
 *
 *   build/sim                      seeds 1 to 1000
 *   build/sim --seeds FROM COUNT   others; --jobs N: with N processes
 *   build/sim --seed S --trace     one seed again, event by event
 *   build/sim --rules              what is promised exactly, without a fault (rules*.c)
 *
 * What runs is c/src/flow and c/src/parts as they are, compiled with AddressSanitizer and UBSan.
 * In place of the kernel, of ONNX Runtime and of time there are models in memory, and all that
 * happens is drawn from the seed: how many threads, slots, buffers and descriptors there are; who
 * has the next turn, also in the middle of a system call of somebody else; what every operation
 * comes to, and how late; what the clients send, in which pieces, what they never read and when
 * they vanish. The same seed is the same history, on every machine.
 *
 *   names.h, sim_calls.h   the calls of the sources that are renamed
 *   fiber.c, schedule.c    I/O threads and workers as fibers; whose turn it is; time
 *   ring_sim.c             ring/ring.h in memory; checks how it is used
 *   ring_kernel.c          what the kernel does with it, and every fault there is
 *   network.c, calls.c     connections, descriptors, sendmsg, shutdown, close, futex, clock
 *   runtime.c              a runtime that doubles numbers, so that every answer can be checked
 *   client*.c              native and HTTP clients, strict ones and others
 *   engine.c, plan.c       a small server; how large everything is
 *   rules*.c               stories without a fault, and exactly what comes of them
 *   invariants.c           what must hold whenever an I/O thread waits, and when all have gone
 *
 * A strict client does nothing wrong and is done nothing by the network: each of its requests must
 * be answered, rightly, once, in order where there is one, and its connection must not end without
 * a reason. Others may be cut off, but what they read must be right too. startup.c is a program of
 * its own: every allocation and system call of a start fails in turn.
 *
 * A failure prints the last events, the plan, and the seed; exit status 1.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rules.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_stack_use_after_return=0:handle_abort=0";
}
#else
#define __sanitizer_set_death_callback(callback) ((void)(callback))
#define __lsan_do_recoverable_leak_check() 0
#endif

enum { SEED_SECONDS = 60, LEAK_CHECK_EVERY = 2000, JOBS_MAX = 64 };

static uint64_t totals[3]; /* steps, answers, virtual ms */

static bool never(void) {
    return false;
}

static void run_seed(uint64_t seed) {
    sim_seed(seed);
    sim_steps = 0;
    sim_plan_draw();
    fibers_reset();
    rings_reset();
    network_reset();
    check_reset();
    engine_models();
    engine_open();
    clients_draw();
    engine_start();
    bool early = sim_plan.drain_at_ns != UINT64_MAX;
    if (early) {
        (void)schedule(never, sim_plan.drain_at_ns);
    } else {
        SIM_CHECK(schedule(clients_done, sim_now_ns + 600 * SIM_S),
                  "clients do not come to an end");
        SIM_CHECK(schedule(engine_idle, sim_now_ns + 10 * SIM_S),
                  "all clients have gone, not everything of theirs");
        check_baseline();
    }
    engine_drain(sim_plan.drain_ns);
    uint64_t allowed = early ? sim_plan.drain_ns + 5 * SIM_S : SIM_S;
    SIM_CHECK(schedule(engine_ended, sim_now_ns + allowed), "draining does not end");
    for (uint32_t c = 0; c < sim_plan.clients; c++) totals[1] += clients[c].answered;
    clients_leave();
    engine_close();
    network_free();
    clients_free();
    totals[0] += sim_steps;
    totals[2] += (sim_now_ns - 1000 * SIM_S) / SIM_MS;
}

/* ---- the end of a failed seed ---- */

static void on_death(void) {
    sim_trace_print(stderr);
}

static void on_signal(int number) {
    signal(number, SIG_DFL);
    if (number == SIGALRM) fprintf(stderr, "sim: a thread has not come back for a minute\n");
    sim_trace_print(stderr);
    _exit(1);
}

/* ---- many seeds ---- */

static void run_seeds(uint64_t from, uint64_t count, uint64_t step) {
    for (uint64_t s = 0; s < count; s += step) {
        alarm(SEED_SECONDS);
        run_seed(from + s);
        bool check = (s / step) % LEAK_CHECK_EVERY == LEAK_CHECK_EVERY - 1;
        if (check && __lsan_do_recoverable_leak_check()) {
            fprintf(stderr, "sim: a leak, in one of the %d seeds up to %llu\n", LEAK_CHECK_EVERY,
                    (unsigned long long)(from + s));
            exit(1);
        }
    }
    alarm(0);
}

static void print_totals(uint64_t from, uint64_t count) {
    printf("sim: seeds %llu to %llu: %llu steps, %llu answers, %llu s of virtual time\n",
           (unsigned long long)from, (unsigned long long)(from + count - 1),
           (unsigned long long)totals[0], (unsigned long long)totals[1],
           (unsigned long long)totals[2] / 1000);
}

/* A process per core; the first that fails is what counts. */
static int run_jobs(uint64_t from, uint64_t count, uint32_t jobs) {
    int pipes[2], failed = 0;
    pid_t children[JOBS_MAX];
    if (pipe(pipes) != 0) return 2;
    fflush(stdout);
    for (uint32_t j = 0; j < jobs; j++) {
        children[j] = fork();
        if (children[j] != 0) continue;
        if (j < count) run_seeds(from + j, count - j, jobs);
        bool told = write(pipes[1], totals, sizeof totals) == (ssize_t)sizeof totals;
        exit(told ? 0 : 2);
    }
    close(pipes[1]);
    for (uint32_t j = 0; j < jobs; j++) {
        int status;
        if (wait(&status) < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
        for (uint32_t k = 0; k < jobs && !failed; k++) kill(children[k], SIGKILL);
        failed = 1;
    }
    uint64_t theirs[3];
    while (read(pipes[0], theirs, sizeof theirs) == (ssize_t)sizeof theirs) {
        for (int t = 0; t < 3; t++) totals[t] += theirs[t];
    }
    close(pipes[0]);
    if (!failed) print_totals(from, count);
    return failed;
}

int main(int argc, char **argv) {
    uint64_t from = 1, count = 1000;
    uint32_t jobs = 1;
    bool rules = false;
    signal(SIGABRT, on_signal);
    signal(SIGALRM, on_signal);
    __sanitizer_set_death_callback(on_death);
    for (int a = 1; a < argc; a++) {
        uint64_t value = a + 1 < argc ? strtoull(argv[a + 1], NULL, 10) : 0;
        if (strcmp(argv[a], "--trace") == 0) {
            sim_tracing = true;
        } else if (strcmp(argv[a], "--rules") == 0) {
            rules = true;
        } else if (strcmp(argv[a], "--seed") == 0 && a + 1 < argc) {
            from = value;
            count = 1;
            a++;
        } else if (strcmp(argv[a], "--seeds") == 0 && a + 2 < argc) {
            from = value;
            count = strtoull(argv[a + 2], NULL, 10);
            a += 2;
        } else if (strcmp(argv[a], "--jobs") == 0 && value > 0 && value <= JOBS_MAX) {
            jobs = (uint32_t)value;
            a++;
        } else {
            fprintf(stderr,
                    "sim: expected --seed S, --seeds FROM COUNT, --rules, --jobs N or --trace\n");
            return 2;
        }
    }
    if (rules) {
        rules_run();
        return 0;
    }
    if (jobs > 1) return run_jobs(from, count, jobs);
    run_seeds(from, count, 1);
    print_totals(from, count);
    return 0;
}
