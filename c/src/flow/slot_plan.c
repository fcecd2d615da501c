/* slot_plan.c: see slot_plan.h. Not on a request's path.
 *
 * Every model has a class for one row of its largest shape, and with free dimensions for a quarter
 * of it, a sixteenth, ...; a model with free rows also has classes for 4, 16, 64, ... rows up to
 * max_request_bytes. Bodies of JSON have a class for one row written out, and for four times as
 * much, ... up to max_request_bytes. One-row classes are filled first, since most requests have one
 * row. A model of strings has classes for one row of short strings, and of four times as much, ...
 * up to LM_SMALL_SLOT_BYTES.
 *
 * A server without models has two classes for models that come later, in half of its arena: the
 * other half is left for annexes (annex.h).
 */
#include "flow/slot_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/native_codec.h"
#include "formats/text_slots.h"
#include "models/layout.h"
#include "models/sizes.h"

struct wanted {
    size_t slot_bytes;
    bool one_row;
};

enum {
    /* Of a model: 1, 4, 16, ... 2^32 rows or bytes of JSON, and the most there may be. */
    WANTED_OF_MODEL = 4 * 18,
    WANTED_MAX = 64 * WANTED_OF_MODEL,
    CHARACTERS_PER_ELEMENT = 22, /* as clients print an FP32, with its comma */
    JSON_BYTES = 1024            /* around the values */
};

/* The most rows whose payload max_request_bytes and max_rows allow. */
static uint32_t rows_bound(const struct lm_model *model, uint64_t max_request_bytes) {
    uint32_t low = 1, high = model->max_rows;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        size_t payload, slot;
        const struct lm_sizes sizes = lm_model_largest(model, middle);
        bool fits = lm_model_payload_bytes(model, LM_ENCODING_TENSORS, &sizes, &payload) &&
                    payload <= max_request_bytes && lm_model_slot_bytes(model, &sizes, &slot);
        if (fits) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* One row of each quarter of the largest shape, down to the smallest. */
static uint32_t add_shapes(const struct lm_model *model, struct wanted *wanted, uint32_t count) {
    struct lm_sizes sizes = lm_model_largest(model, 1);
    size_t bytes = 0, least = 0;
    if (!lm_model_slot_bytes(model, &sizes, &bytes)) return count;
    sizes = lm_model_smallest(model, 1);
    if (!lm_model_slot_bytes(model, &sizes, &least)) return count;
    while (bytes / 4 > least && count < WANTED_MAX) {
        bytes = lm_align_up(bytes / 4, LM_SLOT_ALIGN);
        wanted[count++] = (struct wanted){.slot_bytes = bytes, .one_row = true};
    }
    return count;
}

/* Strings may be of any length, and most are short. */
static uint32_t add_strings(const struct lm_model *model, struct wanted *wanted, uint32_t count) {
    const struct lm_sizes sizes = lm_model_largest(model, 1);
    size_t bytes = 0, strings = 4 * LM_STRING_PLANNED_BYTES;
    for (; model->string_inputs > 0 && count < WANTED_MAX; strings *= 4) {
        if (!lm_model_slot_bytes_with(model, &sizes, strings, &bytes)) break;
        if (bytes > LM_SMALL_SLOT_BYTES) break;
        wanted[count++] = (struct wanted){.slot_bytes = bytes, .one_row = true};
    }
    return count;
}

static uint32_t add_model(const struct lm_model *model, uint64_t max_request_bytes,
                          struct wanted *wanted, uint32_t count) {
    uint32_t most = rows_bound(model, max_request_bytes);
    size_t bytes = 0;
    if (model->free_count > 0) count = add_shapes(model, wanted, count);
    count = add_strings(model, wanted, count);
    for (uint64_t rows = 1; count < WANTED_MAX; rows *= 4) {
        uint32_t now = rows < most ? (uint32_t)rows : most;
        const struct lm_sizes sizes = lm_model_largest(model, now);
        lm_model_slot_bytes(model, &sizes, &bytes);
        wanted[count++] = (struct wanted){.slot_bytes = bytes, .one_row = rows == 1};
        if (now == most) break;
    }
    return count;
}

static uint32_t add_text(const struct lm_model *model, uint64_t max_request_bytes,
                         struct wanted *wanted, uint32_t count) {
    size_t bytes = 0;
    uint64_t text = JSON_BYTES;
    struct lm_sizes sizes = lm_model_largest(model, 1);
    text += lm_model_row_elements(model, &sizes) * CHARACTERS_PER_ELEMENT;
    for (bool first = true; count < WANTED_MAX; text *= 4, first = false) {
        uint64_t now = text < max_request_bytes ? text : max_request_bytes;
        if (lm_model_text_slot_bytes(model, now, &bytes)) {
            /* As many of the small ones as there may be JSON requests at a time. */
            bool many = first && bytes <= LM_SMALL_SLOT_BYTES;
            wanted[count++] = (struct wanted){.slot_bytes = bytes, .one_row = many};
        }
        if (now == max_request_bytes) break;
    }
    if (model->input_plan.has_images && count < WANTED_MAX &&
        lm_model_rows_slot_bytes(model, max_request_bytes, &bytes))
        wanted[count++] = (struct wanted){.slot_bytes = bytes};
    return count;
}

static uint32_t add_for_later(struct wanted *wanted) {
    wanted[0] = (struct wanted){.slot_bytes = LM_SMALL_SLOT_BYTES, .one_row = true};
    wanted[1] = (struct wanted){.slot_bytes = LM_LATER_SLOT_BYTES, .one_row = true};
    return 2;
}

static int by_size(const void *a, const void *b) {
    const struct wanted *x = a, *y = b;
    return x->slot_bytes < y->slot_bytes ? -1 : x->slot_bytes > y->slot_bytes;
}

/* Of sorted ones. */
static uint32_t drop_doubles(struct wanted *wanted, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const bool is_double = kept > 0 && wanted[kept - 1].slot_bytes == wanted[i].slot_bytes;
        if (is_double)
            wanted[kept - 1].one_row = wanted[kept - 1].one_row || wanted[i].one_row;
        else
            wanted[kept++] = wanted[i];
    }
    return kept;
}

/* Drops doubles, then joins the two closest sizes until there are few enough. */
static uint32_t merge(struct wanted *wanted, uint32_t count, uint32_t most) {
    qsort(wanted, count, sizeof *wanted, by_size);
    count = drop_doubles(wanted, count);
    for (;;) {
        uint32_t closest = 0;
        double best = 1e300;
        for (uint32_t i = 0; i + 1 < count; i++) {
            double ratio = (double)wanted[i + 1].slot_bytes / (double)wanted[i].slot_bytes;
            if (ratio < best) {
                best = ratio;
                closest = i;
            }
        }
        if (count <= most) return count;
        /* The larger one stays and takes over the smaller one's requests. */
        wanted[closest + 1].one_row = wanted[closest + 1].one_row || wanted[closest].one_row;
        memmove(&wanted[closest], &wanted[closest + 1], (count - closest - 1) * sizeof *wanted);
        count--;
    }
}

static uint32_t fewest(const struct wanted *wanted, uint32_t worker_count) {
    return wanted->one_row ? 2 * worker_count : 1;
}

static uint32_t useful(const struct wanted *wanted, const struct lm_slot_plan_limits *limits,
                       uint32_t one_row_classes) {
    uint32_t share = limits->slot_count_max / (one_row_classes ? one_row_classes : 1);
    if (!wanted->one_row) return limits->worker_count < share ? limits->worker_count : share;
    if (wanted->slot_bytes <= LM_SMALL_SLOT_BYTES) return share;
    uint32_t many = LM_SLOTS_PER_WORKER * limits->worker_count;
    if (many < LM_SLOTS_MIN) many = LM_SLOTS_MIN;
    return many < share ? many : share;
}

static uint64_t fewest_bytes(const struct wanted *wanted, uint32_t count, uint32_t worker_count) {
    uint64_t bytes = (uint64_t)LM_REPLY_SLOTS * LM_REPLY_SLOT_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t more;
        bool fits = !__builtin_mul_overflow((uint64_t)fewest(&wanted[i], worker_count),
                                            wanted[i].slot_bytes, &more) &&
                    !__builtin_add_overflow(bytes, more, &bytes);
        if (!fits) return UINT64_MAX;
    }
    return bytes;
}

/* Gives every class its fewest, then adds to each in turn what is useful and still affordable. */
static void fill(const struct wanted *wanted, uint32_t count,
                 const struct lm_slot_plan_limits *limits, lumen_slot_class *classes) {
    uint64_t left = limits->arena_bytes - fewest_bytes(wanted, count, limits->worker_count);
    uint32_t one_row_classes = 0;
    for (uint32_t i = 0; i < count; i++) one_row_classes += wanted[i].one_row;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < count; i++) {
            if (wanted[i].one_row != (pass == 0)) continue;
            uint32_t least = fewest(&wanted[i], limits->worker_count);
            uint32_t most = useful(&wanted[i], limits, one_row_classes);
            uint64_t share = pass == 0 ? left / (count - i) : left;
            uint64_t more = most > least ? most - least : 0;
            if (more > share / wanted[i].slot_bytes) more = share / wanted[i].slot_bytes;
            left -= more * wanted[i].slot_bytes;
            classes[i] = (lumen_slot_class){.slot_bytes = wanted[i].slot_bytes,
                                            .slot_count = least + (uint32_t)more};
        }
    }
}

/* JSON of one row of the largest shape, as clients write it. */
static uint64_t row_text_bytes(const struct lm_model *model) {
    const struct lm_sizes sizes = lm_model_largest(model, 1);
    return lm_model_row_elements(model, &sizes) * CHARACTERS_PER_ELEMENT + JSON_BYTES;
}

uint64_t lm_slot_plan_row_bytes(const struct lm_model *model) {
    const struct lm_sizes sizes = lm_model_largest(model, 1);
    uint64_t text = row_text_bytes(model);
    size_t payload = 0;
    if (!lm_model_payload_bytes(model, LM_ENCODING_TENSORS, &sizes, &payload)) return UINT64_MAX;
    if (text > LM_AUTO_TEXT_BYTES) text = LM_AUTO_TEXT_BYTES;
    return payload > text ? payload : text;
}

enum { SLOTS_OF_WORKER = 8, TEXT_SLOTS = 4 }; /* of a share of the arena: largest_fits */

uint64_t lm_slot_plan_arena_bytes(struct lm_model *const *models, uint32_t model_count,
                                  const struct lm_slot_plan_limits *limits) {
    uint64_t bytes = 0;
    for (uint32_t m = 0; m < model_count; m++) {
        const struct lm_sizes sizes = lm_model_largest(models[m], 1);
        uint64_t text = row_text_bytes(models[m]), slots, texts;
        size_t slot = 0, text_slot = 0;
        if (text > limits->max_request_bytes) text = limits->max_request_bytes;
        if (!lm_model_slot_bytes(models[m], &sizes, &slot) ||
            !lm_model_text_slot_bytes(models[m], text, &text_slot) ||
            __builtin_mul_overflow(SLOTS_OF_WORKER * (uint64_t)limits->worker_count, slot,
                                   &slots) ||
            __builtin_mul_overflow((uint64_t)TEXT_SLOTS, text_slot, &texts))
            return UINT64_MAX;
        if (slots < texts) slots = texts;
        if (slots > bytes) bytes = slots;
    }
    return bytes;
}

/* Whether a row of the largest shape fits: may be received, and takes, as JSON too, at most a share
 * of the arena. */
static bool largest_fits(const struct lm_model *model, const struct lm_slot_plan_limits *limits) {
    const struct lm_sizes sizes = lm_model_largest(model, 1);
    uint64_t text = row_text_bytes(model);
    size_t payload = 0, slot = 0, text_slot = 0;
    if (text > limits->max_request_bytes) text = limits->max_request_bytes;
    return lm_model_payload_bytes(model, LM_ENCODING_TENSORS, &sizes, &payload) &&
           payload <= limits->max_request_bytes && lm_model_slot_bytes(model, &sizes, &slot) &&
           slot <= limits->arena_bytes / (SLOTS_OF_WORKER * (uint64_t)limits->worker_count) &&
           lm_model_text_slot_bytes(model, text, &text_slot) &&
           text_slot <= limits->arena_bytes / TEXT_SLOTS;
}

/* Halves the sizes that nobody set until a row of them fits. */
static void shrink_defaults(struct lm_model *model, const struct lm_slot_plan_limits *limits) {
    for (bool shrunk = model->free_count > 0; shrunk && !largest_fits(model, limits);) {
        shrunk = false;
        for (uint32_t f = 0; f < model->free_count; f++) {
            struct lm_free_dim *dim = &model->free_dims[f];
            if (!dim->by_default || dim->max == 1) continue;
            dim->max /= 2;
            shrunk = true;
        }
    }
}

/* The largest sizes bound the rows of a model whose other dimensions are fixed. Of others a request
 * may have more rows, if they are short: each request is measured by itself. */
static void bound_rows(struct lm_model *model, size_t largest, uint64_t max_request_bytes) {
    uint32_t low = 1, high = rows_bound(model, max_request_bytes);
    if (model->free_count > 0) high = model->max_rows;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        const struct lm_sizes sizes = lm_model_smallest(model, middle);
        size_t bytes;
        if (lm_model_slot_bytes(model, &sizes, &bytes) && bytes <= largest) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    model->max_rows = low;
}

/* Whether one row of the largest shape can be served at all; lowers defaults until it can. */
static int check_row(struct lm_model *model, const struct lm_slot_plan_limits *limits) {
    size_t payload = SIZE_MAX, slot;
    shrink_defaults(model, limits);
    const struct lm_sizes sizes = lm_model_largest(model, 1);
    bool fits = lm_model_payload_bytes(model, LM_ENCODING_TENSORS, &sizes, &payload);
    if (fits && !lm_model_slot_bytes(model, &sizes, &slot)) {
        return lm_error(LUMEN_E_INVALID,
                        "model '%s': the tensors of one row overflow a size (is its "
                        "max_output_bytes right?)",
                        model->name);
    }
    if (fits && payload <= limits->max_request_bytes) return 0;
    return lm_error(LUMEN_E_INVALID,
                    "server.max_request_bytes: expected at least %zu for one row of model '%s', "
                    "found %llu",
                    payload, model->name, (unsigned long long)limits->max_request_bytes);
}

int lm_slot_plan_late(struct lm_model *model, const struct lm_slot_plan_limits *limits) {
    int code = check_row(model, limits);
    if (code) return code;
    const struct lm_sizes sizes = lm_model_largest(model, 1);
    uint64_t text = row_text_bytes(model);
    if (text > limits->max_request_bytes) text = limits->max_request_bytes;
    lm_model_slot_bytes(model, &sizes, &model->late_row_bytes);
    if (!lm_model_text_slot_bytes(model, text, &model->late_text_bytes)) model->late_text_bytes = 0;
    return 0;
}

/* The model whose row needs the largest slot. */
static const struct lm_model *largest(struct lm_model *const *models, uint32_t count) {
    const struct lm_model *found = models[0];
    size_t most = 0;
    for (uint32_t m = 0; m < count; m++) {
        const struct lm_sizes sizes = lm_model_largest(models[m], 1);
        size_t slot;
        if (!lm_model_slot_bytes(models[m], &sizes, &slot) || slot <= most) continue;
        found = models[m];
        most = slot;
    }
    return found;
}

void lm_slot_plan_bound(struct lm_model *model, const struct lm_slot_plan_limits *limits,
                        size_t largest) {
    bound_rows(model, largest, limits->max_request_bytes);
}

int lm_slot_plan(struct lm_model *const *models, uint32_t model_count,
                 const struct lm_slot_plan_limits *limits,
                 lumen_slot_class classes[LUMEN_SLOT_CLASSES_MAX], uint32_t *class_count_out) {
    struct lm_slot_plan_limits within = *limits;
    struct wanted wanted[WANTED_MAX];
    uint32_t count = model_count ? 0 : add_for_later(wanted);
    if (model_count == 0) within.arena_bytes /= 2;
    for (uint32_t m = 0; m < model_count; m++) {
        int code = check_row(models[m], limits);
        if (code) return code;
        if (count > WANTED_MAX - WANTED_OF_MODEL) count = merge(wanted, count, WANTED_MAX / 2);
        count = add_model(models[m], limits->max_request_bytes, wanted, count);
        count = add_text(models[m], limits->max_request_bytes, wanted, count);
    }
    count = merge(wanted, count, LUMEN_SLOT_CLASSES_MAX - 1);
    /* Too little memory: the largest batches go first, and what nobody needs yet. */
    while (count > 0 && fewest_bytes(wanted, count, limits->worker_count) > within.arena_bytes &&
           (!wanted[count - 1].one_row || model_count == 0))
        count--;
    uint64_t needed = fewest_bytes(wanted, count, limits->worker_count);
    if (needed > within.arena_bytes) {
        return lm_error(
            LUMEN_E_INVALID,
            "server.arena_bytes: expected at least %llu for each I/O thread to serve these models "
            "with %u workers, found %llu%s%s%s",
            (unsigned long long)(model_count ? needed : 2 * needed), limits->worker_count,
            (unsigned long long)limits->arena_bytes, model_count ? ": a row of model '" : "",
            model_count ? largest(models, model_count)->name : "",
            model_count ? "' needs most of it" : "");
    }
    classes[0] =
        (lumen_slot_class){.slot_bytes = LM_REPLY_SLOT_BYTES, .slot_count = LM_REPLY_SLOTS};
    fill(wanted, count, &within, classes + 1);
    for (uint32_t m = 0; m < model_count; m++)
        bound_rows(models[m], wanted[count - 1].slot_bytes, limits->max_request_bytes);
    *class_count_out = count + 1;
    return 0;
}
