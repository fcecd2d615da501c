/* test_stats.c: the statistics file, read as a stranger would: by its header and its table alone.
 * The ports are numbers that no server can have, so that a running one is left alone. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/error.h"
#include "check.h"
#include "parts/stats.h"

enum { IO_COUNT = 2, WORKER_COUNT = 3, BLOCK_COUNT = IO_COUNT + WORKER_COUNT, MODEL_COUNT = 3 };

/* The last is as long as a name may be. */
static const char *const names[MODEL_COUNT] = {
    "digits", "a", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};

static uint32_t port;
static char path[64];

/* The file as bytes; freed by the caller. */
static uint8_t *read_whole(size_t *bytes_out) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &status) == 0);
    *bytes_out = (size_t)status.st_size;
    uint8_t *bytes = malloc(*bytes_out);
    CHECK(bytes && read(fd, bytes, *bytes_out) == (ssize_t)*bytes_out);
    close(fd);
    return bytes;
}

static lumen_stats_header header_of(const uint8_t *file) {
    lumen_stats_header header;
    memcpy(&header, file, sizeof header);
    return header;
}

static lumen_stats_field field_of(const uint8_t *file, uint32_t at) {
    lumen_stats_field field;
    memcpy(&field, file + header_of(file).fields_offset + at * sizeof field, sizeof field);
    return field;
}

static uint64_t word(const uint8_t *file, uint32_t block, uint32_t offset) {
    lumen_stats_header header = header_of(file);
    uint64_t value;
    memcpy(&value, file + header.blocks_offset + (uint64_t)block * header.block_bytes + offset,
           sizeof value);
    return value;
}

/* The field of that name for blocks of that role. */
static lumen_stats_field find(const uint8_t *file, const char *name, uint32_t role) {
    lumen_stats_field field = {0};
    for (uint32_t f = 0; f < header_of(file).field_count; f++) {
        field = field_of(file, f);
        if (strcmp(field.name, name) == 0 && (field.role == role || field.role == LUMEN_ROLE_BOTH))
            return field;
    }
    CHECK_AT("%s of role %u", name, role);
    CHECK(!"the field is in the table");
    return field;
}

static uint64_t realtime_ns(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void header_is_true(const uint8_t *file, size_t bytes) {
    lumen_stats_header header = header_of(file);
    CHECK(memcmp(header.magic, LUMEN_STATS_MAGIC, sizeof header.magic) == 0);
    CHECK(header.version == LUMEN_STATS_VERSION && header.file_bytes == bytes);
    CHECK(header.fields_offset >= sizeof header && header.fields_offset % 8 == 0);
    CHECK(header.blocks_offset >=
          header.fields_offset + header.field_count * sizeof(lumen_stats_field));
    CHECK(header.blocks_offset + (uint64_t)header.block_count * header.block_bytes <= bytes);
    CHECK(header.blocks_offset % LM_CACHE_LINE == 0 && header.block_bytes % LM_CACHE_LINE == 0);
    CHECK(header.block_count == BLOCK_COUNT && header.port == port &&
          header.pid == (uint32_t)getpid());
    CHECK(header.histogram_buckets == LM_HISTOGRAM_BUCKETS && header.state == LUMEN_STATE_STARTING);
    CHECK(header.histogram_sub_bits == LM_HISTOGRAM_SUB_BITS &&
          header.histogram_unit_bits == LM_HISTOGRAM_UNIT_BITS);
    CHECK(header.model_histogram_buckets == LM_MODEL_HISTOGRAM_BUCKETS &&
          header.model_histogram_sub_bits == LM_MODEL_HISTOGRAM_SUB_BITS &&
          header.model_histogram_unit_bits == LM_MODEL_HISTOGRAM_UNIT_BITS);
    CHECK(header.model_stride % 8 == 0);
}

static void names_are_there(const uint8_t *file) {
    lumen_stats_header header = header_of(file);
    CHECK(header.model_count == MODEL_COUNT && header.model_name_bytes == 256);
    CHECK(header.models_offset >=
          header.fields_offset + header.field_count * sizeof(lumen_stats_field));
    CHECK(header.models_offset + (uint64_t)header.model_count * header.model_name_bytes <=
          header.blocks_offset);
    for (uint32_t m = 0; m < MODEL_COUNT; m++) {
        const uint8_t *name = file + header.models_offset + (size_t)m * header.model_name_bytes;
        size_t length = strlen(names[m]);
        CHECK_AT("model %u", m);
        CHECK(memcmp(name, names[m], length) == 0);
        for (size_t i = length; i < header.model_name_bytes; i++) CHECK(name[i] == 0);
    }
}

static void blocks_say_whose(const uint8_t *file) {
    lumen_stats_header header = header_of(file);
    for (uint32_t b = 0; b < BLOCK_COUNT; b++) {
        lumen_stats_block head;
        memcpy(&head, file + header.blocks_offset + (uint64_t)b * header.block_bytes, sizeof head);
        CHECK_AT("block %u", b);
        CHECK(head.role == (b < IO_COUNT ? LUMEN_ROLE_IO : LUMEN_ROLE_WORKER));
        CHECK(head.index == (b < IO_COUNT ? b : b - IO_COUNT) && head.cpu == -1);
    }
}

/* Within the blocks of one role, no word belongs to two fields, and none to the block's head. */
static void fields_lie_apart(const uint8_t *file, uint32_t role) {
    lumen_stats_header header = header_of(file);
    char *owner = calloc(header.block_bytes / 8, 1);
    CHECK(owner != NULL);
    memset(owner, 1, (sizeof(lumen_stats_block) + 7) / 8);
    for (uint32_t f = 0; f < header.field_count; f++) {
        lumen_stats_field field = field_of(file, f);
        CHECK(memchr(field.name, '\0', sizeof field.name) && field.name[0]);
        CHECK_AT("role %u, field %s", role, field.name);
        CHECK(field.role == LUMEN_ROLE_IO || field.role == LUMEN_ROLE_WORKER ||
              field.role == LUMEN_ROLE_BOTH);
        CHECK(field.kind <= LUMEN_FIELD_MODEL_GAUGE && field.offset % 8 == 0);
        uint32_t times = 1;
        if (field.kind == LUMEN_FIELD_HISTOGRAM) {
            CHECK(field.count == header.histogram_buckets);
        } else if (field.kind == LUMEN_FIELD_MODEL_HISTOGRAM) {
            CHECK(field.count == 1 + header.model_histogram_buckets);
            times = header.model_count;
        } else {
            bool of_models = field.kind >= LUMEN_FIELD_MODEL_COUNTER;
            CHECK(of_models == (strncmp(field.name, "model_", 6) == 0) && field.count == 1);
            if (of_models) times = header.model_count;
        }
        uint64_t last = (uint64_t)(times - 1) * header.model_stride;
        CHECK(field.offset + last + 8ull * field.count <= header.block_bytes);
        if (field.role != role && field.role != LUMEN_ROLE_BOTH) continue;
        for (uint32_t t = 0; t < times; t++) {
            uint32_t first = (field.offset + t * header.model_stride) / 8;
            for (uint32_t w = 0; w < field.count; w++) CHECK(!owner[first + w]++);
        }
        CHECK(find(file, field.name, role).offset == field.offset); /* the name is given once */
    }
    free(owner);
}

/* What a thread counts arrives in the field of that name, in its block and in no other. */
static void counted_where_said(struct lm_stats *stats) {
    struct lm_stats_block *io = lm_stats_io_block(stats, 1),
                          *worker = lm_stats_worker_block(stats, 2);
    CHECK((uintptr_t)io % LM_CACHE_LINE == 0 && (uintptr_t)worker % LM_CACHE_LINE == 0);
    lm_add_single_writer_u64(&io->io.requests, 5);
    lm_add_single_writer_u64(&io->io.ring_overflows, 6);
    lm_add_single_writer_u64(&worker->worker.requests_ok, 7);
    lm_add_single_writer_u64(&worker->worker.sleeps, 8);
    lm_add_single_writer_u64(&io->models[1].io.model_refused, 9);
    lm_add_single_writer_u64(&worker->models[0].worker.model_ok, 10);
    lm_store_relaxed_u64(&worker->models[2].worker.model_last_ms, 11);
    lm_histogram_record(&worker->stages[LM_STAGE_RECEIVE], 0);
    lm_histogram_record(&worker->stages[LM_STAGE_TOTAL], 1500);
    lm_model_histogram_record(&worker->models[2].stages[LM_MODEL_STAGE_INFER], 20000);
    lm_stats_set_state(stats, LUMEN_STATE_READY);

    size_t bytes;
    uint8_t *file = read_whole(&bytes);
    CHECK(header_of(file).state == LUMEN_STATE_READY);
    CHECK(word(file, 1, find(file, "requests", LUMEN_ROLE_IO).offset) == 5);
    CHECK(word(file, 1, find(file, "ring_overflows", LUMEN_ROLE_IO).offset) == 6);
    CHECK(word(file, IO_COUNT + 2, find(file, "requests_ok", LUMEN_ROLE_WORKER).offset) == 7);
    CHECK(word(file, IO_COUNT + 2, find(file, "sleeps", LUMEN_ROLE_WORKER).offset) == 8);
    const uint32_t stride = header_of(file).model_stride;
    CHECK(word(file, 1, find(file, "model_refused", LUMEN_ROLE_IO).offset + stride) == 9);
    CHECK(word(file, IO_COUNT + 2, find(file, "model_ok", LUMEN_ROLE_WORKER).offset) == 10);
    CHECK(word(file, IO_COUNT + 2,
               find(file, "model_last_ms", LUMEN_ROLE_WORKER).offset + 2 * stride) == 11);
    CHECK(word(file, IO_COUNT + 2, find(file, "receive", LUMEN_ROLE_WORKER).offset) == 1);
    CHECK(word(file, IO_COUNT + 2,
               find(file, "total", LUMEN_ROLE_WORKER).offset + 8 * lm_histogram_bucket(1500)) == 1);
    uint64_t of_model = find(file, "model_infer", LUMEN_ROLE_WORKER).offset + 2ull * stride;
    CHECK(word(file, IO_COUNT + 2, (uint32_t)of_model) == 20000); /* the sum, then the buckets */
    CHECK(word(file, IO_COUNT + 2, (uint32_t)of_model + 8 + 8 * lm_model_histogram_bucket(20000)) ==
          1);
    uint64_t sum = 0;
    for (uint32_t b = 0; b < BLOCK_COUNT; b++) {
        for (uint32_t at = sizeof(lumen_stats_block); at < header_of(file).block_bytes; at += 8)
            sum += word(file, b, at);
    }
    CHECK(sum == 5 + 6 + 7 + 8 + 9 + 10 + 11 + 1 + 1 + 20000 + 1);
    free(file);
}

/* Each stage arrives under its own name: as many values of each as its place in this list says. */
static void stages_have_their_names(struct lm_stats *stats) {
    static const char *const stages[LM_STAGE_COUNT] = {[LM_STAGE_RECEIVE] = "receive",
                                                       [LM_STAGE_QUEUE] = "queue",
                                                       [LM_STAGE_PREPROCESS] = "preprocess",
                                                       [LM_STAGE_INFER] = "infer",
                                                       [LM_STAGE_SEND] = "send",
                                                       [LM_STAGE_TOTAL] = "total"};
    static const char *const of_models[LM_MODEL_STAGE_COUNT] = {
        [LM_MODEL_STAGE_QUEUE] = "model_queue",
        [LM_MODEL_STAGE_INFER] = "model_infer",
        [LM_MODEL_STAGE_TOTAL] = "model_total"};
    struct lm_stats_block *io = lm_stats_io_block(stats, 0);
    size_t bytes;
    for (uint32_t s = 0; s < LM_STAGE_COUNT; s++)
        for (uint32_t n = 0; n <= s; n++) lm_histogram_record(&io->stages[s], 100);
    for (uint32_t s = 0; s < LM_MODEL_STAGE_COUNT; s++)
        lm_model_histogram_record(&io->models[1].stages[s], 1000 + s);
    uint8_t *file = read_whole(&bytes);
    for (uint32_t s = 0; s < LM_STAGE_COUNT; s++) {
        lumen_stats_field field = find(file, stages[s], LUMEN_ROLE_IO);
        CHECK_AT("stage %s", stages[s]);
        CHECK(field.kind == LUMEN_FIELD_HISTOGRAM && field.role == LUMEN_ROLE_BOTH);
        CHECK(word(file, 0, field.offset + 8 * lm_histogram_bucket(100)) == s + 1);
    }
    for (uint32_t s = 0; s < LM_MODEL_STAGE_COUNT; s++) {
        lumen_stats_field field = find(file, of_models[s], LUMEN_ROLE_IO);
        CHECK_AT("stage %s", of_models[s]);
        CHECK(field.kind == LUMEN_FIELD_MODEL_HISTOGRAM && field.role == LUMEN_ROLE_BOTH);
        CHECK(word(file, 0, field.offset + header_of(file).model_stride) == 1000 + s);
    }
    free(file);
}

static void new_file(void) {
    struct lm_stats stats;
    struct stat status;
    size_t bytes;
    mode_t before = umask(0);
    uint64_t before_ns = realtime_ns();
    CHECK(lm_stats_open(&stats, port, IO_COUNT, WORKER_COUNT, 0, names, MODEL_COUNT) == 0);
    umask(before);
    CHECK(strcmp(stats.path, path) == 0);
    CHECK(stat(path, &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & 07777) == 0600);
    uint8_t *file = read_whole(&bytes);
    header_is_true(file, bytes);
    uint64_t start_ns = header_of(file).start_realtime_ns;
    CHECK(start_ns >= before_ns && start_ns <= realtime_ns());
    names_are_there(file);
    blocks_say_whose(file);
    fields_lie_apart(file, LUMEN_ROLE_IO);
    fields_lie_apart(file, LUMEN_ROLE_WORKER);
    free(file);
    counted_where_said(&stats);
    stages_have_their_names(&stats);
    lm_stats_close(&stats);
    CHECK(access(path, F_OK) != 0);
    lm_stats_close(&stats); /* closing twice does nothing */
}

/* An old file of that name is replaced, not written to; a link is not followed. */
static void stale_file(void) {
    struct lm_stats stats;
    struct stat before, after;
    char kept[8] = {0}, target[128];
    check_write_file(path, "stale", 5);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && stat(path, &before) == 0);
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    CHECK(stat(path, &after) == 0 && before.st_ino != after.st_ino &&
          (after.st_mode & 07777) == 0600);
    CHECK(read(fd, kept, sizeof kept) == 5 && strcmp(kept, "stale") == 0);
    close(fd);
    lm_stats_close(&stats);

    snprintf(target, sizeof target, "%s/target", check_temporary_directory());
    check_write_file(target, "mine", 4);
    CHECK(symlink(target, path) == 0);
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    CHECK(lstat(path, &after) == 0 && S_ISREG(after.st_mode));
    CHECK(stat(target, &after) == 0 && after.st_size == 4);
    lm_stats_close(&stats);

    check_watchdog(60, "the opening of a pipe in place of the file");
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    CHECK(lstat(path, &after) == 0 && S_ISREG(after.st_mode) && strcmp(stats.path, path) == 0);
    lm_stats_close(&stats);
    check_watchdog(0, "");
}

/* A lock on the file of that name decides whether it is stale, whatever process it names: ids come
 * again, and process 1 of a container is always there. */
static void neighbour(uint32_t pid, uint32_t state, bool is_held) {
    bool in_use = is_held && state != LUMEN_STATE_STOPPED;
    struct lm_stats stats;
    struct stat before, after;
    char own[96];
    lumen_stats_header header = {
        .magic = {'L', 'M', 'N', 'S', 'T', 'A', 'T', '1'}, .pid = pid, .state = state};
    CHECK_AT("a file of process %u, state %u, held %d", pid, state, is_held);
    check_write_file(path, &header, sizeof header);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fd >= 0 && (!is_held || fcntl(fd, F_OFD_SETLK, &lock) == 0));
    CHECK(stat(path, &before) == 0);
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    snprintf(own, sizeof own, "%s-%d", path, (int)getpid());
    CHECK(strcmp(stats.path, in_use ? own : path) == 0);
    CHECK(stat(path, &after) == 0 && (after.st_ino == before.st_ino) == in_use);
    CHECK(stat(stats.path, &after) == 0 && (after.st_mode & 07777) == 0600);
    lm_stats_close(&stats);
    CHECK((access(path, F_OK) == 0) == in_use && access(own, F_OK) != 0);
    if (in_use) CHECK(unlink(path) == 0);
    close(fd);
}

static void neighbours(void) {
    pid_t ended = fork();
    CHECK(ended >= 0);
    if (ended == 0) _exit(0);
    CHECK(waitpid(ended, NULL, 0) == ended);
    neighbour((uint32_t)getppid(), LUMEN_STATE_READY, true);
    neighbour((uint32_t)getppid(), LUMEN_STATE_STARTING, true);
    neighbour((uint32_t)getppid(), LUMEN_STATE_STOPPED, true);
    neighbour((uint32_t)ended, LUMEN_STATE_READY, true);
    neighbour((uint32_t)getppid(), LUMEN_STATE_READY, false);
    neighbour((uint32_t)getpid(), LUMEN_STATE_READY, false);
    neighbour(1, LUMEN_STATE_READY, false);
}

static bool is_locked(const char *name) {
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0);
    close(fd); /* which must not end the lock of somebody else in this process */
    return lock.l_type != F_UNLCK;
}

/* From open to close the file is locked; a killed server's is not. */
static void held_while_it_is_open(void) {
    struct lm_stats stats;
    CHECK_AT("a lock");
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    CHECK(is_locked(path) && is_locked(path) && !stats.note[0]);
    pid_t killed = fork();
    CHECK(killed >= 0);
    if (killed == 0) {
        struct lm_stats second; /* this one has the name of the process */
        bool opened = lm_stats_open(&second, port, 1, 1, 0, names, MODEL_COUNT) == 0;
        _exit(opened && is_locked(second.path) && strstr(second.note, "another server's") ? 0 : 1);
    }
    int status;
    CHECK(waitpid(killed, &status, 0) == killed && WIFEXITED(status) && !WEXITSTATUS(status));
    char left[96];
    snprintf(left, sizeof left, "%s-%d", path, (int)killed);
    CHECK(!is_locked(left) && unlink(left) == 0);
    lm_stats_close(&stats);
}

static int lowest_free_descriptor(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && close(fd) == 0);
    return fd;
}

/* The file of another server, which took the name since, outlives our close. */
static void foreign_file(void) {
    struct lm_stats stats;
    int free_descriptor = lowest_free_descriptor();
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    lumen_stats_header foreign = *stats.header;
    CHECK(unlink(path) == 0);
    check_write_file(path, &foreign, sizeof foreign);
    lm_stats_close(&stats);
    CHECK(access(path, F_OK) == 0 && lowest_free_descriptor() == free_descriptor);
    CHECK(unlink(path) == 0);
}

/* The name is somebody else's for good: the figures go to another one, and a note says where. */
static void no_name(void) {
    struct lm_stats stats;
    char own[96];
    snprintf(own, sizeof own, "%s-%d", path, (int)getpid());
    CHECK_AT("a name that is taken");
    CHECK(mkdir(path, 0700) == 0);
    check_write_file(own, "stale", 5); /* of a process that had this number */
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    CHECK(strcmp(stats.path, own) == 0 && access(own, F_OK) == 0 && is_locked(own));
    CHECK(strstr(stats.note, own) && strstr(stats.note, "cannot be replaced"));
    lm_stats_close(&stats);
    CHECK(access(own, F_OK) != 0);
}

/* Where no file can be made, counting goes on in memory that this process can read by a path. */
static void no_file(void) {
    struct lm_stats stats;
    char own[96], magic[8];
    snprintf(own, sizeof own, "%s-%d", path, (int)getpid());
    CHECK_AT("no file");
    CHECK(mkdir(own, 0700) == 0);
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    CHECK(strstr(stats.path, "/proc/") && strstr(stats.note, "no statistics file"));
    CHECK(strstr(stats.note, strerror(EEXIST)) && is_locked(stats.path));
    int fd = open(stats.path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, magic, 8) == 8 && memcmp(magic, LUMEN_STATS_MAGIC, 8) == 0);
    close(fd);
    lm_add_single_writer_u64(&lm_stats_worker_block(&stats, 0)->worker.runs, 1);
    lm_stats_close(&stats);
    CHECK(rmdir(own) == 0 && rmdir(path) == 0);
}

/* No room for the file, nor for its like in memory: a note says why, and nothing is left behind. */
static void no_room(void) {
    struct lm_stats stats;
    struct rlimit before, small;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = (struct rlimit){.rlim_cur = 4096, .rlim_max = before.rlim_max};
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &small) == 0);
    errno = 0;
    int code = lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_AT("no room");
    CHECK(code == 0 && access(path, F_OK) != 0 && stats.path[0] == '\0');
    CHECK(strstr(stats.note, strerror(EFBIG)));
    lm_add_single_writer_u64(&lm_stats_worker_block(&stats, 0)->worker.runs, 1);
    lm_stats_close(&stats);
}

/* Counts stay with the model that they are of, whatever place it has in the list; one that needs
 * the place of a model which is no longer in it begins at 0. */
static void experts_keep_their_places(void) {
    struct lm_stats stats;
    uint8_t places[LUMEN_EXPERTS_MAX];
    uint32_t many[LUMEN_EXPERTS_MAX];
    CHECK_AT("experts");
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    lm_atomic_u64 *counts = lm_stats_worker_block(&stats, 0)->models[1].worker.model_experts;
    lm_stats_name_experts(&stats, 1, (uint32_t[]){4, 2}, 2, places);
    CHECK(places[0] == 0 && places[1] == 1);
    lm_add_single_writer_u64(&counts[places[0]], 7);
    lm_stats_name_experts(&stats, 1, (uint32_t[]){3, 2, 4}, 3, places);
    CHECK(places[0] == 2 && places[1] == 1 && places[2] == 0 &&
          lm_load_relaxed_u64(&counts[0]) == 7);
    lm_stats_name_experts(&stats, 1, (uint32_t[]){2, 2}, 2, places);
    CHECK(places[0] == 1 && places[1] == 1 && lm_load_relaxed_u64(&counts[0]) == 7);
    for (uint32_t e = 0; e < LUMEN_EXPERTS_MAX; e++) many[e] = 10 + e;
    many[5] = 3;
    lm_stats_name_experts(&stats, 1, many, LUMEN_EXPERTS_MAX, places);
    uint32_t seen = 0;
    for (uint32_t e = 0; e < LUMEN_EXPERTS_MAX; e++) seen |= 1u << places[e];
    CHECK(seen == (1u << LUMEN_EXPERTS_MAX) - 1 && places[5] == 2 &&
          lm_load_relaxed_u64(&counts[0]) == 0);
    lm_stats_close(&stats);
}

/* One that comes later is seen once it is added, whole, behind the others, with its number and room
 * for all models. */
static void another_worker(void) {
    struct lm_stats stats;
    struct lm_stats_block *block = NULL;
    size_t bytes, more;
    CHECK_AT("another worker");
    CHECK(lm_stats_open(&stats, port, 1, 2, 1, names, MODEL_COUNT) == 0);
    uint8_t *before = read_whole(&bytes);
    CHECK(header_of(before).block_count == 3);
    CHECK(bytes == header_of(before).blocks_offset + 4 * header_of(before).block_bytes);
    for (int times = 0; times < 2; times++) /* the first one could not be set up */
        CHECK(lm_stats_hold_worker(&stats, 7, &block) == 0 && block->head.index == 7);
    CHECK(stats.header->block_count == 3);
    lm_stats_show_worker(&stats);
    CHECK(block == lm_stats_worker_block(&stats, 2) && block->head.role == LUMEN_ROLE_WORKER);
    CHECK(block->head.cpu == -1 && block->head.tid == 0);
    lm_add_single_writer_u64(&block->models[MODEL_COUNT - 1].worker.model_ok, 5);
    uint8_t *after = read_whole(&more);
    CHECK(header_of(after).block_count == 4 && more == bytes);
    free(before);
    free(after);
    struct stat status;
    CHECK(stat(path, &status) == 0);
    const uint64_t held = header_of((uint8_t *)stats.memory.base).blocks_offset +
                          4 * offsetof(struct lm_stats_block, models[MODEL_COUNT]);
    CHECK((uint64_t)status.st_blocks * 512 >= held); /* no page is missing later */
    lm_stats_close(&stats);
}

/* A model that takes the place of one that has gone: it has none of its experts, and nobody has it
 * as an expert. */
static void another_model(void) {
    struct lm_stats stats;
    CHECK_AT("another model");
    CHECK(lm_stats_open(&stats, port, 1, 1, 0, names, MODEL_COUNT) == 0);
    uint32_t (*experts)[LUMEN_EXPERTS_MAX] =
        (void *)((uint8_t *)stats.memory.base + stats.header->experts_offset);
    uint8_t places[LUMEN_EXPERTS_MAX];
    lm_stats_name_experts(&stats, 0, (uint32_t[]){2, 1}, 2, places);
    lm_stats_name_experts(&stats, 1, (uint32_t[]){0}, 1, places);
    lm_stats_name_experts(&stats, 2, (uint32_t[]){2, 0}, 2, places);
    lm_stats_rename_model(&stats, 1, "new");
    CHECK(lm_stats_find_model(&stats, "new") == 1);
    CHECK(experts[0][1] == 0 && experts[1][0] == 0);
    CHECK(experts[0][0] == 2 + 1 && experts[2][1] == 0 + 1); /* the other models keep theirs */
    lm_stats_close(&stats);
}

/* A failed test leaves no file behind. */
static void clean_up(void) {
    remove(path);
}

int main(void) {
    port = 1000000 + (uint32_t)getpid();
    snprintf(path, sizeof path, "/dev/shm/lumen-%u", port);
    if (access("/dev/shm", W_OK) != 0)
        check_skip("test_stats", "/dev/shm is not there or not writable");
    CHECK(atexit(clean_up) == 0);
    new_file();
    experts_keep_their_places();
    stale_file();
    neighbours();
    held_while_it_is_open();
    foreign_file();
    no_name();
    no_file();
    no_room();
    another_worker();
    another_model();
    return check_finish("test_stats");
}
