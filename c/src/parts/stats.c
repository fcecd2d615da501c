/* stats.c: creates and describes the statistics file; see stats.h. Control thread only. */
#include "parts/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"

#define IO_FIELD(field, field_kind)                                                            \
    {#field, LUMEN_FIELD_##field_kind, (uint32_t)offsetof(struct lm_stats_block, io.field), 1, \
     LUMEN_ROLE_IO},
#define WORKER_FIELD(field, field_kind)                                                            \
    {#field, LUMEN_FIELD_##field_kind, (uint32_t)offsetof(struct lm_stats_block, worker.field), 1, \
     LUMEN_ROLE_WORKER},
#define IO_MODEL_FIELD(field, field_kind)                                                   \
    {#field, LUMEN_FIELD_##field_kind, (uint32_t)offsetof(struct lm_stats_block, io.field), \
     LUMEN_MODELS_MAX, LUMEN_ROLE_IO},
#define MODEL_FIELD(field, field_kind)                                                          \
    {#field, LUMEN_FIELD_##field_kind, (uint32_t)offsetof(struct lm_stats_block, worker.field), \
     LUMEN_MODELS_MAX, LUMEN_ROLE_WORKER},
#define STAGE_FIELD(name, stage)                                                            \
    {name, LUMEN_FIELD_HISTOGRAM, (uint32_t)offsetof(struct lm_stats_block, stages[stage]), \
     LM_HISTOGRAM_BUCKETS, LUMEN_ROLE_BOTH},
#define MODEL_STAGE_FIELD(name, stage)                                                            \
    {name, LUMEN_FIELD_MODEL_HISTOGRAM,                                                           \
     (uint32_t)offsetof(struct lm_stats_block, models[0][stage]), 1 + LM_MODEL_HISTOGRAM_BUCKETS, \
     LUMEN_ROLE_BOTH},

static const lumen_stats_field fields[] = {
    LM_IO_FIELDS(IO_FIELD) LM_WORKER_FIELDS(WORKER_FIELD) LM_IO_MODEL_FIELDS(IO_MODEL_FIELD)
        LM_MODEL_FIELDS(MODEL_FIELD) STAGE_FIELD("receive", LM_STAGE_RECEIVE)
            STAGE_FIELD("queue", LM_STAGE_QUEUE) STAGE_FIELD("preprocess", LM_STAGE_PREPROCESS)
                STAGE_FIELD("infer", LM_STAGE_INFER) STAGE_FIELD("send", LM_STAGE_SEND)
                    STAGE_FIELD("total", LM_STAGE_TOTAL)
                        MODEL_STAGE_FIELD("model_queue", LM_MODEL_STAGE_QUEUE)
                            MODEL_STAGE_FIELD("model_infer", LM_MODEL_STAGE_INFER)
                                MODEL_STAGE_FIELD("model_total", LM_MODEL_STAGE_TOTAL)};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

_Static_assert(sizeof(struct lm_stats_block) % LM_CACHE_LINE == 0,
               "blocks never share a cache line");
_Static_assert(offsetof(struct lm_stats_block, io) % 8 == 0, "counters are aligned words");

/* Whether a file of that name belongs to a process that still runs. */
static bool is_in_use(const char *path) {
    lumen_stats_header seen = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    bool whole = read(fd, &seen, sizeof seen) == (ssize_t)sizeof seen;
    close(fd);
    bool ours = whole && memcmp(seen.magic, LUMEN_STATS_MAGIC, sizeof seen.magic) == 0;
    return ours && seen.state != LUMEN_STATE_STOPPED &&
           (kill((pid_t)seen.pid, 0) == 0 || errno == EPERM);
}

/* Maps the file, or private memory when /dev/shm is not there. */
static int map_file(struct lm_stats *stats, uint32_t port, size_t bytes) {
    /* The same port on another address may be somebody else's. */
    if (is_in_use(stats->path)) {
        snprintf(stats->path, sizeof stats->path, "/dev/shm/lumen-%u-%d", port, (int)getpid());
    }
    unlink(stats->path); /* of a server that was killed: its readers keep their mapping */
    int fd = open(stats->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        stats->path[0] = '\0';
        return lm_mapping_open(&stats->memory, bytes);
    }
    int code = 0;
    void *base = MAP_FAILED;
    int refused = posix_fallocate(fd, 0, (off_t)bytes); /* returns its errno */
    if (refused == 0) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    }
    if (base == MAP_FAILED) {
        code = lm_error_errno(LUMEN_E_NOMEM, refused ? refused : errno,
                              "cannot map %zu bytes of %s", bytes, stats->path);
        unlink(stats->path);
    } else {
        stats->memory = (struct lm_mapping){.base = base, .bytes = bytes};
    }
    close(fd);
    return code;
}

static struct lm_stats_block *block_at(struct lm_stats *stats, uint32_t index) {
    return (struct lm_stats_block *)(void *)(stats->blocks + (size_t)index * stats->block_bytes);
}

int lm_stats_open(struct lm_stats *stats, uint32_t port, uint32_t io_count, uint32_t worker_count,
                  const char *const *model_names, uint32_t model_count) {
    memset(stats, 0, sizeof *stats);
    snprintf(stats->path, sizeof stats->path, "/dev/shm/lumen-%u", port);
    uint64_t fields_offset = lm_align_up(sizeof(lumen_stats_header), LM_CACHE_LINE);
    uint64_t models_offset = lm_align_up(fields_offset + sizeof fields, LM_CACHE_LINE);
    uint64_t blocks_offset =
        lm_align_up(models_offset + (uint64_t)model_count * LM_NAME_BYTES_MAX, 4096);
    uint32_t block_count = io_count + worker_count;
    uint64_t block_bytes =
        lm_align_up(offsetof(struct lm_stats_block, models[model_count]), LM_CACHE_LINE);
    size_t bytes = blocks_offset + (size_t)block_count * block_bytes;
    int code = map_file(stats, port, bytes);
    if (code) return code;

    uint8_t *base = stats->memory.base;
    stats->io_count = io_count;
    stats->header = (lumen_stats_header *)base;
    stats->block_bytes = (uint32_t)block_bytes;
    stats->blocks = base + blocks_offset;
    memcpy(base + fields_offset, fields, sizeof fields);
    for (uint32_t m = 0; m < model_count; m++) {
        uint8_t *name = base + models_offset + (size_t)m * LM_NAME_BYTES_MAX; /* zeroed memory */
        memcpy(name, model_names[m], strnlen(model_names[m], LM_NAME_BYTES_MAX - 1));
    }
    for (uint32_t b = 0; b < block_count; b++) {
        int is_io = b < io_count;
        block_at(stats, b)->head =
            (lumen_stats_block){.role = is_io ? LUMEN_ROLE_IO : LUMEN_ROLE_WORKER,
                                .index = is_io ? b : b - io_count,
                                .cpu = -1};
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *stats->header = (lumen_stats_header){
        .version = LUMEN_STATS_VERSION,
        .field_count = FIELD_COUNT,
        .fields_offset = fields_offset,
        .blocks_offset = blocks_offset,
        .file_bytes = bytes,
        .block_count = block_count,
        .block_bytes = stats->block_bytes,
        .histogram_buckets = LM_HISTOGRAM_BUCKETS,
        .histogram_sub_bits = LM_HISTOGRAM_SUB_BITS,
        .histogram_unit_bits = LM_HISTOGRAM_UNIT_BITS,
        .pid = (uint32_t)getpid(),
        .state = LUMEN_STATE_STARTING,
        .port = port,
        .models_offset = models_offset,
        .model_count = model_count,
        .model_name_bytes = LM_NAME_BYTES_MAX,
        .model_histogram_buckets = LM_MODEL_HISTOGRAM_BUCKETS,
        .model_histogram_sub_bits = LM_MODEL_HISTOGRAM_SUB_BITS,
        .model_histogram_unit_bits = LM_MODEL_HISTOGRAM_UNIT_BITS,
        .model_histogram_stride = sizeof(struct lm_model_histogram[LM_MODEL_STAGE_COUNT]),
        .start_realtime_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec};
    /* The magic last, with release: a reader that finds it finds everything else. */
    uint64_t magic;
    memcpy(&magic, LUMEN_STATS_MAGIC, sizeof magic);
    __atomic_store_n((uint64_t *)(void *)stats->header->magic, magic, __ATOMIC_RELEASE);
    return 0;
}

void lm_stats_close(struct lm_stats *stats) {
    if (stats->header && stats->path[0]) {
        /* Only our own file: another server may have taken the port, and the name, since. */
        lumen_stats_header seen = {0};
        int fd = open(stats->path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t got = read(fd, &seen, sizeof seen);
            if (got == (ssize_t)sizeof seen && seen.pid == (uint32_t)getpid()) unlink(stats->path);
            close(fd);
        }
    }
    lm_mapping_close(&stats->memory);
    memset(stats, 0, sizeof *stats);
}

struct lm_stats_block *lm_stats_io_block(struct lm_stats *stats, uint32_t index) {
    return block_at(stats, index);
}

struct lm_stats_block *lm_stats_worker_block(struct lm_stats *stats, uint32_t index) {
    return block_at(stats, stats->io_count + index);
}

void lm_stats_set_state(struct lm_stats *stats, uint32_t state) {
    if (stats->header) __atomic_store_n(&stats->header->state, state, __ATOMIC_RELEASE);
}
