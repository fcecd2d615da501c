/* plan.c: what a seed decides beforehand: how large everything is, which faults there are and how
 * often. Small numbers, so that what is rare elsewhere is common here.
 */
#include "sim.h"

struct sim_plan sim_plan;

static uint32_t pick(const uint32_t *from, uint32_t count) {
    return from[sim_below(count)];
}
#define PICK(...) \
    pick((const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void draw_threads(struct sim_plan *plan) {
    plan->queue_type = PICK(LUMEN_QUEUE_MPMC, LUMEN_QUEUE_MPMC, LUMEN_QUEUE_MPMC, LUMEN_QUEUE_SCQ,
                            LUMEN_QUEUE_SPSC, LUMEN_QUEUE_NAIVE, LUMEN_QUEUE_BATCHED,
                            LUMEN_QUEUE_INLINE, LUMEN_QUEUE_INLINE);
    bool alone = plan->queue_type == LUMEN_QUEUE_SPSC;
    plan->io_count = alone ? 1 : PICK(1, 1, 1, 2);
    plan->worker_count = alone ? 1 : PICK(1, 2, 2, 3);
    if (plan->queue_type == LUMEN_QUEUE_INLINE) plan->worker_count = plan->io_count;
    plan->idle = PICK(LUMEN_IDLE_PARK, LUMEN_IDLE_ADAPTIVE);
    plan->allocator_type = PICK(LUMEN_ALLOCATOR_ARENA, LUMEN_ALLOCATOR_STANDARD);
    plan->switch_one_in = PICK(0, 4, 10, 40);
    plan->run_ns_max = sim_one_in(8) ? 300 * SIM_MS : PICK(2000, 60000, 3000000);
    plan->batch_size = PICK(1, 1, 2, 4);
    plan->batch_delay_ns = PICK(0, 0, 100000);
    plan->width = PICK(1, 2, 3);
    if (plan->width > plan->worker_count) plan->width = plan->worker_count;
    plan->own = plan->queue_type != LUMEN_QUEUE_INLINE && sim_one_in(3);
    plan->lies_one_in = plan->own ? PICK(0, 5, 50) : 0;
    for (uint32_t m = 0; m < SIM_SERVED; m++)
        plan->runs[m] =
            plan->own ? PICK(LUMEN_RUN_AUTO, LUMEN_RUN_AUTO, LUMEN_RUN_INLINE, LUMEN_RUN_WORKER)
                      : LUMEN_RUN_WORKER;
}

static void draw_sizes(struct sim_plan *plan) {
    plan->overload = PICK(LUMEN_OVERLOAD_REFUSE, LUMEN_OVERLOAD_REFUSE, LUMEN_OVERLOAD_WAIT);
    plan->connections = PICK(2, 4, 8, 16, 24);
    plan->clients = 1 + sim_below(14);
    plan->socket_bytes = PICK(40, 300, 2000, 9000, 30000);
    plan->descriptors = sim_one_in(5) ? 3 + sim_below(6) : FDS_MAX;
    plan->completions = PICK(2, 4, 16, 200);
    plan->header_buffers = PICK(2, 4, 8, 64);
    plan->in_flight_max = PICK(2, 4, 8, 1000, 1000);
    if (sim_one_in(4)) {
        plan->header_ms = PICK(0, 20, 400);
        plan->reply_ms = PICK(0, 50, 800);
        plan->idle_ms = PICK(0, 60, 500);
        plan->body_bytes_per_s = PICK(0, 1000, 1000000);
        plan->hang_ms = PICK(0, 100);
    }
    plan->per_address = sim_one_in(8) ? 1 + sim_below(4) : 0;
    plan->unparked_max = sim_one_in(2) ? 1 + sim_below(4) : 0;
    plan->io_shares_cores = sim_one_in(4);
    plan->half_close = sim_below(2);
    plan->rate = sim_one_in(12) ? 2000 : 0;
    plan->default_timeout_ns = sim_one_in(6) ? sim_between(SIM_MS, 400 * SIM_MS) : 0;
    sim_limits = (struct sim_limits){.http_blocks = PICK(1, 2, 4, 16),
                                     .pipeline_max = PICK(1, 2, 4, 64),
                                     .slot_waiters_max = plan->header_buffers / 2,
                                     .unparking_max = plan->header_buffers / 4,
                                     .linger_bytes_max = PICK(64, 1024, 65536),
                                     .expiries_per_turn = PICK(1, 2, 16),
                                     .parses_per_turn = PICK(0, 1, 4, 256),
                                     .spin_pauses = PICK(0, 2),
                                     .here_bytes = PICK(1, 100, 1000, 256 << 10)};
    plan->overload_status = PICK(LUMEN_OVERLOAD_503, LUMEN_OVERLOAD_429);
    plan->orca = PICK(LUMEN_ORCA_NEVER, LUMEN_ORCA_ASKED, LUMEN_ORCA_ALWAYS);
}

/* At least 64 KiB for each I/O thread; a bound that some answers exceed and that fills. */
static void draw_cache(struct sim_plan *plan) {
    plan->cache_bytes = sim_one_in(3) ? plan->io_count * 65536 : 0;
    plan->shadow_percent = PICK(0, 0, 30, 100);
}

static void draw_faults(struct sim_plan *plan) {
    plan->fatal_one_in = PICK(0, 0, 0, 300, 60);
    plan->blip_one_in = PICK(0, 0, 60, 12);
    plan->late_one_in = PICK(0, 0, 50, 8);
    plan->full_one_in = PICK(0, 0, 0, 20, 3);
    bool early = sim_one_in(4);
    plan->drain_at_ns = early ? sim_now_ns + sim_between(1, 30 * SIM_MS) : UINT64_MAX;
    plan->drain_ns = PICK(0, 5, 300, 2000) * SIM_MS;
}

void sim_plan_draw(void) {
    sim_plan = (struct sim_plan){0};
    draw_threads(&sim_plan);
    draw_sizes(&sim_plan);
    draw_faults(&sim_plan);
    draw_cache(&sim_plan);
    bool one = sim_plan.queue_type == LUMEN_QUEUE_SPSC ||
               sim_plan.queue_type == LUMEN_QUEUE_NAIVE ||
               sim_plan.queue_type == LUMEN_QUEUE_BATCHED;
    sim_plan.two_nodes = !one && sim_one_in(2);
}

void sim_plan_print(FILE *file) {
    const struct sim_plan *plan = &sim_plan;
    fprintf(
        file,
        "plan: queue %s, %u I/O threads%s, %u workers%s, idle %u, allocator %u, overload %u\n"
        "      %u clients, %u connections, %u buffers, %u descriptors, %u completions, sockets "
        "of %u\n"
        "      blocks %u, pipeline %u, waiters %u, linger %u, in flight %u, rate %.0f, timeout "
        "%llu us\n"
        "      header %u ms, reply %u, idle %u, hang %u, body %u bytes/s, per address %u, "
        "unparked %u, shares %u\n"
        "      fatal 1/%u, blips 1/%u, late 1/%u, full 1/%u, switches 1/%u, runs up to %llu us, "
        "batch %u "
        "in %llu us, drain at %lld us for %llu us, cache of %u, copies %u %%\n",
        lm_queue_name(plan->queue_type), plan->io_count, plan->own ? " that run models" : "",
        plan->worker_count, plan->two_nodes ? " of two nodes" : "", plan->idle,
        plan->allocator_type, plan->overload, plan->clients, plan->connections,
        plan->header_buffers, plan->descriptors, plan->completions, plan->socket_bytes,
        sim_limits.http_blocks, sim_limits.pipeline_max, sim_limits.slot_waiters_max,
        sim_limits.linger_bytes_max, plan->in_flight_max, plan->rate,
        (unsigned long long)plan->default_timeout_ns / 1000, plan->header_ms, plan->reply_ms,
        plan->idle_ms, plan->hang_ms, plan->body_bytes_per_s, plan->per_address, plan->unparked_max,
        plan->io_shares_cores, plan->fatal_one_in, plan->blip_one_in, plan->late_one_in,
        plan->full_one_in, plan->switch_one_in, (unsigned long long)plan->run_ns_max / 1000,
        plan->batch_size, (unsigned long long)plan->batch_delay_ns / 1000,
        plan->drain_at_ns == UINT64_MAX ? -1 : (long long)(plan->drain_at_ns - 1000 * SIM_S) / 1000,
        (unsigned long long)plan->drain_ns / 1000, plan->cache_bytes, plan->shadow_percent);
}
