/* budgets.h: how much a key or a model may have in a minute and in a day, counted so that no number
 * of threads, of servers on one port, or of restarts gives out more.
 *
 * A request takes what it may need at most before it goes on, from all of its budgets or from none,
 * and gives back what it did not need once that is known. A count and the minute or day it is of
 * are one word, so that nothing is ever reset: the first that takes in a new minute begins a new
 * count. What is given back goes to the window it was taken from, or to nobody.
 *
 * Guaranteed, with any number of threads: of a window there is never given more than the limit,
 * beyond what requests took that had asked for less than they needed (lm_budgets_settle). Whoever's
 * clock is some windows behind takes from the later one. Lock-free: a retry means that another
 * thread's change was made.
 *
 * The memory is a file's (lumen_budgets.h). Its entries are made by the control thread; counts
 * belong to every thread.
 */
#ifndef LM_PARTS_BUDGETS_H
#define LM_PARTS_BUDGETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/memory.h"
#include "lumen_budgets.h"

/* lumen_budget, as threads see it. */
struct lm_budget {
    LM_CACHE_ALIGNED lm_atomic_u64 count[LUMEN_BUDGET_LIMITS];
    lm_atomic_u64 limit[LUMEN_BUDGET_LIMITS];
    lm_atomic_u64 requests, tokens, refused;
    uint32_t kind, reserved;
    uint64_t unused[4];
    char name[LUMEN_BUDGET_NAME_BYTES];
};
_Static_assert(sizeof(struct lm_budget) == sizeof(lumen_budget), "the same entry");

enum { LM_BUDGET_OWNERS = 2 }; /* of a request: its key and its model */

struct lm_budgets {
    lm_atomic_u64 entries;                    /* struct lm_budget *; 0: nobody has a budget */
    lm_atomic_u32 of_model[LUMEN_MODELS_MAX]; /* 1 + the entry; 0: it has none */
    struct lm_mapping memory;
    int fd;
    char path[64]; /* where its file can be opened */
};

/* The tokens that a request has taken of its budgets, until it gives them back or has used them. */
struct lm_budget_tally {
    uint16_t of[LM_BUDGET_OWNERS]; /* 1 + the entry; 0: there is none */
    uint32_t minute, day;          /* in which it was taken */
    uint64_t tokens;
};

/* Why something was not given. */
struct lm_budget_shortage {
    const char *owner; /* the name */
    uint32_t kind;     /* enum lumen_budget_kind */
    uint32_t limit_at; /* enum lumen_budget_limit */
    uint64_t limit, left, wanted;
    uint32_t wait_s; /* until the next window; 0: it would not help */
};

/* Control thread. Opens the file of a port; where there can be none, or the port is 0, one without
 * a name: `note` says why, or is "". Returns 0 or LUMEN_E_NOMEM. */
int lm_budgets_open(struct lm_budgets *budgets, uint32_t port, char *note, size_t note_bytes);
void lm_budgets_close(struct lm_budgets *budgets); /* the file stays */
/* All that there are from now on. Returns 0 or LUMEN_E_INVALID. */
int lm_budgets_set(struct lm_budgets *budgets, const lumen_budget_config *config, uint32_t count,
                   uint64_t now_s);
/* Control thread: whose budget the model of this number has; before its first request. */
void lm_budgets_name_model(struct lm_budgets *budgets, uint32_t model, const char *name);
/* 1 + the entry of a key or a model; 0: it has none. */
uint32_t lm_budgets_find(const struct lm_budgets *budgets, uint32_t kind, const char *name);

/* Any thread. `requests` and `tokens` of each of the tally's owners, all or none. The tally then
 * has what was taken before as well. false: `why` says of whose budget. */
bool lm_budgets_take(const struct lm_budgets *budgets, struct lm_budget_tally *tally,
                     uint32_t requests, uint64_t tokens, uint64_t now_s,
                     struct lm_budget_shortage *why);
/* Any thread. How many tokens it was in the end: what it had taken beyond them is given back, what
 * it had not taken counts all the same. The tally is empty afterwards, and has no owners. */
void lm_budgets_settle(const struct lm_budgets *budgets, struct lm_budget_tally *tally,
                       uint64_t tokens, uint64_t now_s);

#endif
