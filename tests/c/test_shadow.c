/* test_shadow.c: copies of requests on another version (work/shadow.c), of strings, whose outputs
 * are copied to be compared: with AddressSanitizer that memory is known to be freed. How answers
 * are counted is tested by tests/e2e/models/test_e2e_shadow.py. LUMEN_ORT names libonnxruntime.so.
 */
#include "live.h"
#include "lumen_traffic.h"

enum { REQUESTS = 20, TEXT_BYTES = 3000 };

static lumen_server *start_versions(void) {
    static char path[300];
    static const char *const names[] = {"one:1", "one:2"};
    static const lumen_traffic rule = {.name = "one",
                                       .count = 1,
                                       .versions = {1},
                                       .weights = {1},
                                       .shadow = 2,
                                       .shadow_percent = 100};
    lumen_config config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    lumen_server *server = NULL;
    uint32_t index;
    config.io_threads = 1;
    snprintf(path, sizeof path, "%s/strings.onnx", check_temporary_directory());
    graph_begin();
    graph_input("x", ORT_STRING, "n");
    graph_node("Identity", "x", "y");
    graph_output("y", ORT_STRING, "n");
    graph_save(path);
    CHECK(lumen_open(&config, &server) == 0);
    for (uint32_t v = 0; v < 2; v++) {
        lumen_model_config model = model_of(names[v], 0);
        model.path = path;
        model.version = v + 1;
        CHECK_AT("%s: %s", names[v], lm_error_last());
        CHECK(lumen_add_model(server, &model, &index) == 0 && index == v);
    }
    CHECK(lumen_set_traffic(server, &rule, 1) == 0 && lumen_start(server) == 0);
    return server;
}

/* The first version's answer to one string, which is that string. */
static void ask_for_text(int fd) {
    static uint8_t request[LM_NATIVE_REQUEST_BYTES + 4 + TEXT_BYTES] = "LMN1\1";
    static uint8_t reply[LM_NATIVE_REPLY_BYTES + 4 + TEXT_BYTES];
    const uint32_t bytes = TEXT_BYTES, payload = 4 + TEXT_BYTES;
    uint16_t status;
    memcpy(request + 16, &payload, 4);
    memcpy(request + LM_NATIVE_REQUEST_BYTES, &bytes, 4);
    memset(request + LM_NATIVE_REQUEST_BYTES + 4, 'a', TEXT_BYTES);
    CHECK(send(fd, request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request);
    CHECK(recv(fd, reply, sizeof reply, MSG_WAITALL) == (ssize_t)sizeof reply);
    memcpy(&status, reply + 4, 2);
    CHECK(status == LM_STATUS_OK);
    CHECK(memcmp(reply + LM_NATIVE_REPLY_BYTES, request + LM_NATIVE_REQUEST_BYTES, payload) == 0);
}

static uint64_t word(const lm_atomic_u64 *counter) {
    return lm_load_relaxed_u64(counter); /* relaxed: a counter */
}

static void strings(void) {
    lumen_server *server = start_versions();
    const struct lm_io_model_counters *second = &server->ios[0].stats->models[1].io;
    int fd = dial(server);
    for (uint64_t r = 1; r <= REQUESTS; r++) {
        ask_for_text(fd);
        for (int ms = 0; word(&second->model_shadow_rows) < r; ms++) {
            CHECK_AT("request %llu", (unsigned long long)r);
            CHECK(ms < 20000);
            usleep(1000);
        }
    }
    CHECK(word(&second->model_shadow_ok) == REQUESTS && word(&second->model_shadow_apart) == 0);
    close(fd);
    lumen_close(server);
}

int main(void) {
    library = getenv("LUMEN_ORT");
    if (!library) check_skip("test_shadow", "LUMEN_ORT does not name libonnxruntime.so");
    check_watchdog(300, "an answer");
    strings();
    check_watchdog(0, "");
    return check_finish("test_shadow");
}
