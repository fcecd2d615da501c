/* history.c: see history.h. */
#include "history.h"

#include <stdio.h>
#include <string.h>

struct content {
    uint32_t values[HISTORY_CAPACITY_MAX];
    uint32_t count;
};

enum { DEAD_ENDS = 1 << 14 };

struct dead_end {
    uint64_t key; /* of the set and the content; 0: free */
    uint32_t round;
};

struct search {
    const struct history *history;
    uint32_t all;
};

static struct dead_end dead_ends[DEAD_ENDS];
static uint32_t search_round;

static uint64_t key_of(uint32_t taken, const struct content *content) {
    uint64_t key = 0x9e3779b97f4a7c15ull ^ taken;
    for (uint32_t i = 0; i < content->count; i++) {
        key = (key ^ (content->values[i] + 1)) * 0xff51afd7ed558ccdull;
        key ^= key >> 29;
    }
    return (key * 0xc4ceb9fe1a85ec53ull) | 1;
}

/* A collision of 64 bits would only hide an explanation, and so be seen as a failure. */
static bool is_dead_end(uint64_t key) {
    const struct dead_end *entry = &dead_ends[key >> 40 & (DEAD_ENDS - 1)];
    return entry->round == search_round && entry->key == key;
}

static bool apply(const struct history *history, const struct history_operation *operation,
                  struct content *content) {
    if (operation->kind == HISTORY_PUSH) {
        if (!operation->done) return content->count == history->capacity;
        if (content->count == history->capacity) return false;
        content->values[content->count++] = operation->value;
        return true;
    }
    if (!operation->done) return content->count == 0;
    if (content->count == 0 || content->values[0] != operation->value) return false;
    content->count--;
    memmove(content->values, content->values + 1, content->count * sizeof content->values[0]);
    return true;
}

static bool search(const struct search *plan, uint32_t taken, const struct content *content) {
    if (taken == plan->all) return true;
    uint64_t key = key_of(taken, content);
    if (is_dead_end(key)) return false;
    for (uint32_t rest = plan->all & ~taken; rest; rest &= rest - 1) {
        uint32_t o = (uint32_t)__builtin_ctz(rest);
        const struct history_operation *operation = &plan->history->operations[o];
        if (operation->before & plan->all & ~taken) continue;
        struct content next = *content;
        if (apply(plan->history, operation, &next) && search(plan, taken | 1u << o, &next))
            return true;
    }
    dead_ends[key >> 40 & (DEAD_ENDS - 1)] = (struct dead_end){key, search_round};
    return false;
}

/* "Full" or "empty" is no statement: a certain operation was in progress at the same time. */
static bool is_excused(const struct history *history, uint32_t o, uint32_t rules) {
    const struct history_operation *operation = &history->operations[o];
    for (uint32_t p = 0; p < history->count; p++) {
        const struct history_operation *other = &history->operations[p];
        if (p == o) continue;
        bool overlaps = !(operation->before >> p & 1) && !(other->before >> o & 1);
        if (!overlaps) continue;
        if (operation->kind == HISTORY_POP) {
            if ((rules & HISTORY_SPURIOUS_EMPTY) && other->kind == HISTORY_PUSH) return true;
        } else {
            if ((rules & HISTORY_SPURIOUS_FULL) && other->kind == HISTORY_POP) return true;
            if (rules & HISTORY_FULL_ALONE) return true;
        }
    }
    return false;
}

bool history_is_legal(const struct history *history, uint32_t rules) {
    struct search plan = {.history = history};
    struct content empty = {.count = 0};
    search_round++;
    for (uint32_t o = 0; o < history->count; o++) {
        if (!history->operations[o].done && is_excused(history, o, rules)) continue;
        plan.all |= 1u << o;
    }
    return search(&plan, 0, &empty);
}

void history_print(const struct history *history) {
    for (uint32_t o = 0; o < history->count; o++) {
        const struct history_operation *operation = &history->operations[o];
        printf("  %2u  %s ", o, operation->kind == HISTORY_PUSH ? "push" : "pop ");
        if (operation->done || operation->kind == HISTORY_PUSH) printf("%u", operation->value);
        if (!operation->done) printf(operation->kind == HISTORY_PUSH ? " full" : "empty");
        printf("  after:");
        for (uint32_t p = 0; p < history->count; p++) {
            if (operation->before >> p & 1) printf(" %u", p);
        }
        putchar('\n');
    }
}
