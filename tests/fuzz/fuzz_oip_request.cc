/* fuzz_oip_request.cc: any bytes as an Open Inference Protocol request; see fuzz_request.h. */
#include "fuzz_request.h"

namespace {

constexpr int dtypes[] = {ORT_FLOAT,  ORT_DOUBLE,  ORT_INT8,   ORT_UINT8, ORT_INT16,
                          ORT_UINT16, ORT_INT32,   ORT_UINT32, ORT_INT64, ORT_UINT64,
                          ORT_BOOL,   ORT_FLOAT16, ORT_STRING};
constexpr uint32_t MODELS = sizeof dtypes / sizeof dtypes[0];

struct lm_model models[MODELS];

/* Input "a" has the model's type; "b" is there in every other model; every fourth has free columns,
 * every third has sequences, which nobody looks into here. */
void make_models() {
    static char sequences;
    const int64_t two[] = {-1, 2}, one[] = {-1, 1}, five[] = {-1, 5}, any[] = {-1, -1};
    for (uint32_t m = 0; m < MODELS; m++) {
        make_model(models[m]);
        if (m % 3 == 2) models[m].sequences = reinterpret_cast<struct lm_sequences *>(&sequences);
        add_input(models[m], "a", dtypes[m], 2, m % 4 == 3 ? any : two);
        if (m % 2) add_input(models[m], "b", ORT_FLOAT, 2, m % 4 == 3 ? any : one);
        add_output(models[m], "x", ORT_FLOAT, 2, five);
        if (m % 2) add_output(models[m], "y", ORT_FLOAT16, 2, one);
    }
}

enum lm_status strings_bytes(struct lm_oip_parser *parser, const struct lm_oip_request *request,
                             const struct lm_model *model, size_t bytes_out[], char *, size_t) {
    lm_oip_strings_bytes(parser, request, model, bytes_out);
    return LM_STATUS_OK;
}

void check_read(const struct lm_model *model, const struct lm_oip_request *request) {
    HOLDS(request->blob_count + request->value_count == model->input_count);
    HOLDS(request->requested_count >= 1 && request->requested_count <= model->output_count);
    HOLDS(request->id_bytes <= LM_OIP_ID_BYTES_MAX);
    const struct lm_sequence_ask &ask = request->sequence;
    HOLDS(model->sequences || (!ask.id && !ask.text_bytes && !ask.starts && !ask.ends));
    for (uint32_t i = 0; i < request->id_bytes; i++) HOLDS((uint8_t)request->id[i] >= 0x20);
}

void check_values(const struct lm_model *, const struct lm_oip_request *, void *const *,
                  const size_t *) {
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    static constexpr request_reader reader = {lm_oip_read, strings_bytes, lm_oip_values, check_read,
                                              check_values};
    if (!models[0].input_count) make_models();
    return fuzz_request(reader, models, MODELS, bytes, count);
}
