/* history.h: what was pushed and popped, and whether a bounded first-in-first-out queue can explain
 * it.
 *
 * The search is Wing and Gong's with memory (Lowe): it takes, in every order that respects which
 * operation ended before which began, the next operation that the specification allows, and
 * remembers the (set of operations, content) pairs that led nowhere. Values are unique. Used by the
 * explorer and by linearizability.c.
 */
#ifndef TESTS_MODELS_HISTORY_H
#define TESTS_MODELS_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

enum { HISTORY_OPERATIONS_MAX = 32, HISTORY_CAPACITY_MAX = 8 };

enum history_kind { HISTORY_PUSH, HISTORY_POP };

/* How much the specification forgives. */
enum history_rule {
    HISTORY_STRICT = 0,
    HISTORY_SPURIOUS_EMPTY = 1, /* "empty" is no statement while a push is in progress */
    HISTORY_SPURIOUS_FULL = 2,  /* nor "full" while a pop is */
    HISTORY_FULL_ALONE = 4      /* nor "full" while any other operation is */
};

struct history_operation {
    enum history_kind kind;
    bool done; /* false: full, or empty */
    uint32_t value;
    uint32_t before; /* bit i: operation i had ended when this one began */
};

struct history {
    struct history_operation operations[HISTORY_OPERATIONS_MAX];
    uint32_t count;
    uint32_t capacity;
};

/* `rules`: a sum of enum history_rule. */
bool history_is_legal(const struct history *history, uint32_t rules);
void history_print(const struct history *history);

#endif
