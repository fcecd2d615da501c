/* lumen_upstreams.h: servers elsewhere whose models are served here too, and models that answer in
 * the place of others. Called by the control thread.
 */
#ifndef LUMEN_UPSTREAMS_H
#define LUMEN_UPSTREAMS_H

#include <stdint.h>

#include "lumen.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where an upstream listens. */
typedef struct lumen_upstream_address {
    const char *ip;       /* IPv4 or IPv6 */
    const char *host;     /* what the Host header says */
    const char *path;     /* that its paths begin with: "" or such as /proxy */
    const char *tls_host; /* it speaks TLS, with a certificate for this name; NULL: it does not */
    uint32_t port;
    uint32_t reserved;
} lumen_upstream_address;

/* When requests go to an upstream over HTTP/2, many at a time on each connection. */
enum {
    LUMEN_HTTP2_AUTO,   /* over TLS, where it can (ALPN) */
    LUMEN_HTTP2_ALWAYS, /* without TLS too, unasked */
    LUMEN_HTTP2_NEVER
};

/* An upstream: servers elsewhere that serve the same models, with TLS or without. */
typedef struct lumen_upstream_config {
    const char *name;          /* 1..63 bytes */
    const char *authorization; /* what the Authorization header says; NULL: there is none */
    const lumen_upstream_address *addresses;
    uint32_t address_count; /* 1..LUMEN_UPSTREAM_ADDRESSES_MAX */
    uint32_t connections;   /* that each I/O thread opens at the start and keeps, to each address */
    uint32_t in_flight;     /* requests at a time; then 503. Of all I/O threads */
    uint32_t connect_ms;    /* patience: for a connection, */
    uint32_t first_byte_ms; /* for the first byte of an answer, */
    uint32_t silence_ms;    /* for the next one, */
    uint32_t total_ms;      /* for the last one */
    uint32_t retries;       /* of a request, at another address, before its answer began: 0 or 1 */
    double retry_share;     /* such requests among all: 0.0 to 1.0 */
    /* Tokens that a request takes of budgets before its answer says how many it was: one for so
     * many bytes of its strings, and so many for an answer whose bound it does not say. */
    uint32_t token_bytes;   /* 1..16 */
    uint32_t answer_tokens; /* 0..2^24 */
    uint32_t asks_usage;    /* 1: streams are asked to say it (stream_options.include_usage) */
    uint32_t ping_ms;  /* a comment to clients of streams that say nothing for so long; 0: none */
    uint32_t http2;    /* LUMEN_HTTP2_* */
    uint32_t hedge_ms; /* of patience, then a short request is asked twice; 0: any */
    const char *authorities; /* PEM: that its certificates must lead to; NULL: the system's */
    const char *certificate; /* PEM: this server's own, for it; NULL: none is shown */
    const char *private_key; /* PEM, of that */
    const char *source;      /* where these come from, for messages */
} lumen_upstream_config;

/* Models that may answer in the place of one, in their order: of an upstream that fails before its
 * answer begins, or of a model of texts here that is too busy or too slow for a deadline. */
typedef struct lumen_fallback {
    const char *model;
    const char *const *others;
    uint32_t other_count; /* 0..LUMEN_FALLBACKS_MAX */
    uint32_t reserved;    /* 0 */
} lumen_fallback;

/* Before lumen_start: an upstream, whose models are then added with lumen_add_model. Everything is
 * copied. */
LUMEN_API int lumen_add_upstream(lumen_server *server, const lumen_upstream_config *upstream,
                                 uint32_t *index_out);
/* These addresses of an upstream, and no others, from now on; requests that others have go on to
 * their ends. LUMEN_E_AGAIN: some have no place until those that went have no connections any more:
 * the same call once more, later. */
LUMEN_API int lumen_move_upstream(lumen_server *server, uint32_t index,
                                  const lumen_upstream_address *addresses, uint32_t count);
/* Sets all of them, at any time after lumen_open. Names of models that are not served count once
 * they are. */
LUMEN_API int lumen_set_fallbacks(lumen_server *server, const lumen_fallback *fallbacks,
                                  uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
