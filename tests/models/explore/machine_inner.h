/* machine_inner.h: what scheduler.c (who runs) and memory.c (what a load may see) share. */
#ifndef TESTS_MODELS_MACHINE_INNER_H
#define TESTS_MODELS_MACHINE_INNER_H

#include "machine.h"

enum { LOCATIONS_MAX = 40, MESSAGES_MAX = 192 };

/* By location: the oldest message of its history that a thread may still read. */
struct machine_view {
    uint16_t floor[LOCATIONS_MAX];
};

struct machine_knowledge {
    struct machine_clock clock;
    struct machine_view view;
};

/* scheduler.c */
bool machine_running(void);
bool machine_tracing(void);
uint32_t machine_choose(uint32_t options);
bool machine_on_stack(const void *address);
void machine_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* May a load be stale once more? Taking it costs. */
bool machine_stale_allowed(void);
void machine_stale_taken(void);

/* memory.c */
extern struct machine_knowledge machine_known[MACHINE_THREADS_MAX];
void machine_memory_reset(void);
void machine_join(struct machine_knowledge *into, const struct machine_knowledge *from);
uint64_t machine_newest(const void *address, uint32_t bytes);

#endif
