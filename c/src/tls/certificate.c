/* certificate.c: see certificate.h. */
#include "tls/certificate.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

enum { DAY_S = 86400, TRIAL_DAYS = 90 };

/* A key that asks for a password is refused, instead of asking on a terminal. */
static int no_password(char *buffer, int bytes, int is_written, void *argument) {
    (void)buffer, (void)bytes, (void)is_written, (void)argument;
    return 0;
}

/* ---- reading ---- */

uint32_t lm_certificates_read(const struct lm_openssl *openssl, const char *pem, const char *source,
                              X509 **certificates_out, uint32_t capacity) {
    uint32_t count = 0;
    X509 *next = NULL;
    BIO *bio = openssl->BIO_new_mem_buf(pem, -1);
    while (bio && (next = openssl->PEM_read_bio_X509(bio, NULL, no_password, NULL))) {
        if (count == capacity) break;
        certificates_out[count++] = next;
    }
    openssl->BIO_free(bio);
    const uint64_t reason = openssl->ERR_peek_last_error() & LM_ERR_REASON_MASK;
    const char *why = lm_openssl_why(openssl);
    openssl->X509_free(next); /* NULL, but for one too many */
    if (count > 0 && !next && reason == LM_PEM_R_NO_START_LINE) return count;
    (void)lm_error(LUMEN_E_INVALID,
                   "%s: expected 1 to %u certificates in PEM form (-----BEGIN CERTIFICATE-----), "
                   "found %u and %s",
                   source, capacity, count, next ? "more" : why);
    while (count > 0) openssl->X509_free(certificates_out[--count]);
    return 0;
}

static EVP_PKEY *read_key(const struct lm_openssl *openssl, const char *pem, const char *source) {
    BIO *bio = openssl->BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio ? openssl->PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    openssl->BIO_free(bio);
    const char *why = lm_openssl_why(openssl);
    if (!key)
        (void)lm_error(LUMEN_E_INVALID,
                       "%s: expected a private key in PEM form without a password "
                       "(-----BEGIN PRIVATE KEY-----), found none (%s)",
                       source, why);
    return key;
}

/* The value of a name of one of the two kinds that are looked at; NULL: it is of another. */
static const ASN1_STRING *text_of(const struct lm_openssl *openssl, const void *name, int kind) {
    int found = -1;
    const ASN1_STRING *value = openssl->GENERAL_NAME_get0_value(name, &found);
    return found == kind ? value : NULL;
}

/* The first name of a kind; NULL: there is none. */
static const ASN1_STRING *first_name(const struct lm_openssl *openssl, const OPENSSL_STACK *names,
                                     int kind) {
    const ASN1_STRING *found = NULL;
    for (int n = 0; !found && n < openssl->OPENSSL_sk_num(names); n++)
        found = text_of(openssl, openssl->OPENSSL_sk_value(names, n), kind);
    return found;
}

int lm_certificate_use(const struct lm_openssl *openssl, SSL_CTX *context, const char *pem,
                       const char *key_pem, const char *source, X509 **first_out) {
    X509 *chain[LM_CERTIFICATE_CHAIN_MAX];
    const uint32_t count =
        lm_certificates_read(openssl, pem, source, chain, LM_CERTIFICATE_CHAIN_MAX);
    if (count == 0) return LUMEN_E_INVALID;
    bool is_set = openssl->SSL_CTX_use_certificate(context, chain[0]) == 1;
    if (first_out) {
        *first_out = chain[0];
    } else {
        openssl->X509_free(chain[0]);
    }
    for (uint32_t c = 1; c < count; c++) {
        is_set = is_set && openssl->SSL_CTX_ctrl(context, LM_SSL_CTRL_CHAIN_CERT, 1, chain[c]) == 1;
        openssl->X509_free(chain[c]);
    }
    EVP_PKEY *key = is_set ? read_key(openssl, key_pem, source) : NULL;
    if (is_set && !key) return LUMEN_E_INVALID;
    is_set = is_set && openssl->SSL_CTX_use_PrivateKey(context, key) == 1 &&
             openssl->SSL_CTX_check_private_key(context) == 1;
    openssl->EVP_PKEY_free(key);
    if (is_set) return 0;
    return lm_error(LUMEN_E_INVALID,
                    "%s: expected a certificate and its own private key, found one that cannot be "
                    "used with it (%s)",
                    source, lm_openssl_why(openssl));
}

bool lm_certificate_subject(const struct lm_openssl *openssl, X509 *certificate,
                            uint8_t *hash_out) {
    OPENSSL_STACK *names =
        openssl->X509_get_ext_d2i(certificate, LM_NID_SUBJECT_ALT_NAME, NULL, NULL);
    if (!names) return false;
    const ASN1_STRING *name = first_name(openssl, names, LM_GEN_URI);
    if (!name) name = first_name(openssl, names, LM_GEN_DNS);
    if (name)
        crypto_hash_sha256(hash_out, openssl->ASN1_STRING_get0_data(name),
                           (unsigned long long)openssl->ASN1_STRING_length(name));
    openssl->GENERAL_NAMES_free(names);
    return name != NULL;
}

bool lm_certificate_is_over(const struct lm_openssl *openssl, const X509 *certificate) {
    int days = 0, seconds = 0;
    return openssl->ASN1_TIME_diff(&days, &seconds, NULL,
                                   openssl->X509_get0_notAfter(certificate)) != 1 ||
           days < 0 || seconds < 0;
}

/* ---- the content of a certificate ---- */

/* Seconds since 1970. */
static int64_t unix_time(const struct lm_openssl *openssl, const ASN1_STRING *when) {
    int days = 0, seconds = 0;
    if (openssl->ASN1_TIME_diff(&days, &seconds, NULL, when) != 1) return 0;
    return (int64_t)time(NULL) + (int64_t)days * DAY_S + seconds;
}

static void list_names(const struct lm_openssl *openssl, const X509 *certificate, char *out,
                       size_t capacity) {
    OPENSSL_STACK *names =
        openssl->X509_get_ext_d2i(certificate, LM_NID_SUBJECT_ALT_NAME, NULL, NULL);
    size_t used = 0;
    for (int n = 0; names && n < openssl->OPENSSL_sk_num(names); n++) {
        const ASN1_STRING *name = text_of(openssl, openssl->OPENSSL_sk_value(names, n), LM_GEN_DNS);
        if (!name) continue;
        const size_t bytes = (size_t)openssl->ASN1_STRING_length(name);
        if (used + bytes + 2 > capacity) break;
        if (used) out[used++] = ' ';
        memcpy(out + used, openssl->ASN1_STRING_get0_data(name), bytes);
        used += bytes;
    }
    out[used] = '\0';
    if (names) openssl->GENERAL_NAMES_free(names);
}

int lumen_look_at_certificate(const lumen_certificate *certificate, lumen_certificate_info *out) {
    const struct lm_openssl *openssl = lm_openssl();
    X509 *chain[LM_CERTIFICATE_CHAIN_MAX];
    memset(out, 0, sizeof *out);
    if (!openssl) return LUMEN_E_UNSUPPORTED;
    const uint32_t count = lm_certificates_read(
        openssl, certificate->certificate, certificate->source, chain, LM_CERTIFICATE_CHAIN_MAX);
    if (count == 0) return LUMEN_E_INVALID;
    X509 *first = chain[0];
    out->not_before = unix_time(openssl, openssl->X509_get0_notBefore(first));
    out->not_after = unix_time(openssl, openssl->X509_get0_notAfter(first));
    out->is_rsa =
        openssl->EVP_PKEY_get_base_id(openssl->X509_get0_pubkey(first)) == LM_EVP_PKEY_RSA;
    list_names(openssl, first, out->names, sizeof out->names);
    for (uint32_t c = 0; c < count; c++) openssl->X509_free(chain[c]);
    return 0;
}

/* ---- a certificate for trying ---- */

static bool add_extension(const struct lm_openssl *openssl, X509 *certificate, int kind,
                          const char *value) {
    X509_EXTENSION *extension = openssl->X509V3_EXT_conf_nid(NULL, NULL, kind, value);
    const bool is_added = extension && openssl->X509_add_ext(certificate, extension, -1) == 1;
    if (extension) openssl->X509_EXTENSION_free(extension);
    return is_added;
}

static bool fill(const struct lm_openssl *openssl, X509 *certificate, EVP_PKEY *key,
                 const char *names) {
    static const unsigned char issuer[] = "lumen tls try";
    uint64_t serial;
    X509_NAME *subject = openssl->X509_get_subject_name(certificate);
    if (openssl->RAND_bytes((unsigned char *)&serial, sizeof serial) != 1) return false;
    return openssl->X509_set_version(certificate, 2) == 1 &&
           openssl->ASN1_INTEGER_set_int64(openssl->X509_get_serialNumber(certificate),
                                           (int64_t)(serial >> 1)) == 1 &&
           openssl->X509_gmtime_adj(openssl->X509_getm_notBefore(certificate), -DAY_S / 24) &&
           openssl->X509_gmtime_adj(openssl->X509_getm_notAfter(certificate), TRIAL_DAYS * DAY_S) &&
           openssl->X509_set_pubkey(certificate, key) == 1 &&
           openssl->X509_NAME_add_entry_by_txt(subject, "CN", LM_MBSTRING_UTF8, issuer, -1, -1,
                                               0) == 1 &&
           openssl->X509_set_issuer_name(certificate, subject) == 1 &&
           add_extension(openssl, certificate, LM_NID_SUBJECT_ALT_NAME, names) &&
           add_extension(openssl, certificate, LM_NID_BASIC_CONSTRAINTS, "critical,CA:TRUE") &&
           openssl->X509_sign(certificate, key, openssl->EVP_sha256()) > 0;
}

/* Copies the content of a BIO of memory, as a text. false: it does not fit. */
static bool copy_out(const struct lm_openssl *openssl, BIO *bio, char *out, uint32_t capacity) {
    const int bytes = openssl->BIO_read(bio, out, (int)capacity - 1);
    out[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0 && bytes < (int)capacity - 1;
}

int lumen_make_certificate(const char *names, char *certificate_out, char *key_out,
                           uint32_t capacity) {
    const struct lm_openssl *openssl = lm_openssl();
    if (!openssl) return LUMEN_E_UNSUPPORTED;
    EVP_PKEY *key = openssl->EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    X509 *certificate = openssl->X509_new();
    BIO *texts[2] = {openssl->BIO_new(openssl->BIO_s_mem()),
                     openssl->BIO_new(openssl->BIO_s_mem())};
    const bool is_made =
        key && certificate && texts[0] && texts[1] && fill(openssl, certificate, key, names) &&
        openssl->PEM_write_bio_X509(texts[0], certificate) == 1 &&
        openssl->PEM_write_bio_PrivateKey(texts[1], key, NULL, NULL, 0, NULL, NULL) == 1 &&
        copy_out(openssl, texts[0], certificate_out, capacity) &&
        copy_out(openssl, texts[1], key_out, capacity);
    for (int t = 0; t < 2; t++) openssl->BIO_free(texts[t]);
    openssl->X509_free(certificate);
    openssl->EVP_PKEY_free(key);
    const char *why = lm_openssl_why(openssl);
    return is_made
               ? 0
               : lm_error(LUMEN_E_INVALID, "a certificate for '%s': OpenSSL says: %s", names, why);
}
