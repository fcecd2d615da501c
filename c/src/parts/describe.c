/* describe.c: see describe.h. Names come from model files, so they are escaped. */
#include "parts/describe.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "parts/json_text.h"

static void write_tensor(FILE *out, const struct lm_tensor *tensor, int is_output) {
    fputs("{\"name\":", out);
    lm_json_write(out, tensor->name);
    fprintf(out, ",\"datatype\":\"%s\",\"shape\":[", lm_dtype_name(tensor->dtype));
    for (uint32_t d = 0; d < tensor->rank; d++)
        fprintf(out, "%s%lld", d ? "," : "", (long long)tensor->dims[d]);
    fputc(']', out);
    if (is_output) fprintf(out, ",\"shape_known\":%s", tensor->shape_known ? "true" : "false");
    fputc('}', out);
}

static void write_rgb8(FILE *out, const struct lm_model *model) {
    if (!model->has_rgb8) {
        fputs("null", out);
        return;
    }
    const struct lm_rgb8_plan *plan = &model->rgb8;
    fprintf(out, "{\"height\":%u,\"width\":%u,\"layout\":\"%s\",\"channel_order\":\"%s\"",
            plan->height, plan->width, plan->layout == LM_LAYOUT_NCHW ? "NCHW" : "NHWC",
            model->channel_order == LUMEN_CHANNELS_BGR ? "BGR" : "RGB");
    fprintf(out, ",\"mean\":[%.9g,%.9g,%.9g]", (double)plan->mean[0], (double)plan->mean[1],
            (double)plan->mean[2]);
    fprintf(out, ",\"scale\":[%.9g,%.9g,%.9g]}", (double)plan->scale[0], (double)plan->scale[1],
            (double)plan->scale[2]);
}

/* Each client reads this document once a connection: a long list of labels is left out. */
static void write_labels(FILE *out, const struct lm_labels *labels) {
    if (labels->count == 0 || labels->starts[labels->count] > LM_DESCRIBE_LABELS_BYTES_MAX) {
        fputs("null", out);
        return;
    }
    for (uint32_t i = 0; i < labels->count; i++) {
        uint32_t bytes;
        const char *label = lm_labels_get(labels, i, &bytes);
        fputc(i ? ',' : '[', out);
        lm_json_write_bytes(out, label, bytes);
    }
    fputc(']', out);
}

static void write_model(FILE *out, const struct lm_model *model) {
    fprintf(out, "{\"index\":%u,\"name\":", model->index);
    lm_json_write(out, model->name);
    fprintf(out, ",\"max_rows\":%u,\"inputs\":[", model->max_rows);
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (i) fputc(',', out);
        write_tensor(out, &model->inputs[i], 0);
    }
    fputs("],\"outputs\":[", out);
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (i) fputc(',', out);
        write_tensor(out, &model->outputs[i], 1);
    }
    fputs("],\"rgb8\":", out);
    write_rgb8(out, model);
    fputs(",\"labels\":", out);
    write_labels(out, &model->labels);
    fputc('}', out);
}

int lm_describe(const struct lm_model *models, uint32_t model_count, const char *version,
                char **text_out, size_t *bytes_out) {
    FILE *out = open_memstream(text_out, bytes_out);
    if (!out) return lm_error(LUMEN_E_NOMEM, "no memory for the description of the models");
    fprintf(out, "{\"server\":{\"name\":\"lumen\",\"version\":\"%s\",\"protocol\":1},\"models\":[",
            version);
    for (uint32_t m = 0; m < model_count; m++) {
        if (m) fputc(',', out);
        write_model(out, &models[m]);
    }
    fputs("]}", out);
    if (fclose(out) != 0)
        return lm_error(LUMEN_E_NOMEM, "no memory for the description of the models");
    return 0;
}
