/* test_tls_certificate.c: by which of its names a client is known that shows a certificate: by its
 * URI, else by its DNS name, whatever their order. */
#include <sodium.h>

#include "check.h"
#include "tls/certificate.h"

enum { CERTIFICATE_BYTES = 8192 };

/* `expected`: NULL where the certificate has no name that a client is known by. */
static void is_known_by(const char *names, const char *expected) {
    static char pem[CERTIFICATE_BYTES], key[CERTIFICATE_BYTES];
    const struct lm_openssl *openssl = lm_openssl();
    uint8_t found[crypto_hash_sha256_BYTES], wanted[crypto_hash_sha256_BYTES];
    X509 *certificate;
    CHECK_AT("a certificate for %s", names);
    CHECK(lumen_make_certificate(names, pem, key, CERTIFICATE_BYTES) == 0);
    CHECK(lm_certificates_read(openssl, pem, "a test", &certificate, 1) == 1);
    CHECK(lm_certificate_subject(openssl, certificate, found) == (expected != NULL));
    openssl->X509_free(certificate);
    if (!expected) return;
    crypto_hash_sha256(wanted, (const uint8_t *)expected, strlen(expected));
    CHECK(memcmp(found, wanted, sizeof wanted) == 0);
}

int main(void) {
    if (!lm_openssl()) check_skip("test_tls_certificate", "there is no OpenSSL 3");
    is_known_by("DNS:one.example", "one.example");
    is_known_by("DNS:one.example,DNS:two.example", "one.example");
    is_known_by("URI:spiffe://one/a", "spiffe://one/a");
    is_known_by("DNS:one.example,URI:spiffe://one/a,URI:spiffe://one/b", "spiffe://one/a");
    is_known_by("URI:spiffe://one/a,DNS:one.example", "spiffe://one/a");
    is_known_by("IP:127.0.0.1,email:a@one.example", NULL);
    return check_finish("test_tls_certificate");
}
