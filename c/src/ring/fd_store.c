/* fd_store.c: see fd_store.h. Every call is one system call that does not wait. */
#include "ring/fd_store.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "ring/uring_features.h"

enum {
    TABLE_ENTRIES_MAX = 1 << 15, /* of every kernel */
    TRIES_MAX = 100,
    OP_FIXED_FD_INSTALL = 54 /* newer than some systems' headers */
};

struct lm_fd_store {
    uint32_t table_entries;
    uint32_t table_count; /* that are set up */
    struct io_uring tables[];
};

static struct io_uring *table_of(struct lm_fd_store *store, uint32_t index) {
    return &store->tables[index / store->table_entries];
}

int lm_fd_store_put(struct lm_fd_store *store, uint32_t index, int fd) {
    int count = io_uring_register_files_update(table_of(store, index), index % store->table_entries,
                                               &fd, 1);
    return count < 0 ? count : 0;
}

void lm_fd_store_drop(struct lm_fd_store *store, uint32_t index) {
    (void)lm_fd_store_put(store, index, -1);
}

int lm_fd_store_get(struct lm_fd_store *store, uint32_t index) {
    struct io_uring *table = table_of(store, index);
    struct io_uring_cqe *cqe;
    /* What an earlier call gave up on came after all. */
    while (io_uring_peek_cqe(table, &cqe) == 0) {
        if (cqe->res >= 0) close(cqe->res);
        io_uring_cqe_seen(table, cqe);
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(table);
    if (sqe) {
        io_uring_prep_nop(sqe);
        sqe->opcode = OP_FIXED_FD_INSTALL;
        sqe->fd = (int)(index % store->table_entries);
        sqe->flags = IOSQE_FIXED_FILE;
        sqe->user_data = index;
    }
    int code = 0;
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        code = io_uring_submit_and_wait(table, 1);
        if (code >= 0 || (code != -EINTR && code != -EAGAIN && code != -EBUSY)) break;
    }
    if (code < 0) return code;
    if (io_uring_peek_cqe(table, &cqe) != 0) return -EAGAIN;
    int fd = cqe->res;
    bool mine = cqe->user_data == index;
    io_uring_cqe_seen(table, cqe);
    if (mine || fd < 0) return fd;
    close(fd);
    return -EAGAIN;
}

/* Puts something in and takes it out again: an old kernel, or a rule of the system's, refuses. */
static int try_out(struct lm_fd_store *store) {
    int fd = eventfd(0, EFD_CLOEXEC);
    if (fd < 0) return -errno;
    int code = lm_fd_store_put(store, 0, fd);
    close(fd);
    fd = code ? code : lm_fd_store_get(store, 0);
    lm_fd_store_drop(store, 0);
    if (fd < 0) return fd;
    close(fd);
    return 0;
}

static int refuse(int errno_value) {
    if (errno_value == -EINVAL) {
        return lm_error(LUMEN_E_UNSUPPORTED,
                        "this kernel's io_uring cannot make a descriptor of a socket it keeps: "
                        "expected Linux 6.8 or later");
    }
    return lm_error_errno(LUMEN_E_UNSUPPORTED, errno_value, "io_uring keeps no sockets");
}

static int open_table(struct io_uring *table, uint32_t entries) {
    int code = io_uring_queue_init(1, table, 0);
    if (code) return code;
    code = io_uring_register_files_sparse(table, entries);
    if (code) io_uring_queue_exit(table);
    return code;
}

int lm_fd_store_open(struct lm_fd_store **store_out, uint32_t capacity, uint32_t most) {
    struct lm_uring_features features;
    struct rlimit limit;
    *store_out = NULL;
    int code = lm_uring_features_read(&features);
    if (code) return code;
    if (features.masked & LM_MASK_FD_INSTALL) return refuse(-EINVAL);
    uint32_t entries = TABLE_ENTRIES_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < entries)
        entries = (uint32_t)limit.rlim_cur;
    uint32_t count = (capacity + entries - 1) / entries;
    if (count > most) {
        return lm_error(LUMEN_E_UNSUPPORTED,
                        "that takes %u descriptors, of which there are too few", count);
    }
    struct lm_fd_store *store = calloc(1, sizeof *store + count * sizeof store->tables[0]);
    if (!store) return lm_error(LUMEN_E_NOMEM, "no memory for %u tables of sockets", count);
    store->table_entries = entries;
    while (!code && store->table_count < count) {
        code = open_table(&store->tables[store->table_count], entries);
        store->table_count += !code;
    }
    if (!code) code = try_out(store);
    if (code) {
        lm_fd_store_close(store);
        return refuse(code);
    }
    *store_out = store;
    return 0;
}

void lm_fd_store_close(struct lm_fd_store *store) {
    if (!store) return;
    for (uint32_t t = 0; t < store->table_count; t++) io_uring_queue_exit(&store->tables[t]);
    free(store);
}
