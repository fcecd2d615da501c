/* lumen_budgets.h: how many requests and tokens a key or a model may have in a minute and in a day.
 *
 * The counts are in a file, /dev/shm/lumen-<port>.budgets, which outlives the server: the next one
 * on this port goes on with them, and two at a time have them in common. Behind a header of 64
 * bytes it has LUMEN_BUDGETS_MAX entries. Each 64-bit word is read and written whole.
 */
#ifndef LUMEN_BUDGETS_H
#define LUMEN_BUDGETS_H

#include <stdint.h>

#include "lumen.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LUMEN_BUDGETS_MAX = 512,     /* of keys and models that have one, or had one of late */
    LUMEN_BUDGET_USED_BITS = 40, /* of a count's word; above them is its window */
    LUMEN_BUDGET_HEADER_BYTES = 64,
    LUMEN_BUDGET_NAME_BYTES = 256
};
#define LUMEN_BUDGET_MAGIC "LMNBUDG1"

enum lumen_budget_kind { LUMEN_BUDGET_OF_KEY = 1, LUMEN_BUDGET_OF_MODEL };

enum lumen_budget_limit {
    LUMEN_REQUESTS_PER_MINUTE,
    LUMEN_REQUESTS_PER_DAY,
    LUMEN_TOKENS_PER_MINUTE,
    LUMEN_TOKENS_PER_DAY,
    LUMEN_BUDGET_LIMITS
};

/* The budget of a key or of a model. */
typedef struct lumen_budget_config {
    const char *name;                    /* of the key, or of the model */
    uint32_t kind;                       /* enum lumen_budget_kind */
    uint32_t reserved;                   /* 0 */
    uint64_t limit[LUMEN_BUDGET_LIMITS]; /* below 2^40; 0: none */
    /* Counts as the file has them, of an earlier time; 0: none. Each is taken where it is of a
     * later window than the file's, or is more. */
    uint64_t count[LUMEN_BUDGET_LIMITS];
} lumen_budget_config;

/* An entry of the file. */
typedef struct lumen_budget {
    /* (window << LUMEN_BUDGET_USED_BITS) + what was used in it, or is set aside for requests whose
     * end is not known. A window is the number of a minute, or of a day (UTC), since 1970, modulo
     * 2^24. */
    uint64_t count[LUMEN_BUDGET_LIMITS];
    uint64_t limit[LUMEN_BUDGET_LIMITS];
    uint64_t requests; /* since the file was made: those that were let in, */
    uint64_t tokens;   /* those that were used, */
    uint64_t refused;  /* and requests that would have been too much */
    uint32_t kind;     /* enum lumen_budget_kind; 0: the entry is free */
    uint32_t reserved;
    uint64_t unused[4];
    char name[LUMEN_BUDGET_NAME_BYTES];
} lumen_budget;

/* Sets all budgets: names that are not among them have no limits any more, and those that come back
 * find their counts. After lumen_open, and at any time later. Returns 0, LUMEN_E_INVALID with
 * what was expected, or LUMEN_E_NOMEM. */
LUMEN_API int lumen_set_budgets(lumen_server *server, const lumen_budget_config *budgets,
                                uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
