/* test_spans.c: a server's last requests are recorded by the time it has ended. LUMEN_ORT names
 * libonnxruntime.so. */
#include "live.h"
#include "lumen_traces.h"

enum { REQUESTS = 40, ROUNDS = 5 };

static void last_requests(void) {
    lumen_config config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    lumen_model_config first = model_of("first", 0);
    lumen_server *server = NULL;
    lumen_span spans[REQUESTS];
    uint32_t index, count;
    uint64_t lost;
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &first, &index) == 0);
    CHECK(lumen_set_traces(server, 1.0, 1000000) == 0 && lumen_start(server) == 0);
    int fd = dial(server);
    for (int r = 0; r < REQUESTS; r++) CHECK(ask(fd, 0) == 3);
    close(fd);
    CHECK(lumen_stop(server, 1000) == 0);
    while (lumen_wait(server, 1000) == LUMEN_E_AGAIN) continue;
    CHECK(lumen_take_spans(server, spans, REQUESTS, &count, &lost) == 0);
    CHECK_AT("%u of %d", count, REQUESTS);
    CHECK(count == REQUESTS && lost == 0);
    CHECK(lumen_take_spans(server, spans, REQUESTS, &count, &lost) == 0 && count == 0);
    lumen_close(server);
}

int main(void) {
    library = getenv("LUMEN_ORT");
    if (!library) check_skip("test_spans", "LUMEN_ORT does not name libonnxruntime.so");
    make_graphs();
    check_watchdog(300, "an answer");
    for (int r = 0; r < ROUNDS; r++) last_requests();
    check_watchdog(0, "");
    return check_finish("test_spans");
}
