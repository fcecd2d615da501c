/* shm_regions.c: see shm_regions.h.
 *
 * 1. An entry's word says whether it is registered (LIVE), whether it is to go (LEAVING), and how
 *    many requests and threads use it. Each user adds one while LIVE is there, and takes it off
 *    again.
 * 2. Unregistering sets LEAVING. The last user that leaves such an entry takes LIVE off, closes its
 *    file and makes it free. Until then its name is in use, and requests find it: as in Triton.
 * 3. Registering fills a free entry in and sets LIVE. The generation tells it from the one before.
 *
 * Adding oneself is seq_cst: acquire would do, and costs the same on such a word.
 */
#include "parts/shm_regions.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/error.h"

#ifndef TMPFS_MAGIC
#define TMPFS_MAGIC 0x01021994 /* linux/magic.h */
#endif

#define LIVE (1ull << 63)
#define LEAVING (1ull << 62)

struct region {
    lm_atomic_u64 uses;
    lm_atomic_u32 taken; /* 0: free to be registered */
    uint32_t generation;
    int fd;
    struct lm_shm_info info;
};

struct lm_shm_regions {
    pthread_mutex_t registering;
    struct region entries[LM_SHM_REGIONS_MAX];
};

int lm_shm_open(struct lm_shm_regions **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return lm_error(LUMEN_E_NOMEM, "no memory for a table of shared memory regions");
    pthread_mutex_init(&(*out)->registering, NULL);
    return 0;
}

void lm_shm_close(struct lm_shm_regions *regions) {
    if (!regions) return;
    for (uint32_t r = 0; r < LM_SHM_REGIONS_MAX; r++) {
        struct region *region = &regions->entries[r];
        /* relaxed: no other thread is left */
        if (lm_load_relaxed_u32(&region->taken)) close(region->fd);
    }
    pthread_mutex_destroy(&regions->registering);
    free(regions);
}

/* ---- holding ---- */

static bool hold(struct region *region) {
    /* R1: acquire: what R4 has published; pairs with R4. Release is not needed, nothing is told */
    uint64_t now = lm_load_acquire_u64(&region->uses);
    do {
        if (!(now & LIVE)) return false;
    } while (!lm_cas_seq_cst_u64(&region->uses, &now, now + 1)); /* R1 */
    return true;
}

static void let_go(struct region *region) {
    /* R2: all that was done with the file comes before it is closed; pairs with R2 of others */
    uint64_t left = lm_sub_acq_rel_u64(&region->uses, 1) - 1;
    if (left != (LIVE | LEAVING)) return;
    /* Somebody who has found it meanwhile is the last one then. */
    if (!lm_cas_seq_cst_u64(&region->uses, &left, 0)) return; /* R2 */
    close(region->fd);
    /* R3: release: nobody looks at the entry any more; pairs with R3 in find_free */
    lm_store_release_u32(&region->taken, 0);
}

static struct region *hold_named(struct lm_shm_regions *regions, const char *name, size_t bytes) {
    for (uint32_t r = 0; r < LM_SHM_REGIONS_MAX; r++) {
        struct region *region = &regions->entries[r];
        if (!hold(region)) continue;
        const char *own = region->info.name;
        if (strlen(own) == bytes && memcmp(own, name, bytes) == 0) return region;
        let_go(region);
    }
    return NULL;
}

static struct region *hold_handle(struct lm_shm_regions *regions, struct lm_shm_handle handle,
                                  char *why, size_t why_bytes) {
    struct region *region = &regions->entries[handle.index];
    if (hold(region)) {
        if (region->generation == handle.generation) return region;
        let_go(region);
    }
    snprintf(why, why_bytes, "shared memory: the region was unregistered during the request");
    return NULL;
}

/* ---- control requests ---- */

static bool refuse(const char *sentence, char *why, size_t why_bytes) {
    snprintf(why, why_bytes, "%s", sentence);
    return false;
}

/* A name that stands in an answer's JSON as it is. */
static bool is_plain(const char *text) {
    if (!*text) return false;
    for (; *text; text++) {
        if (*text <= ' ' || *text >= 0x7f || *text == '"' || *text == '\\') return false;
    }
    return true;
}

/* One name in /dev/shm, of nothing that is ours. */
static bool check_names(const struct lm_shm_info *info, const char *key, char *why,
                        size_t why_bytes) {
    static const char own[] = "lumen-";
    if (!is_plain(info->name))
        return refuse("shared memory region: expected a name of visible ASCII characters without "
                      "quotes and backslashes",
                      why, why_bytes);
    if (!is_plain(key) || strchr(key, '/') || strcmp(key, ".") == 0 || strcmp(key, "..") == 0)
        return refuse("key: expected one name of /dev/shm, of visible ASCII characters without "
                      "slashes, quotes and backslashes",
                      why, why_bytes);
    if (strncmp(key, own, sizeof own - 1) == 0)
        return refuse("key: names that begin with lumen- are the server's own", why, why_bytes);
    return true;
}

/* -1 with a sentence. Not a link, and nothing whose opening waits or has effects. */
static int open_file(const struct lm_shm_info *info, const char *key, char *why, size_t why_bytes) {
    char path[sizeof "/dev/shm/" + LM_SHM_NAME_BYTES_MAX];
    struct stat status;
    struct statfs system;
    uint64_t end;
    snprintf(path, sizeof path, "/dev/shm/%s", key);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        snprintf(why, why_bytes,
                 "Unable to open shared memory region: '%.64s': expected a file of /dev/shm that "
                 "the server's user may read and write, found errno %d",
                 info->name, errno);
        return -1;
    }
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || fstatfs(fd, &system) != 0 ||
        (uint64_t)system.f_type != TMPFS_MAGIC) {
        snprintf(why, why_bytes, "key: expected memory of shm_open, found another kind of file");
    } else if (info->bytes == 0 || __builtin_add_overflow(info->offset, info->bytes, &end) ||
               end > (uint64_t)status.st_size) {
        /* Clients look for the first words, which are Triton's. */
        snprintf(
            why, why_bytes,
            "failed to register shared memory region '%.64s': invalid args: offset, byte_size: "
            "expected a part of the file's %llu bytes, found %llu bytes at %llu",
            info->name, (unsigned long long)status.st_size, (unsigned long long)info->bytes,
            (unsigned long long)info->offset);
    } else {
        return fd;
    }
    close(fd);
    return -1;
}

/* With the lock. */
static struct region *find_free(struct lm_shm_regions *regions) {
    for (uint32_t r = 0; r < LM_SHM_REGIONS_MAX; r++) {
        /* R3: acquire: its last user has gone; pairs with R3 in let_go */
        if (lm_load_acquire_u32(&regions->entries[r].taken) == 0) return &regions->entries[r];
    }
    return NULL;
}

/* With the lock. Takes the descriptor where it succeeds. */
static enum lm_status add(struct lm_shm_regions *regions, const struct lm_shm_info *info, int fd,
                          char *why, size_t why_bytes) {
    struct region *same = hold_named(regions, info->name, strlen(info->name));
    if (same) {
        let_go(same);
        snprintf(why, why_bytes, "shared memory region '%.64s' already in manager", info->name);
        return LM_STATUS_BAD_REQUEST;
    }
    struct region *region = find_free(regions);
    if (!region) {
        snprintf(why, why_bytes, "expected at most %d shared memory regions, found as many",
                 LM_SHM_REGIONS_MAX);
        return LM_STATUS_OVERLOADED;
    }
    lm_store_relaxed_u32(&region->taken, 1); /* relaxed: the lock's own */
    region->info = *info;
    region->fd = fd;
    region->generation++;
    /* R4: release: the entry is filled in; pairs with R1 */
    lm_store_release_u64(&region->uses, LIVE);
    return LM_STATUS_OK;
}

enum lm_status lm_shm_register(struct lm_shm_regions *regions, const struct lm_shm_info *info,
                               char *why, size_t why_bytes) {
    const char *key = info->key[0] == '/' ? info->key + 1 : info->key;
    if (!check_names(info, key, why, why_bytes)) return LM_STATUS_BAD_REQUEST;
    int fd = open_file(info, key, why, why_bytes);
    if (fd < 0) return LM_STATUS_BAD_REQUEST;
    pthread_mutex_lock(&regions->registering);
    enum lm_status status = add(regions, info, fd, why, why_bytes);
    pthread_mutex_unlock(&regions->registering);
    if (status != LM_STATUS_OK) close(fd);
    return status;
}

bool lm_shm_unregister(struct lm_shm_regions *regions, const char *name) {
    struct region *region = hold_named(regions, name, strlen(name));
    if (!region) return false;
    (void)lm_or_acq_rel_u64(&region->uses, LEAVING); /* as R2 */
    let_go(region);
    return true;
}

bool lm_shm_list(struct lm_shm_regions *regions, uint32_t index, struct lm_shm_info *out) {
    struct region *region = &regions->entries[index];
    if (!hold(region)) return false;
    *out = region->info;
    let_go(region);
    return true;
}

/* ---- requests ---- */

bool lm_shm_hold(struct lm_shm_regions *regions, struct lm_shm_handle handle) {
    char unused[LM_SHM_NAME_BYTES_MAX];
    return hold_handle(regions, handle, unused, sizeof unused) != NULL;
}

void lm_shm_let_go(struct lm_shm_regions *regions, struct lm_shm_handle handle) {
    let_go(&regions->entries[handle.index]);
}

bool lm_shm_find(struct lm_shm_regions *regions, const char *name, size_t name_bytes,
                 struct lm_shm_handle *out, uint64_t *bytes_out) {
    struct region *region = hold_named(regions, name, name_bytes);
    if (!region) return false;
    *out = (struct lm_shm_handle){(uint32_t)(region - regions->entries), region->generation};
    *bytes_out = region->info.bytes;
    let_go(region);
    return true;
}

static bool is_shorter(const struct region *region, size_t bytes, uint64_t at, char *why,
                       size_t why_bytes) {
    snprintf(why, why_bytes,
             "shared memory region '%.64s': expected %zu bytes at %llu of its file, as when it was "
             "registered, found fewer",
             region->info.name, bytes, (unsigned long long)at);
    return false;
}

static bool read_all(const struct region *region, uint64_t at, uint8_t *to, size_t bytes, char *why,
                     size_t why_bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(region->fd, to + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return is_shorter(region, bytes, at, why, why_bytes);
        done += (size_t)got;
    }
    return true;
}

/* Never beyond the file's end: that would make it longer. */
static bool write_all(const struct region *region, uint64_t at, const uint8_t *from, size_t bytes,
                      char *why, size_t why_bytes) {
    struct stat status;
    if (fstat(region->fd, &status) != 0 || (uint64_t)status.st_size < at + bytes)
        return is_shorter(region, bytes, at, why, why_bytes);
    for (size_t done = 0; done < bytes;) {
        ssize_t put = pwrite(region->fd, from + done, bytes - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            snprintf(why, why_bytes, "shared memory region '%.64s': cannot be written (errno %d)",
                     region->info.name, errno);
            return false;
        }
        done += (size_t)put;
    }
    return true;
}

bool lm_shm_read(struct lm_shm_regions *regions, struct lm_shm_handle handle, uint64_t offset,
                 void *to, size_t bytes, char *why, size_t why_bytes) {
    struct region *region = hold_handle(regions, handle, why, why_bytes);
    if (!region) return false;
    bool whole = read_all(region, region->info.offset + offset, to, bytes, why, why_bytes);
    let_go(region);
    return whole;
}

bool lm_shm_write(struct lm_shm_regions *regions, struct lm_shm_handle handle, uint64_t offset,
                  const void *from, size_t bytes, char *why, size_t why_bytes) {
    struct region *region = hold_handle(regions, handle, why, why_bytes);
    if (!region) return false;
    bool whole = write_all(region, region->info.offset + offset, from, bytes, why, why_bytes);
    let_go(region);
    return whole;
}
