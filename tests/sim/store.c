/* store.c: fd_store.h without a kernel: sockets that stay open without a descriptor, and the
 * receives that go on for them.
 */
#include <errno.h>
#include <stdlib.h>

#include "ring/fd_store.h"
#include "ring_inner.h"

struct lm_fd_store {
    uint32_t capacity;
    struct peer *kept[];
};

int lm_fd_store_open(struct lm_fd_store **store_out, uint32_t capacity, uint32_t most) {
    (void)most;
    struct lm_fd_store *store = calloc(1, sizeof *store + capacity * sizeof store->kept[0]);
    store->capacity = capacity;
    *store_out = store;
    return 0;
}

void lm_fd_store_close(struct lm_fd_store *store) {
    if (!store) return;
    for (uint32_t i = 0; i < store->capacity; i++)
        SIM_CHECK(!store->kept[i], "the store is closed with connection %u in it", i);
    free(store);
}

int lm_fd_store_put(struct lm_fd_store *store, uint32_t index, int fd) {
    SIM_CHECK(index < store->capacity && !store->kept[index], "connection %u is kept twice", index);
    struct peer *peer = peer_of(fd);
    SIM_CHECK(peer, "descriptor %d is to be kept, which is closed", fd);
    if (sim_one_in(sim_plan.blip_one_in)) return -ENOMEM;
    SIM_TRACE("park connection %llu, fd %llu", index, fd);
    store->kept[index] = peer;
    peer->kept = true;
    return 0;
}

int lm_fd_store_get(struct lm_fd_store *store, uint32_t index) {
    struct peer *peer = store->kept[index];
    SIM_CHECK(peer && peer->fd < 0, "connection %u is not parked", index);
    if (fds_open >= sim_plan.descriptors) return -EMFILE;
    if (sim_one_in(sim_plan.blip_one_in)) return -EAGAIN;
    int fd = peer_accept(peer);
    SIM_TRACE("unpark connection %llu as fd %llu", index, fd);
    return fd;
}

void lm_fd_store_drop(struct lm_fd_store *store, uint32_t index) {
    struct peer *peer = store->kept[index];
    SIM_CHECK(peer && peer->kept, "connection %u is dropped, which is not kept", index);
    store->kept[index] = NULL;
    peer->kept = false;
    if (peer->fd < 0) peer_server_closes(peer);
}

struct peer *store_kept(const struct lm_fd_store *store, uint32_t index) {
    return store ? store->kept[index] : NULL;
}
