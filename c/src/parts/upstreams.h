/* upstreams.h: the servers elsewhere whose models are served here too: where they listen, and how
 * patient one is with them. Written by the control thread before the start, read by I/O threads; a
 * word each of them writes says whether somebody answers there. Addresses may come and go later: an
 * entry that nobody has a connection to, and no thread can have chosen since it was to go, is given
 * to the next one.
 */
#ifndef LM_PARTS_UPSTREAMS_H
#define LM_PARTS_UPSTREAMS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/atomics.h"
#include "base/limits.h"
#include "lumen_upstreams.h"

/* Of a slot, beside the body: for the head of a request and of its answer, and for what a client
 * has not taken. */
enum {
    LM_UPSTREAM_NAME_BYTES_MAX = 64,
    LM_UPSTREAM_HEAD_BYTES = 4096,
    LM_UPSTREAM_WINDOW_BYTES = 8192,
    LM_UPSTREAM_SLOT_BYTES = LM_UPSTREAM_HEAD_BYTES + LM_UPSTREAM_WINDOW_BYTES + 4 * LM_SLOT_ALIGN
};

enum { LM_ADDRESS_FREE, LM_ADDRESS_IN_USE, LM_ADDRESS_LEAVING };

struct lm_upstream_address {
    lm_atomic_u32 state; /* LM_ADDRESS_*; who finds it in use may read the rest */
    uint32_t number;     /* of the address in this entry: another one has another */
    lm_atomic_u64 links; /* connections to it, of all I/O threads */
    struct sockaddr_storage socket;
    socklen_t socket_bytes;
    /* Lines of each request's head, but for its first word: what begins its path, and the Host. */
    char *path, *host;
    char *tls_host; /* its certificate is for this name; NULL: it does not speak TLS */
};

struct lm_tls_client; /* tls/client.h */

struct lm_upstream {
    char name[LM_UPSTREAM_NAME_BYTES_MAX];
    char *authorization; /* the whole line, or "" */
    struct lm_upstream_address addresses[LUMEN_UPSTREAM_ADDRESSES_MAX];
    uint32_t address_last;     /* the number of the last that came */
    uint64_t left_at;          /* the turn after which nobody chooses an address that was to go */
    struct lm_tls_client *tls; /* its owner's; NULL: no address speaks TLS */
    uint32_t connections;      /* that each I/O thread keeps to each address */
    uint32_t in_flight;        /* of all I/O threads */
    uint64_t connect_ns, first_byte_ns, silence_ns, total_ns;
    uint64_t hedge_ns; /* after which a short request goes to a second address too; 0: never */
    uint64_t ping_ns;  /* in a stream that says nothing for so long; 0: never */
    uint8_t http2;     /* LUMEN_HTTP2_* */
    bool retries;
    uint32_t retry_percent;
    uint32_t token_bytes, answer_tokens; /* a budget's idea of a request; lumen_upstream_config */
    bool asks_usage;
    lm_atomic_u64 in_flight_now; /* of all I/O threads */
    lm_atomic_u32 is_down;       /* 1: none of its addresses was there when they were last asked */
};

struct lm_upstreams {
    struct lm_upstream *at[LUMEN_UPSTREAMS_MAX];
    uint32_t count;
};

/* Returns 0, LUMEN_E_INVALID with what was expected, or LUMEN_E_NOMEM. */
int lm_upstreams_add(struct lm_upstreams *upstreams, const lumen_upstream_config *config);
/* These addresses, and no others, are in use from now on; `config` has nothing else. With
 * `are_turned` I/O threads have turned since left_at, and entries of addresses that went may be
 * free. `any_left_out` becomes true where some are to go now. Returns 0, LUMEN_E_AGAIN where one
 * has no entry yet, or as above. */
int lm_upstream_move(struct lm_upstream *upstream, const lumen_upstream_config *config,
                     bool are_turned, bool *any_left_out);
/* Any thread: whether an entry's address may be chosen. */
static inline bool lm_upstream_address_is_used(const struct lm_upstream_address *address) {
    /* A2: acquire: the address is whole; pairs with A1 */
    return lm_load_acquire_u32(&address->state) == LM_ADDRESS_IN_USE;
}
void lm_upstreams_close(struct lm_upstreams *upstreams);

#endif
