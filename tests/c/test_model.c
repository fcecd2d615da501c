/* test_model.c: a real model (digits) in a real ONNX Runtime: its signature, where its tensors lie,
 * what it answers, and the cache of optimised graphs with everything that can be wrong with it.
 * LUMEN_ORT names libonnxruntime.so, LUMEN_ROOT the repository (default: the directory above). */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/native_codec.h"
#include "check.h"
#include "formats/text_slots.h"
#include "models/binding.h"
#include "models/load.h"
#include "models/model.h"
#include "models/runner.h"

enum { PIXELS = 64, CLASSES = 10 };

static struct lm_ort ort;
static struct lm_model model;
static char digits[1024];
static const char *directory;

static lumen_model_config config_of(const char *path, const char *cache_path) {
    return (lumen_model_config){.name = "digits",
                                .path = path,
                                .cache_path = cache_path,
                                .intra_op_threads = 1,
                                .max_output_bytes = 4096,
                                .scale = {1, 1, 1}};
}

/* ---- answers ---- */

struct trial {
    struct lm_slot slot;
    struct lm_layout_lists lists;
    struct lm_layout layout;
    struct lm_binding binding;
    OrtValue *values[2];
};

/* A slot of exactly the size that the model asks for, its end at an unreadable page. */
static void trial_open(struct trial *trial, const struct check_guard *guard, uint32_t rows) {
    memset(trial, 0, sizeof *trial);
    CHECK(lm_model_slot_bytes(&model, ROWS(rows), &trial->slot.bytes));
    trial->slot.base = check_guard_tail(guard, trial->slot.bytes);
    trial->layout = lm_layout_of(&trial->lists);
    lm_model_layout(&model, &trial->slot, LM_ENCODING_TENSORS, ROWS(rows), &trial->layout);
}

static void check_answers(const float *probabilities, uint32_t rows) {
    for (uint32_t row = 0; row < rows; row++) {
        float sum = 0;
        for (uint32_t c = 0; c < CLASSES; c++) {
            float value = probabilities[row * CLASSES + c];
            CHECK(isfinite(value) && value >= 0 && value <= 1);
            sum += value;
        }
        CHECK(fabsf(sum - 1) < 1e-4f);
    }
}

static void fill_images(float *image, uint32_t rows, uint64_t *random) {
    for (uint32_t i = 0; i < rows * PIXELS; i++) image[i] = (float)check_below(random, 256);
}

static void run(struct trial *trial, uint32_t rows, uint32_t worker, float *out) {
    CHECK(lm_model_bind(&model, &ort, &trial->layout, ROWS(rows), &trial->binding, trial->values) ==
          0);
    CHECK(trial->binding.sizes.rows == rows && trial->binding.base == trial->layout.inputs[0]);
    memset(trial->layout.outputs[0], 0xff, rows * CLASSES * sizeof(float)); /* NaN */
    CHECK(lm_model_run(&model, &ort, worker, trial->values) == 0);
    memcpy(out, trial->layout.outputs[0], rows * CLASSES * sizeof(float));
    check_answers(out, rows);
}

static void signature(void) {
    const struct lm_tensor *image = &model.inputs[0], *probabilities = &model.outputs[0];
    size_t bytes = 0;
    CHECK(model.input_count == 1 && model.output_count == 1 && model.session_count == 2);
    CHECK(strcmp(image->name, "image") == 0 && strcmp(model.input_names[0], "image") == 0);
    CHECK(image->dtype == ORT_FLOAT && image->rank == 4 && image->rows_free && image->shape_known);
    CHECK(image->dims[0] == -1 && image->dims[1] == 1 && image->dims[2] == 8 &&
          image->dims[3] == 8);
    CHECK(image->row_bytes == PIXELS * sizeof(float) && image->element_bytes == sizeof(float));
    CHECK(strcmp(probabilities->name, "probabilities") == 0 && probabilities->dtype == ORT_FLOAT);
    CHECK(probabilities->rank == 2 && probabilities->dims[0] == -1 &&
          probabilities->dims[1] == CLASSES);
    CHECK(probabilities->rows_free && probabilities->shape_known &&
          probabilities->wrapped_rows == 0);
    CHECK(probabilities->row_bytes == CLASSES * sizeof(float));
    CHECK(model.rows_free && model.outputs_known && !model.input_plan.has_rgb8 &&
          model.max_rows == LM_ROWS_MAX);
    CHECK(lm_model_payload_bytes(&model, LM_ENCODING_TENSORS, ROWS(3), &bytes) && bytes == 3 * 256);
    model.reply_text_bytes = lm_model_reply_text_bytes(&model);
    size_t text = lm_align_up(model.reply_text_bytes, LM_SLOT_ALIGN);
    CHECK(lm_model_slot_bytes(&model, ROWS(3), &bytes) && bytes == 3 * 256 + 128 + text);
    CHECK(lm_model_slot_bytes(&model, ROWS(1), &bytes) && bytes == 256 + 64 + text);
    CHECK(bytes >= LM_MODEL_SLOT_BYTES_MIN);
    CHECK(lm_model_shape_block_bytes(&model, ROWS(1)->free) == 4 * (1 + 1 + 4));
}

static void layout(const struct check_guard *guard) {
    for (uint32_t rows = 1; rows <= 40; rows++) {
        struct trial trial;
        CHECK_AT("%u rows", rows);
        trial_open(&trial, guard, rows);
        uint8_t *in = trial.layout.inputs[0], *out = trial.layout.outputs[0];
        CHECK((uintptr_t)in % LM_SLOT_ALIGN == 0 && (uintptr_t)out % LM_SLOT_ALIGN == 0 &&
              !trial.layout.raw);
        CHECK(in >= trial.slot.base && in + rows * 256 <= out);
        CHECK(out + rows * 40 <= trial.slot.base + trial.slot.bytes);
    }
}

/* Rows in one batch get the answers that they get alone; both sessions give the same. */
static void answers(const struct check_guard *guard, uint64_t *random) {
    struct trial trial;
    float images[3 * PIXELS], batch[3 * CLASSES], alone[CLASSES], other[CLASSES];
    CHECK_AT("a batch of three");
    fill_images(images, 3, random);
    trial_open(&trial, guard, 3);
    memcpy(trial.layout.inputs[0], images, sizeof images);
    run(&trial, 3, 0, batch);
    lm_model_unbind(&model, &ort, &trial.binding, trial.values);
    CHECK(!trial.values[0] && !trial.values[1] && trial.binding.sizes.rows == 0);
    for (uint32_t row = 0; row < 3; row++) {
        CHECK_AT("row %u alone", row);
        trial_open(&trial, guard, 1);
        memcpy(trial.layout.inputs[0], images + row * PIXELS, PIXELS * sizeof(float));
        run(&trial, 1, 0, alone);
        run(&trial, 1, 1, other);
        for (uint32_t c = 0; c < CLASSES; c++) {
            CHECK(fabsf(alone[c] - batch[row * CLASSES + c]) < 1e-5f);
            CHECK(fabsf(alone[c] - other[c]) < 1e-6f);
        }
        lm_model_unbind(&model, &ort, &trial.binding, trial.values);
    }
}

/* Tensors stay wrapped while rows and memory stay the same. */
static void bindings(const struct check_guard *guard) {
    struct trial trial;
    float out[3 * CLASSES];
    CHECK_AT("bindings");
    trial_open(&trial, guard, 3);
    memset(trial.slot.base, 0, trial.slot.bytes);
    run(&trial, 3, 0, out);
    OrtValue *in_value = trial.values[0], *out_value = trial.values[1];
    run(&trial, 3, 1, out);
    CHECK(trial.values[0] == in_value && trial.values[1] == out_value);
    lm_slot_reset(&trial.slot);
    lm_model_layout(&model, &trial.slot, LM_ENCODING_TENSORS, ROWS(1), &trial.layout);
    run(&trial, 1, 0, out); /* fewer rows: the output has moved */
    CHECK(trial.binding.sizes.rows == 1);
    struct trial moved;
    trial_open(&moved, guard, 1);
    memset(moved.slot.base, 0, moved.slot.bytes);
    moved.binding = trial.binding;
    memcpy(moved.values, trial.values, sizeof moved.values);
    run(&moved, 1, 0, out); /* other memory */
    CHECK(moved.binding.base == moved.layout.inputs[0]);
    lm_model_unbind(&model, &ort, &moved.binding, moved.values);
    lm_model_unbind(&model, &ort, &moved.binding, moved.values); /* twice does nothing */
}

/* An output that cannot be wrapped for these rows is allocated by ONNX Runtime and copied. */
static void taken_output(const struct check_guard *guard, uint64_t *random) {
    struct trial trial;
    struct lm_tensor *output = &model.outputs[0];
    float wrapped[CLASSES], taken[CLASSES];
    CHECK_AT("an output that is taken");
    trial_open(&trial, guard, 1);
    fill_images(trial.layout.inputs[0], 1, random);
    run(&trial, 1, 0, wrapped);
    lm_model_unbind(&model, &ort, &trial.binding, trial.values);
    output->wrapped_rows = 2;
    CHECK(!lm_output_is_wrapped(output, 1) && lm_output_is_wrapped(output, 2));
    CHECK(lm_model_bind(&model, &ort, &trial.layout, ROWS(1), &trial.binding, trial.values) == 0);
    for (uint32_t turn = 0; turn < 2; turn++) {
        CHECK(trial.values[1] == NULL);
        CHECK(lm_model_run(&model, &ort, 0, trial.values) == 0);
        CHECK(trial.values[1] != NULL);
        CHECK(lm_model_take_output(&ort, output, &trial.values[1], taken, sizeof taken) == 0);
    }
    CHECK(memcmp(taken, wrapped, sizeof taken) == 0);
    CHECK(lm_model_run(&model, &ort, 0, trial.values) == 0); /* of another size than promised */
    CHECK(lm_model_take_output(&ort, output, &trial.values[1], taken, sizeof taken - 4) ==
          LUMEN_E_ORT);
    CHECK(strstr(lm_error_last(), "probabilities") && trial.values[1] == NULL);
    lm_model_unbind(&model, &ort, &trial.binding, trial.values);
    output->wrapped_rows = 0;
}

/* ---- loading ---- */

static void refused(const lumen_model_config *config, int code, const char *named) {
    struct lm_model bad;
    CHECK_AT("%.60s: %.60s", config->name, config->path);
    CHECK(lm_model_open(&bad, &ort, config, 0, 1) == code);
    CHECK(strstr(lm_error_last(), named));
}

static void refused_settings(void) {
    char long_name[LM_NAME_BYTES_MAX + 1] = {0};
    lumen_model_config config = config_of(digits, NULL);
    config.name = "";
    refused(&config, LUMEN_E_INVALID, "name");
    config.name = memset(long_name, 'n', LM_NAME_BYTES_MAX);
    refused(&config, LUMEN_E_INVALID, "found 256");
    config = config_of(digits, NULL);
    config.intra_op_threads = 0;
    refused(&config, LUMEN_E_INVALID, "intra_op_threads");
    config.intra_op_threads = 257;
    refused(&config, LUMEN_E_INVALID, "257");
    /* Each ordinary setting, one beyond its range. */
#define BEYOND(section, type, setting, least, most) \
    config = config_of(digits, NULL);               \
    config.setting = (type)(most) + 1;              \
    if (config.setting > (type)(most)) refused(&config, LUMEN_E_INVALID, #setting ": expected ");
    LUMEN_MODEL_SETTINGS(BEYOND)
}

static void refused_file(const char *name, const void *bytes, size_t count, int code) {
    char path[128], cache[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(cache, sizeof cache, "%s/cache-%s", directory, name);
    if (bytes) check_write_file(path, bytes, count);
    lumen_model_config config = config_of(path, NULL);
    refused(&config, code, path);
    config.cache_path = cache;
    refused(&config, code, path);
    CHECK(access(cache, F_OK) != 0); /* what cannot be served is not cached */
}

static void refused_files(uint64_t *random) {
    uint8_t garbage[4096];
    for (size_t i = 0; i < sizeof garbage; i++) garbage[i] = (uint8_t)check_below(random, 256);
    refused_file("missing.onnx", NULL, 0, LUMEN_E_IO);
    refused_file("empty.onnx", "", 0, LUMEN_E_IO);
    refused_file("garbage.onnx", garbage, sizeof garbage, LUMEN_E_MODEL);
    refused_file("text.onnx", "<!DOCTYPE html>", 15, LUMEN_E_MODEL);
    memcpy(garbage + 4, "ORTM", 4); /* as if in ONNX Runtime's own format */
    refused_file("garbage.ort", garbage, sizeof garbage, LUMEN_E_MODEL);
    lumen_model_config config = config_of(directory, NULL);
    refused(&config, LUMEN_E_IO, directory);
}

static void refused_libraries(void) {
    struct lm_ort none;
    CHECK_AT("libraries that are not ONNX Runtime");
    CHECK(lm_ort_open(&none, "/nonexistent/libonnxruntime.so") == LUMEN_E_ORT);
    CHECK(strstr(lm_error_last(), "/nonexistent/libonnxruntime.so"));
    CHECK(lm_ort_open(&none, "libm.so.6") == LUMEN_E_ORT);
    CHECK(strstr(lm_error_last(), "libm.so.6") && strstr(lm_error_last(), "OrtGetApiBase"));
}

/* ---- the cache ---- */

static size_t file_bytes(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 ? (size_t)status.st_size : 0;
}

/* Opens the model with the cache entry as it is, and sees that it answers. */
static void open_cached(const char *cache, bool from_cache, const struct check_guard *guard) {
    struct trial trial;
    float out[CLASSES];
    lumen_model_config config = config_of(digits, cache);
    CHECK(lm_model_open(&model, &ort, &config, 0, 1) == 0);
    CHECK(model.source.from_cache == from_cache);
    CHECK(model.source.optimised.bytes > 0); /* one copy of the weights, wherever it lives */
    trial_open(&trial, guard, 1);
    memset(trial.slot.base, 0, trial.slot.bytes);
    run(&trial, 1, 0, out);
    lm_model_unbind(&model, &ort, &trial.binding, trial.values);
    lm_model_close(&model, &ort);
}

/* Cuts or overwrites the entry: it must be noticed and made anew. */
static void damage(const char *cache, size_t keep, bool scramble, const struct check_guard *guard) {
    size_t whole = file_bytes(cache);
    CHECK_AT("cache entry %s, %zu of %zu bytes kept", scramble ? "scrambled" : "cut", keep, whole);
    uint8_t *bytes = malloc(whole);
    FILE *file = fopen(cache, "rbe");
    CHECK(bytes && file && fread(bytes, 1, whole, file) == whole);
    fclose(file);
    if (scramble) memset(bytes + 8, 0xff, keep - 8);
    CHECK(unlink(cache) == 0); /* other processes' mappings keep the old file */
    check_write_file(cache, bytes, keep);
    free(bytes);
    open_cached(cache, false, guard);
    CHECK(file_bytes(cache) == whole);
    open_cached(cache, true, guard);
}

static void cache(const struct check_guard *guard) {
    char path[128], missing[128], folder[128];
    snprintf(path, sizeof path, "%s/digits.ort", directory);
    CHECK_AT("an empty cache");
    open_cached(path, false, guard);
    size_t whole = file_bytes(path);
    CHECK(whole > 1000);
    CHECK_AT("a filled cache");
    open_cached(path, true, guard);
    damage(path, 0, false, guard);
    damage(path, 5, false, guard);
    damage(path, 64, false, guard);
    damage(path, whole / 2, false, guard);
    damage(path, whole, true, guard);
    CHECK_AT("a cache that another process of this number fills at the same moment");
    char same_number[192];
    snprintf(same_number, sizeof same_number, "%s.%d.tmp", path, (int)getpid());
    CHECK(unlink(path) == 0 && mkdir(same_number, 0700) == 0);
    open_cached(path, false, guard);
    open_cached(path, true, guard);
    CHECK(rmdir(same_number) == 0);
    CHECK_AT("a cache that cannot be written");
    snprintf(missing, sizeof missing, "%s/nowhere/digits.ort", directory);
    open_cached(missing, false, guard);
    open_cached(NULL, false, guard);
    snprintf(folder, sizeof folder, "%s/folder", directory); /* where an entry cannot be put */
    CHECK(mkdir(folder, 0700) == 0);
    open_cached(folder, false, guard);
    CHECK(access(missing, F_OK) != 0);
    DIR *entries = opendir(directory); /* no half-written entry is left */
    CHECK(entries != NULL);
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        CHECK(!strstr(entry->d_name, ".tmp"));
    }
    closedir(entries);
    /* An entry is itself a model file. */
    CHECK_AT("the cache entry as the model");
    lumen_model_config config = config_of(path, NULL);
    CHECK(lm_model_open(&model, &ort, &config, 0, 1) == 0);
    CHECK(strcmp(model.inputs[0].name, "image") == 0 && model.inputs[0].rows_free);
    lm_model_close(&model, &ort);
}

static const char *written; /* at the next load, by somebody else; NULL: nothing is */

static void write_to_it(void) {
    FILE *file = written ? fopen(written, "abe") : NULL;
    if (written) CHECK(file && fputc('\n', file) == '\n' && fclose(file) == 0);
    written = NULL;
}

static OrtStatus *load_file(const OrtEnv *env, const char *path, const OrtSessionOptions *options,
                            OrtSession **out) {
    OrtStatus *status = ort.api->CreateSession(env, path, options, out);
    write_to_it();
    return status;
}

static OrtStatus *load_bytes(const OrtEnv *env, const void *data, size_t bytes,
                             const OrtSessionOptions *options, OrtSession **out) {
    OrtStatus *status = ort.api->CreateSessionFromArray(env, data, bytes, options, out);
    write_to_it();
    return status;
}

/* A model that is written to while it is loaded leaves no entry; one of before stays. */
static void written_meanwhile(void) {
    static struct lm_ort_api api;
    struct lm_ort slow = ort;
    struct lm_ort_source source;
    char path[128], entry[128];
    uint8_t bytes[4096];
    api = *ort.api;
    api.CreateSession = load_file;
    api.CreateSessionFromArray = load_bytes;
    slow.api = &api;
    snprintf(path, sizeof path, "%s/written.onnx", directory);
    snprintf(entry, sizeof entry, "%s/written.ort", directory);
    FILE *from = fopen(digits, "rbe"), *to = fopen(path, "wbe");
    CHECK(from && to);
    for (size_t count; (count = fread(bytes, 1, sizeof bytes, from)) > 0;)
        CHECK(fwrite(bytes, 1, count, to) == count);
    CHECK(fclose(from) == 0 && fclose(to) == 0);
    lumen_model_config config = config_of(path, entry);
    CHECK_AT("a model that is written to while it is loaded");
    for (int there = 0; there < 2; there++) {
        written = path;
        CHECK(lm_ort_source_open(&source, &slow, &config) == LUMEN_E_MODEL && !written);
        CHECK(strstr(lm_error_last(), "was written while it was loaded: load it again"));
        CHECK(access(entry, F_OK) == (there ? 0 : -1));
        if (there) break;
        CHECK(truncate(path, (off_t)file_bytes(digits)) == 0);
        CHECK(lm_ort_source_open(&source, &slow, &config) == 0 && !source.from_cache);
        lm_ort_source_close(&source);
    }
}

int main(void) {
    const char *library = getenv("LUMEN_ORT"), *root = getenv("LUMEN_ROOT");
    struct check_guard guard;
    if (CHECK_UNDER_TSAN) check_skip("test_model", "ONNX Runtime is not built for ThreadSanitizer");
    if (!library || !library[0])
        check_skip("test_model", "LUMEN_ORT does not name libonnxruntime.so");
    snprintf(digits, sizeof digits, "%s/lumen_uring/models/digits.onnx", root ? root : "..");
    uint64_t random = check_seed();
    directory = check_temporary_directory();
    check_guard_open(&guard, 1 << 16);
    refused_libraries();
    CHECK(setenv("ORT_DISABLE_TELEMETRY", "0", 1) == 0); /* it is off whoever wants it on */
    CHECK(lm_ort_open(&ort, library) == 0 && strcmp(getenv("ORT_DISABLE_TELEMETRY"), "1") == 0);
    lumen_model_config config = config_of(digits, NULL);
    CHECK(lm_model_open(&model, &ort, &config, 0, 2) == 0);
    signature();
    layout(&guard);
    answers(&guard, &random);
    bindings(&guard);
    taken_output(&guard, &random);
    lm_model_close(&model, &ort);
    config.max_rows = 7;
    CHECK(lm_model_open(&model, &ort, &config, 3, 1) == 0 && model.max_rows == 7 &&
          model.index == 3);
    lm_model_close(&model, &ort);
    refused_settings();
    refused_files(&random);
    cache(&guard);
    written_meanwhile();
    lm_ort_close(&ort);
    CHECK(!ort.library && !ort.api && !ort.env && !ort.cpu_memory);
    lm_ort_close(&ort); /* twice does nothing */
    check_guard_close(&guard);
    return check_finish("test_model");
}
