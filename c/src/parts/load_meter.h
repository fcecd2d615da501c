/* load_meter.h: how loaded the server is, from sums that its threads count: the mean of about the
 * last quarter of a second, made anew ten times a second by whichever thread asks first. No
 * thread waits: one that finds another at it takes the last figures.
 */
#ifndef LM_PARTS_LOAD_METER_H
#define LM_PARTS_LOAD_METER_H

#include "base/atomics.h"
#include "wire/load_report.h"

/* Since the start, but for what waits and runs now. */
struct lm_load_sums {
    uint64_t workers_busy_ns, ios_busy_ns; /* of all together */
    uint32_t workers, ios;                 /* 0: there are none */
    uint64_t answered, failed;             /* requests */
    uint32_t waiting, running;
};

struct lm_load_meter {
    LM_CACHE_ALIGNED lm_atomic_u64 due_ns; /* when the next figures are */
    lm_atomic_u32 taken;                   /* 1: a thread makes them */
    lm_atomic_u32 number;                  /* of these figures; 0: there are none yet */
    /* In thousandths. */
    lm_atomic_u64 busy, queued, answered, failed;
    lm_atomic_u32 waiting, running;
    /* Of the thread that has taken it. */
    uint64_t last_ns;
    struct lm_load_sums last;
};

/* Before any other thread knows of it: what is counted counts from here on. */
void lm_load_meter_open(struct lm_load_meter *meter, uint64_t now_ns);
/* Any thread. true: it makes the next figures, with lm_load_meter_make. */
bool lm_load_meter_begin(struct lm_load_meter *meter, uint64_t now_ns);
void lm_load_meter_make(struct lm_load_meter *meter, const struct lm_load_sums *sums,
                        uint64_t now_ns);
/* Any thread. Returns their number, which tells whether they are others than before. */
uint32_t lm_load_meter_read(const struct lm_load_meter *meter, struct lm_load_figures *figures_out);

#endif
