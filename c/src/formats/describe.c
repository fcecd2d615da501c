/* describe.c: see describe.h. Names come from model files, so they are escaped. */
#include "formats/describe.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/json_text.h"
#include "formats/sequences_text.h"
#include "models/experts_rule.h"
#include "models/layout.h"
#include "models/native_engine.h"
#include "models/run_place.h"
#include "models/sizes.h"
#include "models/steps.h"

/* The names and sizes of a shape in which more than the rows may be free. */
static void write_dims(FILE *out, const struct lm_model *model, const struct lm_tensor *tensor) {
    fputs(",\"dims\":[", out);
    if (tensor->any_rank) lm_json_write(out, model->free_dims[tensor->any_rank - 1].name);
    for (uint32_t d = 0; !tensor->any_rank && d < tensor->rank; d++) {
        if (d) fputc(',', out);
        if (tensor->free[d]) {
            lm_json_write(out, model->free_dims[tensor->free[d] - 1].name);
        } else if (d == 0 && tensor->rows_free) {
            lm_json_write(out, model->rows_name[0] ? model->rows_name : "rows");
        } else {
            fprintf(out, "%lld", (long long)tensor->dims[d]);
        }
    }
    fputc(']', out);
}

static void write_tensor(FILE *out, const struct lm_model *model, const struct lm_tensor *tensor,
                         int is_output) {
    fputs("{\"name\":", out);
    lm_json_write(out, tensor->name);
    fprintf(out, ",\"datatype\":\"%s\",\"shape\":[", lm_dtype_name(tensor->dtype));
    uint32_t shown = tensor->any_rank ? 1 : tensor->rank; /* as a list */
    for (uint32_t d = 0; d < shown; d++)
        fprintf(out, "%s%lld", d ? "," : "", (long long)tensor->dims[d]);
    fputc(']', out);
    if (model->free_count > 0) write_dims(out, model, tensor);
    if (tensor->any_rank) fprintf(out, ",\"max_rank\":%u", tensor->rank);
    if (is_output) fprintf(out, ",\"shape_known\":%s", tensor->shape_known ? "true" : "false");
    fputc('}', out);
}

/* The tensor that pixels become, and its values. */
static void write_pixels(FILE *out, const struct lm_model *model, const struct lm_rgb8_plan *plan) {
    fprintf(out, "{\"height\":%u,\"width\":%u,\"layout\":\"%s\",\"channel_order\":\"%s\"",
            plan->height, plan->width, plan->layout == LM_LAYOUT_NCHW ? "NCHW" : "NHWC",
            plan->is_grey                                ? "GREY"
            : model->channel_order == LUMEN_CHANNELS_BGR ? "BGR"
                                                         : "RGB");
    fprintf(out, ",\"mean\":[%.9g,%.9g,%.9g]", (double)plan->mean[0], (double)plan->mean[1],
            (double)plan->mean[2]);
    fprintf(out, ",\"scale\":[%.9g,%.9g,%.9g]", (double)plan->scale[0], (double)plan->scale[1],
            (double)plan->scale[2]);
}

static void write_rgb8(FILE *out, const struct lm_model *model) {
    if (!model->input_plan.has_rgb8) {
        fputs("null", out);
        return;
    }
    write_pixels(out, model, &model->input_plan.rgb8);
    fputc('}', out);
}

/* Tells how the server prepares files of pictures. */
static void write_image(FILE *out, const struct lm_model *model) {
    static const char *const filters[] = {[LM_FILTER_BILINEAR] = "bilinear",
                                          [LM_FILTER_BICUBIC] = "bicubic",
                                          [LM_FILTER_BOX] = "box",
                                          [LM_FILTER_NEAREST] = "nearest"};
    static const char *const fits[] = {[LM_FIT_STRETCH] = "stretch",
                                       [LM_FIT_CROP] = "shorter_side_and_crop",
                                       [LM_FIT_LETTERBOX] = "letterbox"};
    const struct lm_image_plan *plan = &model->input_plan.image;
    if (!model->input_plan.has_images) {
        fputs("null", out);
        return;
    }
    write_pixels(out, model, &plan->pixels);
    fprintf(out,
            ",\"fit\":\"%s\",\"resize\":%u,\"filter\":\"%s\",\"pad_value\":%u,\"max_pixels\":%llu}",
            fits[plan->fit], plan->resize, filters[plan->filter], plan->pad_value,
            (unsigned long long)plan->max_pixels);
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

/* The largest sizes, and the slot that a request of all of them takes. */
static void write_free_dims(FILE *out, const struct lm_model *model) {
    const struct lm_sizes largest = lm_model_largest(model, model->max_rows);
    size_t slot_bytes = 0;
    for (uint32_t f = 0; f < model->free_count; f++) {
        const struct lm_free_dim *dim = &model->free_dims[f];
        fputs(f ? ",{\"name\":" : ",\"free_dims\":[{\"name\":", out);
        lm_json_write(out, dim->name);
        fprintf(out, ",\"max\":%u,\"default\":%s}", dim->max, dim->by_default ? "true" : "false");
    }
    fputc(']', out);
    if (lm_model_slot_bytes(model, &largest, &slot_bytes))
        fprintf(out, ",\"slot_bytes\":%zu", slot_bytes);
}

/* Tells which thread runs the model, why, and the time of the smallest request if it was measured.
 */
static void write_run(FILE *out, const struct lm_model *model) {
    if (!model->run_why) return;
    fprintf(out, ",\"run\":\"%s\",\"run_why\":\"%s\"", lm_model_run_name(model),
            lm_model_run_why(model));
    if (model->run_ns) fprintf(out, ",\"run_us\":%.1f", (double)model->run_ns / 1000);
}

/* The rule of a virtual model. JSON's numbers keep every bit of a bound. */
static void write_experts(FILE *out, const struct lm_model *model) {
    const struct lm_experts *experts = &model->experts;
    const char *word = lm_experts_cascade(experts) ? "at_least" : "below";
    fprintf(out, ",\"feature\":\"%s\",\"of\":", lm_feature_name(experts->feature));
    if (lm_experts_tensor(model)) {
        lm_json_write(out, lm_experts_tensor(model));
    } else {
        fputs("null", out);
    }
    fputs(",\"experts\":[", out);
    for (uint32_t e = 0; e < experts->count; e++) {
        fputs(e ? ",{\"model\":" : "{\"model\":", out);
        lm_json_write(out, experts->models[e]->name);
        if (e + 1 < experts->count) fprintf(out, ",\"%s\":%.17g", word, experts->bounds[e]);
        fputc('}', out);
    }
    fputc(']', out);
}

/* The models that an ensemble runs, in this order. */
static void write_steps(FILE *out, const struct lm_model *model) {
    fputs(",\"steps\":[", out);
    for (uint32_t s = 0; s < model->steps->count; s++) {
        if (s) fputc(',', out);
        lm_json_write(out, model->steps->steps[s].model->name);
    }
    fputc(']', out);
}

/* Tells what computes the answers, and why, once that is decided. */
static void write_engine(FILE *out, const struct lm_model *model) {
    if (!model->run_why) return;
    fprintf(out, ",\"engine\":\"%s\",\"engine_why\":", lm_model_engine_name(model));
    lm_json_write(out, model->engine_why);
}

/* What computes the parts of the graph, and how many of its nodes are left to the CPU, where ONNX
 * Runtime tells. */
static void write_providers(FILE *out, const struct lm_model *model) {
    const struct lm_providers *providers = &model->source.providers;
    fputs(",\"providers\":[", out);
    for (uint32_t p = 0; p < providers->count; p++) {
        lm_json_write(out, providers->list[p].name);
        fputc(',', out);
    }
    fputs("\"cpu\"]", out);
    if (providers->nodes > 0)
        fprintf(out, ",\"nodes\":%u,\"nodes_on_cpu\":%u", providers->nodes,
                providers->nodes_on_cpu);
}

static void write_model(FILE *out, const struct lm_model *model) {
    fprintf(out, "{\"index\":%u,\"name\":", model->number);
    lm_json_write(out, model->name);
    fprintf(out, ",\"version\":%u,\"max_rows\":%u,\"inputs\":[", model->version, model->max_rows);
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (i) fputc(',', out);
        write_tensor(out, model, &model->inputs[i], 0);
    }
    fputs("],\"outputs\":[", out);
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (i) fputc(',', out);
        write_tensor(out, model, &model->outputs[i], 1);
    }
    fputc(']', out);
    for (uint32_t i = 0; i < model->optional_count; i++) {
        fputs(i ? "," : ",\"optional_inputs\":[", out);
        write_tensor(out, model, &model->inputs[model->input_count + i], 0);
    }
    if (model->optional_count > 0) fputc(']', out);
    if (model->free_count > 0) write_free_dims(out, model);
    if (model->string_inputs > 0) fprintf(out, ",\"max_string_bytes\":%d", LM_STRING_BYTES_MAX);
    fputs(",\"rgb8\":", out);
    write_rgb8(out, model);
    fputs(",\"image\":", out);
    write_image(out, model);
    fputs(",\"labels\":", out);
    write_labels(out, &model->labels);
    fprintf(out, ",\"width\":%u,\"width_why\":", model->wide.width ? model->wide.width : 1);
    lm_json_write(out, model->wide.why);
    write_run(out, model);
    if (model->experts.count > 0) write_experts(out, model);
    if (model->steps) write_steps(out, model);
    if (model->sequences) {
        fputs(",\"sequences\":", out);
        lm_sequences_describe(out, model->sequences);
    }
    write_engine(out, model);
    if (model->experts.count == 0 && !model->steps) write_providers(out, model);
    fputc('}', out);
}

static int no_memory(void) {
    return lm_error(LUMEN_E_NOMEM, "no memory for the description of the models");
}

/* A model's part, which stays what it is until its Runs are the workers' alone. */
static int describe_model(struct lm_model *model) {
    struct lm_description *kept = &model->description;
    const uint32_t long_run_us = lm_model_long_run_us(model);
    if (kept->text && kept->long_run_us == long_run_us) return 0;
    free(kept->text);
    *kept = (struct lm_description){.long_run_us = long_run_us};
    FILE *out = open_memstream(&kept->text, &kept->bytes);
    if (!out) return no_memory();
    write_model(out, model);
    return fclose(out) == 0 ? 0 : no_memory();
}

int lm_describe(struct lm_model *const *models, uint32_t model_count, const char *version,
                char **text_out, size_t *bytes_out) {
    FILE *out = open_memstream(text_out, bytes_out);
    int code = 0;
    if (!out) return no_memory();
    fprintf(out, "{\"server\":{\"name\":\"lumen\",\"version\":\"%s\",\"protocol\":1},\"models\":[",
            version);
    for (uint32_t m = 0; !code && m < model_count; m++) {
        code = describe_model(models[m]);
        if (m) fputc(',', out);
        if (!code) fwrite(models[m]->description.text, 1, models[m]->description.bytes, out);
    }
    fputs("]}", out);
    return fclose(out) == 0 ? code : no_memory();
}
