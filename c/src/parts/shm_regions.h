/* shm_regions.h: Triton's system shared memory: files of /dev/shm that clients of this machine have
 * registered by a name. Any thread; finding, reading and writing take no lock.
 *
 * The owner of such a file may shrink it at any time, so it is never mapped: a request's tensors
 * are copied with pread and pwrite, which return fewer bytes where a mapping would end the process.
 * A request names a region by a handle, and holds it from when it is read until it is answered:
 * what is unregistered meanwhile goes with its last request, and its name is free then.
 */
#ifndef LM_PARTS_SHM_REGIONS_H
#define LM_PARTS_SHM_REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    LM_SHM_REGIONS_MAX = 128,
    LM_SHM_NAME_BYTES_MAX = 256, /* of a region or a key, with its terminator */
};

struct lm_shm_regions;

struct lm_shm_handle {
    uint32_t index;
    uint32_t generation;
};

/* A registration, as a client asks for it and status tells it. */
struct lm_shm_info {
    char name[LM_SHM_NAME_BYTES_MAX];
    char key[LM_SHM_NAME_BYTES_MAX]; /* the file's name in /dev/shm; a slash before it is dropped */
    uint64_t offset, bytes;          /* of the region in the file */
};

/* Control thread. Returns 0 or LUMEN_E_NOMEM. */
int lm_shm_open(struct lm_shm_regions **out);
void lm_shm_close(struct lm_shm_regions *regions); /* NULL is allowed */

/* Control requests: a lock keeps them apart. Opens the file, which does not wait: it is memory.
 * Returns LM_STATUS_OK, or why not, with a sentence. */
enum lm_status lm_shm_register(struct lm_shm_regions *regions, const struct lm_shm_info *info,
                               char *why, size_t why_bytes);
/* Now, or when the last request that holds it is answered. false: there is none of that name. */
bool lm_shm_unregister(struct lm_shm_regions *regions, const char *name);
/* The entry's registration; false: it has none. Entries are LM_SHM_REGIONS_MAX. */
bool lm_shm_list(struct lm_shm_regions *regions, uint32_t index, struct lm_shm_info *out);

/* Requests. false: there is none of that name, which is not terminated. */
bool lm_shm_find(struct lm_shm_regions *regions, const char *name, size_t name_bytes,
                 struct lm_shm_handle *out, uint64_t *bytes_out);
/* For the time of a request. false: it is gone. */
bool lm_shm_hold(struct lm_shm_regions *regions, struct lm_shm_handle handle);
void lm_shm_let_go(struct lm_shm_regions *regions, struct lm_shm_handle handle);
/* Copies bytes that are within the region. false with a sentence: it is gone, or shorter now. */
bool lm_shm_read(struct lm_shm_regions *regions, struct lm_shm_handle handle, uint64_t offset,
                 void *to, size_t bytes, char *why, size_t why_bytes);
bool lm_shm_write(struct lm_shm_regions *regions, struct lm_shm_handle handle, uint64_t offset,
                  const void *from, size_t bytes, char *why, size_t why_bytes);

#endif
