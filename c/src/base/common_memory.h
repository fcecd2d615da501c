/* common_memory.h: memory that this process and others of ours have mapped: one file without a
 * name, mapped whole at its start, of which parts are taken and given back. An address in it is an
 * offset in every process. Any thread, while the server starts or ends.
 */
#ifndef LM_BASE_COMMON_MEMORY_H
#define LM_BASE_COMMON_MEMORY_H

#include <pthread.h>

#include "base/memory.h"

enum { LM_COMMON_PARTS_MAX = 8192 };

struct lm_common_part {
    size_t at, bytes;
};

struct lm_common_memory {
    int fd; /* closed by exec */
    uint8_t *base;
    size_t bytes; /* of addresses; a page costs nothing before its first use */
    pthread_mutex_t lock;
    struct lm_common_part *parts; /* that are taken, by growing `at` */
    uint32_t count;
};

/* Reserves so many bytes. Returns 0, LUMEN_E_NOMEM or LUMEN_E_UNSUPPORTED. */
int lm_common_memory_open(struct lm_common_memory *memory, size_t bytes);
/* Every part has been given back, or nobody uses it any more. */
void lm_common_memory_close(struct lm_common_memory *memory);
/* Maps the file of another process whole, from its descriptor, which is closed here. The parts are
 * the other's. Returns 0 or LUMEN_E_NOMEM. */
int lm_common_memory_join(struct lm_common_memory *memory, int take_fd, size_t bytes);

/* Takes zeroed memory, on pages as `huge_pages` (LUMEN_HUGE_*) names them where the kernel has such
 * for shared memory. lm_common_memory_give_back gives it back. Returns 0 or LUMEN_E_NOMEM. */
int lm_common_memory_take(struct lm_common_memory *memory, struct lm_mapping *mapping, size_t bytes,
                          uint32_t huge_pages);
void lm_common_memory_give_back(struct lm_common_memory *memory, struct lm_mapping *mapping);

#endif
