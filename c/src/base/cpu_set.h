/* cpu_set.h: a set of cores, read and written as the kernel does: "0-3,8". Any thread. */
#ifndef LM_BASE_CPU_SET_H
#define LM_BASE_CPU_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LM_CPUS_MAX = 8192 }; /* the kernel's own limit */

struct lm_cpu_set {
    uint64_t words[LM_CPUS_MAX / 64];
};

static inline bool lm_cpu_set_has(const struct lm_cpu_set *set, uint32_t cpu) {
    return cpu < LM_CPUS_MAX && (set->words[cpu / 64] >> (cpu % 64) & 1);
}
static inline void lm_cpu_set_add(struct lm_cpu_set *set, uint32_t cpu) {
    if (cpu < LM_CPUS_MAX) set->words[cpu / 64] |= 1ull << (cpu % 64);
}

uint32_t lm_cpu_set_count(const struct lm_cpu_set *set);
/* The first core of the set from `cpu` on; LM_CPUS_MAX: there is none. */
uint32_t lm_cpu_set_next(const struct lm_cpu_set *set, uint32_t cpu);
/* The cores in both sets; the cores in `set` alone. */
void lm_cpu_set_keep(struct lm_cpu_set *set, const struct lm_cpu_set *other);
void lm_cpu_set_drop(struct lm_cpu_set *set, const struct lm_cpu_set *other);
/* Adds the cores of a list; a newline may end it. false: the list is no list. */
bool lm_cpu_set_parse(struct lm_cpu_set *set, const char *list);
/* Writes the list, which ends in "..." where it does not fit. */
void lm_cpu_set_text(const struct lm_cpu_set *set, char *text, size_t capacity);

#endif
