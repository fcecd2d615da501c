/* oip_config.c: see oip_config.h. Names come from model files and settings, so they are escaped. */
#include "formats/oip_config.h"

#include <string.h>

#include "base/json_text.h"
#include "formats/oip_document.h"
#include "formats/sequences_text.h"
#include "models/run_place.h"
#include "models/steps.h"

/* Whether clients may think of a dimension for the batch before all others, as Triton's do: all
 * inputs or none must have it. */
static bool has_batch(const struct lm_model *model) {
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (!lm_tensor_of_client(&model->inputs[i])->rows_free) return false;
    }
    return model->input_count > 0 && !model->declared.no_rows;
}

/* As in Triton's model configuration: without the batch's dimension, and with types of its own. */
static void write_config_tensor(FILE *out, const struct lm_tensor *tensor, bool batch) {
    const struct lm_tensor *client = lm_tensor_of_client(tensor);
    bool first_is_batch = batch && client->rank > 0 && client->dims[0] < 0;
    fputs("{\"name\":", out);
    lm_json_write(out, tensor->name);
    fprintf(out, ",\"data_type\":\"TYPE_%s\",\"dims\":",
            lm_is_string(tensor) ? "STRING" : lm_dtype_name(tensor->dtype));
    lm_oip_write_dims(out, tensor, first_is_batch ? 1 : 0);
}

/* The order of a picture's dimensions: as the configuration file says, or as Lumen found it for a
 * model that takes files of pictures. */
static const char *format_of(const struct lm_model *model, const struct lm_tensor *input) {
    static const char *const names[] = {[LUMEN_FORMAT_NONE] = "FORMAT_NONE",
                                        [LUMEN_FORMAT_NHWC] = "FORMAT_NHWC",
                                        [LUMEN_FORMAT_NCHW] = "FORMAT_NCHW"};
    const struct lm_declared_tensor *said = lm_declared_find(&model->declared, input->name, false);
    if (said && said->format != LUMEN_FORMAT_NONE) return names[said->format];
    if (!model->input_plan.has_images) return names[LUMEN_FORMAT_NONE];
    return names[model->input_plan.image.pixels.layout == LM_LAYOUT_NHWC ? LUMEN_FORMAT_NHWC
                                                                         : LUMEN_FORMAT_NCHW];
}

static void write_config_inputs(FILE *out, const struct lm_model *model, bool batch) {
    fputs(",\"input\":[", out);
    for (uint32_t i = 0; i < model->input_count + model->optional_count; i++) {
        if (i) fputc(',', out);
        write_config_tensor(out, &model->inputs[i], batch && i < model->input_count);
        fprintf(out,
                ",\"format\":\"%s\",\"is_shape_tensor\":false,\"allow_ragged_batch\":false,"
                "\"optional\":%s}",
                format_of(model, &model->inputs[i]), i < model->input_count ? "false" : "true");
    }
    fputc(']', out);
}

static void write_config_outputs(FILE *out, const struct lm_model *model, bool batch) {
    fputs(",\"output\":[", out);
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        const struct lm_declared_tensor *said =
            lm_declared_find(&model->declared, output->name, true);
        if (o) fputc(',', out);
        write_config_tensor(out, output, batch);
        fputs(",\"label_filename\":", out);
        lm_json_write(out, said && said->label_file ? said->label_file : "");
        fputs(",\"is_shape_tensor\":false}", out);
    }
    fputc(']', out);
}

/* Parameters, which clients show: which thread runs the model, and why; its providers beside the
 * CPU; that its input may be files of pictures too. */
static void write_parameters(FILE *out, const struct lm_model *model) {
    const char *before = "";
    fputs(",\"parameters\":{", out);
    if (model->run_why) {
        fprintf(out, "%s\"run\":{\"string_value\":\"%s: %s\"}", before, lm_model_run_name(model),
                lm_model_run_why(model));
        before = ",";
    }
    if (model->source.providers.count > 0) {
        char names[256];
        lm_providers_text(&model->source.providers, names, sizeof names);
        fprintf(out, "%s\"providers\":{\"string_value\":", before);
        lm_json_write(out, names);
        fputc('}', out);
        before = ",";
    }
    if (model->input_plan.has_images)
        fprintf(out,
                "%s\"image\":{\"string_value\":\"JPEG or PNG: one file as the body, or files as "
                "BYTES [rows] of the input\"}",
                before);
    fputc('}', out);
}

/* Which thread runs it, how often at a time. */
static void write_instances(FILE *file, const struct lm_model *model, uint32_t workers) {
    fputs(",\"batch_input\":[],\"batch_output\":[],\"optimization\":{\"priority\":"
          "\"PRIORITY_DEFAULT\",\"input_pinned_memory\":{\"enable\":false},"
          "\"output_pinned_memory\":{\"enable\":false},\"gather_kernel_buffer_threshold\":0,"
          "\"eager_batching\":false},\"instance_group\":[",
          file);
    if (!model->steps) { /* an ensemble has none in Triton */
        fputs("{\"name\":", file);
        lm_json_write(file, model->base);
        fprintf(file,
                ",\"kind\":\"KIND_CPU\",\"count\":%u,\"gpus\":[],\"secondary_devices\":[],"
                "\"profile\":[],\"passive\":false,\"host_policy\":\"\"}",
                workers);
    }
    fputc(']', file);
}

static void write_batching(FILE *file, const struct lm_model *model, bool batch) {
    const bool has_policy = model->max_queued || model->queue_timeout_ns;
    if (!(batch && model->batch_size > 1) && !has_policy) return;
    fputs(",\"dynamic_batching\":{\"preferred_batch_size\":[", file);
    const char *before = "";
    for (uint32_t rows = 1; batch && rows <= model->batch_size; rows++) {
        if (!(model->preferred[(rows - 1) / 64] >> (rows - 1) % 64 & 1)) continue;
        fprintf(file, "%s%u", before, rows);
        before = ",";
    }
    if (batch && model->batch_size > 1 && !*before) fprintf(file, "%u", model->batch_size);
    fprintf(file,
            "],\"max_queue_delay_microseconds\":%" PRIu64 ",\"preserve_ordering\":false,"
            "\"priority_levels\":0,\"default_priority_level\":0,\"priority_queue_policy\":{}",
            model->batch_delay_ns / 1000);
    if (has_policy)
        fprintf(file,
                ",\"default_queue_policy\":{\"timeout_action\":\"REJECT\","
                "\"default_timeout_microseconds\":%" PRIu64 ",\"allow_timeout_override\":true,"
                "\"max_queue_size\":%u}",
                model->queue_timeout_ns / 1000, model->max_queued);
    fputc('}', file);
}

int lm_oip_model_config(const struct lm_model *model, uint32_t workers,
                        struct lm_oip_document *out) {
    bool batch = has_batch(model);
    FILE *file = lm_oip_open_document(out);
    if (!file) return lm_oip_no_document();
    fputs("{\"name\":", file);
    lm_json_write(file, model->base);
    fprintf(file,
            ",\"platform\":\"%s\",\"backend\":\"%s\",\"runtime\":\"\","
            "\"version_policy\":{\"latest\":{\"num_versions\":1}},\"max_batch_size\":%u",
            model->steps ? "ensemble" : "onnxruntime_onnx", model->steps ? "" : "onnxruntime",
            batch ? model->max_rows : 0);
    write_config_inputs(file, model, batch);
    write_config_outputs(file, model, batch);
    write_instances(file, model, workers);
    if (model->steps) {
        fprintf(file, ",\"ensemble_scheduling\":%s", model->steps->scheduling);
    } else if (model->sequences) {
        fputs(",\"sequence_batching\":", file);
        lm_sequences_write_config(file, model->sequences);
    } else {
        write_batching(file, model, batch);
    }
    fputs(",\"default_model_filename\":", file);
    lm_json_write(file, model->declared.file_name ? model->declared.file_name : "");
    fprintf(file,
            ",\"cc_model_filenames\":{},\"metric_tags\":{},"
            "\"model_warmup\":[],\"model_transaction_policy\":{\"decoupled\":false},"
            "\"response_cache\":{\"enable\":%s}",
            model->caches ? "true" : "false");
    write_parameters(file, model);
    fputc('}', file);
    return lm_oip_close_document(file, out);
}
