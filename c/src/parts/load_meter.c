/* load_meter.c: see load_meter.h. */
#include "parts/load_meter.h"

static const uint64_t every_ns = 100000000ull, mean_over_ns = 250000000ull;

void lm_load_meter_open(struct lm_load_meter *meter, uint64_t now_ns) {
    meter->last_ns = now_ns - 1;
}

bool lm_load_meter_begin(struct lm_load_meter *meter, uint64_t now_ns) {
    /* relaxed: a thread that sees an older time asks for `taken` in vain */
    if (now_ns < lm_load_relaxed_u64(&meter->due_ns)) return false;
    /* M1: acq_rel: the last maker's sums are here; pairs with M2 */
    if (lm_exchange_acq_rel_u32(&meter->taken, 1) != 0) return false;
    if (now_ns >= lm_load_relaxed_u64(&meter->due_ns)) return true; /* relaxed: M1 shows it */
    /* M2: release: nothing was made; pairs with M1 */
    lm_store_release_u32(&meter->taken, 0);
    return false;
}

/* The mean goes towards what the time since the last figures was like: wholly, if that is long. */
static void lean(lm_atomic_u64 *mean, double now, uint64_t span_ns) {
    const double share = span_ns < mean_over_ns ? (double)span_ns / (double)mean_over_ns : 1;
    const double before = (double)lm_load_relaxed_u64(mean); /* relaxed: as read */
    /* relaxed: figures of two moments may be seen together */
    lm_store_relaxed_u64(mean, (uint64_t)(before + (1000 * now - before) * share + 0.5));
}

static double share_of(uint64_t busy_ns, uint64_t before_ns, uint32_t threads, uint64_t span_ns) {
    if (threads == 0 || busy_ns <= before_ns) return 0;
    const double share = (double)(busy_ns - before_ns) / (double)threads / (double)span_ns;
    return share < 1 ? share : 1;
}

/* Of a count, which a thread may have read a little earlier than the one before. */
static double per_second(uint64_t now, uint64_t before, uint64_t span_ns) {
    return now > before ? (double)(now - before) * 1e9 / (double)span_ns : 0;
}

void lm_load_meter_make(struct lm_load_meter *meter, const struct lm_load_sums *sums,
                        uint64_t now_ns) {
    const struct lm_load_sums *last = &meter->last;
    const uint64_t span_ns = now_ns - meter->last_ns;
    const double workers =
        share_of(sums->workers_busy_ns, last->workers_busy_ns, sums->workers, span_ns);
    const double ios = share_of(sums->ios_busy_ns, last->ios_busy_ns, sums->ios, span_ns);
    const uint32_t hands = sums->workers ? sums->workers : sums->ios;
    const double queued = hands ? (double)sums->waiting / hands : 0;
    lean(&meter->busy, workers > ios ? workers : ios, span_ns);
    lean(&meter->queued, queued, span_ns);
    lean(&meter->answered, per_second(sums->answered, last->answered, span_ns), span_ns);
    lean(&meter->failed, per_second(sums->failed, last->failed, span_ns), span_ns);
    /* relaxed, all: figures of two moments may be seen together */
    lm_store_relaxed_u32(&meter->waiting, sums->waiting);
    lm_store_relaxed_u32(&meter->running, sums->running);
    lm_store_relaxed_u32(&meter->number, lm_load_relaxed_u32(&meter->number) + 1);
    meter->last_ns = now_ns;
    meter->last = *sums;
    lm_store_relaxed_u64(&meter->due_ns, now_ns + every_ns); /* relaxed: M2 shows it */
    lm_store_release_u32(&meter->taken, 0);                  /* as M2 */
}

uint32_t lm_load_meter_read(const struct lm_load_meter *meter,
                            struct lm_load_figures *figures_out) {
    /* relaxed, all: as written */
    *figures_out = (struct lm_load_figures){(double)lm_load_relaxed_u64(&meter->busy) / 1000,
                                            (double)lm_load_relaxed_u64(&meter->queued) / 1000,
                                            (double)lm_load_relaxed_u64(&meter->answered) / 1000,
                                            (double)lm_load_relaxed_u64(&meter->failed) / 1000,
                                            lm_load_relaxed_u32(&meter->waiting),
                                            lm_load_relaxed_u32(&meter->running)};
    return lm_load_relaxed_u32(&meter->number);
}
