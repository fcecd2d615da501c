/* estimate.c: see estimate.h. */
#include "flow/estimate.h"

#include "flow/io_model.h"
#include "models/sizes.h"

enum {
    COST_SHIFT = 4,       /* a new measurement counts a sixteenth, */
    COST_SHIFT_YOUNG = 1, /* one of the first a half, */
    COST_YOUNG = 8,
    COST_JUMP = 8,    /* and as at most so many times the estimate, */
    COST_STEP = 1000, /* and this many ns */
    PROBE_PAUSE = 4,  /* estimates between two probes */
    WEIGHT_SHIFT = 8,
    JPEG_PIXEL_NS = 5,
    PNG_PIXEL_NS = 30,
    PACE_SHIFT = 3,
    PACE_REQUESTS = 16, /* a pace is measured over so many, */
    PACE_NS = 10000000  /* or over so long */
};

/* Before the first picture: the Run, and what its pixels take at about a gigahertz. */
static void begin_pictures(struct lm_cost *costs, const struct lm_model *model, uint8_t encoding,
                           uint64_t warm_ns) {
    uint64_t pixel_ns = encoding == LM_ENCODING_PNG ? PNG_PIXEL_NS : JPEG_PIXEL_NS;
    for (uint32_t c = 0; model->input_plan.has_images && c < LM_COST_CLASSES; c++)
        costs[c].row_ns = warm_ns + (model->input_plan.image.max_pixels >> c) * pixel_ns;
}

/* The cost of a body of text, or of strings, follows from its bytes. */
static bool is_by_bytes(const struct lm_model *model, uint8_t encoding) {
    return lm_encoding_is_text(encoding) || model->string_inputs > 0;
}

void lm_estimate_begin(struct lm_io *io, const struct lm_model *model) {
    bool varies = model->free_count > 0;
    for (uint8_t e = 0; e < LM_ENCODING_COUNT; e++) {
        struct lm_cost *costs = model->sides[io->index]->costs[e];
        if (lm_encoding_is_image(e)) {
            begin_pictures(costs, model, e, model->warm_ns);
            continue;
        }
        /* Of JSON nobody knows the sizes beforehand. */
        if (varies && lm_encoding_is_text(e)) continue;
        bool by_bytes = is_by_bytes(model, e);
        for (uint32_t c = 0; c < (varies || by_bytes ? LM_COST_CLASSES : 1); c++)
            costs[c].row_ns = by_bytes ? model->warm_ns : model->warm_ns >> c;
    }
}

/* Enough is in flight for the workers to be busy all the time. */
static bool is_backlogged(const struct lm_io *io) {
    return (io->in_flight - io->suspended) * io->node->io_count >= 2 * lm_node_parallel(io->node);
}

uint64_t lm_estimate_wait_ns(const struct lm_io *io) {
    const struct lm_node *node = io->node;
    /* Where there are more workers than requests, one of them is free. */
    if ((io->in_flight - io->suspended) * node->io_count < lm_node_parallel(node)) return 0;
    uint64_t wait_ns = io->work_ns * node->io_count / lm_node_parallel(node);
    uint64_t paced_ns =
        is_backlogged(io) ? (io->in_flight - io->suspended) * io->pace.interval_ns : 0;
    return paced_ns > wait_ns ? paced_ns : wait_ns;
}

/* The estimate for requests of about a size, and how many times its cost a request is charged, with
 * WEIGHT_SHIFT bits behind the point. */
struct share {
    struct lm_cost *cost;
    uint64_t weight;
};

/* Requests of about the same size share an estimate: a class for each power of two, of which a
 * request is charged its part. */
static struct share share_of_size(struct share share, uint64_t elements, uint64_t most) {
    for (uint32_t class = 0; class + 1 < LM_COST_CLASSES && elements * 2 <= most; class++) {
        most = (most + 1) / 2;
        share.cost++;
    }
    if (elements == 0)
        elements = 1; /* a free size of 0; a request without weight teaches nothing */
    share.weight = (share.weight * elements + most - 1) / most;
    return share;
}

/* Models without free dimensions have one size; a row of pictures has the size of its file's. */
static struct share share_of(const struct lm_io *io, const struct lm_model *model, uint8_t encoding,
                             const struct lm_sizes *sizes, uint64_t pixels, uint64_t bytes) {
    struct lm_cost *costs = model->sides[io->index]->costs[encoding];
    struct share share = {costs, (uint64_t)sizes->rows << WEIGHT_SHIFT};
    if (lm_encoding_is_image(encoding)) {
        uint64_t row = pixels / sizes->rows + 1, most = model->input_plan.image.max_pixels;
        /* The Run costs the same for the smallest, which all share a class. */
        uint64_t least = (most >> (LM_COST_CLASSES - 1)) + 1;
        if (row < least) row = least;
        return share_of_size(share, row < most ? row : most, most);
    }
    if (is_by_bytes(model, encoding)) {
        share.weight = 1 << WEIGHT_SHIFT;
        return share_of_size(share, bytes ? bytes : 1, LM_SIZED_BYTES);
    }
    if (model->free_count == 0) return share;
    /* All rows together: what a Run costs besides its elements is there once. */
    struct lm_sizes largest = lm_model_largest(model, 1);
    share.weight = 1 << WEIGHT_SHIFT;
    return share_of_size(share, lm_model_row_elements(model, sizes) * sizes->rows,
                         lm_model_row_elements(model, &largest));
}

static uint64_t times(uint64_t row_ns, uint64_t weight) {
    return (row_ns * weight) >> WEIGHT_SHIFT;
}

static struct share share_of_request(const struct lm_io *io, const struct lm_request *request) {
    return share_of(io, request->model, request->encoding, &request->sizes, request->pixels,
                    request->payload_bytes);
}

static struct share share_of_demand(const struct lm_io *io, const struct lm_demand *demand) {
    return share_of(io, demand->model, demand->encoding, &demand->sizes, demand->pixels,
                    demand->bytes);
}

static bool is_due(const struct lm_io *io, const struct lm_cost *cost) {
    return !cost->probing && io->now_ns >= cost->next_probe_ns;
}

/* With nothing else in flight, the Run may have the cores of other workers too. */
static uint64_t alone_ns(const struct lm_io *io, const struct lm_model *model, uint64_t cost_ns,
                         uint32_t others) {
    bool alone = io->in_flight - io->suspended <= others;
    return alone && cost_ns >= LM_WIDE_RUN_NS ? lm_wide_ns(&model->wide, cost_ns) : cost_ns;
}

uint64_t lm_estimate_run_ns(const struct lm_io *io, const struct lm_demand *demand) {
    struct share share = share_of_demand(io, demand);
    return alone_ns(io, demand->model, times(share.cost->row_ns, share.weight), 0);
}

bool lm_estimate_is_short(const struct lm_io *io, const struct lm_request *request) {
    struct share share = share_of_request(io, request);
    uint64_t run_ns = times(share.cost->row_ns, share.weight);
    return run_ns > 0 && run_ns <= LM_SHORT_RUN_NS;
}

bool lm_estimate_wants_probe(const struct lm_io *io, const struct lm_demand *demand) {
    return is_due(io, share_of_demand(io, demand).cost);
}

void lm_estimate_charge(struct lm_io *io, struct lm_request *request) {
    struct share share = share_of_request(io, request);
    request->cost_ns = times(share.cost->row_ns, share.weight);
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
    struct share share = share_of_request(io, request);
    struct lm_cost *cost = share.cost;
    if (request->suspended) {
        request->suspended = false;
        io->suspended--;
        request->cost_ns = times(cost->row_ns, share.weight);
        io->work_ns += request->cost_ns;
    }
    request->is_long = request->cost_ns >= LM_WIDE_RUN_NS;
    uint64_t run_ns = alone_ns(io, request->model, request->cost_ns, 1);
    bool may_be_late =
        request->is_unread || request->deadline_ns < io->now_ns + run_ns + run_ns / 4;
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
    struct share share = share_of_request(io, request);
    struct lm_cost *cost = share.cost;
    if (request->probe) cost->probing = false;
    if (request->batch_rows == 0) return; /* no Run */
    if (request->disturbed) return;       /* neither on one core nor on several */
    uint64_t worked_ns = request->worked_ns;
    if (request->width > 1) { /* the Run alone was: nothing that its body took before */
        uint64_t run_ns = request->wide_ns;
        worked_ns += lm_wide_narrow_ns(&lm_request_runs(request)->wide, run_ns) - run_ns;
    }
    uint64_t took_ns = (worked_ns << WEIGHT_SHIFT) / share.weight;
    uint64_t most_ns = COST_JUMP * cost->row_ns + COST_STEP;
    uint32_t shift = cost->measured < COST_YOUNG ? COST_SHIFT_YOUNG : COST_SHIFT;
    if (request->probe) {
        uint64_t pause_ns = PROBE_PAUSE * times(cost->row_ns, share.weight);
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
