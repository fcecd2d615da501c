/* openssl.h: the functions of the system's OpenSSL 3, found when a server speaks TLS.
 *
 * The library is not linked: it is the system's, which keeps it patched, and a server without TLS
 * needs none. Types are opaque, and constants are those of OpenSSL's stable ABI (its headers ssl.h,
 * bio.h and tls1.h); a library of another major version has another file name. Opened by the
 * control thread; any thread may call the functions afterwards.
 */
#ifndef LM_TLS_OPENSSL_H
#define LM_TLS_OPENSSL_H

#include <stddef.h>
#include <stdint.h>

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct ssl_session_st SSL_SESSION;
typedef struct bio_st BIO;
typedef struct bio_method_st BIO_METHOD;
typedef struct x509_st X509;
typedef struct X509_name_st X509_NAME;
typedef struct x509_store_st X509_STORE;
typedef struct X509_extension_st X509_EXTENSION;
typedef struct evp_pkey_st EVP_PKEY;
typedef struct evp_md_st EVP_MD;
typedef struct evp_cipher_st EVP_CIPHER;
typedef struct evp_cipher_ctx_st EVP_CIPHER_CTX;
typedef struct evp_mac_ctx_st EVP_MAC_CTX;
typedef struct asn1_string_st ASN1_STRING; /* ASN1_TIME and ASN1_INTEGER too */
typedef struct stack_st OPENSSL_STACK;

/* A parameter of EVP_MAC_CTX_set_params; the last of an array has no key. */
typedef struct ossl_param_st {
    const char *key;
    unsigned int data_type;
    void *data;
    size_t data_size;
    size_t return_size;
} OSSL_PARAM;

enum {
    LM_SSL_ERROR_WANT_READ = 2,
    LM_SSL_ERROR_WANT_WRITE = 3,
    LM_SSL_ERROR_ZERO_RETURN = 6, /* close_notify came */

    LM_SSL_CTRL_SET_MSG_CALLBACK_ARG = 16,
    LM_SSL_CTRL_MODE = 33,
    LM_SSL_CTRL_SET_READ_AHEAD = 41,
    LM_SSL_CTRL_SET_SESS_CACHE_MODE = 44,
    LM_SSL_CTRL_SET_MAX_CERT_LIST = 51,
    LM_SSL_CTRL_SET_TLSEXT_HOSTNAME = 55,
    LM_SSL_CTRL_CHAIN_CERT = 89,
    LM_SSL_CTRL_SET_GROUPS_LIST = 92,
    LM_SSL_CTRL_SET_MIN_PROTO_VERSION = 123,

    LM_SSL_MODE_ENABLE_PARTIAL_WRITE = 1,
    LM_SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER = 2,
    LM_SSL_MODE_RELEASE_BUFFERS = 0x10,

    LM_SSL_VERIFY_PEER = 1,
    LM_SSL_VERIFY_FAIL_IF_NO_PEER_CERT = 2,

    LM_SSL_OP_NO_COMPRESSION = 1 << 17,
    LM_SSL_OP_CIPHER_SERVER_PREFERENCE = 1 << 22,
    LM_SSL_OP_NO_RENEGOTIATION = 1 << 30,
    LM_SSL_OP_PRIORITIZE_CHACHA = 1 << 21,

    LM_TLS1_2_VERSION = 0x0303,
    LM_TLSEXT_TYPE_SERVER_NAME = 0,
    LM_TLSEXT_NAMETYPE_HOST_NAME = 0,
    LM_SSL_TLSEXT_ERR_OK = 0,
    LM_SSL_TLSEXT_ERR_ALERT_FATAL = 2,
    LM_SSL_CLIENT_HELLO_SUCCESS = 1,
    LM_SSL3_RT_HANDSHAKE = 22,
    LM_PEM_R_NO_START_LINE = 108,
    LM_ERR_REASON_MASK = 0x7fffff,

    LM_BIO_TYPE_SOURCE_SINK = 0x0400,
    LM_BIO_FLAGS_WRITE = 2,
    LM_BIO_FLAGS_READ = 1,
    LM_BIO_FLAGS_SHOULD_RETRY = 8,
    LM_BIO_CTRL_FLUSH = 11,

    LM_GEN_DNS = 2,
    LM_GEN_URI = 6,
    LM_NID_SUBJECT_ALT_NAME = 85,
    LM_NID_BASIC_CONSTRAINTS = 87,
    LM_EVP_PKEY_RSA = 6,
    LM_MBSTRING_UTF8 = 0x1000,
    LM_OSSL_PARAM_UTF8_STRING = 4,
    LM_OSSL_PARAM_OCTET_STRING = 5
};

typedef int (*lm_ssl_verify)(int, void *);
typedef int (*lm_ssl_hello)(SSL *, int *, void *);
typedef int (*lm_ssl_alpn)(SSL *, const unsigned char **, unsigned char *, const unsigned char *,
                           unsigned int, void *);
typedef int (*lm_ssl_ticket_key)(SSL *, unsigned char *, unsigned char *, EVP_CIPHER_CTX *,
                                 EVP_MAC_CTX *, int);
typedef void (*lm_ssl_message)(int, int, int, const void *, size_t, SSL *, void *);
typedef int (*lm_bio_read)(BIO *, char *, int);
typedef int (*lm_bio_write)(BIO *, const char *, int);
typedef long (*lm_bio_ctrl)(BIO *, int, long, void *);
typedef int (*lm_pem_password)(char *, int, int, void *);

/* X(result, name, arguments): of libssl. */
#define LM_SSL_FUNCTIONS(X)                                                                    \
    X(const SSL_METHOD *, TLS_server_method, (void))                                           \
    X(const SSL_METHOD *, TLS_client_method, (void))                                           \
    X(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *))                                            \
    X(void, SSL_CTX_free, (SSL_CTX *))                                                         \
    X(long, SSL_CTX_ctrl, (SSL_CTX *, int, long, void *))                                      \
    X(uint64_t, SSL_CTX_set_options, (SSL_CTX *, uint64_t))                                    \
    X(int, SSL_CTX_set_cipher_list, (SSL_CTX *, const char *))                                 \
    X(int, SSL_CTX_set_ciphersuites, (SSL_CTX *, const char *))                                \
    X(int, SSL_CTX_use_certificate, (SSL_CTX *, X509 *))                                       \
    X(int, SSL_CTX_use_PrivateKey, (SSL_CTX *, EVP_PKEY *))                                    \
    X(int, SSL_CTX_check_private_key, (const SSL_CTX *))                                       \
    X(void, SSL_CTX_set_verify, (SSL_CTX *, int, lm_ssl_verify))                               \
    X(void, SSL_CTX_set_verify_depth, (SSL_CTX *, int))                                        \
    X(X509_STORE *, SSL_CTX_get_cert_store, (const SSL_CTX *))                                 \
    X(int, SSL_CTX_set_default_verify_paths, (SSL_CTX *))                                      \
    X(int, SSL_CTX_add_client_CA, (SSL_CTX *, X509 *))                                         \
    X(void, SSL_CTX_set_client_hello_cb, (SSL_CTX *, lm_ssl_hello, void *))                    \
    X(void, SSL_CTX_set_alpn_select_cb, (SSL_CTX *, lm_ssl_alpn, void *))                      \
    X(int, SSL_CTX_set_tlsext_ticket_key_evp_cb, (SSL_CTX *, lm_ssl_ticket_key))               \
    X(int, SSL_CTX_set_session_id_context, (SSL_CTX *, const unsigned char *, unsigned int))   \
    X(int, SSL_CTX_set_num_tickets, (SSL_CTX *, size_t))                                       \
    X(void, SSL_CTX_set_msg_callback, (SSL_CTX *, lm_ssl_message))                             \
    X(int, SSL_CTX_set_alpn_protos, (SSL_CTX *, const unsigned char *, unsigned int))          \
    X(void, SSL_get0_alpn_selected, (const SSL *, const unsigned char **, unsigned int *))     \
    X(SSL_SESSION *, SSL_get1_session, (SSL *))                                                \
    X(int, SSL_set_session, (SSL *, SSL_SESSION *))                                            \
    X(SSL_SESSION *, SSL_SESSION_dup, (const SSL_SESSION *))                                   \
    X(void, SSL_SESSION_free, (SSL_SESSION *))                                                 \
    X(int, SSL_client_hello_get0_ext, (SSL *, unsigned int, const unsigned char **, size_t *)) \
    X(SSL_CTX *, SSL_set_SSL_CTX, (SSL *, SSL_CTX *))                                          \
    X(SSL *, SSL_new, (SSL_CTX *))                                                             \
    X(void, SSL_free, (SSL *))                                                                 \
    X(long, SSL_ctrl, (SSL *, int, long, void *))                                              \
    X(int, SSL_set_ex_data, (SSL *, int, void *))                                              \
    X(void *, SSL_get_ex_data, (const SSL *, int))                                             \
    X(void, SSL_set_bio, (SSL *, BIO *, BIO *))                                                \
    X(void, SSL_set_accept_state, (SSL *))                                                     \
    X(void, SSL_set_connect_state, (SSL *))                                                    \
    X(int, SSL_do_handshake, (SSL *))                                                          \
    X(int, SSL_read, (SSL *, void *, int))                                                     \
    X(int, SSL_write, (SSL *, const void *, int))                                              \
    X(int, SSL_shutdown, (SSL *))                                                              \
    X(int, SSL_get_error, (const SSL *, int))                                                  \
    X(int, SSL_pending, (const SSL *))                                                         \
    X(int, SSL_has_pending, (const SSL *))                                                     \
    X(int, SSL_session_reused, (const SSL *))                                                  \
    X(X509 *, SSL_get1_peer_certificate, (const SSL *))

/* Of libcrypto. */
#define LM_CRYPTO_FUNCTIONS(X)                                                                   \
    X(unsigned long, ERR_get_error, (void))                                                      \
    X(unsigned long, ERR_peek_error, (void))                                                     \
    X(unsigned long, ERR_peek_last_error, (void))                                                \
    X(void, ERR_clear_error, (void))                                                             \
    X(const char *, ERR_reason_error_string, (unsigned long))                                    \
    X(const char *, OpenSSL_version, (int))                                                      \
    X(int, RAND_bytes, (unsigned char *, int))                                                   \
    X(BIO_METHOD *, BIO_meth_new, (int, const char *))                                           \
    X(int, BIO_meth_set_read, (BIO_METHOD *, lm_bio_read))                                       \
    X(int, BIO_meth_set_write, (BIO_METHOD *, lm_bio_write))                                     \
    X(int, BIO_meth_set_ctrl, (BIO_METHOD *, lm_bio_ctrl))                                       \
    X(BIO *, BIO_new, (const BIO_METHOD *))                                                      \
    X(const BIO_METHOD *, BIO_s_mem, (void))                                                     \
    X(BIO *, BIO_new_mem_buf, (const void *, int))                                               \
    X(int, BIO_free, (BIO *))                                                                    \
    X(int, BIO_read, (BIO *, void *, int))                                                       \
    X(void, BIO_set_data, (BIO *, void *))                                                       \
    X(void *, BIO_get_data, (BIO *))                                                             \
    X(void, BIO_set_init, (BIO *, int))                                                          \
    X(void, BIO_set_flags, (BIO *, int))                                                         \
    X(void, BIO_clear_flags, (BIO *, int))                                                       \
    X(X509 *, PEM_read_bio_X509, (BIO *, X509 **, lm_pem_password, void *))                      \
    X(EVP_PKEY *, PEM_read_bio_PrivateKey, (BIO *, EVP_PKEY **, lm_pem_password, void *))        \
    X(int, PEM_write_bio_X509, (BIO *, const X509 *))                                            \
    X(int, PEM_write_bio_PrivateKey,                                                             \
      (BIO *, const EVP_PKEY *, const EVP_CIPHER *, const unsigned char *, int, lm_pem_password, \
       void *))                                                                                  \
    X(X509 *, X509_new, (void))                                                                  \
    X(void, X509_free, (X509 *))                                                                 \
    X(int, X509_set_version, (X509 *, long))                                                     \
    X(ASN1_STRING *, X509_get_serialNumber, (X509 *))                                            \
    X(int, ASN1_INTEGER_set_int64, (ASN1_STRING *, int64_t))                                     \
    X(const ASN1_STRING *, X509_get0_notBefore, (const X509 *))                                  \
    X(const ASN1_STRING *, X509_get0_notAfter, (const X509 *))                                   \
    X(ASN1_STRING *, X509_getm_notBefore, (const X509 *))                                        \
    X(ASN1_STRING *, X509_getm_notAfter, (const X509 *))                                         \
    X(ASN1_STRING *, X509_gmtime_adj, (ASN1_STRING *, long))                                     \
    X(int, ASN1_TIME_diff, (int *, int *, const ASN1_STRING *, const ASN1_STRING *))             \
    X(int, X509_set_pubkey, (X509 *, EVP_PKEY *))                                                \
    X(EVP_PKEY *, X509_get0_pubkey, (const X509 *))                                              \
    X(X509_NAME *, X509_get_subject_name, (const X509 *))                                        \
    X(int, X509_set_issuer_name, (X509 *, const X509_NAME *))                                    \
    X(int, X509_NAME_add_entry_by_txt,                                                           \
      (X509_NAME *, const char *, int, const unsigned char *, int, int, int))                    \
    X(X509_EXTENSION *, X509V3_EXT_conf_nid, (void *, void *, int, const char *))                \
    X(int, X509_add_ext, (X509 *, X509_EXTENSION *, int))                                        \
    X(void, X509_EXTENSION_free, (X509_EXTENSION *))                                             \
    X(int, X509_sign, (X509 *, EVP_PKEY *, const EVP_MD *))                                      \
    X(int, X509_check_host, (X509 *, const char *, size_t, unsigned int, char **))               \
    X(int, X509_check_ip_asc, (X509 *, const char *, unsigned int))                              \
    X(void *, X509_get_ext_d2i, (const X509 *, int, int *, int *))                               \
    X(int, X509_STORE_add_cert, (X509_STORE *, X509 *))                                          \
    X(int, OPENSSL_sk_num, (const OPENSSL_STACK *))                                              \
    X(void *, OPENSSL_sk_value, (const OPENSSL_STACK *, int))                                    \
    X(void *, GENERAL_NAME_get0_value, (const void *, int *))                                    \
    X(void, GENERAL_NAMES_free, (void *))                                                        \
    X(const unsigned char *, ASN1_STRING_get0_data, (const ASN1_STRING *))                       \
    X(int, ASN1_STRING_length, (const ASN1_STRING *))                                            \
    X(EVP_PKEY *, EVP_PKEY_Q_keygen, (void *, const char *, const char *, ...))                  \
    X(int, EVP_PKEY_get_base_id, (const EVP_PKEY *))                                             \
    X(void, EVP_PKEY_free, (EVP_PKEY *))                                                         \
    X(const EVP_MD *, EVP_sha256, (void))                                                        \
    X(const EVP_CIPHER *, EVP_aes_256_cbc, (void))                                               \
    X(int, EVP_EncryptInit_ex,                                                                   \
      (EVP_CIPHER_CTX *, const EVP_CIPHER *, void *, const unsigned char *,                      \
       const unsigned char *))                                                                   \
    X(int, EVP_DecryptInit_ex,                                                                   \
      (EVP_CIPHER_CTX *, const EVP_CIPHER *, void *, const unsigned char *,                      \
       const unsigned char *))                                                                   \
    X(int, EVP_MAC_CTX_set_params, (EVP_MAC_CTX *, const OSSL_PARAM *))

#define LM_OPENSSL_MEMBER(result, name, arguments) result(*name) arguments;
struct lm_openssl {
    void *ssl, *crypto; /* the libraries */
    LM_SSL_FUNCTIONS(LM_OPENSSL_MEMBER)
    LM_CRYPTO_FUNCTIONS(LM_OPENSSL_MEMBER)
};
#undef LM_OPENSSL_MEMBER

/* The functions, found at the first call and kept as long as the process lives: what OpenSSL
 * registers for the end of threads has no other end. NULL: they are not there, and lm_error_last
 * says what to install. */
const struct lm_openssl *lm_openssl(void);
/* The reason of the calling thread's last failure, "" where OpenSSL gives none; clears it. */
const char *lm_openssl_why(const struct lm_openssl *openssl);

#endif
