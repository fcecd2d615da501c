/* fuzz_rows_request.cc: any bytes as rows with names; see fuzz_request.h. And what a worker answers
 * fits what is kept for it.
 */
#include "fuzz_request.h"
extern "C" {
#include "formats/rows_reply.h"
#include "formats/rows_request.h"
}

namespace {

constexpr uint32_t MODELS = 10;

struct lm_model models[MODELS];

/* One input of columns; a column per input; tokens of a free length; pictures; tensors without
 * rows; strings. */
void make_models() {
    const int64_t wide[] = {-1, 3}, one[] = {-1, 1}, tokens[] = {-1, -1};
    const int64_t picture[] = {-1, 2, 2, 2}, flat[] = {-1}, fixed[] = {2, 2};
    for (struct lm_model &model : models) {
        make_model(model);
        add_output(model, "y", ORT_FLOAT, 0, flat);
    }
    add_input(models[0], "a", ORT_FLOAT, 2, wide);
    add_input(models[1], "a", ORT_FLOAT, 2, one);
    add_input(models[1], "b", ORT_INT64, 2, one);
    add_input(models[1], "c", ORT_BOOL, 1, flat);
    add_input(models[2], "a", ORT_INT64, 2, tokens);
    add_input(models[2], "b", ORT_DOUBLE, 2, tokens);
    add_input(models[3], "a", ORT_UINT8, 4, picture);
    add_input(models[4], "a", ORT_INT32, 2, fixed);
    add_input(models[5], "a", ORT_FLOAT, 0, fixed);
    add_input(models[5], "b", ORT_FLOAT, 1, flat);
    add_input(models[6], "a", ORT_FLOAT, 2, tokens);
    add_input(models[7], "a", ORT_INT8, 2, one);
    add_input(models[8], "a", ORT_STRING, 2, tokens);
    add_input(models[9], "a", ORT_STRING, 2, one);
    add_input(models[9], "b", ORT_FLOAT, 2, wide);
    add_input(models[9], "c", ORT_STRING, 1, flat);
}

void check_read(const struct lm_model *model, const struct lm_oip_request *request) {
    HOLDS(request->row_count <= (model->any_rank ? 9u : 4u) &&
          request->requested_count == model->output_count);
}

/* The text of the values that were read, as the reply would have them. */
void check_reply(const struct lm_model *model, const struct lm_oip_request *request,
                 void *const *inputs, const size_t *string_bytes) {
    struct lm_oip_output output = {};
    char why[LM_TEXT_BYTES_MAX];
    size_t most = 0, bytes = 0;
    output.tensor = &model->inputs[0];
    output.data = inputs[0];
    output.rank = lm_tensor_shape(output.tensor, &request->sizes, output.dims);
    lm_tensor_bytes(output.tensor, &request->sizes, &output.bytes);
    if (lm_is_string(output.tensor)) output.bytes = string_bytes[0];
    HOLDS(lm_rows_reply_bytes_max(model, &output, &most));
    char *room = (char *)malloc(most);
    enum lm_status status = lm_rows_write(model, &output, request->row_count, "predictions", room,
                                          most, &bytes, why, sizeof why);
    HOLDS(status != LM_STATUS_TOO_LARGE && (status != LM_STATUS_OK || bytes <= most));
    free(room);
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    static constexpr request_reader reader = {lm_rows_read, lm_rows_strings_bytes, lm_rows_values,
                                              check_read, check_reply};
    if (!models[0].input_count) make_models();
    return fuzz_request(reader, models, MODELS, bytes, count);
}
