/* test_live_models.c: what a running server keeps of its models while others come and go: the
 * places that virtual models and fallbacks name, what is theirs of other models, the tensors that a
 * request was meant for, and who was asked last. LUMEN_ORT names libonnxruntime.so. */
#include "live.h"
#include "models/process.h"
#include "tiny_tokenizer.h"

enum { MANY_TEXTS = LM_BULK_TEXTS, TOKENS_MAX = 12 };

static lumen_server *start(void) {
    lumen_config config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    config.io_threads = 1;
    return start_with(&config);
}

static void load(lumen_server *server, const lumen_model_config *config, uint32_t expected) {
    uint32_t index = UINT32_MAX;
    const int code = lumen_load_model(server, config, 0, &index);
    CHECK_AT("%s: %s", config->name, code ? lm_error_last() : "");
    CHECK(code == 0 && index == expected);
}

/* ---- virtual models ---- */

/* The second model, then the third one. */
static const lumen_step_tensor made = {"y", "t"}, taken = {"x", "t"};
static const lumen_step both[] = {{.model = 1, .output_count = 1, .outputs = &made},
                                  {.model = 2, .input_count = 1, .inputs = &taken}};
static const lumen_steps_config chain_steps = {.count = 2, .steps = both};

static lumen_model_config chain(void) {
    return (lumen_model_config){.name = "chain",
                                .steps = &chain_steps,
                                .intra_op_threads = 1,
                                .batch_delay_us = UINT32_MAX};
}

/* A virtual model names others by their indexes, of which some are free once models have gone. */
static void steps_behind_a_free_index(void) {
    lumen_server *server = start();
    lumen_model_config second = model_of("second", 1), third = model_of("third", 2), all = chain();
    int fd = dial(server);
    load(server, &second, 1);
    load(server, &third, 2);
    CHECK(lumen_unload_model(server, "first") == 0);
    load(server, &all, 3);
    CHECK(ask(fd, server->numbers[3]) == -6);
    close(fd);
    lumen_close(server);
}

static char any_length[300]; /* the path of a graph of two free dimensions */

static lumen_model_config bounded(const char *name, const lumen_dim *dim) {
    lumen_model_config config = model_of(name, 0);
    config.path = any_length;
    config.dims = dim;
    config.dim_count = dim ? 1 : 0;
    return config;
}

/* Two steps take what the first one makes: the smaller of their bounds is the ensemble's, whichever
 * step comes last. */
static void bounds_of_steps(void) {
    static const lumen_step_tensor left = {"y", "l"}, right = {"y", "r"};
    static const lumen_dim small = {.name = "k", .size = 3}, large = {.name = "k", .size = 5};
    lumen_server *server = start();
    const lumen_model_config maker = bounded("maker", NULL);
    const lumen_model_config three = bounded("three", &small), five = bounded("five", &large);
    load(server, &maker, 1);
    load(server, &three, 2);
    load(server, &five, 3);
    for (uint32_t turn = 0; turn < 2; turn++) {
        const lumen_step steps[] = {{.model = 1, .output_count = 1, .outputs = &made},
                                    {2 + turn, 1, &taken, 1, 0, &left},
                                    {3 - turn, 1, &taken, 1, 0, &right}};
        const lumen_steps_config config = {.count = 3, .steps = steps};
        lumen_model_config fork = chain();
        fork.name = turn ? "five first" : "three first";
        fork.steps = &config;
        load(server, &fork, 4 + turn);
        const struct lm_model *model = lm_model_set_named(server->set, fork.name);
        CHECK(model->free_count == 1 && model->free_dims[0].max == 3);
        CHECK(!model->free_dims[0].by_default);
    }
    /* So does the smaller one of two inputs' that have a dimension of one name. */
    for (uint32_t turn = 0; turn < 2; turn++) {
        static const lumen_step_tensor one = {"x", "a"}, other = {"x", "b"};
        const lumen_step steps[] = {{2 + turn, 1, &one, 1, 0, &left},
                                    {3 - turn, 1, &other, 1, 0, &right}};
        const lumen_steps_config config = {.count = 2, .steps = steps};
        lumen_model_config pair = chain();
        pair.name = turn ? "of five" : "of three";
        pair.steps = &config;
        load(server, &pair, 6 + turn);
        const struct lm_model *model = lm_model_set_named(server->set, pair.name);
        CHECK(model->input_count == 2 && model->free_count == 1 && model->free_dims[0].max == 3);
    }
    lumen_close(server);
}

/* Experts make the same numbers of a picture. */
static void experts_of_pictures(void) {
    static const lumen_expert experts[] = {{.model = 1, .bound = 1}, {.model = 2}};
    static const lumen_experts_config rule = {
        .feature = LUMEN_FEATURE_MEAN, .count = 2, .experts = experts};
    static char path[300];
    lumen_server *server = start();
    lumen_model_config one = model_of("one", 0), other = model_of("other", 0);
    lumen_model_config either = {
        .name = "either", .experts = &rule, .intra_op_threads = 1, .batch_delay_us = UINT32_MAX};
    uint32_t index;
    snprintf(path, sizeof path, "%s/picture.onnx", check_directory);
    graph_begin();
    graph_input("x", ORT_FLOAT, "n,3,2,2");
    graph_node("Identity", "x", "y");
    graph_output("y", ORT_FLOAT, "n,3,2,2");
    graph_save(path);
    one.path = other.path = path;
    load(server, &one, 1);
    load(server, &other, 2);
    load(server, &either, 3);
    CHECK(lumen_unload_model(server, "either") == 0);
    other.mean[1] = 0.5f;
    load(server, &other, 2);
    says(lumen_load_model(server, &either, 0, &index), LUMEN_E_MODEL,
         "experts need the same pictures: the settings image, mean, scale and channel_order of "
         "'other' and 'one' differ");
    lumen_close(server);
}

/* An ensemble has rows where one of its inputs has, wherever that stands. */
static void rows_of_steps(void) {
    static const lumen_step_tensor from[] = {{"x", "t"}, {"k", "k"}};
    static const lumen_step sum[] = {{.model = 1, .output_count = 1, .outputs = &made},
                                     {.model = 2, .input_count = 2, .inputs = from}};
    static const lumen_steps_config config = {.count = 2, .steps = sum};
    static char path[300];
    lumen_server *server = start();
    lumen_model_config second = model_of("second", 1), add = model_of("add", 0), all = chain();
    snprintf(path, sizeof path, "%s/add.onnx", check_directory);
    graph_begin();
    graph_input("x", ORT_FLOAT, "n,4");
    graph_input("k", ORT_FLOAT, "4");
    graph_node("Add", "x,k", "z");
    graph_output("z", ORT_FLOAT, "n,4");
    graph_save(path);
    add.path = path;
    all.steps = &config;
    load(server, &second, 1);
    load(server, &add, 2);
    load(server, &all, 3);
    const struct lm_model *model = lm_model_set_named(server->set, "chain");
    CHECK(model->input_count == 2 && strcmp(model->inputs[1].name, "k") == 0);
    CHECK(model->rows_free && model->max_rows == 8);
    lumen_close(server);
}

/* ---- processes ---- */

/* How long a Run in a process may take: as the model says, else as the server. */
static void hangs_of_processes(void) {
    lumen_config config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    lumen_model_config own = model_of("own", 0), servers = model_of("servers", 1);
    lumen_server *server = NULL;
    uint32_t index;
    config.hang_seconds = 60;
    own.isolation = servers.isolation = LUMEN_ISOLATION_PROCESS;
    own.process_key = 1;
    servers.process_key = 2;
    own.isolation_hang_seconds = 7;
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &own, &index) == 0);
    CHECK(lumen_add_model(server, &servers, &index) == 0);
    CHECK(server->set->models[0]->process->hang_ns == 7000000000);
    CHECK(server->set->models[1]->process->hang_ns == 60000000000);
    lumen_close(server);
}

/* ---- fallbacks ---- */

/* A name that is not served now is passed over, until it is. */
static void fallbacks(void) {
    static const char *const others[] = {"absent", "second", "gone", "third"};
    static const lumen_fallback list = {.model = "first", .others = others, .other_count = 4};
    lumen_server *server = start();
    const struct lm_fallbacks *found = &server->shared.fallbacks;
    lumen_model_config second = model_of("second", 1), third = model_of("third", 2);
    lumen_model_config absent = model_of("absent", 1);
    load(server, &second, 1);
    load(server, &third, 2);
    CHECK(lumen_set_fallbacks(server, &list, 1) == 0);
    CHECK(lm_fallbacks_at(found, 0, 0) == 1 && lm_fallbacks_at(found, 0, 1) == 2);
    CHECK(lm_fallbacks_at(found, 0, 2) == UINT32_MAX && lm_fallbacks_at(found, 1, 0) == UINT32_MAX);
    load(server, &absent, 3);
    CHECK(lm_fallbacks_at(found, 0, 0) == 3 && lm_fallbacks_at(found, 0, 1) == 1);
    CHECK(lumen_unload_model(server, "second") == 0);
    CHECK(lm_fallbacks_at(found, 0, 1) == 2 && lm_fallbacks_at(found, 0, 2) == UINT32_MAX);
    lumen_close(server);
}

/* ---- a request that comes in two parts ---- */

/* Sends the first part of a request whose numbers stand behind its JSON, waits until its head has
 * been read, and returns what is left of it. */
static const char *send_first_part(lumen_server *server, int fd) {
    static const char json[] = "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,4],\"datatype\":\"FP32\","
                               "\"parameters\":{\"binary_data_size\":16}}]}";
    static char request[512];
    snprintf(request, sizeof request,
             "POST /v2/models/second/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
             "Content-Length: %zu\r\nInference-Header-Content-Length: %zu\r\n\r\n%s%s",
             strlen(json) + 16, strlen(json), json, "four numbers of ");
    const char *rest = strstr(request, "\"datatype\"");
    const size_t bytes = (size_t)(rest - request);
    const lm_atomic_u64 *read = &server->ios[0].stats->io.http_requests;
    const uint64_t before = lm_load_relaxed_u64(read); /* relaxed, both: a counter */
    CHECK(send(fd, request, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
    while (lm_load_relaxed_u64(read) == before) usleep(1000);
    return rest;
}

/* The second model is replaced by one of other tensors, and by another: what was meant for the
 * first of them is for none of these. */
static void meant_for_other_tensors(void) {
    lumen_server *server = start();
    lumen_model_config wide = model_of("second", 4), narrow = model_of("second", 1);
    char answer[2048];
    load(server, &wide, 1);
    for (int round = 0; round < 3; round++) {
        int fd = dial(server);
        load(server, &narrow, 1);
        const char *rest = send_first_part(server, fd);
        load(server, &wide, 1);
        CHECK(send(fd, rest, strlen(rest), MSG_NOSIGNAL) == (ssize_t)strlen(rest));
        const ssize_t got = recv(fd, answer, sizeof answer - 1, MSG_WAITALL);
        CHECK(got > 0);
        answer[got] = '\0';
        CHECK_AT("round %d: %.120s", round, answer);
        CHECK(strncmp(answer, "HTTP/1.1 404 ", 13) == 0 &&
              strstr(answer, "by one with other tensors"));
        close(fd);
    }
    lumen_close(server);
}

/* ---- who was asked last ---- */

static void make_texts(lumen_model_config *model) {
    static char graph[300], tokenizer[300];
    static struct tiny tiny;
    static const lumen_text_config text = {
        .tokenizer = tokenizer, .pooling = LUMEN_POOLING_MEAN, .tokens_max = TOKENS_MAX};
    snprintf(graph, sizeof graph, "%s/texts.onnx", check_directory);
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer", check_directory);
    graph_of_texts(graph);
    make(&tiny);
    check_write_file(tokenizer, &tiny, sizeof tiny);
    *model = model_of("texts", 0);
    model->path = graph;
    model->text = &text;
    model->max_rows = 0;
}

/* So many texts "a", as threads for many texts run them. */
static void ask_texts(int fd, uint16_t model) {
    uint8_t request[LM_NATIVE_REQUEST_BYTES + MANY_TEXTS * 5] = "LMN1\1";
    uint8_t reply[LM_NATIVE_REPLY_BYTES + 4096];
    const uint32_t rows = MANY_TEXTS, payload = MANY_TEXTS * 5;
    uint16_t status;
    uint32_t bytes;
    memcpy(request + 6, &model, 2);
    memcpy(request + 16, &payload, 4);
    memcpy(request + 24, &rows, 4);
    for (uint32_t t = 0; t < rows; t++)
        memcpy(request + LM_NATIVE_REQUEST_BYTES + t * 5, "\1\0\0\0a", 5);
    CHECK(send(fd, request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request);
    CHECK(recv(fd, reply, LM_NATIVE_REPLY_BYTES, MSG_WAITALL) == LM_NATIVE_REPLY_BYTES);
    memcpy(&status, reply + 4, 2);
    memcpy(&bytes, reply + 16, 4);
    CHECK_AT("status %u of many texts", status);
    CHECK(status == LM_STATUS_OK && bytes <= 4096);
    CHECK(recv(fd, reply, bytes, MSG_WAITALL) == (ssize_t)bytes);
}

static uint64_t answered_by_bulk(const lumen_server *server) {
    const struct lm_shared *shared = &server->shared;
    uint64_t sum = 0;
    for (uint32_t w = shared->worker_count; w < shared->bulk.answerers; w++) /* relaxed: a count */
        sum += lm_load_relaxed_u64(&server->workers[w].stats->worker.requests_ok);
    return sum;
}

/* A worker records the time of an answer once it is sent. */
static bool is_longest_idle(lumen_server *server, const char *expected) {
    char name[32] = "";
    for (int tries = 0; tries < 5000 && strcmp(name, expected) != 0; tries++) {
        if (tries) usleep(1000);
        CHECK(lumen_longest_idle(server, NULL, 0, name, sizeof name) == 0);
    }
    return strcmp(name, expected) == 0;
}

/* Also where threads for many texts have answered. */
static void asked_for_many_texts(void) {
    lumen_config config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    lumen_model_config first = model_of("first", 0), texts;
    lumen_server *server = NULL;
    uint32_t index;
    make_texts(&texts);
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &first, &index) == 0);
    const int code = lumen_add_model(server, &texts, &index);
    CHECK_AT("texts: %s", code ? lm_error_last() : "");
    CHECK(code == 0 && lumen_start(server) == 0);
    int fd = dial(server);
    CHECK(ask(fd, 0) == 3 && is_longest_idle(server, "texts"));
    ask_texts(fd, (uint16_t)index);
    CHECK(answered_by_bulk(server) == 1);
    CHECK(is_longest_idle(server, "first"));
    close(fd);
    lumen_close(server);
}

int main(void) {
    library = getenv("LUMEN_ORT");
    if (!library) check_skip("test_live_models", "LUMEN_ORT does not name libonnxruntime.so");
    check_watchdog(120, "models that come and go");
    make_graphs();
    snprintf(any_length, sizeof any_length, "%s/any.onnx", check_directory);
    graph_begin();
    graph_input("x", ORT_FLOAT, "n,k");
    graph_node("Identity", "x", "y");
    graph_output("y", ORT_FLOAT, "n,k");
    graph_save(any_length);
    steps_behind_a_free_index();
    bounds_of_steps();
    experts_of_pictures();
    rows_of_steps();
    hangs_of_processes();
    fallbacks();
    meant_for_other_tensors();
    asked_for_many_texts();
    check_watchdog(0, "");
    return check_finish("test_live_models");
}
