/* tickets.h: the keys of session tickets, by which clients come back without a whole handshake.
 *
 * A ticket is sealed by the newest key and opened by those before it for a while, so that a stolen
 * key tells little of the past. The thread of the handshakes alone.
 */
#ifndef LM_TLS_TICKETS_H
#define LM_TLS_TICKETS_H

#include "tls/openssl.h"

enum { LM_TLS_TICKET_KEYS = 3, LM_TLS_TICKET_HOURS = 12, LM_TLS_TICKET_NAME_BYTES = 16 };

struct lm_tls_ticket_key {
    uint8_t name[LM_TLS_TICKET_NAME_BYTES];
    uint8_t aes[32];
    uint8_t hmac[32];
};

struct lm_tls_tickets {
    const struct lm_openssl *openssl;
    struct lm_tls_ticket_key keys[LM_TLS_TICKET_KEYS]; /* the newest first */
    uint32_t count;
    uint64_t changed_ns;
};

/* Makes a new key where there is none, or the newest is old. Without randomness there is none. */
void lm_tls_tickets_turn(struct lm_tls_tickets *tickets, uint64_t now_ns);
/* Forgets all of them: nobody comes back without a whole handshake. */
void lm_tls_tickets_forget(struct lm_tls_tickets *tickets);
/* For SSL_CTX_set_tlsext_ticket_key_evp_cb; the session's ex_data 0 is the tickets. */
int lm_tls_ticket_key(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                      EVP_MAC_CTX *mac, int seals);

#endif
