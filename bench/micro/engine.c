/* engine.c: times a native engine beside ONNX Runtime's C API, and reading its weights; for
 * engine.py. Prints one JSON object. Run by hand or by engine.py, alone on the machine.
 *
 *   engine run LIBONNXRUNTIME MODEL.onnx ENGINE.bin ROWS ROUNDS   both, in turns, and the stream
 *   engine load ENGINE.bin ROUNDS                               the time to open the file
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"
#include "engine/engine.h"
#include "engine/team.h"
#include "models/binding.h"
#include "models/load.h"
#include "models/model.h"
#include "models/runner.h"

enum { FAR_BYTES = 512 << 20, FAR_ROUNDS = 3 };

static volatile float sink;
static const struct lm_engine *shared;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, lm_error_last());
    exit(1);
}

/* ---- reading memory once, as fast as this core does ---- */

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static float stream512(const float *at, size_t count) {
    __m512 sums[8];
    for (int s = 0; s < 8; s++) sums[s] = _mm512_setzero_ps();
    for (size_t i = 0; i + 128 <= count; i += 128) {
#pragma GCC unroll 8
        for (int s = 0; s < 8; s++)
            sums[s] = _mm512_add_ps(sums[s], _mm512_loadu_ps(at + i + 16 * s));
    }
    for (int s = 1; s < 8; s++) sums[0] = _mm512_add_ps(sums[0], sums[s]);
    return _mm512_reduce_add_ps(sums[0]);
}
__attribute__((target("avx2"))) static float stream256(const float *at, size_t count) {
    __m256 sums[8];
    for (int s = 0; s < 8; s++) sums[s] = _mm256_setzero_ps();
    for (size_t i = 0; i + 64 <= count; i += 64) {
#pragma GCC unroll 8
        for (int s = 0; s < 8; s++)
            sums[s] = _mm256_add_ps(sums[s], _mm256_loadu_ps(at + i + 8 * s));
    }
    for (int s = 1; s < 8; s++) sums[0] = _mm256_add_ps(sums[0], sums[s]);
    float lanes[8], sum = 0;
    _mm256_storeu_ps(lanes, sums[0]);
    for (int l = 0; l < 8; l++) sum += lanes[l];
    return sum;
}
#else
static float stream256(const float *at, size_t count) {
    float sums[16] = {0}, sum = 0;
    for (size_t i = 0; i + 16 <= count; i += 16) {
        for (int s = 0; s < 16; s++) sums[s] += at[i + s];
    }
    for (int s = 0; s < 16; s++) sum += sums[s];
    return sum;
}
#define stream512 stream256
#endif

static bool wide_vectors(void) {
    return strcmp(lm_dense_choose(0)->name, "avx512") == 0;
}

/* The faster of both kinds of vectors counts. */
static void stream(const float *at, size_t count, bool wide) {
    sink = wide ? stream512(at, count) : stream256(at, count);
}

/* Reads a 64th of the weights. */
static void stream_part(void *argument, uint32_t part) {
    size_t each = shared->view.float_count / 64;
    stream(shared->view.floats + part * each, each, *(bool *)argument);
}

/* ---- samples ---- */

struct samples {
    uint64_t *ns;
    uint32_t count;
};

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void put(const char *name, struct samples *samples) {
    qsort(samples->ns, samples->count, sizeof *samples->ns, by_size);
    printf("\"%s\":{\"best\":%.3f,\"median\":%.3f,\"p90\":%.3f},", name,
           (double)samples->ns[0] / 1000, (double)samples->ns[samples->count / 2] / 1000,
           (double)samples->ns[samples->count * 9 / 10] / 1000);
}

static void add(struct samples *samples, uint64_t began_ns) {
    samples->ns[samples->count++] = lm_now_ns() - began_ns;
}

/* ---- run ---- */

enum { ORT, NATIVE, TEAM, STREAM_512, STREAM_256, TEAM_STREAM_512, TEAM_STREAM_256, KINDS };
static const char *const names[KINDS] = {
    "onnxruntime", "native", "team", "stream512", "stream256", "team_stream512", "team_stream256"};

/* Outputs that ONNX Runtime allocated, since their declared shape is not that of so many rows. */
static void drop_loose(const struct lm_model *model, const struct lm_ort *ort, OrtValue **values,
                       uint32_t rows) {
    for (uint32_t o = 0; o < model->output_count; o++) {
        if (lm_output_is_wrapped(&model->outputs[o], rows)) continue;
        lm_ort_value_close(ort, values[1 + o]);
        values[1 + o] = NULL;
    }
}

static void measure(struct samples *samples, uint32_t rounds, const struct lm_model *model,
                    const struct lm_ort *ort, OrtValue **values, struct lm_engine *engine,
                    struct lm_team *team, const float *input, void **outputs, uint32_t rows) {
    bool dense = engine->view.header->kind == LM_ENGINE_DENSE, yes = wide_vectors(), no = false;
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t kind = 0; kind < KINDS; kind++) {
            if (!dense && kind > NATIVE) break;
            /* Twice: the first run finds its weights where another's were. */
            for (uint32_t turn = 0; turn < 2; turn++) {
                uint64_t began_ns = lm_now_ns();
                switch (kind) {
                case ORT:
                    if (lm_model_run(model, ort, 0, values)) fail("ONNX Runtime");
                    break;
                case NATIVE: lm_engine_run(engine, 0, input, outputs, rows, NULL); break;
                case TEAM: lm_engine_run(engine, 0, input, outputs, rows, team); break;
                case STREAM_512: stream(engine->view.floats, engine->view.float_count, yes); break;
                case STREAM_256: stream(engine->view.floats, engine->view.float_count, no); break;
                case TEAM_STREAM_512: lm_team_run(team, stream_part, &yes, 64); break;
                case TEAM_STREAM_256: lm_team_run(team, stream_part, &no, 64); break;
                }
                if (turn == 1) add(&samples[kind], began_ns);
                if (kind == ORT) drop_loose(model, ort, values, rows);
            }
        }
    }
}

static void far_stream(void) {
    float *far = mmap(NULL, FAR_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t best = UINT64_MAX;
    if (far == MAP_FAILED) return;
    madvise(far, FAR_BYTES, MADV_HUGEPAGE);
    memset(far, 1, FAR_BYTES);
    for (uint32_t round = 0; round < FAR_ROUNDS; round++) {
        uint64_t began_ns = lm_now_ns();
        stream(far, FAR_BYTES / sizeof *far, round % 2 == 0 && wide_vectors());
        uint64_t took_ns = lm_now_ns() - began_ns;
        best = took_ns < best ? took_ns : best;
    }
    printf("\"far_gb_s\":%.2f,", (double)FAR_BYTES / (double)best);
    munmap(far, FAR_BYTES);
}

static int run(char **arguments) {
    static struct lm_model model;
    static struct lm_engine engine;
    static struct lm_team team;
    struct lm_ort ort;
    struct samples samples[KINDS];
    uint32_t rows = (uint32_t)atoi(arguments[3]), rounds = (uint32_t)atoi(arguments[4]);
    const lumen_model_config config = {.name = "m",
                                       .path = arguments[1],
                                       .intra_op_threads = 1,
                                       .engine = LUMEN_ENGINE_NATIVE,
                                       .engine_path = arguments[2]};
    int32_t cpus[LUMEN_WORKERS_MAX];
    int usable = lm_topology_usable_cpus("", cpus, LUMEN_WORKERS_MAX);
    if (usable > 0) (void)lm_thread_pin(cpus[0]);
    if (lm_ort_open(&ort, arguments[0]) || lm_model_open(&model, &ort, &config, 0, 1))
        fail("the model");
    if (lm_engine_open(&engine, arguments[2], true)) fail("the engine");
    if (lm_team_open(&team, usable > 1 ? (uint32_t)usable - 1 : 0, false)) fail("the team");
    for (uint32_t h = 0; h < team.helper_count; h++)
        (void)lm_thread_pin_other(team.helpers[h].tid, cpus[h + 1]);
    shared = &engine;
    size_t row = engine.view.header->inputs, each = 8 * engine.view.header->scores;
    float *input = aligned_alloc(64, lm_align_up(rows * row * sizeof *input, 64));
    void *outputs[2], *places[2], *inputs[1] = {input};
    for (size_t i = 0; i < rows * row; i++) input[i] = (float)(i * 7919 % 1000) / 500 - 1;
    for (uint32_t o = 0; o < 2; o++) {
        outputs[o] = aligned_alloc(64, lm_align_up(rows * each, 64));
        places[o] = aligned_alloc(64, lm_align_up(rows * each, 64));
    }
    OrtValue *values[3] = {NULL};
    struct lm_binding binding = {0};
    const struct lm_sizes sizes = {.rows = rows};
    const struct lm_layout layout = {.inputs = inputs, .outputs = places};
    if (lm_model_bind(&model, &ort, &layout, &sizes, &binding, values)) fail("binding");
    for (uint32_t kind = 0; kind < KINDS; kind++)
        samples[kind] = (struct samples){.ns = malloc(rounds * sizeof(uint64_t))};
    measure(samples, rounds, &model, &ort, values, &engine, &team, input, outputs, rows);
    putchar('{');
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        if (samples[kind].count > 0) put(names[kind], &samples[kind]);
    }
    if (engine.view.header->kind == LM_ENGINE_DENSE) far_stream();
    printf("\"weight_bytes\":%llu,\"threads\":%u,\"kernel\":\"%s\",\"rows\":%u}\n",
           (unsigned long long)(engine.file.bytes - engine.view.header->weights_offset),
           team.helper_count + 1, lm_dense_choose(0)->name, rows);
    lm_team_close(&team);
    return 0;
}

/* ---- load ---- */

static int load(char **arguments) {
    uint32_t rounds = (uint32_t)atoi(arguments[1]);
    struct samples opened = {.ns = malloc(rounds * sizeof(uint64_t))};
    size_t bytes = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        struct lm_engine engine;
        uint64_t began_ns = lm_now_ns();
        if (lm_engine_open(&engine, arguments[0], false)) fail("the engine");
        add(&opened, began_ns);
        bytes = engine.file.bytes;
        lm_engine_close(&engine);
    }
    putchar('{');
    put("open", &opened);
    printf("\"file_bytes\":%zu}\n", bytes);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 7 && strcmp(arguments[1], "run") == 0) return run(arguments + 2);
    if (count == 4 && strcmp(arguments[1], "load") == 0) return load(arguments + 2);
    fprintf(stderr, "usage: engine run ORT MODEL ENGINE ROWS ROUNDS | engine load ENGINE ROUNDS\n");
    return 2;
}
