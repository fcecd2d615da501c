/* oip_metadata.c: see oip_metadata.h. Names come from model files and settings, so they are
 * escaped. */
#include "formats/oip_metadata.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "formats/oip_document.h"

/* ---- documents ---- */

void lm_oip_document_close(struct lm_oip_document *document) {
    free(document->text);
    *document = (struct lm_oip_document){0};
}

int lm_oip_server_metadata(const char *name, const char *version, const char *const *extensions,
                           struct lm_oip_document *out) {
    FILE *file = lm_oip_open_document(out);
    if (!file) return lm_oip_no_document();
    fputs("{\"name\":", file);
    lm_json_write(file, name);
    fputs(",\"version\":", file);
    lm_json_write(file, version);
    fputs(",\"extensions\":", file);
    for (const char *const *one = extensions; *one; one++)
        fprintf(file, "%c\"%s\"", one == extensions ? '[' : ',', *one);
    fputs("]}", file);
    return lm_oip_close_document(file, out);
}

int lm_oip_repository_index(struct lm_model *const *models, uint32_t model_count,
                            struct lm_oip_document *out) {
    FILE *file = lm_oip_open_document(out);
    if (!file) return lm_oip_no_document();
    fputc('[', file);
    for (uint32_t m = 0; m < model_count; m++) {
        fputs(m ? ",{\"name\":" : "{\"name\":", file);
        lm_json_write(file, models[m]->base);
        fprintf(file, ",\"version\":\"%u\",\"state\":\"READY\",\"reason\":\"\"}",
                models[m]->version);
    }
    fputc(']', file);
    return lm_oip_close_document(file, out);
}

/* ---- a model's tensors ---- */

static void write_tensors(FILE *out, const struct lm_tensor *tensors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        fputs(i ? ",{\"name\":" : "{\"name\":", out);
        lm_json_write(out, tensors[i].name);
        fprintf(out, ",\"datatype\":\"%s\",\"shape\":", lm_dtype_name(tensors[i].dtype));
        lm_oip_write_dims(out, &tensors[i], 0);
        fputc('}', out);
    }
}

/* The next higher version than `after`; NULL: there is none. */
static const struct lm_model *next_version(struct lm_model *const *versions, uint32_t count,
                                           uint32_t after) {
    const struct lm_model *next = NULL;
    for (uint32_t v = 0; v < count; v++) {
        const struct lm_model *one = versions[v];
        if (one->version > after && (!next || one->version < next->version)) next = one;
    }
    return next;
}

int lm_oip_model_metadata(const struct lm_model *model, struct lm_model *const *versions,
                          uint32_t version_count, struct lm_oip_document *out) {
    FILE *file = lm_oip_open_document(out);
    if (!file) return lm_oip_no_document();
    fputs("{\"name\":", file);
    lm_json_write(file, model->base);
    const char *before = ",\"versions\":[";
    for (const struct lm_model *one = next_version(versions, version_count, 0); one;
         one = next_version(versions, version_count, one->version)) {
        fprintf(file, "%s\"%u\"", before, one->version);
        before = ",";
    }
    fprintf(file, "],\"platform\":\"%s\",\"inputs\":[",
            model->steps ? "ensemble" : "onnxruntime_onnx");
    write_tensors(file, model->inputs, model->input_count + model->optional_count);
    fputs("],\"outputs\":[", file);
    write_tensors(file, model->outputs, model->output_count);
    fputs("]}", file);
    return lm_oip_close_document(file, out);
}

int lm_oip_model_ready(const struct lm_model *model, struct lm_oip_document *out) {
    FILE *file = lm_oip_open_document(out);
    if (!file) return lm_oip_no_document();
    fputs("{\"name\":", file);
    lm_json_write(file, model->base);
    fputs(",\"ready\":true}", file);
    return lm_oip_close_document(file, out);
}

/* Each name between two texts. */
static void write_names(FILE *file, struct lm_model *const *models, uint32_t model_count,
                        const char *before, const char *behind) {
    for (uint32_t m = 0; m < model_count; m++) {
        if (m) fputc(',', file);
        fputs(before, file);
        lm_json_write(file, models[m]->base);
        fputs(behind, file);
    }
}

int lm_rows_model_names(struct lm_model *const *models, uint32_t model_count,
                        struct lm_oip_document *out) {
    FILE *file = lm_oip_open_document(out);
    if (!file) return lm_oip_no_document();
    /* KServe's clients read `models`, OpenAI's `data`. */
    fputs("{\"models\":[", file);
    write_names(file, models, model_count, "", "");
    fputs("],\"object\":\"list\",\"data\":[", file);
    write_names(file, models, model_count,
                "{\"id\":", ",\"object\":\"model\",\"created\":0,\"owned_by\":\"lumen\"}");
    fputs("]}", file);
    return lm_oip_close_document(file, out);
}

int lm_rows_model_state(const struct lm_model *model, struct lm_oip_document *out) {
    FILE *file = lm_oip_open_document(out);
    if (!file) return lm_oip_no_document();
    fputs("{\"id\":", file); /* OpenAI's, and KServe's and TensorFlow Serving's */
    lm_json_write(file, model->base);
    fputs(",\"object\":\"model\",\"created\":0,\"owned_by\":\"lumen\",\"name\":", file);
    lm_json_write(file, model->base);
    fprintf(file,
            ",\"ready\":true,\"model_version_status\":[{\"version\":\"%u\",\"state\":"
            "\"AVAILABLE\",\"status\":{\"error_code\":\"OK\",\"error_message\":\"\"}}]}",
            model->version);
    return lm_oip_close_document(file, out);
}

/* TensorFlow's names of types (types.proto). */
static const char *tensorflow_type(int dtype) {
    switch (dtype) {
    case ORT_FLOAT: return "DT_FLOAT";
    case ORT_DOUBLE: return "DT_DOUBLE";
    case ORT_INT8: return "DT_INT8";
    case ORT_UINT8: return "DT_UINT8";
    case ORT_INT16: return "DT_INT16";
    case ORT_UINT16: return "DT_UINT16";
    case ORT_INT32: return "DT_INT32";
    case ORT_UINT32: return "DT_UINT32";
    case ORT_INT64: return "DT_INT64";
    case ORT_UINT64: return "DT_UINT64";
    case ORT_BOOL: return "DT_BOOL";
    case ORT_STRING: return "DT_STRING";
    case ORT_FLOAT16: return "DT_HALF";
    case ORT_BFLOAT16: return "DT_BFLOAT16";
    default: return "DT_INVALID";
    }
}

static void write_signature(FILE *file, const struct lm_tensor *tensors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const struct lm_tensor *tensor = tensors[i].client ? tensors[i].client : &tensors[i];
        if (i) fputc(',', file);
        lm_json_write(file, tensors[i].name);
        fprintf(file, ":{\"dtype\":\"%s\",\"tensor_shape\":{\"dim\":[",
                tensorflow_type(tensors[i].dtype));
        for (uint32_t d = 0; !tensor->any_rank && d < tensor->rank; d++)
            fprintf(file, "%s{\"size\":\"%lld\",\"name\":\"\"}", d ? "," : "",
                    (long long)(tensor->dims[d] < 0 ? -1 : tensor->dims[d]));
        fprintf(file, "],\"unknown_rank\":%s},\"name\":", tensor->any_rank ? "true" : "false");
        lm_json_write(file, tensors[i].name);
        fputc('}', file);
    }
}

int lm_rows_model_signature(const struct lm_model *model, struct lm_oip_document *out) {
    FILE *file = lm_oip_open_document(out);
    if (!file) return lm_oip_no_document();
    fputs("{\"model_spec\":{\"name\":", file);
    lm_json_write(file, model->base);
    fprintf(file,
            ",\"signature_name\":\"\",\"version\":\"%u\"},\"metadata\":{\"signature_def\":{"
            "\"signature_def\":{\"serving_default\":{\"inputs\":{",
            model->version);
    write_signature(file, model->inputs, model->input_count);
    fputs("},\"outputs\":{", file);
    write_signature(file, model->outputs, model->output_count);
    fputs("},\"method_name\":\"tensorflow/serving/predict\"}}}}}", file);
    return lm_oip_close_document(file, out);
}

/* ---- statistics ---- */

static void print(struct lm_oip_stats_page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void print(struct lm_oip_stats_page *page, const char *format, ...) {
    if (page->full) return;
    size_t room = page->bytes - page->used;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(page->text + page->used, room, format, args);
    va_end(args);
    page->full = length < 0 || (size_t)length >= room;
    if (!page->full) page->used += (size_t)length;
}

static void print_string(struct lm_oip_stats_page *page, const char *text) {
    size_t written = 0;
    print(page, "\"");
    if (page->full) return;
    page->full = !lm_json_escape(text, strlen(text), page->text + page->used,
                                 page->bytes - page->used, &written);
    if (!page->full) page->used += written;
    print(page, "\"");
}

static void print_duration(struct lm_oip_stats_page *page, const char *name, uint64_t count,
                           uint64_t ns) {
    print(page, "\"%s\":{\"count\":%" PRIu64 ",\"ns\":%" PRIu64 "}", name, count, ns);
}

/* All stages of a worker have the count of the requests that went through all of them:
 * perf_analyzer ends with an error where they differ. */
static void print_model(struct lm_oip_stats_page *page, const struct lm_oip_model_stats *stats) {
    const struct {
        const char *name;
        uint64_t count;
        uint64_t ns;
    } durations[] = {
        {"success", stats->ok + stats->hits, stats->ok_ns + stats->hits_ns},
        {"fail", stats->failed, stats->failed_ns},
        {"queue", stats->ok + stats->hits, stats->queue_ns},
        {"compute_input", stats->ok, stats->input_ns},
        {"compute_infer", stats->ok, stats->infer_ns},
        {"compute_output", stats->ok, stats->output_ns},
        {"cache_hit", stats->hits, stats->hit_ns},
        {"cache_miss", stats->misses, stats->miss_ns},
    };
    print(page, "{\"name\":");
    print_string(page, stats->name);
    print(page,
          ",\"version\":\"%u\",\"last_inference\":%" PRIu64 ",\"inference_count\":%" PRIu64
          ",\"execution_count\":%" PRIu64 ",\"inference_stats\":{",
          stats->version, stats->last_inference_ms, stats->rows, stats->runs);
    for (size_t d = 0; d < sizeof durations / sizeof durations[0]; d++) {
        if (d) print(page, ",");
        print_duration(page, durations[d].name, durations[d].count, durations[d].ns);
    }
    print(page, "},\"batch_stats\":[");
    for (uint32_t b = 0; b < stats->batch_count; b++) {
        const struct lm_oip_batch *batch = &stats->batches[b];
        print(page, "%s{\"batch_size\":%" PRIu64 ",", b ? "," : "", batch->rows);
        print_duration(page, "compute_input", batch->runs, batch->input_ns);
        print(page, ",");
        print_duration(page, "compute_infer", batch->runs, batch->infer_ns);
        print(page, ",");
        print_duration(page, "compute_output", batch->runs, batch->output_ns);
        print(page, "}");
    }
    print(page, "],\"memory_usage\":[],\"response_stats\":{}}");
}

void lm_oip_stats_add_batch(struct lm_oip_model_stats *stats, const struct lm_oip_batch *batch) {
    uint32_t at = 0;
    while (at < stats->batch_count && stats->batches[at].rows < batch->rows) at++;
    struct lm_oip_batch *place = &stats->batches[at];
    if (at == stats->batch_count || place->rows != batch->rows) {
        if (stats->batch_count == LM_BATCH_SIZES) return;
        memmove(place + 1, place, (stats->batch_count++ - at) * sizeof *place);
        *place = (struct lm_oip_batch){.rows = batch->rows};
    }
    place->runs += batch->runs;
    place->input_ns += batch->input_ns;
    place->infer_ns += batch->infer_ns;
    place->output_ns += batch->output_ns;
}

/* Of one model, but for its name. */
enum {
    BATCH_STATS_BYTES_MAX = 288,
    MODEL_STATS_BYTES_MAX = 1024 + LM_BATCH_SIZES * BATCH_STATS_BYTES_MAX
};

size_t lm_oip_stats_bytes_max(uint32_t count) {
    return 64 + count * (MODEL_STATS_BYTES_MAX + (size_t)LM_JSON_ESCAPE_MAX * LM_NAME_BYTES_MAX);
}

void lm_oip_stats_begin(struct lm_oip_stats_page *page) {
    print(page, "{\"model_stats\":[");
    page->is_first = true;
}

void lm_oip_stats_add(struct lm_oip_stats_page *page, const struct lm_oip_model_stats *stats) {
    if (!page->is_first) print(page, ",");
    page->is_first = false;
    print_model(page, stats);
}

void lm_oip_stats_end(struct lm_oip_stats_page *page) {
    print(page, "]}");
}
