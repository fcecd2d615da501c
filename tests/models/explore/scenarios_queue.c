/* scenarios_queue.c: each queue by itself: histories of push and pop against a bounded FIFO.
 *
 * No thread waits or tries again, so that every run is short; what is left is popped at the end,
 * when nobody else is at work and "empty" is exact for every queue.
 */
#include <string.h>

#include "history.h"
#include "machine_inner.h"
#include "parts/queue.h"
#include "scenario.h"
#include "world.h"

struct plan {
    uint32_t type; /* LUMEN_QUEUE_* */
    uint32_t rules;
    uint32_t weak_rules;
    /* 'p': push, 'c': pop; 's': push a slot that is free, 'w': pop a slot and free it */
    const char *threads[MACHINE_THREADS_MAX];
    bool pushed; /* one value is there at the beginning */
};

enum { LAX = HISTORY_SPURIOUS_EMPTY | HISTORY_SPURIOUS_FULL, CAPACITY = 2 };

static const struct plan plans[] = {
    {LUMEN_QUEUE_MPMC, LAX, LAX, {"pp", "pp", "cc", "cc"}, false},
    {LUMEN_QUEUE_MPMC, LAX, LAX, {"pppc", "cccp"}, false},
    {LUMEN_QUEUE_MPMC, HISTORY_SPURIOUS_FULL, LAX, {"ppp", "cc", "cc"}, false},
    {LUMEN_QUEUE_MPMC, HISTORY_SPURIOUS_FULL, LAX, {"pp", "pp", "cc", "cc"}, false},
    {LUMEN_QUEUE_MPMC, HISTORY_SPURIOUS_EMPTY, LAX, {"ppp", "cc", "c"}, false},
    {LUMEN_QUEUE_SPSC, HISTORY_STRICT, LAX, {"ppppp", "ccccc"}, false},
    {LUMEN_QUEUE_SCQ, HISTORY_FULL_ALONE, HISTORY_FULL_ALONE, {"pp", "p", "cc", "c"}, false},
    {LUMEN_QUEUE_SCQ, HISTORY_FULL_ALONE, HISTORY_FULL_ALONE, {"pc", "pc", "c"}, false},
    {LUMEN_QUEUE_SCQ, HISTORY_STRICT, HISTORY_STRICT, {"pppp", "cccc"}, false},
    {LUMEN_QUEUE_SCQ, HISTORY_STRICT, HISTORY_STRICT, {"p", "p", "c", "c"}, false},
    {LUMEN_QUEUE_SCQ, HISTORY_STRICT, HISTORY_STRICT, {"ppp", "cc", "c"}, false},
    {LUMEN_QUEUE_NAIVE, HISTORY_STRICT, HISTORY_STRICT, {"pp", "pp", "cc", "cc"}, false},
    {LUMEN_QUEUE_MPMC, 0, 0, {"sss", "ww", "w"}, false},
    {LUMEN_QUEUE_SCQ, 0, 0, {"sss", "ww", "w"}, false},
    /* A consumer a whole lap of entries ahead of a stalled one: the safe bits. */
    {LUMEN_QUEUE_SCQ, HISTORY_FULL_ALONE, HISTORY_FULL_ALONE, {"c", "cccc", "p"}, true},
};

static const struct plan *plan;
static struct lm_queue queue;
static struct history history;
static uint32_t rules;
static bool slot_is_free[CAPACITY];
static bool by_knowledge; /* "before" is happens-before, not the order of the run */
static struct {
    uint32_t thread, ended_at;
    bool ended;
} marks[HISTORY_OPERATIONS_MAX];

static uint32_t begin(enum history_kind kind, uint32_t value) {
    uint32_t o = history.count++;
    struct history_operation *operation = &history.operations[o];
    struct machine_clock now = machine_now();
    *operation = (struct history_operation){.kind = kind, .value = value};
    marks[o].thread = machine_self();
    marks[o].ended = false;
    for (uint32_t p = 0; p < o; p++) {
        bool known = now.at[marks[p].thread] >= marks[p].ended_at;
        if (marks[p].ended && (!by_knowledge || known || marks[p].thread == machine_self())) {
            operation->before |= 1u << p;
        }
    }
    return o;
}

static void end(uint32_t o, bool done, uint32_t value, uint32_t clock_before) {
    uint32_t now = machine_now().at[machine_self()];
    history.operations[o].done = done;
    history.operations[o].value = value;
    /* A store at the end was published with the time before it. */
    marks[o].ended_at = now > clock_before ? now - 1 : now;
    marks[o].ended = true;
}

/* receive.c:submit: there is a place for every slot, so that a push is not expected to fail. */
static void push_slot(void) {
    uint32_t slot = 0;
    while (slot < CAPACITY && !slot_is_free[slot]) slot++;
    if (slot == CAPACITY) return;
    slot_is_free[slot] = false;
    if (!lm_queue_push(&queue, slot)) {
        machine_fail("full, although the queue has a place for every slot");
    }
}

static void pop_slot(void) {
    uint32_t slot;
    if (lm_queue_pop(&queue, &slot)) slot_is_free[slot] = true;
}

static void work(uint32_t thread) {
    uint32_t value = thread * 16;
    for (const char *at = plan->threads[thread]; *at; at++) {
        uint32_t clock = machine_now().at[machine_self()];
        /* Where an operation begins and ends against the others' is a choice of its own. */
        machine_point("begin");
        if (*at == 's') {
            push_slot();
        } else if (*at == 'w') {
            pop_slot();
        } else if (*at == 'p') {
            uint32_t o = begin(HISTORY_PUSH, value);
            end(o, lm_queue_push(&queue, value), value, clock);
            value++;
        } else {
            uint32_t o = begin(HISTORY_POP, 0), taken = 0;
            bool done = lm_queue_pop(&queue, &taken);
            end(o, done, taken, clock);
        }
    }
}

static void set_up(uint32_t variant, bool weak) {
    plan = &plans[variant];
    memset(&history, 0, sizeof history);
    history.capacity = CAPACITY;
    memset(slot_is_free, 1, sizeof slot_is_free);
    rules = weak ? plan->weak_rules : plan->rules;
    /* scq is sequentially consistent throughout, and must stand the order of the run. */
    by_knowledge = weak && plan->type != LUMEN_QUEUE_SCQ;
    if (lm_queue_open(&queue, plan->type, CAPACITY, 1, 0) != 0) machine_fail("no queue");
    if (plan->pushed) {
        history.operations[history.count++] = (struct history_operation){
            .kind = HISTORY_PUSH, .value = 99, .done = lm_queue_push(&queue, 99)};
        marks[0].thread = 0;
        marks[0].ended_at = 0; /* known to all */
        marks[0].ended = true;
    }
    for (uint32_t t = 0; t < MACHINE_THREADS_MAX && plan->threads[t]; t++) {
        machine_add_thread(work, t);
    }
}

static void check(void) {
    uint32_t everything = (1u << history.count) - 1, value;
    bool found = true;
    bool recorded = history.count > 0;
    while (recorded && !machine_failure() && found) {
        found = lm_queue_pop(&queue, &value);
        if (history.count == HISTORY_OPERATIONS_MAX) break;
        history.operations[history.count++] = (struct history_operation){
            .kind = HISTORY_POP, .done = found, .value = value, .before = everything};
        everything = (1u << history.count) - 1;
    }
    if (!machine_failure() && !history_is_legal(&history, rules)) {
        machine_fail("no order of the operations explains what they returned");
        if (machine_tracing()) history_print(&history);
    }
    lm_queue_close(&queue);
}

#define QUEUE(n, v, fails, p, w, fp, fw) \
    {.name = n,                          \
     .set_up = set_up,                   \
     .check = check,                     \
     .variant = v,                       \
     .must_fail = fails,                 \
     .preemptions = p,                   \
     .weak_preemptions = w,              \
     .full_preemptions = fp,             \
     .full_weak_preemptions = fw}

static const char peer_stalled[] = "as documented: a stalled peer hides places behind its own";
static const char scq_full[] = "as documented: who is stalled keeps a place, \"full\" is not exact";
static const char never_full[] = "as documented: the tail comes round to a stalled pop's cell";

const struct scenario scenarios_queue[] = {
    QUEUE("mpmc-2x2", 0, NULL, 2, 1, 3, 2),
    QUEUE("mpmc-mixed", 1, NULL, 3, 2, 5, 4),
    QUEUE("mpmc-1x2-empty-is-exact", 2, NULL, 2, 1, 4, 2),
    QUEUE("mpmc-2x2-empty-not-exact", 3, peer_stalled, 2, 1, 2, 1),
    QUEUE("mpmc-1x2-full-not-exact", 4, peer_stalled, 2, 1, 2, 1),
    QUEUE("mpmc-slots-never-full", 12, never_full, 2, 1, 3, 2),
    QUEUE("spsc-1x1", 5, NULL, 4, 2, 8, 4),
    QUEUE("scq-2x2", 6, NULL, 2, 1, 3, 2),
    QUEUE("scq-mixed", 7, NULL, 2, 1, 3, 2),
    QUEUE("scq-1x1", 8, NULL, 3, 2, 5, 4),
    QUEUE("scq-2x2-strict", 9, NULL, 2, 1, 4, 3),
    QUEUE("scq-lap-ahead", 14, NULL, 3, 2, 4, 3),
    QUEUE("scq-1x2-full-not-exact", 10, scq_full, 2, 1, 2, 1),
    QUEUE("scq-slots-never-full", 13, NULL, 2, 1, 3, 2),
    QUEUE("naive-2x2", 11, NULL, 2, 1, 4, 1),
};
const uint32_t scenarios_queue_count = sizeof scenarios_queue / sizeof scenarios_queue[0];
