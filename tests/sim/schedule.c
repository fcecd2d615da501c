/* schedule.c: whose turn it is: a thread's, an operation's in the kernel, a client's. Time moves on
 * a little with every turn, and to the next event when nobody has one (F20: no clock but the
 * seed's).
 */
#include "sim.h"

enum { STEPS_MAX = 2000000 };

uint64_t sim_steps;

void clients_choose(struct choice *choice); /* client.c */

void choice_add(struct choice *choice, void (*act)(void *, uint32_t), void *what, uint32_t which) {
    if (sim_below(++choice->seen) != 0) return;
    choice->act = act;
    choice->what = what;
    choice->which = which;
}

void choice_at(struct choice *choice, uint64_t at_ns) {
    if (at_ns < choice->next_ns) choice->next_ns = at_ns;
}

static void resume(void *what, uint32_t which) {
    (void)which;
    fiber_resume(what);
}

static void fibers_choose(struct choice *choice) {
    for (uint32_t f = 0; f < fiber_count; f++) {
        struct fiber *fiber = &fibers[f];
        if (fiber->ended) continue;
        if (!fiber->blocked_on || fiber->wake_at_ns <= sim_now_ns) {
            choice_add(choice, resume, fiber, 0);
        } else if (fiber->wake_at_ns != UINT64_MAX) {
            choice_at(choice, fiber->wake_at_ns);
        }
    }
}

bool schedule(bool (*done)(void), uint64_t until_ns) {
    while (!done()) {
        struct choice choice = {.next_ns = UINT64_MAX};
        if (sim_now_ns >= until_ns) return false;
        SIM_CHECK(++sim_steps < STEPS_MAX, "no end after %d steps", STEPS_MAX);
        fibers_choose(&choice);
        rings_choose(&choice);
        clients_choose(&choice);
        if (choice.seen) {
            choice.act(choice.what, choice.which);
            sim_now_ns += 20 + sim_below(200);
        } else if (choice.next_ns == UINT64_MAX) {
            return false; /* nothing will ever happen */
        } else {
            sim_now_ns = choice.next_ns < until_ns ? choice.next_ns : until_ns;
        }
    }
    return true;
}
