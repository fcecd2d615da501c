/* tickets.c: see tickets.h. */
#include "tls/tickets.h"

#include <string.h>

enum { IV_BYTES = 16, HOUR_S = 3600 };
/* The callback's answers to OpenSSL: no ticket; the ticket opens; it opens, and is renewed. */
enum { NO_TICKET = 0, OPENED = 1, RENEWED = 2 };

void lm_tls_tickets_turn(struct lm_tls_tickets *tickets, uint64_t now_ns) {
    struct lm_tls_ticket_key key;
    const uint64_t age_ns = now_ns - tickets->changed_ns;
    if (tickets->count && age_ns < LM_TLS_TICKET_HOURS * HOUR_S * 1000000000ull) return;
    if (tickets->openssl->RAND_bytes((unsigned char *)&key, sizeof key) != 1) return;
    memmove(tickets->keys + 1, tickets->keys, sizeof tickets->keys - sizeof tickets->keys[0]);
    tickets->keys[0] = key;
    if (tickets->count < LM_TLS_TICKET_KEYS) tickets->count++;
    tickets->changed_ns = now_ns;
}

void lm_tls_tickets_forget(struct lm_tls_tickets *tickets) {
    explicit_bzero(tickets->keys, sizeof tickets->keys);
    tickets->count = 0;
}

static uint32_t find(const struct lm_tls_tickets *tickets, const unsigned char *name) {
    uint32_t k = 0;
    while (k < tickets->count && memcmp(tickets->keys[k].name, name, LM_TLS_TICKET_NAME_BYTES) != 0)
        k++;
    return k;
}

int lm_tls_ticket_key(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                      EVP_MAC_CTX *mac, int seals) {
    const struct lm_openssl *openssl = lm_openssl();
    struct lm_tls_tickets *tickets = openssl->SSL_get_ex_data(ssl, 0);
    char digest[] = "SHA256";
    if (!tickets || !tickets->count) return NO_TICKET;
    const uint32_t k = seals ? 0 : find(tickets, name);
    if (k == tickets->count) return NO_TICKET;
    struct lm_tls_ticket_key *key = &tickets->keys[k];
    const OSSL_PARAM parameters[] = {
        {"key", LM_OSSL_PARAM_OCTET_STRING, key->hmac, sizeof key->hmac, 0},
        {"digest", LM_OSSL_PARAM_UTF8_STRING, digest, sizeof digest - 1, 0},
        {NULL, 0, NULL, 0, 0}};
    if (openssl->EVP_MAC_CTX_set_params(mac, parameters) != 1) return -1;
    if (!seals) {
        if (openssl->EVP_DecryptInit_ex(cipher, openssl->EVP_aes_256_cbc(), NULL, key->aes, iv) !=
            1)
            return -1;
        return k == 0 ? OPENED : RENEWED;
    }
    memcpy(name, key->name, LM_TLS_TICKET_NAME_BYTES);
    if (openssl->RAND_bytes(iv, IV_BYTES) != 1 ||
        openssl->EVP_EncryptInit_ex(cipher, openssl->EVP_aes_256_cbc(), NULL, key->aes, iv) != 1)
        return -1;
    return OPENED;
}
