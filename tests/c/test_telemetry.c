/* test_telemetry.c: each figure of a row stands in the column of its name, and no row is lost at
 * the end, however soon it comes. */
#include "base/error.h"
#include "check.h"
#include "flow/telemetry.h"
#include "flow/worker.h"

enum { WORKERS = 2, ROWS = 1000 };

static struct lm_model models[2];
static struct lm_worker workers[WORKERS];
static struct lm_shared shared = {.models = models,
                                  .model_count = 2,
                                  .workers = workers,
                                  .worker_count = WORKERS,
                                  .queue_type = LUMEN_QUEUE_SCQ,
                                  .allocator_type = LUMEN_ALLOCATOR_STANDARD};

/* No two figures of a row are the same. */
static struct lm_trace_record row_of(uint64_t id) {
    return (struct lm_trace_record){.id = id,
                                    .started_ns = id + 1,
                                    .receive_ns = id + 2,
                                    .queue_ns = id + 3,
                                    .preprocess_ns = id + 4,
                                    .infer_ns = id + 5,
                                    .send_ns = id + 6,
                                    .total_ns = id + 7,
                                    .bytes = (uint32_t)id + 8,
                                    .rows = (uint32_t)id + 9,
                                    .batch_rows = (uint32_t)id + 10,
                                    .model = id % 2,
                                    .status = 3};
}

static void expected_line(char *line, size_t room, uint64_t id) {
    unsigned long long n = id;
    int used = snprintf(line, room, "%llu,%s,%llu,scq,standard,%llu,%llu,%llu,%llu", n,
                        id % 2 ? "second" : "first", n % WORKERS, n + 1, n + 8, n + 9, n + 10);
    for (unsigned long long stage = 2; stage <= 7; stage++)
        used += snprintf(line + used, room - (size_t)used, ",%llu", n + stage);
    snprintf(line + used, room - (size_t)used, ",3\n");
}

/* Rows of one worker are in their order; which worker comes first nobody says. */
static void check_file(const char *path, uint64_t first, uint64_t count) {
    static const char header[] =
        "id,model,worker,queue_type,allocator,started_ns,bytes,rows,batch_rows,receive_ns,queue_ns,"
        "preprocess_ns,infer_ns,send_ns,total_ns,status\n";
    char line[512], expected[512];
    uint64_t next[WORKERS], seen = 0;
    FILE *file = fopen(path, "re");
    CHECK(file && fgets(line, sizeof line, file) && strcmp(line, header) == 0);
    for (uint32_t w = 0; w < WORKERS; w++) next[w] = first + w;
    while (fgets(line, sizeof line, file)) {
        uint64_t id = strtoull(line, NULL, 10), w = id % WORKERS;
        CHECK_AT("row %llu", (unsigned long long)id);
        expected_line(expected, sizeof expected, id);
        CHECK(id == next[w] && strcmp(line, expected) == 0);
        next[w] += WORKERS;
        seen++;
    }
    CHECK_AT("all rows");
    CHECK(seen == count);
    fclose(file);
}

static void push(uint64_t first, uint64_t count) {
    for (uint64_t id = first; id < first + count; id++) {
        struct lm_trace_record row = row_of(id);
        lm_trace_push(&workers[id % WORKERS].trace, &row);
    }
}

int main(void) {
    struct lm_telemetry telemetry;
    char path[128];
    snprintf(path, sizeof path, "%s/trace.csv", check_temporary_directory());
    snprintf(models[0].name, sizeof models[0].name, "first");
    snprintf(models[1].name, sizeof models[1].name, "second");
    for (uint32_t w = 0; w < WORKERS; w++) CHECK(lm_trace_open(&workers[w].trace) == 0);
    CHECK(lm_telemetry_open(&telemetry, &shared, "/nowhere/trace.csv") == LUMEN_E_IO);
    CHECK(strstr(lm_error_last(), "/nowhere/trace.csv"));
    lm_telemetry_close(&telemetry);
    for (uint64_t turn = 0; turn < 20; turn++) {
        uint64_t first = turn * 10 * WORKERS;
        CHECK(lm_telemetry_open(&telemetry, &shared, path) == 0);
        CHECK(lm_telemetry_start(&telemetry) == 0);
        push(first, turn * WORKERS);
        lm_telemetry_close(&telemetry); /* at once: the thread may not have looked yet */
        check_file(path, first, turn * WORKERS);
    }
    push(0, ROWS); /* more than are taken together */
    CHECK(lm_telemetry_open(&telemetry, &shared, path) == 0);
    CHECK(lm_telemetry_start(&telemetry) == 0);
    lm_telemetry_close(&telemetry);
    check_file(path, 0, ROWS);
    lm_telemetry_close(&telemetry); /* twice does nothing */
    for (uint32_t w = 0; w < WORKERS; w++) lm_trace_close(&workers[w].trace);
    return check_finish("test_telemetry");
}
