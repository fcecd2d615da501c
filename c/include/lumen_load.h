/* lumen_load.h: the load generator: one thread on a ring of its own, against any Lumen server. */
#ifndef LUMEN_LOAD_H
#define LUMEN_LOAD_H

#include <stdint.h>

#include "lumen.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Requests of one model over `connections` connections, each with one request at a time. */
typedef struct lumen_load_config {
    const char *host; /* an IPv4 or IPv6 address, or unix:PATH, which has no port */
    uint32_t port;
    uint32_t connections; /* 1..LUMEN_LOAD_CONNECTIONS_MAX */
    uint16_t model;       /* index, as describe gives it */
    uint8_t encoding;     /* 0 tensors, 1 rgb8 */
    uint8_t credential;   /* 1: each payload begins with a key's 32 bytes; 0: none does */
    uint32_t rows;
    uint32_t timeout_us;         /* sent with each request; 0: the server's default */
    uint32_t payload_count;      /* used in turn */
    const void *const *payloads; /* each of payload_bytes */
    uint64_t payload_bytes;
    uint64_t requests;     /* counted ones; 0: until duration_ns */
    uint64_t duration_ns;  /* counted time; 0: until `requests` */
    uint64_t warmup_ns;    /* before counting starts */
    double rate;           /* open loop: arrivals a second, Poisson; 0: closed loop */
    uint64_t seed;         /* of the arrivals */
    uint32_t poll_us;      /* looks for answers so long before it sleeps; 0: sleeps at once */
    uint32_t protocol;     /* 0 native, 1 HTTP/1.1: payloads are whole requests, head and body */
    int32_t cpu;           /* to pin to; -1: none */
    uint32_t expect_bytes; /* of `expected`; 0: answers are not looked at */
    const void *const *expected; /* per payload: what its reply's payload must be */
    uint32_t shapes;   /* 1: each payload has a shape block before its tensors; 0: none has */
    uint32_t reserved; /* 0 */
    /* The name or address that the server's certificate is to be for, by an authority that the
     * system trusts, or one in the file that SSL_CERT_FILE names; NULL: no TLS. */
    const char *tls_host;
} lumen_load_config;

enum { LUMEN_LOAD_CONNECTIONS_MAX = 16384, LUMEN_LOAD_BUCKETS = 1728 };

/* Filled while the load runs, each word by the running thread alone; final when lumen_load returns.
 * Latency is from the moment a request was due (open loop) or sent (closed loop) to its last byte.
 */
typedef struct lumen_load_result {
    uint64_t requests;     /* answered with status 0 */
    uint64_t errors;       /* answered otherwise, or not as expected */
    uint64_t statuses[16]; /* answers by status */
    uint64_t mismatches;   /* status 0, but not the expected payload */
    uint64_t disconnects;  /* connections lost while a request was out */
    uint64_t wall_ns;      /* counted time */
    uint64_t cpu_ns;       /* of the generator's thread in that time */
    uint64_t min_ns;
    uint64_t max_ns;
    uint64_t sum_ns;
    uint64_t late;     /* open loop: requests sent more than 1 ms after they were due */
    uint64_t unsent;   /* open loop: due, but never sent for want of a free connection */
    uint64_t counting; /* 1 once the warm-up is over */
    uint64_t buckets[LUMEN_LOAD_BUCKETS]; /* a histogram, as in the statistics file */
} lumen_load_result;

/* Runs the load in the calling thread. `stop`, when not NULL, ends it early once it is not 0. */
LUMEN_API int lumen_load(const lumen_load_config *config, lumen_load_result *result_out,
                         const uint32_t *stop);

#ifdef __cplusplus
}
#endif
#endif
