/* output_view.c: see output_view.h. */
#include "work/output_view.h"

#include <string.h>

#include "flow/carrier.h"
#include "formats/class_list.h"
#include "formats/http_route.h"
#include "formats/rows_reply.h"
#include "formats/texts_reply.h"

/* An output that clients see in another shape than the graph's. Rows with names have the graph's.
 */
static void reshape(const struct lm_request *request, struct lm_oip_output *output) {
    const struct lm_tensor *client = output->tensor->client;
    size_t bytes = 0;
    if (!client || request->encoding == LM_ENCODING_ROWS) return;
    if (!lm_tensor_bytes(client, &request->sizes, &bytes) || bytes != output->bytes) return;
    output->tensor = client;
    output->rank = client->rank;
    lm_tensor_shape(client, &request->sizes, output->dims);
}

void lm_outputs_describe(const struct lm_request *request, const void *const *data,
                         const size_t *bytes, bool has_block, struct lm_oip_output *outputs) {
    const struct lm_model *model = request->model;
    const uint8_t *at = request->prefix + 4;
    for (uint32_t o = 0; o < model->output_count; o++) {
        struct lm_oip_output *output = &outputs[o];
        output->tensor = &model->outputs[o];
        output->data = data[o];
        output->bytes = bytes[o];
        output->rank = model->outputs[o].rank;
        if (!has_block) {
            lm_tensor_shape(&model->outputs[o], &request->sizes, output->dims);
            continue;
        }
        uint32_t word;
        memcpy(&word, at, 4);
        at += 4;
        output->rank = word;
        for (uint32_t d = 0; d < output->rank; d++, at += 4) {
            memcpy(&word, at, 4);
            output->dims[d] = word;
        }
    }
    for (uint32_t o = 0; o < model->output_count; o++) reshape(request, &outputs[o]);
}

/* ---- rows with names ---- */

static bool fits_rows(const struct lm_request *request) {
    return request->encoding == LM_ENCODING_ROWS;
}

static bool rows_bytes_max(const struct lm_request *request, const struct lm_oip_output *outputs,
                           size_t *json_bytes_out, size_t *scratch_bytes_out) {
    *scratch_bytes_out = 0;
    return lm_rows_reply_bytes_max(request->model, outputs, json_bytes_out);
}

static enum lm_status rows_write(const struct lm_request *request,
                                 const struct lm_oip_output *outputs,
                                 const struct lm_oip_room *room, struct lm_oip_reply *reply,
                                 char *why, size_t why_bytes) {
    const uint32_t rows = request->asked->row_count;
    const char *field =
        rows > 0 || request->wish.route == LM_ROUTE_INVOCATIONS ? "predictions" : "outputs";
    return lm_rows_write(request->model, outputs, rows, field, room->json, room->json_bytes,
                         &reply->json_bytes, why, why_bytes);
}

/* ---- the classes of a picture, where they have names or a number of them was asked for ---- */

static bool fits_classes(const struct lm_request *request) {
    const struct lm_model *model = request->model;
    bool asked =
        lm_carrier_of(request)->is_file && (model->labels.count > 0 || request->wish.top > 0);
    return asked && lm_class_list_output(model) < model->output_count;
}

static bool classes_bytes_max(const struct lm_request *request, const struct lm_oip_output *outputs,
                              size_t *json_bytes_out, size_t *scratch_bytes_out) {
    const struct lm_model *model = request->model;
    return lm_class_list_bytes_max(&outputs[lm_class_list_output(model)], &model->labels,
                                   lm_classes_top(request->wish.top), json_bytes_out,
                                   scratch_bytes_out);
}

static enum lm_status classes_write(const struct lm_request *request,
                                    const struct lm_oip_output *outputs,
                                    const struct lm_oip_room *room, struct lm_oip_reply *reply,
                                    char *why, size_t why_bytes) {
    const struct lm_model *model = request->model;
    return lm_class_list_write(&outputs[lm_class_list_output(model)], &model->labels,
                               lm_classes_top(request->wish.top), room, &reply->json_bytes, why,
                               why_bytes);
}

/* ---- what a client of texts looks for ---- */

static bool fits_texts(const struct lm_request *request) {
    return request->encoding == LM_ENCODING_TEXTS;
}

static struct lm_texts_answer texts_of(const struct lm_request *request,
                                       const struct lm_oip_output *outputs) {
    const struct lm_model *model = request->model;
    const uint32_t scored = model->input_count - 1; /* of a pair the second */
    return (struct lm_texts_answer){.model = model,
                                    .wish = &request->asked->texts,
                                    .route = request->wish.route,
                                    .rows = request->sizes.rows,
                                    .outputs = outputs,
                                    .texts = request->layout.inputs[scored],
                                    .text_bytes = request->layout.string_bytes[scored]};
}

static bool texts_bytes_max(const struct lm_request *request, const struct lm_oip_output *outputs,
                            size_t *json_bytes_out, size_t *scratch_bytes_out) {
    const struct lm_texts_answer answer = texts_of(request, outputs);
    return lm_texts_reply_bytes_max(&answer, json_bytes_out, scratch_bytes_out);
}

static enum lm_status texts_write(const struct lm_request *request,
                                  const struct lm_oip_output *outputs,
                                  const struct lm_oip_room *room, struct lm_oip_reply *reply,
                                  char *why, size_t why_bytes) {
    const struct lm_texts_answer answer = texts_of(request, outputs);
    return lm_texts_reply(&answer, room, &reply->json_bytes, why, why_bytes);
}

/* ---- tensors ---- */

static bool tensors_bytes_max(const struct lm_request *request, const struct lm_oip_output *outputs,
                              size_t *json_bytes_out, size_t *scratch_bytes_out) {
    const struct lm_model *model = request->model;
    return lm_oip_reply_bytes_max(model, request->asked, outputs, &model->labels, json_bytes_out,
                                  scratch_bytes_out);
}

static enum lm_status tensors_write(const struct lm_request *request,
                                    const struct lm_oip_output *outputs,
                                    const struct lm_oip_room *room, struct lm_oip_reply *reply,
                                    char *why, size_t why_bytes) {
    const struct lm_model *model = request->model;
    return lm_oip_write(model, request->asked, outputs, &model->labels, room, reply, why,
                        why_bytes);
}

static const struct lm_output_view views[] = {
    {fits_rows, rows_bytes_max, rows_write},
    {fits_texts, texts_bytes_max, texts_write},
    {fits_classes, classes_bytes_max, classes_write},
    {NULL, tensors_bytes_max, tensors_write},
};

const struct lm_output_view *lm_output_view_of(const struct lm_request *request) {
    const struct lm_output_view *view = views;
    while (view->fits && !view->fits(request)) view++;
    return view;
}
