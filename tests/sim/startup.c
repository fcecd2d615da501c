/* startup.c: starts a real server and changes its models, again and again, with one allocation or
 * one system call of ours failing each time, the first, the second, ... until it all gets by
 * without meeting its fault; and once more with all of them failing from the Nth on.
 *
 * The library's objects are linked here with --wrap, so that only its own calls are counted: what
 * ONNX Runtime and the C library do inside is as ever. A failed start must return a code and a
 * sentence; one that succeeds must answer. After lumen_close everything is as before: allocations,
 * mappings, descriptors, threads, files in /dev/shm.
 *
 * LUMEN_ORT names libonnxruntime.so, LUMEN_ROOT the repository. Exit status 77: skipped.
 *   build/startup [KIND]                 all of it, or of one kind: allocation or call
 *   build/startup KIND N [all]           one
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/native_codec.h"
#include "base/status.h"
#include "check.h"
#include "startup.h"

enum {
    PIXELS = 64,
    CLASSES = 10,
    WORKERS = 2,
    LEAK_CHECK_EVERY = 40,
    DESCRIPTORS = 256,
    LOOK_US = 50000, /* between two looks whether the server has ended */
    LOOKS_MAX = 400
};

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#else
#define __lsan_do_recoverable_leak_check() 0
#endif

static char model_path[1024], cache_path[1024], csv_path[1024];
static struct sockaddr_un unix_address = {.sun_family = AF_UNIX};

/* ---- what there is ---- */

struct baseline {
    uint32_t blocks, mappings, descriptors, threads, shm_files;
};

static uint32_t count_entries(const char *path) {
    uint32_t count = 0;
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory));) count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

/* Statistics files of this process; others may come and go meanwhile. */
static uint32_t count_shm_files(void) {
    uint32_t count = 0;
    DIR *directory = opendir("/dev/shm");
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char path[300];
        lumen_stats_header header = {0};
        if (strncmp(entry->d_name, "lumen-", 6) != 0) continue;
        snprintf(path, sizeof path, "/dev/shm/%s", entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0) continue;
        ssize_t got = read(fd, &header, sizeof header);
        close(fd);
        /* One that is not written yet, and not for ever, may be another's. */
        count += got == (ssize_t)sizeof header && header.pid == (uint32_t)getpid();
    }
    if (directory) closedir(directory);
    return count;
}

static struct baseline look_around(void) {
    return (struct baseline){.blocks = startup_blocks(),
                             .mappings = startup_mappings(),
                             .descriptors = count_entries("/proc/self/fd"),
                             .threads = count_entries("/proc/self/task"),
                             .shm_files = count_shm_files()};
}

static void check_same(const struct baseline *before, const struct baseline *after) {
    CHECK(after->blocks == before->blocks);
    CHECK(after->mappings == before->mappings);
    CHECK(after->descriptors == before->descriptors);
    CHECK(after->threads == before->threads);
    CHECK(after->shm_files == before->shm_files);
}

/* ---- a server ---- */

static int open_server(lumen_server **server) {
    lumen_config config = {.abi_version = LUMEN_ABI_VERSION,
                           .host = "127.0.0.1",
                           .ort_library_path = getenv("LUMEN_ORT"),
                           .io_threads = 2,
                           .max_connections = 2 * DESCRIPTORS,
                           .max_request_bytes = 64 << 10,
                           .arena_bytes = 4 << 20,
                           .thread_count = WORKERS,
                           .queue_capacity = 64,
                           .batch_size = 2,
                           .telemetry_csv_path = csv_path,
                           .unix_socket = unix_address.sun_path,
                           .unix_socket_mode = 0600};
    return lumen_open(&config, server);
}

static lumen_model_config model_of(const char *name, bool cached) {
    return (lumen_model_config){.name = name,
                                .path = model_path,
                                .cache_path = cached ? cache_path : NULL,
                                .intra_op_threads = 1,
                                .max_output_bytes = 4096,
                                .batch_delay_us = UINT32_MAX,
                                .labels = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n",
                                .label_bytes = 20,
                                .scale = {1, 1, 1}};
}

static int add_model(lumen_server *server, bool cached) {
    lumen_model_config config = model_of("digits", cached);
    uint32_t index;
    return lumen_add_model(server, &config, &index);
}

/* Replaces the model, and has another one come and go. What fails leaves what was. */
static void change_models(lumen_server *server, bool cached) {
    lumen_model_config digits = model_of("digits", cached), second = model_of("second", cached);
    static const uint32_t shape[] = {1, 1, 8, 8};
    const lumen_warmup_tensor image = {
        .name = "image", .shape = shape, .rank = 4, .fill = LUMEN_FILL_RANDOM};
    const lumen_warmup warmup = {.name = "w", .inputs = &image, .input_count = 1, .count = 1};
    const lumen_sequences_config sequences = {.max_open = 2, .idle_ms = 1};
    uint32_t index;
    digits.warmups = &warmup;
    digits.warmup_count = 1;
    second.sequences = &sequences;
    for (int step = 0; step < 3; step++) {
        int code = step == 0   ? lumen_load_model(server, &digits, 0, &index)
                   : step == 1 ? lumen_load_model(server, &second, 0, &index)
                               : lumen_unload_model(server, "second");
        CHECK(code <= 0 && (code == 0 || lumen_last_error()[0] != '\0'));
        CHECK(code || step == 2 || index == (uint32_t)step);
    }
}

/* false: the connection ended instead, or nothing came, as where the kernel accepted a connection
 * for a thread that has given up since: that one stays open until its ring is closed. */
static bool ask(lumen_server *server, const void *address, socklen_t bytes) {
    uint8_t request[LM_NATIVE_REQUEST_BYTES + PIXELS * 4] = "LMN1\1";
    uint8_t answer[LM_NATIVE_REPLY_BYTES + CLASSES * 4] = {0};
    const uint32_t payload = PIXELS * 4;
    memcpy(request + 16, &payload, 4);
    const struct timeval look = {.tv_usec = LOOK_US};
    size_t got = 0;
    int fd = socket(((const struct sockaddr *)address)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look) == 0);
    if (connect(fd, address, bytes) == 0 &&
        send(fd, request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request) {
        for (int looks = 0; got < sizeof answer && looks < LOOKS_MAX;) {
            ssize_t more = recv(fd, answer + got, sizeof answer - got, 0);
            if (more > 0)
                got += (size_t)more;
            else if (more == 0 || errno != EAGAIN || lumen_wait(server, 0) == 0)
                break;
            else
                looks++;
        }
    }
    /* Where one I/O thread has given up, the other may say for a moment that the server ends. */
    const bool ends = got >= 6 && answer[4] == LM_STATUS_SHUTTING_DOWN;
    CHECK(got < 6 || memcmp(answer, "LMR1", 4) == 0);
    CHECK(got < 6 || ends || (answer[4] == 0 && answer[5] == 0));
    close(fd);
    return got == sizeof answer && !ends;
}

/* Asks once, and both I/O threads by the unix socket. */
static bool is_answered(lumen_server *server) {
    lumen_info info;
    CHECK(lumen_get_info(server, &info) == 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)info.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return ask(server, &address, sizeof address) &&
           ask(server, &unix_address, sizeof unix_address) &&
           ask(server, &unix_address, sizeof unix_address);
}

/* One start with a fault. true: it met its fault. */
static bool run(enum startup_kind kind, uint32_t n, bool all) {
    lumen_server *server = NULL;
    bool cached = kind == STARTUP_CALL && n % 2;
    struct baseline before = look_around();
    if (n % 4 == 1) unlink(cache_path);
    lm_error(0, "%s", "");
    startup_arm(kind, n, all);
    int code = open_server(&server);
    CHECK(code == 0 ? server != NULL : server == NULL);
    if (!code) code = add_model(server, cached);
    if (!code) code = lumen_start(server);
    if (!code) change_models(server, cached);
    const char *failed = startup_disarm();
    CHECK(code <= 0 && (code == 0 || lumen_last_error()[0] != '\0'));
    CHECK(code == 0 || failed);
    if (startup_verbose)
        printf("%-10s %3u %-32s %s\n", startup_kind_name(kind), n, failed ? failed : "-",
               code ? lumen_last_error() : "starts all the same");
    /* What succeeded must work, or end where a thread that runs already cannot go on. */
    CHECK(code || is_answered(server) || lumen_wait(server, 10000) == 0);
    lumen_close(server);
    struct baseline after = look_around();
    check_same(&before, &after);
    CHECK(access(unix_address.sun_path, F_OK) != 0);
    CHECK(n % LEAK_CHECK_EVERY || !__lsan_do_recoverable_leak_check());
    return failed != NULL;
}

/* Until a start gets by. Returns how many faults there were. */
static uint32_t run_all(enum startup_kind kind, bool all) {
    uint32_t n = 1;
    for (; n < 2000; n++) {
        CHECK_AT("startup %s %u%s", startup_kind_name(kind), n, all ? " all" : "");
        check_watchdog(60, check_where);
        if (!run(kind, n, all)) return n - 1;
    }
    CHECK(!"no end of faults");
    return n;
}

int main(int argc, char **argv) {
    const char *library = getenv("LUMEN_ORT"), *root = getenv("LUMEN_ROOT");
    if (!library || access(library, R_OK) != 0)
        check_skip("startup", "LUMEN_ORT does not name libonnxruntime.so");
    snprintf(model_path, sizeof model_path, "%s/lumen_uring/models/digits.onnx",
             root ? root : "../..");
    if (access(model_path, R_OK) != 0) check_skip("startup", "LUMEN_ROOT has no digits.onnx");
    const char *directory = check_temporary_directory();
    snprintf(cache_path, sizeof cache_path, "%s/digits.ort", directory);
    snprintf(csv_path, sizeof csv_path, "%s/trace.csv", directory);
    snprintf(unix_address.sun_path, sizeof unix_address.sun_path, "%.90s/lumen.sock", directory);
    startup_verbose = argc > 2;
    if (argc > 1 && strcmp(argv[1], startup_kind_name(STARTUP_ALLOCATION)) != 0 &&
        strcmp(argv[1], startup_kind_name(STARTUP_CALL)) != 0) {
        fprintf(stderr, "startup: expected allocation or call, found %s\n", argv[1]);
        return 2;
    }
    /* Fewer descriptors than connections: there is more to set up. */
    const struct rlimit few = {DESCRIPTORS, DESCRIPTORS};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    /* ONNX Runtime keeps some of what its first environment needs. */
    CHECK(!run(STARTUP_CALL, 1000000, false) && !run(STARTUP_ALLOCATION, 1000000, false));
    for (enum startup_kind kind = STARTUP_ALLOCATION; kind <= STARTUP_CALL; kind++) {
        if (argc > 1 && strcmp(argv[1], startup_kind_name(kind)) != 0) continue;
        if (argc > 2) {
            run(kind, (uint32_t)atoi(argv[2]), argc > 3);
            return 0;
        }
        uint32_t count = run_all(kind, false);
        run_all(kind, true);
        printf("startup: %u faults of the kind %s, one by one, and all from each on\n", count,
               startup_kind_name(kind));
    }
    check_watchdog(0, "");
    return check_finish("startup");
}
