/* cpu_set.c: see cpu_set.h. */
#include "base/cpu_set.h"

#include <stdio.h>
#include <string.h>

uint32_t lm_cpu_set_count(const struct lm_cpu_set *set) {
    uint32_t count = 0;
    for (size_t w = 0; w < LM_CPUS_MAX / 64; w++)
        count += (uint32_t)__builtin_popcountll(set->words[w]);
    return count;
}

uint32_t lm_cpu_set_next(const struct lm_cpu_set *set, uint32_t cpu) {
    while (cpu < LM_CPUS_MAX) {
        uint64_t rest = set->words[cpu / 64] >> (cpu % 64);
        if (rest) return cpu + (uint32_t)__builtin_ctzll(rest);
        cpu = (cpu / 64 + 1) * 64;
    }
    return LM_CPUS_MAX;
}

void lm_cpu_set_keep(struct lm_cpu_set *set, const struct lm_cpu_set *other) {
    for (size_t w = 0; w < LM_CPUS_MAX / 64; w++) set->words[w] &= other->words[w];
}

void lm_cpu_set_drop(struct lm_cpu_set *set, const struct lm_cpu_set *other) {
    for (size_t w = 0; w < LM_CPUS_MAX / 64; w++) set->words[w] &= ~other->words[w];
}

/* A number below LM_CPUS_MAX; moves `at` behind it. */
static bool read_number(const char **at, uint32_t *number_out) {
    uint32_t number = 0;
    const char *from = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        number = number * 10 + (uint32_t)(**at - '0');
        if (number >= LM_CPUS_MAX) return false;
    }
    *number_out = number;
    return *at > from;
}

bool lm_cpu_set_parse(struct lm_cpu_set *set, const char *list) {
    uint32_t first, last;
    if (*list == '\0' || *list == '\n') return true;
    for (;;) {
        if (!read_number(&list, &first)) return false;
        last = first;
        if (*list == '-') {
            list++;
            if (!read_number(&list, &last) || last < first) return false;
        }
        for (uint32_t cpu = first; cpu <= last; cpu++) lm_cpu_set_add(set, cpu);
        if (*list != ',') return *list == '\0' || *list == '\n';
        list++;
    }
}

void lm_cpu_set_text(const struct lm_cpu_set *set, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t first = lm_cpu_set_next(set, 0); first < LM_CPUS_MAX;) {
        uint32_t last = first;
        char part[24];
        while (lm_cpu_set_has(set, last + 1)) last++;
        int bytes = last == first ? snprintf(part, sizeof part, "%u", first)
                                  : snprintf(part, sizeof part, "%u-%u", first, last);
        if (used + (size_t)bytes + 5 > capacity) { /* a comma, three points and the end */
            snprintf(text + used, capacity - used, "...");
            return;
        }
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? "," : "", part);
        first = lm_cpu_set_next(set, last + 1);
    }
}
