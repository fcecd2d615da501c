/* scenarios_greeted.c: connections that the thread of TLS's handshakes gives to an I/O thread,
 * while it sleeps, and while the server begins to drain: tls.c, tls_turn.c and io.c's
 * wait_for_work.
 *
 * No time limit ends a wait (world.c), so that a connection for which nobody was woken is found at
 * the end.
 */
#include <string.h>

#include "flow/accept.h"
#include "flow/tls.h"
#include "flow/tls_turn.h"
#include "machine.h"
#include "real.h"
#include "scenario.h"

enum { CLIENTS_MAX = 3 };

struct plan {
    uint32_t clients;
    bool drains;   /* meanwhile, and the I/O thread leaves when it sees it */
    bool is_tight; /* there is room for two connections only */
};

static const struct plan plans[] = {
    {.clients = 2},
    {.clients = 3, .is_tight = true},
    {.clients = 2, .drains = true},
};

static const struct plan *plan;
static struct lm_shared shared;
static struct lm_io io;
static struct lm_tls_side side;
static struct lm_stats_block block;
static struct lm_tls_door door;
static lm_atomic_u64 entries[CLIENTS_MAX];
static struct lm_tls_sessions table;
static struct lm_tls_session sessions[CLIENTS_MAX];
static uint32_t taken[CLIENTS_MAX], refused[CLIENTS_MAX];
static bool is_draining;

/* The I/O thread must read of a connection whatever the other thread wrote last. */
void lm_accept_greeted(struct lm_io *same, int fd) {
    struct lm_tls_session *session = lm_tls_session_at(&table, fd);
    (void)same;
    if (session != &sessions[fd]) {
        machine_fail("connection %d has another's session", fd);
        return;
    }
    machine_plain_read(&session->fd, sizeof session->fd);
    if (session->fd != fd) machine_fail("session %d is not written", fd);
    machine_plain_write(&taken[fd], sizeof taken[fd]);
    taken[fd]++;
}

static void greet(uint32_t unused) {
    (void)unused;
    for (uint32_t fd = 0; fd < plan->clients; fd++) {
        machine_plain_write(&sessions[fd].fd, sizeof sessions[fd].fd);
        sessions[fd].fd = (int)fd;
        lm_tls_session_put(&table, (int)fd, &sessions[fd]);
        if (!lm_tls_deliver(&shared, fd)) refused[fd]++;
    }
}

static void drain(uint32_t unused) {
    (void)unused;
    real_drain(&shared);
    is_draining = true;
    lm_ring_wake(NULL);
}

/* Others may have taken, or refused, what is left: the scenario's own memory says so. */
static bool is_over(void) {
    uint32_t over = 0;
    for (uint32_t fd = 0; fd < plan->clients; fd++) over += taken[fd] + refused[fd];
    return plan->drains ? is_draining : over == plan->clients;
}

static void run_io(uint32_t unused) {
    (void)unused;
    struct lm_completion completions[LM_COMPLETIONS_PER_TURN];
    for (;;) {
        lm_tls_take_greeted(&io);
        if (is_over()) return;
        (void)real_wait_for_work(&io, completions);
    }
}

static void set_up(uint32_t variant, bool weak) {
    (void)weak;
    plan = &plans[variant];
    memset(&shared, 0, sizeof shared);
    memset(&door, 0, sizeof door);
    memset(sessions, 0xff, sizeof sessions);
    memset(entries, 0, sizeof entries);
    memset(taken, 0, sizeof taken);
    memset(refused, 0, sizeof refused);
    table.entries = entries;
    door.sessions = &table;
    shared.tls = &door;
    shared.sessions = &table;
    shared.ios = &io;
    shared.io_count = 1;
    io = (struct lm_io){.shared = &shared, .node = &shared.nodes[0], .stats = &block, .tls = &side};
    is_draining = false;
    if (lm_spsc_open(&side.greeted, plan->is_tight ? 2 : 4)) machine_fail("no queue");
    machine_add_thread(greet, 0);
    machine_add_thread(run_io, 0);
    if (plan->drains) machine_add_thread(drain, 0);
}

static void check(void) {
    uint32_t fd, left[CLIENTS_MAX] = {0}, all = 0;
    while (lm_spsc_pop(&side.greeted, &fd)) left[fd]++; /* which lm_tls_side_close closes */
    lm_spsc_close(&side.greeted);
    if (machine_failure()) return;
    for (fd = 0; fd < plan->clients; fd++) {
        if (taken[fd] + refused[fd] + left[fd] != 1)
            machine_fail("connection %u was given %u times", fd,
                         taken[fd] + refused[fd] + left[fd]);
        if (left[fd] && !plan->drains) machine_fail("connection %u waits, and nobody wakes", fd);
        all += refused[fd];
    }
    if (all > 0 && !plan->drains && !plan->is_tight) machine_fail("refused with room for all");
}

#define GREETED(n, v, p, w, fp, fw) \
    {.name = n,                     \
     .set_up = set_up,              \
     .check = check,                \
     .variant = v,                  \
     .preemptions = p,              \
     .weak_preemptions = w,         \
     .full_preemptions = fp,        \
     .full_weak_preemptions = fw}

const struct scenario scenarios_greeted[] = {
    /* C11 alone would let the ring's wake-up overtake the connection. */
    GREETED("greeted", 0, 4, SCENARIO_SKIPPED, 6, SCENARIO_SKIPPED),
    GREETED("greeted-tight", 1, 3, SCENARIO_SKIPPED, 5, SCENARIO_SKIPPED),
    GREETED("greeted-drains", 2, 3, 2, 5, 4),
};
const uint32_t scenarios_greeted_count = sizeof scenarios_greeted / sizeof scenarios_greeted[0];
