/* upstreams.h: the servers elsewhere whose models are served here too: where they listen, and how
 * patient one is with them. Written by the control thread before the start, read by I/O threads; a
 * word each of them writes says whether somebody answers there.
 */
#ifndef LM_PARTS_UPSTREAMS_H
#define LM_PARTS_UPSTREAMS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/atomics.h"
#include "base/limits.h"

/* Of a slot, beside the body: for the head of a request and of its answer, and for what a client
 * has not taken. */
enum {
    LM_UPSTREAM_NAME_BYTES_MAX = 64,
    LM_UPSTREAM_HEAD_BYTES = 4096,
    LM_UPSTREAM_WINDOW_BYTES = 8192,
    LM_UPSTREAM_SLOT_BYTES = LM_UPSTREAM_HEAD_BYTES + LM_UPSTREAM_WINDOW_BYTES + 4 * LM_SLOT_ALIGN
};

struct lm_upstream_address {
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
    uint32_t address_count;
    struct lm_tls_client *tls; /* its owner's; NULL: no address speaks TLS */
    uint32_t connections;      /* that each I/O thread keeps to each address */
    uint32_t in_flight;        /* of all I/O threads */
    uint64_t connect_ns, first_byte_ns, silence_ns, total_ns;
    uint64_t ping_ns; /* in a stream that says nothing for so long; 0: never */
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
void lm_upstreams_close(struct lm_upstreams *upstreams);

#endif
