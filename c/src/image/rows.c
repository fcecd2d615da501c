/* rows.c: see rows.h.
 *
 * Pillow rounds to bytes between its two passes, so their order counts. A source row goes across
 * into a ring of rows, which go down; or it goes to the ring as it is, and what goes down is a line
 * that then goes across. What comes out is a row of the tensor, or a column where the picture is
 * turned. Columns are collected, so that runs of pixels go to the tensor instead of single ones.
 */
#include "image/rows.h"

#include <string.h>

enum { ALIGNMENT = 64, BLOCK_LINES = 32 };

static size_t round_up(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t row_bytes(size_t pixels) {
    return round_up(3 * pixels + LM_IMAGE_SLACK);
}

/* ---- memory ---- */

static const struct lm_image_side *side_across(const struct lm_image_geometry *geometry) {
    return geometry->turned ? &geometry->y : &geometry->x;
}

static const struct lm_image_side *side_down(const struct lm_image_geometry *geometry) {
    return geometry->turned ? &geometry->x : &geometry->y;
}

static size_t packed_bytes(const struct lm_resample *kernel, const struct lm_image_side *side,
                           enum lm_filter filter) {
    uint32_t taps = lm_weights_taps_max(side, filter);
    return taps > 1 && kernel->packed_bytes ? round_up(kernel->packed_bytes(side->count, taps)) : 0;
}

/* Finds the places of all but the weights in the scratch; returns what is in use then. */
static size_t place(struct lm_image_rows *rows, uint8_t *scratch) {
    const struct lm_image_side *across = side_across(&rows->geometry),
                               *down = side_down(&rows->geometry);
    uint32_t taps = lm_weights_taps_max(down, rows->plan->filter);
    size_t at = 0;
    rows->ring_rows = taps;
    rows->ring_stride = row_bytes(rows->geometry.across_first ? across->count : across->in);
    rows->block_stride = row_bytes(across->count);
    rows->ring = scratch + at;
    at += rows->ring_rows * rows->ring_stride;
    rows->line = scratch + at;
    at += rows->ring_stride;
    rows->grey = scratch + at;
    at += rows->plan->pixels.is_grey ? row_bytes(across->in) : 0;
    rows->block = scratch + at;
    at += (rows->geometry.turned ? BLOCK_LINES : 1) * rows->block_stride;
    rows->tap_rows = (void *)(scratch + at);
    return at + round_up(taps * sizeof *rows->tap_rows);
}

static size_t weights_bytes(const struct lm_image_rows *rows) {
    const struct lm_image_side *across = side_across(&rows->geometry);
    enum lm_filter filter = rows->plan->filter;
    return lm_weights_bytes(across, filter) + packed_bytes(rows->kernel, across, filter) +
           lm_weights_bytes(side_down(&rows->geometry), filter);
}

size_t lm_image_rows_bytes(const struct lm_image_plan *plan, uint32_t width, uint32_t height,
                           uint32_t orientation) {
    struct lm_image_rows rows = {.plan = plan, .kernel = lm_resample_kernel(0)};
    static uint8_t nowhere[1];
    if (!lm_image_geometry(plan, width, height, orientation, &rows.geometry)) return 0;
    return place(&rows, nowhere) + weights_bytes(&rows);
}

/* Sides in steps of a sixteenth, and an eighth more for those between them. */
size_t lm_image_rows_bytes_max(const struct lm_image_plan *plan) {
    size_t most = 0;
    for (uint32_t width = 1; width <= LM_IMAGE_SIDE_MAX; width += width / 16 + 1) {
        for (uint32_t height = 1; height <= LM_IMAGE_SIDE_MAX; height += height / 16 + 1) {
            if ((uint64_t)(width - width / 16) * (height - height / 16) > plan->max_pixels) break;
            for (uint32_t orientation = 1; orientation <= 6; orientation += 5) {
                size_t bytes = lm_image_rows_bytes(plan, width, height, orientation);
                most = bytes > most ? bytes : most;
            }
        }
    }
    return round_up(most + most / 8);
}

/* ---- weights ---- */

static bool same_side(const struct lm_image_side *a, const struct lm_image_side *b) {
    return a->in == b->in && a->out == b->out && a->first == b->first && a->count == b->count &&
           a->reversed == b->reversed;
}

static size_t make_weights(const struct lm_image_rows *rows, struct lm_weights *weights,
                           const struct lm_image_side *side, bool packed, uint8_t *memory) {
    size_t used = lm_weights_make(weights, side, rows->plan->filter, memory);
    if (packed && weights->taps_max > 1 && rows->kernel->pack) {
        rows->kernel->pack(weights, memory + used);
        used += packed_bytes(rows->kernel, side, rows->plan->filter);
    }
    return used;
}

/* Finds the weights of a side among those that are kept, or makes them there, in the place of those
 * that were not used for longest; or in the scratch where they are too large to keep. Returns how
 * much of the scratch they take. */
static size_t find_weights(struct lm_image_rows *rows, struct lm_weights *weights,
                           const struct lm_image_side *side, bool packed, uint8_t *scratch) {
    enum lm_filter filter = rows->plan->filter;
    struct lm_image_kept *oldest = &rows->kept[0];
    for (uint32_t i = 0; i < LM_IMAGE_KEPT; i++) {
        struct lm_image_kept *kept = &rows->kept[i];
        if (kept->used && kept->filter == filter && kept->packed == packed &&
            same_side(&kept->side, side)) {
            kept->used = ++rows->uses;
            *weights = kept->weights;
            return 0;
        }
        if (kept->used < oldest->used) oldest = kept;
    }
    size_t bytes = lm_weights_bytes(side, filter);
    if (packed) bytes += packed_bytes(rows->kernel, side, filter);
    if (bytes > rows->kept_bytes) return make_weights(rows, weights, side, packed, scratch);
    uint8_t *memory = rows->kept_memory + (size_t)(oldest - rows->kept) * rows->kept_bytes;
    make_weights(rows, weights, side, packed, memory);
    *oldest = (struct lm_image_kept){.side = *side,
                                     .filter = filter,
                                     .packed = packed,
                                     .used = ++rows->uses,
                                     .weights = *weights};
    return 0;
}

/* ---- a picture ---- */

void lm_image_rows_open(struct lm_image_rows *rows, void *memory, size_t bytes) {
    *rows = (struct lm_image_rows){.kernel = lm_resample_kernel(0),
                                   .kept_memory = memory,
                                   .kept_bytes =
                                       memory ? bytes / LM_IMAGE_KEPT / ALIGNMENT * ALIGNMENT : 0};
}

static void put_margin(const struct lm_image_rows *rows, uint32_t row, uint32_t column,
                       size_t count) {
    enum { CHUNK = 256 };
    uint8_t pixels[3 * CHUNK];
    const struct lm_rgb8_plan *plan = &rows->plan->pixels;
    memset(pixels, rows->plan->pad_value, count < CHUNK ? 3 * count : sizeof pixels);
    size_t at = (size_t)row * plan->width + column, end = at + count;
    for (; at < end; at += CHUNK)
        lm_rgb8_run(plan, pixels, rows->tensor, at, end - at < CHUNK ? end - at : CHUNK);
}

static void put_margins(const struct lm_image_rows *rows) {
    const struct lm_image_side *x = &rows->geometry.x, *y = &rows->geometry.y;
    size_t width = rows->plan->pixels.width, height = rows->plan->pixels.height;
    uint32_t right = x->at + x->count, below = y->at + y->count;
    put_margin(rows, 0, 0, y->at * width);
    put_margin(rows, below, 0, (height - below) * width);
    for (uint32_t row = y->at; row < below && x->count < width; row++) {
        put_margin(rows, row, 0, x->at);
        put_margin(rows, row, right, width - right);
    }
}

bool lm_image_rows_begin(struct lm_image_rows *rows, const struct lm_image_plan *plan,
                         uint32_t width, uint32_t height, uint32_t orientation, void *tensor,
                         void *scratch, size_t scratch_bytes) {
    rows->plan = plan;
    rows->tensor = tensor;
    if (!lm_image_geometry(plan, width, height, orientation, &rows->geometry)) return false;
    uint8_t *at = scratch;
    at += place(rows, at);
    if ((size_t)(at - (uint8_t *)scratch) + weights_bytes(rows) > scratch_bytes) return false;
    at += find_weights(rows, &rows->across, side_across(&rows->geometry), true, at);
    find_weights(rows, &rows->down, side_down(&rows->geometry), false, at);
    rows->first_row = rows->next_row = rows->down.first;
    rows->end_row = rows->down.end;
    rows->made = 0;
    rows->total = rows->down.count;
    put_margins(rows);
    return true;
}

static void go_across(const struct lm_image_rows *rows, const uint8_t *row, uint8_t *out) {
    if (rows->across.taps_max == 1) {
        lm_resample_pick(&rows->across, row, out);
    } else {
        rows->kernel->across(&rows->across, row, out);
    }
}

static uint8_t *ring_row(const struct lm_image_rows *rows, uint32_t row) {
    return rows->ring + row % rows->ring_rows * rows->ring_stride;
}

/* Combines the rows in the ring into line `line`. */
static const uint8_t *go_down(const struct lm_image_rows *rows, uint32_t line, size_t pixels) {
    const struct lm_weights *down = &rows->down;
    const struct lm_taps *taps = &down->taps[line];
    if (down->taps_max == 1) return ring_row(rows, taps->begin);
    for (uint32_t tap = 0; tap < taps->count; tap++)
        rows->tap_rows[tap] = ring_row(rows, taps->begin + tap);
    rows->kernel->down(rows->tap_rows, down->pairs + (size_t)line * down->pairs_max, taps->count,
                       rows->line, 3 * pixels);
    return rows->line;
}

/* Columns of the tensor, of which `column` is the first, as runs of pixels. Four bytes are copied
 * for each pixel: the next one overwrites the fourth. */
static void put_block(const struct lm_image_rows *rows, const uint8_t *lines, uint32_t column,
                      uint32_t count) {
    const struct lm_rgb8_plan *plan = &rows->plan->pixels;
    const struct lm_image_side *x = &rows->geometry.x, *y = &rows->geometry.y;
    uint8_t pixels[3 * BLOCK_LINES + 1];
    for (uint32_t row = 0; row < y->count; row++) {
        for (uint32_t i = 0; i < count; i++)
            memcpy(pixels + 3 * i, lines + i * rows->block_stride + 3 * (size_t)row, 4);
        lm_rgb8_run(plan, pixels, rows->tensor,
                    (size_t)(y->at + row) * plan->width + x->at + column, count);
    }
}

/* The line of the tensor that is finished next: stored rows may come from its other end. */
static uint32_t next_line(const struct lm_image_rows *rows) {
    return side_down(&rows->geometry)->reversed ? rows->total - 1 - rows->made : rows->made;
}

static void finish_line(struct lm_image_rows *rows) {
    const struct lm_image_geometry *geometry = &rows->geometry;
    bool reversed = side_down(geometry)->reversed;
    uint32_t line = next_line(rows), nth = rows->made % BLOCK_LINES;
    uint32_t slot = !geometry->turned ? 0 : reversed ? BLOCK_LINES - 1 - nth : nth;
    uint8_t *place = rows->block + slot * rows->block_stride;
    const uint8_t *pixels;
    if (geometry->across_first) {
        pixels = go_down(rows, line, rows->across.count);
        if (geometry->turned) memcpy(place, pixels, 3 * (size_t)rows->across.count);
    } else {
        pixels = go_down(rows, line, rows->across.end - rows->across.first);
        go_across(rows, pixels, place);
        pixels = place;
    }
    rows->made++;
    if (!geometry->turned) {
        const struct lm_rgb8_plan *plan = &rows->plan->pixels;
        lm_rgb8_run(plan, pixels, rows->tensor,
                    (size_t)(geometry->y.at + line) * plan->width + geometry->x.at,
                    geometry->x.count);
    } else if (nth == BLOCK_LINES - 1 || lm_image_rows_done(rows)) {
        put_block(rows, reversed ? place : rows->block, reversed ? line : line - nth, nth + 1);
    }
}

/* Pillow's convert("L"): 16 bits of fraction, rounded. Each grey stands three times, so that the
 * passes need no kernels of their own. */
static void make_grey(const uint8_t *rgb, uint8_t *grey, size_t pixels) {
    for (size_t i = 0; i < pixels; i++, rgb += 3, grey += 3) {
        uint32_t sum = 19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000;
        grey[0] = grey[1] = grey[2] = (uint8_t)(sum >> 16);
    }
}

void lm_image_rows_put(struct lm_image_rows *rows, const uint8_t *rgb) {
    if (lm_image_rows_done(rows)) return;
    uint32_t row = rows->next_row++ - rows->first_row;
    const uint8_t *pixels = rgb + 3 * (size_t)rows->across.first;
    const struct lm_taps *taps = rows->down.taps;
    if (taps[next_line(rows)].begin > row) return;
    if (rows->plan->pixels.is_grey) {
        make_grey(pixels, rows->grey, rows->across.end - rows->across.first);
        pixels = rows->grey;
    }
    if (rows->geometry.across_first) {
        go_across(rows, pixels, ring_row(rows, row));
    } else {
        memcpy(ring_row(rows, row), pixels, 3 * (size_t)(rows->across.end - rows->across.first));
    }
    while (!lm_image_rows_done(rows)) {
        const struct lm_taps *next = &taps[next_line(rows)];
        if (next->begin + next->count > row + 1) return;
        finish_line(rows);
    }
}
