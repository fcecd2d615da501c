/* image_body.c: see image_body.h. */
#include "work/image_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "image/decoder.h"
#include "image/rows.h"
#include "lumen.h"
#include "work/json_body.h"

/* A picture that is decoded in slices, and a smaller one between two of them. */
enum { LANES = 2, SMALLER = 4 /* times fewer pixels */ };

struct lane {
    struct lm_image_decoder *decoder;
    struct lm_image_rows rows;
    struct lm_mapping scratch; /* of one picture, behind what several share */
    uint64_t until_ns;         /* of this slice */
};

struct lm_image_desk {
    struct lane lanes[LANES];
    uint32_t used; /* of the lanes */
    uint64_t whole_pixels;
    size_t scratch;
};

/* ---- memory ---- */

static int open_lane(struct lane *lane, uint64_t whole_pixels, size_t scratch) {
    int code = lm_image_decoder_open(&lane->decoder, whole_pixels);
    size_t bytes = LM_IMAGE_KEPT_BYTES + scratch;
    if (!code) code = lm_mapping_reserve_on(&lane->scratch, bytes, LUMEN_HUGE_NONE);
    if (!code) lm_image_rows_open(&lane->rows, lane->scratch.base, LM_IMAGE_KEPT_BYTES);
    return code;
}

/* The caller closes it after an error too. */
static int open_desk(struct lm_image_desk **desk_out, uint64_t whole_pixels, size_t scratch) {
    struct lm_image_desk *desk = calloc(1, sizeof *desk);
    *desk_out = desk;
    if (!desk) return lm_error(LUMEN_E_NOMEM, "no memory for decoding pictures");
    desk->whole_pixels = whole_pixels;
    desk->scratch = scratch;
    int code = 0;
    for (uint32_t l = 0; !code && l < LANES; l++)
        code = open_lane(&desk->lanes[l], whole_pixels, scratch);
    return code;
}

int lm_image_desk_open(struct lm_worker *worker) {
    const struct lm_model_set *set = lm_models_in_force(worker->shared);
    uint64_t whole_pixels = 0;
    size_t scratch = 0;
    for (uint32_t m = 0; m < set->count; m++) {
        const struct lm_model *model = set->models[m];
        const struct lm_image_plan *plan = &model->input_plan.image;
        if (!model->input_plan.has_images) continue;
        if (model->picture_bytes > scratch) scratch = model->picture_bytes;
        if (plan->max_whole_pixels > whole_pixels) whole_pixels = plan->max_whole_pixels;
    }
    return scratch ? open_desk(&worker->desk, whole_pixels, scratch) : 0;
}

int lm_image_desk_extend(const struct lm_worker *worker, struct lm_model *model) {
    const struct lm_image_desk *desk = worker->desk;
    const struct lm_image_plan *plan = &model->input_plan.image;
    if (!model->input_plan.has_images) return 0;
    bool is_enough = desk && desk->scratch >= model->picture_bytes &&
                     desk->whole_pixels >= plan->max_whole_pixels;
    if (is_enough) return 0;
    return open_desk(&model->desks[worker->index], plan->max_whole_pixels, model->picture_bytes);
}

void lm_image_desk_close(struct lm_image_desk **desk) {
    for (uint32_t l = 0; *desk && l < LANES; l++) {
        lm_image_decoder_close((*desk)->lanes[l].decoder);
        lm_mapping_close(&(*desk)->lanes[l].scratch);
    }
    free(*desk);
    *desk = NULL;
}

static struct lm_image_desk *desk_of(const struct lm_worker *worker,
                                     const struct lm_request *request) {
    struct lm_image_desk *own = request->model->desks[worker->index];
    return own ? own : worker->desk;
}

/* ---- one file ---- */

/* Whether anybody still waits for the picture; else why not. */
static enum lm_status look_up(const struct lm_request *request, char *why, size_t why_bytes) {
    const struct lm_connection *connection = lm_io_connection(request->io, request->connection);
    if (lm_now_ns() >= request->deadline_ns) {
        snprintf(why, why_bytes, "the deadline passed while the picture was decoded");
        return LM_STATUS_DEADLINE;
    }
    /* relaxed: missing it costs a slice, nothing else */
    return lm_load_relaxed_u32(&connection->gone) ? LM_STATUS_SHUTTING_DOWN : LM_STATUS_OK;
}

/* A slice may hold several pictures of a request. */
static enum lm_status decode_slices(struct lm_worker *worker, const struct lm_request *request,
                                    struct lane *lane, char *why, size_t why_bytes) {
    for (;; lane->until_ns = 0) {
        if (lm_now_ns() >= lane->until_ns) {
            enum lm_status status = look_up(request, why, why_bytes);
            if (status != LM_STATUS_OK) return status;
            if (worker->between && desk_of(worker, request)->used < LANES)
                worker->between(worker, request->pixels / SMALLER);
            lane->until_ns = lm_now_ns() + LM_DECODE_SLICE_NS;
        }
        /* relaxed: as in lm_worker_serve */
        lm_store_relaxed_u64(&worker->busy_since_ns, lm_now_ns());
        enum lm_image_step step =
            lm_image_step(lane->decoder, &lane->rows, lane->until_ns, why, why_bytes);
        if (step == LM_IMAGE_DONE) return LM_STATUS_OK;
        if (step == LM_IMAGE_FAILED) return LM_STATUS_BAD_REQUEST;
    }
}

static enum lm_status decode(struct lm_worker *worker, const struct lm_request *request,
                             const uint8_t *file, size_t bytes, void *tensor, char *why,
                             size_t why_bytes) {
    const struct lm_image_plan *plan = &request->model->input_plan.image;
    struct lm_image_desk *desk = desk_of(worker, request);
    struct lane *lane = &desk->lanes[desk->used++];
    struct lm_image_info info;
    enum lm_status status = LM_STATUS_BAD_REQUEST;
    if (lm_image_begin(lane->decoder, plan, file, bytes, &info, why, why_bytes)) {
        if (lm_image_rows_begin(&lane->rows, plan, info.width, info.height, info.orientation,
                                tensor, (uint8_t *)lane->scratch.base + LM_IMAGE_KEPT_BYTES,
                                lane->scratch.bytes - LM_IMAGE_KEPT_BYTES)) {
            status = decode_slices(worker, request, lane, why, why_bytes);
        } else {
            snprintf(why, why_bytes, "picture: %u x %u pixels cannot be made %u x %u", info.width,
                     info.height, plan->pixels.width, plan->pixels.height);
        }
    }
    lm_image_end(lane->decoder);
    desk->used--;
    return status;
}

/* ---- all files ---- */

/* The next file, behind its length. */
static bool next_file(const uint8_t **at, const uint8_t *end, uint32_t row, size_t *bytes_out,
                      char *why, size_t why_bytes) {
    uint32_t bytes = 0;
    size_t left = (size_t)(end - *at);
    if (left >= sizeof bytes) {
        memcpy(&bytes, *at, sizeof bytes); /* little-endian, as we are */
        *at += sizeof bytes;
        left -= sizeof bytes;
        *bytes_out = bytes;
        if (bytes <= left) return true;
    }
    snprintf(why, why_bytes, "picture %u: expected its length and %u bytes, found %zu", row, bytes,
             left);
    return false;
}

/* Names the picture, where there are several. */
static void name_row(uint32_t row, uint32_t rows, char *why, size_t why_bytes) {
    char sentence[LM_TEXT_BYTES_MAX];
    if (rows < 2) return;
    snprintf(sentence, sizeof sentence, "%s", why);
    snprintf(why, why_bytes, "picture %u: %.480s", row, sentence);
}

/* Its first slices are short. */
static void begin(const struct lm_worker *worker, const struct lm_request *request) {
    struct lm_image_desk *desk = desk_of(worker, request);
    desk->lanes[desk->used].until_ns = lm_now_ns() + LM_DECODE_FIRST_NS;
}

enum lm_status lm_image_files_read(struct lm_worker *worker, struct lm_request *request, char *why,
                                   size_t why_bytes) {
    begin(worker, request);
    const struct lm_tensor *input = &request->model->inputs[0];
    const uint8_t *at = request->layout.raw, *end = at + request->layout.raw_bytes;
    size_t row_bytes = input->row_bytes;
    for (uint32_t row = 0; row < request->sizes.rows; row++) {
        uint8_t *tensor = (uint8_t *)request->layout.inputs[0] + row * row_bytes;
        size_t bytes = 0;
        if (!next_file(&at, end, row, &bytes, why, why_bytes)) return LM_STATUS_BAD_REQUEST;
        enum lm_status status = decode(worker, request, at, bytes, tensor, why, why_bytes);
        if (status != LM_STATUS_OK) {
            name_row(row, request->sizes.rows, why, why_bytes);
            return status;
        }
        at += bytes;
    }
    if (at == end) return LM_STATUS_OK;
    snprintf(why, why_bytes, "payload: expected %u pictures, found %zu bytes behind them",
             request->sizes.rows, (size_t)(end - at));
    return LM_STATUS_BAD_REQUEST;
}

enum lm_status lm_image_file_read(struct lm_worker *worker, struct lm_request *request, char *why,
                                  size_t why_bytes) {
    const struct lm_model *model = request->model;
    if (!model->input_plan.has_images) {
        snprintf(why, why_bytes,
                 "the body is a picture's file or a form, and model '%.200s' takes none: give it "
                 "the setting `image`, such as image: {preset: imagenet}",
                 model->name);
        return LM_STATUS_BAD_REQUEST;
    }
    begin(worker, request);
    const uint8_t *file = request->layout.raw;
    const size_t bytes = request->layout.raw_bytes;
    enum lm_status status = lm_picture_body_place(request, why, why_bytes);
    if (status != LM_STATUS_OK) return status;
    return decode(worker, request, file, bytes, request->layout.inputs[0], why, why_bytes);
}
