/* estimate.c: see estimate.h. */
#include "flow/estimate.h"

enum {
    COST_SHIFT = 4,       /* a new measurement counts a sixteenth, */
    COST_SHIFT_YOUNG = 1, /* one of the first a half, */
    COST_YOUNG = 8,
    COST_JUMP = 8,    /* and as at most so many times the estimate, */
    COST_STEP = 1000, /* and this many ns */
    PROBE_PAUSE = 4,  /* estimates between two probes */
    PACE_SHIFT = 3,
    PACE_REQUESTS = 16, /* a pace is measured over so many, */
    PACE_NS = 10000000  /* or over so long */
};

void lm_estimate_begin(struct lm_io *io, const uint64_t *warm_ns) {
    for (uint32_t m = 0; m < io->models->count; m++) {
        for (uint32_t e = 0; e < LM_ENCODING_COUNT; e++) io->costs[m][e].row_ns = warm_ns[m];
    }
}

/* Enough is in flight for the workers to be busy all the time. */
static bool is_backlogged(const struct lm_io *io) {
    return (io->in_flight - io->suspended) * io->node->io_count >= 2 * io->node->worker_count;
}

uint64_t lm_estimate_wait_ns(const struct lm_io *io) {
    const struct lm_node *node = io->node;
    /* Where there are more workers than requests, one of them is free. */
    if ((io->in_flight - io->suspended) * node->io_count < node->worker_count) return 0;
    uint64_t wait_ns = io->work_ns * node->io_count / node->worker_count;
    uint64_t paced_ns =
        is_backlogged(io) ? (io->in_flight - io->suspended) * io->pace.interval_ns : 0;
    return paced_ns > wait_ns ? paced_ns : wait_ns;
}

static struct lm_cost *cost_of(struct lm_io *io, const struct lm_request *request) {
    return &io->costs[request->model->index][request->encoding];
}

static bool is_due(const struct lm_io *io, const struct lm_cost *cost) {
    return !cost->probing && io->now_ns >= cost->next_probe_ns;
}

uint64_t lm_estimate_run_ns(const struct lm_io *io, const struct lm_demand *demand) {
    return io->costs[demand->model->index][demand->encoding].row_ns * demand->rows;
}

bool lm_estimate_wants_probe(const struct lm_io *io, const struct lm_demand *demand) {
    return is_due(io, &io->costs[demand->model->index][demand->encoding]);
}

void lm_estimate_charge(struct lm_io *io, struct lm_request *request) {
    request->cost_ns = cost_of(io, request)->row_ns * request->rows;
    request->suspended = request->probe = false;
    request->worked_ns = 0;
    io->work_ns += request->cost_ns;
}

void lm_estimate_suspend(struct lm_io *io, struct lm_request *request) {
    if (request->suspended) return;
    request->suspended = true;
    io->suspended++;
    io->work_ns -= request->cost_ns;
    request->cost_ns = 0;
}

void lm_estimate_resume(struct lm_io *io, struct lm_request *request) {
    struct lm_cost *cost = cost_of(io, request);
    if (request->suspended) {
        request->suspended = false;
        io->suspended--;
        request->cost_ns = cost->row_ns * request->rows;
        io->work_ns += request->cost_ns;
    }
    bool may_be_late = request->is_unread ||
                       request->deadline_ns < io->now_ns + request->cost_ns + request->cost_ns / 4;
    if (!may_be_late || !is_due(io, cost)) return;
    request->probe = cost->probing = true;
    io->work_ns -= request->cost_ns;
    request->cost_ns = 0; /* so that its worker runs it */
}

void lm_estimate_pace(struct lm_io *io) {
    struct lm_pace *pace = &io->pace;
    if (!is_backlogged(io)) {
        pace->since_ns = 0;
        return;
    }
    if (pace->since_ns == 0) {
        *pace = (struct lm_pace){.since_ns = io->now_ns, .interval_ns = pace->interval_ns};
        return;
    }
    pace->left++;
    uint64_t took_ns = io->now_ns - pace->since_ns;
    if (took_ns == 0 || (pace->left < PACE_REQUESTS && took_ns < PACE_NS)) return;
    uint64_t sample_ns = took_ns / pace->left;
    pace->interval_ns =
        pace->interval_ns == 0
            ? sample_ns
            : pace->interval_ns - (pace->interval_ns >> PACE_SHIFT) + (sample_ns >> PACE_SHIFT);
    pace->since_ns = io->now_ns;
    pace->left = 0;
}

static void learn_cost(struct lm_io *io, const struct lm_request *request) {
    struct lm_cost *cost = cost_of(io, request);
    if (request->probe) cost->probing = false;
    if (request->batch_rows == 0) return; /* no Run */
    uint64_t took_ns = request->worked_ns / request->rows;
    uint64_t most_ns = COST_JUMP * cost->row_ns + COST_STEP;
    uint32_t shift = cost->measured < COST_YOUNG ? COST_SHIFT_YOUNG : COST_SHIFT;
    if (request->probe) {
        uint64_t pause_ns = PROBE_PAUSE * cost->row_ns * request->rows;
        if (pause_ns > LM_PROBE_MS_MAX * 1000000ull) pause_ns = LM_PROBE_MS_MAX * 1000000ull;
        cost->next_probe_ns = io->now_ns + pause_ns;
    }
    cost->measured += cost->measured < COST_YOUNG;
    if (cost->row_ns == 0 || (request->probe && took_ns < cost->row_ns)) {
        cost->row_ns = took_ns;
        return;
    }
    if (took_ns > most_ns) took_ns = most_ns;
    cost->row_ns += (took_ns >> shift) - (cost->row_ns >> shift);
}

void lm_estimate_discharge(struct lm_io *io, const struct lm_request *request) {
    io->suspended -= request->suspended;
    io->work_ns -= request->cost_ns;
    learn_cost(io, request);
}
