/* client.h: TLS to a server: the connection is good only where its certificate leads to an
 * authority that is trusted, and is for the host that was asked for. The context is made by the
 * control thread; any thread may open sessions of it, each of which one thread alone uses.
 */
#ifndef LM_TLS_CLIENT_H
#define LM_TLS_CLIENT_H

#include <stddef.h>

#include "tls/session.h"

struct lm_tls_client {
    const struct lm_openssl *openssl;
    SSL_CTX *context;
};

/* Whom to trust, and who this side is. */
struct lm_tls_trust {
    const char *authorities; /* PEM; NULL: those of the system */
    const char *certificate; /* PEM, this side's own, with `key`; NULL: it shows none */
    const char *key;
    const char *source; /* where these come from, for messages */
};

/* `protocols`: one of these, the first before the second, is asked for (ALPN); NULL: none is.
 * Returns 0 or LUMEN_E_*. */
#define LM_ALPN_HTTP2 "\x02h2"
#define LM_ALPN_HTTP1 "\x08http/1.1"
int lm_tls_client_open(struct lm_tls_client **client_out, const struct lm_tls_trust *trust,
                       const char *protocols);
void lm_tls_client_close(struct lm_tls_client *client); /* NULL is allowed */

/* For a socket that is connected. `ticket`: of an earlier session with that server, or NULL. NULL:
 * there is no memory. */
struct lm_tls_session *lm_tls_client_begin(const struct lm_tls_client *client, int fd,
                                           const char *host, SSL_SESSION *ticket);
enum lm_tls_greeting { LM_TLS_GREETED, LM_TLS_WAITS, LM_TLS_REFUSED };
/* Goes on with the handshake. WAITS: the server has to say more. REFUSED: `why` says what is wrong,
 * as in "expected a certificate for HOST, ...". */
enum lm_tls_greeting lm_tls_client_greet(const struct lm_tls_client *client,
                                         const struct lm_tls_session *session, const char *host,
                                         char *why, size_t why_bytes);
/* Greeted: whether the server has chosen that protocol. */
bool lm_tls_client_has_chosen(const struct lm_tls_client *client,
                              const struct lm_tls_session *session, const char *protocol);

#endif
