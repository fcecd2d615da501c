/* stats.c: creates and describes the statistics file; see stats.h. Control thread only. */
#include "parts/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
#define MODEL_FIELD_AT(name, member, field_kind, role) \
    {name, LUMEN_FIELD_MODEL_##field_kind,             \
     (uint32_t)offsetof(struct lm_stats_block, models[0].member), 1, role},
#define IO_MODEL_FIELD(field, field_kind) \
    MODEL_FIELD_AT(#field, io.field, field_kind, LUMEN_ROLE_IO)
#define MODEL_FIELD(field, field_kind) \
    MODEL_FIELD_AT(#field, worker.field, field_kind, LUMEN_ROLE_WORKER)
#define STAGE_FIELD(name, stage)                                                            \
    {name, LUMEN_FIELD_HISTOGRAM, (uint32_t)offsetof(struct lm_stats_block, stages[stage]), \
     LM_HISTOGRAM_BUCKETS, LUMEN_ROLE_BOTH},
#define MODEL_STAGE_FIELD(name, stage)                                   \
    {name, LUMEN_FIELD_MODEL_HISTOGRAM,                                  \
     (uint32_t)offsetof(struct lm_stats_block, models[0].stages[stage]), \
     1 + LM_MODEL_HISTOGRAM_BUCKETS, LUMEN_ROLE_BOTH},

#define EXPERT_FIELD(place) \
    MODEL_FIELD_AT("model_expert_" #place, worker.model_experts[place], COUNTER, LUMEN_ROLE_WORKER)

static const lumen_stats_field fields[] = {
    LM_IO_FIELDS(IO_FIELD) LM_WORKER_FIELDS(WORKER_FIELD) LM_IO_MODEL_FIELDS(IO_MODEL_FIELD)
        LM_MODEL_FIELDS(MODEL_FIELD) EXPERT_FIELD(0) EXPERT_FIELD(1) EXPERT_FIELD(2) EXPERT_FIELD(3)
            EXPERT_FIELD(4) EXPERT_FIELD(5) EXPERT_FIELD(6) EXPERT_FIELD(7)
                STAGE_FIELD("receive", LM_STAGE_RECEIVE) STAGE_FIELD("queue", LM_STAGE_QUEUE)
                    STAGE_FIELD("preprocess", LM_STAGE_PREPROCESS)
                        STAGE_FIELD("infer", LM_STAGE_INFER) STAGE_FIELD("send", LM_STAGE_SEND)
                            STAGE_FIELD("total", LM_STAGE_TOTAL)
                                MODEL_STAGE_FIELD("model_queue", LM_MODEL_STAGE_QUEUE)
                                    MODEL_STAGE_FIELD("model_infer", LM_MODEL_STAGE_INFER)
                                        MODEL_STAGE_FIELD("model_total", LM_MODEL_STAGE_TOTAL)};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

_Static_assert(sizeof(struct lm_stats_block) % LM_CACHE_LINE == 0,
               "blocks never share a cache line");
_Static_assert(LUMEN_EXPERTS_MAX == 8, "a field for each place");
_Static_assert(offsetof(struct lm_stats_block, io) % 8 == 0, "counters are aligned words");

/* ---- the file ----
 * A server holds a lock on its file for as long as it runs: a file without one was left behind, and
 * no process id has to be believed, which may be another process's by now or in another container.
 * The lock is the open file's own (OFD), so that closing another descriptor does not end it. */

static bool is_locked(int fd) {
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Whether the file belongs to a server that still uses it. */
static bool is_in_use(const char *path) {
    lumen_stats_header seen = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) return false;
    bool whole = read(fd, &seen, sizeof seen) == (ssize_t)sizeof seen;
    /* One that has stopped serving may go on for a moment, and its successor be there already. */
    bool in_use = is_locked(fd) && !(whole && seen.state == LUMEN_STATE_STOPPED);
    close(fd);
    return in_use;
}

/* Bytes of a block in use, which has so many models. */
static size_t used_bytes(uint32_t model_count) {
    return offsetof(struct lm_stats_block, models[model_count]);
}

/* Takes the pages of the models from `first` on, of the first one also what comes before them:
 * later there may be none left, and that would end the process. Returns 0 or an errno. */
static int hold_block(int fd, const lumen_stats_header *layout, uint32_t index, uint32_t first,
                      uint32_t count) {
    uint64_t block = layout->blocks_offset + (uint64_t)index * layout->block_bytes;
    uint64_t at = block + (first ? used_bytes(first) : 0);
    return posix_fallocate(fd, (off_t)at, (off_t)(block + used_bytes(count) - at));
}

/* The same of all blocks. */
static int hold_pages(int fd, const lumen_stats_header *layout, uint32_t first, uint32_t count) {
    int refused = first ? 0 : posix_fallocate(fd, 0, (off_t)layout->blocks_offset);
    for (uint32_t b = 0; !refused && b < layout->block_count; b++)
        refused = hold_block(fd, layout, b, first, count);
    return refused;
}

/* Maps `fd` as the statistics, and takes it. false: errno says why, and it is closed. */
static bool take_file(struct lm_stats *stats, int fd, const lumen_stats_header *layout) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const size_t bytes = layout->file_bytes;
    void *base = MAP_FAILED;
    int refused = ftruncate(fd, (off_t)bytes) == 0 ? 0 : errno;
    if (!refused) refused = hold_pages(fd, layout, 0, layout->model_count);
    if (!refused && fcntl(fd, F_OFD_SETLK, &lock) != 0) refused = errno;
    if (!refused) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) refused = errno;
    }
    if (refused) {
        close(fd);
        errno = refused;
        return false;
    }
    stats->memory = (struct lm_mapping){.base = base, .bytes = bytes};
    stats->fd = fd;
    return true;
}

/* Under the name of the port, or a name of this process, where the first is somebody else's. */
static bool make_file(struct lm_stats *stats, const lumen_stats_header *layout) {
    char name[32];
    snprintf(name, sizeof name, "/dev/shm/lumen-%u", layout->port);
    snprintf(stats->path, sizeof stats->path, "%s", name);
    int fd = -1;
    /* The same port on another address may be another server's. */
    bool in_use = is_in_use(name);
    if (!in_use) {
        unlink(name); /* of a server that was killed: its readers keep their mapping */
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    if (in_use || (fd < 0 && errno == EEXIST)) {
        snprintf(stats->path, sizeof stats->path, "%s-%d", name, (int)getpid());
        unlink(stats->path);
        fd = open(stats->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0) {
            snprintf(stats->note, sizeof stats->note,
                     "the figures are in %s, where `lumen stats` does not look: %s is %s",
                     stats->path, name,
                     in_use ? "another server's" : "somebody else's and cannot be replaced");
        }
    }
    if (fd < 0) return false;
    if (take_file(stats, fd, layout)) return true;
    int refused = errno;
    unlink(stats->path);
    errno = refused;
    return false;
}

/* Without a file the server serves all the same, and its own metrics page still reads: from memory
 * that has no name but among this process's descriptors. */
static int map_file(struct lm_stats *stats, const lumen_stats_header *layout) {
    if (make_file(stats, layout)) return 0;
    snprintf(stats->note, sizeof stats->note,
             "no statistics file for `lumen stats`: %s: %s; the metrics page has the figures",
             stats->path, strerror(errno));
    int fd = memfd_create("lumen-stats", MFD_CLOEXEC);
    if (fd >= 0 && take_file(stats, fd, layout)) {
        snprintf(stats->path, sizeof stats->path, "/proc/%d/fd/%d", (int)getpid(), fd);
        if (access(stats->path, R_OK) != 0) stats->path[0] = '\0';
        return 0;
    }
    stats->path[0] = '\0';
    return lm_mapping_reserve(&stats->memory, layout->file_bytes);
}

/* Whether the path still leads to our file: another server may have taken the name since. */
static bool is_ours(const struct lm_stats *stats) {
    struct stat own, there;
    return stats->fd >= 0 && fstat(stats->fd, &own) == 0 && lstat(stats->path, &there) == 0 &&
           own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

static struct lm_stats_block *block_at(struct lm_stats *stats, uint32_t index) {
    return (struct lm_stats_block *)(void *)(stats->blocks + (size_t)index * stats->block_bytes);
}

static char *name_at(const struct lm_stats *stats, uint64_t models_offset, uint32_t model) {
    return (char *)stats->memory.base + models_offset + (size_t)model * LM_NAME_BYTES_MAX;
}

/* In zeroed memory. */
static void write_name(struct lm_stats *stats, uint64_t models_offset, uint32_t model,
                       const char *name) {
    memcpy(name_at(stats, models_offset, model), name, strnlen(name, LM_NAME_BYTES_MAX - 1));
}

static void name_block(struct lm_stats *stats, uint32_t at, uint32_t index) {
    block_at(stats, at)->head =
        (lumen_stats_block){.role = at < stats->io_count ? LUMEN_ROLE_IO : LUMEN_ROLE_WORKER,
                            .index = (uint16_t)index,
                            .cpu = -1};
}

/* Adds to the layout what every header has; the magic last: a reader that finds it finds all. */
static void write_header(struct lm_stats *stats, const lumen_stats_header *layout) {
    lumen_stats_header *header = stats->header;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *header = *layout;
    header->version = LUMEN_STATS_VERSION;
    header->field_count = FIELD_COUNT;
    header->block_bytes = stats->block_bytes;
    header->histogram_buckets = LM_HISTOGRAM_BUCKETS;
    header->histogram_sub_bits = LM_HISTOGRAM_SUB_BITS;
    header->histogram_unit_bits = LM_HISTOGRAM_UNIT_BITS;
    header->pid = (uint32_t)getpid();
    header->state = LUMEN_STATE_STARTING;
    header->model_name_bytes = LM_NAME_BYTES_MAX;
    header->model_histogram_buckets = LM_MODEL_HISTOGRAM_BUCKETS;
    header->model_histogram_sub_bits = LM_MODEL_HISTOGRAM_SUB_BITS;
    header->model_histogram_unit_bits = LM_MODEL_HISTOGRAM_UNIT_BITS;
    header->model_stride = sizeof(struct lm_model_row);
    header->start_realtime_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    uint64_t magic;
    memcpy(&magic, LUMEN_STATS_MAGIC, sizeof magic);
    /* M1: release; pairs with M2 in lumen_uring/ring/stats.py */
    lm_plain_store_release_u64((uint64_t *)(void *)stats->header->magic, magic);
}

int lm_stats_open(struct lm_stats *stats, uint32_t port, uint32_t io_count, uint32_t worker_count,
                  uint32_t later_count, const char *const *model_names, uint32_t model_count) {
    *stats = (struct lm_stats){.fd = -1};
    lumen_stats_header layout = {.port = port,
                                 .block_count = io_count + worker_count,
                                 .block_bytes = sizeof(struct lm_stats_block),
                                 .experts_max = LUMEN_EXPERTS_MAX,
                                 .model_count = model_count};
    /* Room for the models that may come. */
    layout.fields_offset = lm_align_up(sizeof layout, LM_CACHE_LINE);
    layout.models_offset = lm_align_up(layout.fields_offset + sizeof fields, LM_CACHE_LINE);
    layout.experts_offset = layout.models_offset + LUMEN_MODELS_MAX * LM_NAME_BYTES_MAX;
    layout.blocks_offset = lm_align_up(
        layout.experts_offset + sizeof(uint32_t[LUMEN_MODELS_MAX][LUMEN_EXPERTS_MAX]), 4096);
    layout.file_bytes =
        layout.blocks_offset + ((uint64_t)layout.block_count + later_count) * layout.block_bytes;
    int code = map_file(stats, &layout);
    if (code) return code;
    stats->io_count = io_count;
    stats->header = (lumen_stats_header *)stats->memory.base;
    stats->block_bytes = layout.block_bytes;
    stats->blocks = (uint8_t *)stats->memory.base + layout.blocks_offset;
    memcpy((uint8_t *)stats->memory.base + layout.fields_offset, fields, sizeof fields);
    for (uint32_t m = 0; m < model_count; m++)
        write_name(stats, layout.models_offset, m, model_names[m]);
    for (uint32_t b = 0; b < layout.block_count; b++)
        name_block(stats, b, b < io_count ? b : b - io_count);
    write_header(stats, &layout);
    return 0;
}

int lm_stats_hold_worker(struct lm_stats *stats, uint32_t index,
                         struct lm_stats_block **block_out) {
    const lumen_stats_header *header = stats->header;
    const uint32_t at = header->block_count;
    LM_ASSERT(header->blocks_offset + (at + 1ull) * header->block_bytes <= header->file_bytes);
    int refused = stats->fd < 0 ? 0 : hold_block(stats->fd, header, at, 0, header->model_count);
    if (refused)
        return lm_error_errno(LUMEN_E_NOMEM, refused,
                              "no room for the statistics of another worker in %s",
                              stats->path[0] ? stats->path : "memory");
    name_block(stats, at, index);
    *block_out = block_at(stats, at);
    return 0;
}

void lm_stats_show_worker(struct lm_stats *stats) {
    /* M7: release: a reader that counts the block finds its role; pairs with M2 in
     * lumen_uring/ring/stats.py */
    lm_plain_store_release_u32(&stats->header->block_count, stats->header->block_count + 1);
}

int lm_stats_add_model(struct lm_stats *stats, const char *name) {
    lumen_stats_header *header = stats->header;
    const uint32_t model = header->model_count;
    LM_ASSERT(model < LUMEN_MODELS_MAX);
    int refused = stats->fd < 0 ? 0 : hold_pages(stats->fd, header, model, model + 1);
    if (refused)
        return lm_error_errno(LUMEN_E_NOMEM, refused, "no room for the statistics of '%s' in %s",
                              name, stats->path[0] ? stats->path : "memory");
    write_name(stats, header->models_offset, model, name);
    /* M3: release: a reader that counts the model finds its name; pairs with M2 in
     * lumen_uring/ring/stats.py */
    lm_plain_store_release_u32(&header->model_count, model + 1);
    return 0;
}

/* relaxed, all of them: whoever wrote the words has left the model (L2 in flow/reload.c), and
 * readers look at `naming` */
#define CLEAR_IO(field, kind) lm_store_relaxed_u64(&row->io.field, 0);
#define CLEAR_WORKER(field, kind) lm_store_relaxed_u64(&row->worker.field, 0);

static void clear_row(struct lm_stats_block *block, uint32_t model) {
    struct lm_model_row *row = &block->models[model];
    if (block->head.role == LUMEN_ROLE_IO) {
        LM_IO_MODEL_FIELDS(CLEAR_IO)
    } else {
        LM_MODEL_FIELDS(CLEAR_WORKER)
        for (uint32_t e = 0; e < LUMEN_EXPERTS_MAX; e++)
            lm_store_relaxed_u64(&row->worker.model_experts[e], 0); /* relaxed: as above */
    }
    for (uint32_t s = 0; s < LM_MODEL_STAGE_COUNT; s++) {
        struct lm_model_histogram *times = &row->stages[s];
        lm_store_relaxed_u64(&times->sum_ns, 0); /* relaxed: as above */
        for (uint32_t b = 0; b < LM_MODEL_HISTOGRAM_BUCKETS; b++)
            lm_store_relaxed_u64(&times->buckets[b], 0); /* relaxed: as above */
    }
}

static uint32_t (*experts_at(struct lm_stats *stats)) [LUMEN_EXPERTS_MAX] {
    return (void *)((uint8_t *)stats->memory.base + stats->header->experts_offset);
}

void lm_stats_rename_model(struct lm_stats *stats, uint32_t model, const char *name) {
    lumen_stats_header *header = stats->header;
    uint32_t (*experts)[LUMEN_EXPERTS_MAX] = experts_at(stats);
    const uint32_t naming = header->naming;
    LM_ASSERT(model < header->model_count && naming % 2 == 0);
    /* M4: acq_rel: a reader that sees what follows sees the odd number too; pairs with M5 in
     * lumen_uring/ring/stats.py */
    (void)lm_plain_exchange_acq_rel_u32(&header->naming, naming + 1);
    memset(name_at(stats, header->models_offset, model), 0, LM_NAME_BYTES_MAX);
    write_name(stats, header->models_offset, model, name);
    memset(experts[model], 0, sizeof experts[model]);
    for (uint32_t m = 0; m < header->model_count; m++) {
        for (uint32_t e = 0; e < LUMEN_EXPERTS_MAX; e++)
            if (experts[m][e] == model + 1) experts[m][e] = 0; /* of one that went too */
    }
    for (uint32_t b = 0; b < header->block_count; b++) clear_row(block_at(stats, b), model);
    /* M6: release: all of it is there; pairs with M5 in lumen_uring/ring/stats.py */
    lm_plain_store_release_u32(&header->naming, naming + 2);
}

uint32_t lm_stats_find_model(const struct lm_stats *stats, const char *name) {
    for (uint32_t m = 0; m < stats->header->model_count; m++) {
        if (strcmp(lm_stats_model_name(stats, m), name) == 0) return m;
    }
    return LUMEN_MODELS_MAX;
}

/* The first place of a virtual model with this word; LUMEN_EXPERTS_MAX: none. */
static uint32_t place_with(const uint32_t *words, uint32_t word) {
    uint32_t place = 0;
    while (place < LUMEN_EXPERTS_MAX && words[place] != word) place++;
    return place;
}

void lm_stats_name_experts(struct lm_stats *stats, uint32_t model, const uint32_t *experts,
                           uint32_t count, uint8_t *places_out) {
    uint32_t *words = experts_at(stats)[model];
    uint32_t kept = 0;
    for (uint32_t e = 0; e < count; e++) {
        places_out[e] = (uint8_t)place_with(words, experts[e] + 1);
        kept |= 1u << places_out[e];
    }
    for (uint32_t e = 0; e < count; e++) {
        if (places_out[e] < LUMEN_EXPERTS_MAX) continue;
        uint32_t place = place_with(words, 0);
        if (place == LUMEN_EXPERTS_MAX)
            for (place = 0; kept >> place & 1;) place++; /* of one that it runs no more */
        for (uint32_t b = 0; words[place] && b < stats->header->block_count; b++) {
            struct lm_stats_block *block = block_at(stats, b);
            if (block->head.role == LUMEN_ROLE_IO) continue;
            /* relaxed: a counter */
            lm_store_relaxed_u64(&block->models[model].worker.model_experts[place], 0);
        }
        words[place] = experts[e] + 1;
        places_out[e] = (uint8_t)place;
        kept |= 1u << place;
    }
}

const char *lm_stats_model_name(const struct lm_stats *stats, uint32_t model) {
    return name_at(stats, stats->header->models_offset, model);
}

void lm_stats_close(struct lm_stats *stats) {
    if (!stats->header) return; /* never opened, or closed already */
    if (is_ours(stats)) unlink(stats->path);
    if (stats->fd >= 0) close(stats->fd); /* and the lock with it */
    lm_mapping_close(&stats->memory);
    *stats = (struct lm_stats){.fd = -1};
}

struct lm_stats_block *lm_stats_io_block(struct lm_stats *stats, uint32_t index) {
    return block_at(stats, index);
}

struct lm_stats_block *lm_stats_worker_block(struct lm_stats *stats, uint32_t index) {
    return block_at(stats, stats->io_count + index);
}

void lm_stats_set_state(struct lm_stats *stats, uint32_t state) {
    /* relaxed: a word for people, which says nothing about other memory */
    if (stats->header) lm_plain_store_relaxed_u32(&stats->header->state, state);
}
