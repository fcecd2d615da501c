/* openssl.c: see openssl.h. */
#include "tls/openssl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"

static const char ssl_name[] = "libssl.so.3", crypto_name[] = "libcrypto.so.3";

static struct lm_openssl table;
static bool is_found;
static char why_not[256];

static bool find(void *library, const char *library_name, const char *name, void *function_out) {
    *(void **)function_out = dlsym(library, name);
    if (*(void **)function_out) return true;
    snprintf(why_not, sizeof why_not, "%s: expected OpenSSL 3, found no function %s", library_name,
             name);
    return false;
}

static bool find_all(void) {
#define FIND_SSL(result, name, arguments) \
    if (!find(table.ssl, ssl_name, #name, &table.name)) return false;
#define FIND_CRYPTO(result, name, arguments) \
    if (!find(table.crypto, crypto_name, #name, &table.name)) return false;
    LM_SSL_FUNCTIONS(FIND_SSL)
    LM_CRYPTO_FUNCTIONS(FIND_CRYPTO)
    return true;
}

static void open_libraries(void) {
    table.crypto = dlopen(crypto_name, RTLD_NOW | RTLD_LOCAL);
    table.ssl = table.crypto ? dlopen(ssl_name, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!table.ssl) {
        snprintf(why_not, sizeof why_not,
                 "server.tls: expected OpenSSL 3 of the system, found none (%s): install libssl3 "
                 "(Debian, Ubuntu) or openssl-libs (Fedora, RHEL)",
                 dlerror());
        return;
    }
    is_found = find_all();
}

const struct lm_openssl *lm_openssl(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_libraries);
    if (is_found) return &table;
    (void)lm_error(LUMEN_E_UNSUPPORTED, "%s", why_not);
    return NULL;
}

const char *lm_openssl_why(const struct lm_openssl *openssl) {
    const unsigned long code = openssl->ERR_peek_error();
    const char *why = code ? openssl->ERR_reason_error_string(code) : NULL;
    openssl->ERR_clear_error();
    return why ? why : "";
}
