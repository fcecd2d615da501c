/* carrier.c: see carrier.h. */
#include "work/carrier.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "lumen.h"
#include "wire/http_form.h"
#include "work/image_body.h"
#include "work/json_body.h"
#include "work/region_tensors.h"
#include "work/shm_tensors.h"

static bool begins_json(const char *text, size_t bytes) {
    for (; bytes > 0 && strchr(" \t\r\n", *text) && *text; bytes--) text++;
    return bytes > 0 && (*text == '{' || *text == '[');
}

/* Notes where the file begins; false: the text is none. */
static bool find_file(struct lm_request *request) {
    const struct lm_body *body = &request->body;
    if (request->encoding != LM_ENCODING_JSON || body->json_bytes >= 0) return false;
    const bool is_form = lm_http_form_is(body->text, body->bytes);
    if (!is_form && !lm_http_file_is(body->text, body->bytes) &&
        (!request->model->input_plan.has_images || begins_json(body->text, body->bytes)))
        return false;
    size_t head_bytes = is_form ? lm_http_form_head(body->text, body->bytes) : 0;
    request->carrier = is_form ? LM_CARRIER_FORM : LM_CARRIER_FILE;
    request->layout.raw = (uint8_t *)body->text + head_bytes;
    request->layout.raw_bytes = body->bytes - head_bytes;
    return true;
}

void lm_carrier_find_file(struct lm_request *request) {
    if (lm_carrier_of(request)->is_coded) return;
    if (find_file(request) && request->model->input_plan.has_images)
        request->encoding = LM_ENCODING_IMAGE;
}

/* ---- reading ---- */

typedef enum lm_status read_fn(struct lm_worker *worker, struct lm_request *request, char *why,
                               size_t why_bytes);

static enum lm_status read_slot(struct lm_worker *worker, struct lm_request *request, char *why,
                                size_t why_bytes) {
    return lm_encodings[request->encoding].read(worker, request, why, why_bytes);
}

static enum lm_status read_form(struct lm_worker *worker, struct lm_request *request, char *why,
                                size_t why_bytes) {
    const struct lm_slice file = lm_carrier_file(request, why, why_bytes);
    if (!file.at && request->model->input_plan.has_images) return LM_STATUS_BAD_REQUEST;
    if (file.at) request->layout.raw = (uint8_t *)(uintptr_t)file.at;
    request->layout.raw_bytes = file.bytes;
    return lm_image_file_read(worker, request, why, why_bytes);
}

/* The inflated text takes the compressed one's place. It may be a file. */
static enum lm_status read_coded(struct lm_worker *worker, struct lm_request *request, char *why,
                                 size_t why_bytes) {
    enum lm_status status = lm_json_body_inflate(worker->inflater, request, why, why_bytes);
    if (status != LM_STATUS_OK) return status;
    request->carrier = LM_CARRIER_SLOT;
    find_file(request);
    return lm_carrier_read(worker, request, why, why_bytes);
}

static enum lm_status read_region(struct lm_worker *worker, struct lm_request *request, char *why,
                                  size_t why_bytes) {
    (void)worker;
    return lm_region_place(request, why, why_bytes);
}

static enum lm_status read_shm(struct lm_worker *worker, struct lm_request *request, char *why,
                               size_t why_bytes) {
    (void)worker;
    return lm_shm_tensors_read(request, why, why_bytes);
}

/* ---- outputs ---- */

static bool put_shm(const struct lm_request *request, const void *const *data, size_t *bytes,
                    char *why, size_t why_bytes) {
    return lm_shm_tensors_write(request, data, bytes, why, why_bytes);
}

static bool put_region(const struct lm_request *request, const void *const *data, size_t *bytes,
                       char *why, size_t why_bytes) {
    (void)why;
    (void)why_bytes; /* the worker has checked the places before the Run */
    lm_region_put(request, data, bytes);
    return true;
}

/* ---- the carriers ---- */

static const struct {
    read_fn *read;
    /* NULL: the reply carries the outputs. false: they do not fit, with a sentence. */
    bool (*put)(const struct lm_request *request, const void *const *data, size_t *bytes, char *why,
                size_t why_bytes);
} carriers[LM_CARRIER_COUNT] = {
    [LM_CARRIER_SLOT] = {.read = read_slot},
    [LM_CARRIER_FILE] = {.read = lm_image_file_read},
    [LM_CARRIER_FORM] = {.read = read_form},
    [LM_CARRIER_CODED] = {.read = read_coded},
    [LM_CARRIER_REGION] = {.read = read_region, .put = put_region},
    [LM_CARRIER_SHM] = {.read = read_shm, .put = put_shm},
};

enum lm_status lm_carrier_read(struct lm_worker *worker, struct lm_request *request, char *why,
                               size_t why_bytes) {
    return carriers[request->carrier].read(worker, request, why, why_bytes);
}

int lm_carrier_put(const struct lm_request *request, const void *const *data, size_t *bytes) {
    char why[LM_TEXT_BYTES_MAX];
    if (!carriers[request->carrier].put ||
        carriers[request->carrier].put(request, data, bytes, why, sizeof why))
        return 0;
    return lm_error(LUMEN_E_INVALID, "%s", why);
}
