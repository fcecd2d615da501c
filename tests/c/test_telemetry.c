/* test_telemetry.c: each figure of a row stands in the column of its name, and no row is lost at
 * the end, however soon it comes. */
#include <sched.h>

#include "base/error.h"
#include "check.h"
#include "flow/access_log.h"
#include "work/access_line.h"
#include "work/state.h"
#include "work/telemetry.h"

enum { WORKERS = 2, ROWS = 1000 };

static struct lm_worker workers[WORKERS];
static struct lm_stats_block io_block;
static struct lm_io io = {.stats = &io_block};
static struct lm_shared shared = {.workers = workers,
                                  .worker_count = WORKERS,
                                  .bulk.answerers = WORKERS,
                                  .ios = &io,
                                  .io_count = 1};

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
                                    .status = 3,
                                    .width = (uint32_t)id + 11,
                                    .expert = id % 2 ? 0 : 2,
                                    .queue = id % WORKERS ? LUMEN_QUEUE_INLINE : LUMEN_QUEUE_SCQ,
                                    .allocator = LUMEN_ALLOCATOR_STANDARD};
}

static void expected_line(char *line, size_t room, uint64_t id) {
    unsigned long long n = id;
    int used = snprintf(line, room, "%llu,%s,%llu,%s,standard,%llu,%llu,%llu,%llu", n,
                        id % 2 ? "second" : "first", n % WORKERS, n % WORKERS ? "inline" : "scq",
                        n + 1, n + 8, n + 9, n + 10);
    for (unsigned long long stage = 2; stage <= 7; stage++)
        used += snprintf(line + used, room - (size_t)used, ",%llu", n + stage);
    snprintf(line + used, room - (size_t)used, ",3,%llu,%s\n", n + 11, id % 2 ? "" : "second");
}

/* Rows of one worker are in their order; which worker comes first nobody says. */
static void check_file(const char *path, uint64_t first, uint64_t count) {
    static const char header[] =
        "id,model,worker,queue_type,allocator,started_ns,bytes,rows,batch_rows,receive_ns,queue_ns,"
        "preprocess_ns,infer_ns,send_ns,total_ns,status,width,expert\n";
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

/* ---- the access log ---- */

static void read_lines(const char *path, char lines[4][LM_LINE_BYTES_MAX], size_t count) {
    FILE *file = fopen(path, "re");
    char more[8];
    CHECK(file != NULL);
    for (size_t l = 0; l < count; l++) CHECK(fgets(lines[l], LM_LINE_BYTES_MAX, file));
    CHECK(!fgets(more, sizeof more, file));
    fclose(file);
}

/* Workers' rows and I/O threads' rows, in both forms, and nothing of the latter in the CSV file. */
static void every_thread_has_its_line(void) {
    static char lines[4][LM_LINE_BYTES_MAX];
    static const char *const parts[2][2] = {
        {" 10.1.2.3:77 http infer model=\"first\" key=\"ada\" status=400 bytes=8 id=\"a\\\"b\""
         " receive_us=1 queue_us=2 preprocess_us=3 infer_us=4 send_us=5 total_us=20"
         " why=\"say \\\"x\\\" \\u000a\"\n",
         " [::1]:9 native ping status=0 bytes=0 id=7 total_us=1\n"},
        {"\"peer\":\"10.1.2.3:77\",\"dialect\":\"http\",\"request\":\"infer\",\"model\":\"first\","
         "\"key\":\"ada\",\"status\":400,\"bytes\":8,\"id\":\"a\\\"b\",\"receive_us\":1,",
         "\"peer\":\"[::1]:9\",\"dialect\":\"native\",\"request\":\"ping\",\"status\":0,"
         "\"bytes\":0,\"id\":7,\"total_us\":1}\n"}};
    struct lm_trace_record of_worker = {
        .receive_ns = 1000,
        .queue_ns = 2000,
        .preprocess_ns = 3000,
        .infer_ns = 4000,
        .send_ns = 5000,
        .total_ns = 20000,
        .bytes = 8,
        .status = 1,
        .code = 400,
        .dialect = "http",
        .is_http = true,
        .http_id = "a\\\"b",
        .why = "say \"x\" \n",
        .client = {.family = AF_INET, .port = 77, .address = {10, 1, 2, 3}, .key = "ada"}};
    struct lm_trace_record of_io = {.dialect = "native",
                                    .what = "ping",
                                    .id = 7,
                                    .total_ns = 1000,
                                    .model = LM_TRACE_NO_MODEL,
                                    .client = {.family = AF_INET6, .port = 9}};
    struct lm_telemetry telemetry;
    char csv[128], log[128];
    of_io.client.address[15] = 1;
    snprintf(csv, sizeof csv, "%s/both.csv", check_temporary_directory());
    snprintf(log, sizeof log, "%s/access.log", check_temporary_directory());
    CHECK(lm_trace_open(&io.trace) == 0);
    for (uint32_t as_json = 0; as_json < 2; as_json++) {
        unlink(log);
        CHECK(lm_telemetry_open(&telemetry, &shared, csv, log) == 0);
        lm_store_relaxed_u32(&telemetry.access_as_json, as_json);
        CHECK(lm_telemetry_start(&telemetry) == 0);
        lm_trace_push(&workers[0].trace, &of_worker);
        lm_trace_push(&io.trace, &of_io);
        lm_telemetry_close(&telemetry);
        read_lines(log, lines, 2);
        for (size_t l = 0; l < 2; l++) {
            CHECK_AT("%.150s", lines[l]);
            CHECK(strstr(lines[l], parts[as_json][l]));
        }
    }
    read_lines(csv, lines, 3); /* a header, and the worker's row of each round */
    CHECK(strncmp(lines[0], "id,", 3) == 0 && strncmp(lines[1], "0,first,", 8) == 0);
    lm_trace_close(&io.trace);
}

/* A row that an I/O thread has answered from the cache has that thread's number, not a worker's. */
static void rows_of_the_cache(void) {
    static char lines[4][LM_LINE_BYTES_MAX];
    const struct lm_trace_record row = row_of(0);
    struct lm_telemetry telemetry;
    char path[128];
    snprintf(path, sizeof path, "%s/cache.csv", check_directory);
    CHECK(lm_trace_open(&io.trace) == 0);
    CHECK(lm_telemetry_open(&telemetry, &shared, path, NULL) == 0);
    CHECK(lm_telemetry_start(&telemetry) == 0);
    lm_trace_push(&io.trace, &row);
    lm_telemetry_close(&telemetry);
    lm_trace_close(&io.trace);
    read_lines(path, lines, 2);
    CHECK_AT("%.150s", lines[1]);
    CHECK(strncmp(lines[1], "0,first,0,cache,standard,", 25) == 0);
}

/* Lines that the files do not take are counted, for both together. */
static void lines_that_are_lost(void) {
    struct lm_trace_record of_worker = {.dialect = "native"},
                           of_io = {.dialect = "native", .what = "ping"};
    struct lm_telemetry telemetry;
    char csv[128], news[256];
    snprintf(csv, sizeof csv, "%s/kept.csv", check_directory);
    CHECK(lm_trace_open(&io.trace) == 0);
    CHECK(lm_telemetry_open(&telemetry, &shared, csv, "/dev/full") == 0);
    CHECK(lm_telemetry_start(&telemetry) == 0);
    lm_trace_push(&workers[0].trace, &of_worker);
    for (int n = 0; n < 2; n++) lm_trace_push(&io.trace, &of_io);
    while (!lm_telemetry_news(&telemetry, news, sizeof news)) sched_yield();
    CHECK(strstr(news, "log.access_path") && strstr(news, "/dev/full"));
    CHECK(!lm_telemetry_news(&telemetry, news, sizeof news)); /* it is said once */
    lm_telemetry_close(&telemetry);
    CHECK(lm_load_relaxed_u64(&io_block.io.log_lines_lost) == 3);
    lm_trace_close(&io.trace);
}

/* When the answer was ready, by the clock on the wall; and each kind of client. */
static void times_and_peers(void) {
    static const struct {
        uint16_t family;
        const char *line, *json;
    } cases[] = {
        {AF_INET, "2001-09-09T01:46:41.002345Z 9.8.7.6:5 ",
         "{\"time\":\"2001-09-09T01:46:41.002345Z\",\"peer\":\"9.8.7.6:5\","},
        {AF_INET6, "2001-09-09T01:46:41.002345Z [908:706::]:5 ", "\"peer\":\"[908:706::]:5\","},
        {AF_UNIX, "2001-09-09T01:46:41.002345Z unix ", "\"peer\":\"unix\","},
        {0, "2001-09-09T01:46:41.002345Z - ", "\"peer\":\"-\","},
    };
    static char text[LM_LINE_BYTES_MAX];
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct lm_trace_record row = {
            .started_ns = 600000000,
            .total_ns = 402345678,
            .client = {.family = cases[c].family, .port = 5, .address = {9, 8, 7, 6}}};
        CHECK_AT("family %u: %.99s", cases[c].family, text);
        size_t bytes = lm_access_log_line(text, &row, "first", 1000000000000000000u, false);
        CHECK(text[bytes - 1] == '\n' && strncmp(text, cases[c].line, strlen(cases[c].line)) == 0);
        bytes = lm_access_log_line(text, &row, "first", 1000000000000000000u, true);
        CHECK(bytes > 3 && memcmp(text + bytes - 2, "}\n", 2) == 0);
        text[bytes] = '\0';
        CHECK(strstr(text, cases[c].json));
    }
    check_where[0] = '\0';
}

int main(void) {
    struct lm_telemetry telemetry;
    char path[128];
    snprintf(path, sizeof path, "%s/trace.csv", check_temporary_directory());
    const char *const names[] = {"first", "second"};
    CHECK(lm_stats_open(&shared.stats, 0, 0, 0, 0, names, 2) == 0);
    for (uint32_t w = 0; w < WORKERS; w++) CHECK(lm_trace_open(&workers[w].trace) == 0);
    CHECK(lm_telemetry_open(&telemetry, &shared, "/nowhere/trace.csv", NULL) == LUMEN_E_IO);
    CHECK(strstr(lm_error_last(), "/nowhere/trace.csv"));
    lm_telemetry_close(&telemetry);
    for (uint64_t turn = 0; turn < 20; turn++) {
        uint64_t first = turn * 10 * WORKERS;
        unlink(path); /* rows are appended */
        CHECK(lm_telemetry_open(&telemetry, &shared, path, NULL) == 0);
        CHECK(lm_telemetry_start(&telemetry) == 0);
        push(first, turn * WORKERS);
        lm_telemetry_close(&telemetry); /* at once: the thread may not have looked yet */
        check_file(path, first, turn * WORKERS);
    }
    unlink(path);
    push(0, ROWS); /* more than are taken together */
    CHECK(lm_telemetry_open(&telemetry, &shared, path, NULL) == 0);
    CHECK(lm_telemetry_start(&telemetry) == 0);
    lm_telemetry_close(&telemetry);
    check_file(path, 0, ROWS);
    lm_telemetry_close(&telemetry); /* twice does nothing */
    every_thread_has_its_line();
    rows_of_the_cache();
    times_and_peers();
    lines_that_are_lost();
    for (uint32_t w = 0; w < WORKERS; w++) lm_trace_close(&workers[w].trace);
    lm_stats_close(&shared.stats);
    return check_finish("test_telemetry");
}
