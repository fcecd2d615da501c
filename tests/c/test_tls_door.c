/* test_tls_door.c: the thread of the handshakes (tls/handshakes.h) and a client that speaks TLS and
 * trusts the first certificate that is for its host alone. A connection that no I/O thread takes is
 * closed, and nothing of it is left: neither its session nor its share of what one address may
 * open. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/error.h"
#include "check.h"
#include "parts/address_table.h"
#include "parts/stats.h"
#include "tls/client.h"
#include "tls/handshakes.h"

enum { CERTIFICATE_BYTES = 8192 };

/* For another host and for addresses, which clients do not tell the server; twice for this one. */
enum { ANOTHERS, FIRST, SECOND, CERTIFICATES };
static char certificates[CERTIFICATES][CERTIFICATE_BYTES], keys[CERTIFICATES][CERTIFICATE_BYTES];
/* Clients, one after the other, and the one certificate that each trusts. */
static const struct {
    uint32_t trusted;
    const char *host;
} clients[] = {{FIRST, "localhost"}, {FIRST, "LocalHost"},    {ANOTHERS, "other.example"},
               {ANOTHERS, "::1"},    {ANOTHERS, "127.0.0.1"}, {FIRST, "localhost"}};
enum { CLIENTS = sizeof clients / sizeof clients[0] };

static struct lm_tls_sessions *sessions;
static struct lm_tls_door *door;
static struct lm_address_table addresses;
static struct lm_io_counters counters;
static lm_atomic_u64 offered; /* greeted connections, of which none is taken */
static uint16_t port;

static bool takes_none(void *owner, uint32_t fd) {
    CHECK(owner == &offered && lm_tls_session_at(sessions, (int)fd));
    lm_add_single_writer_u64(&offered, 1);
    return false;
}

static int listen_anywhere(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, bytes) == 0 && listen(fd, 8) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    port = ntohs(address.sin_port);
    return fd;
}

static void open_door(void) {
    lumen_certificate own[CERTIFICATES];
    const lumen_tls_config config = {.certificate_count = CERTIFICATES, .certificates = own};
    struct lm_tls_context *context;
    for (uint32_t c = 0; c < CERTIFICATES; c++) {
        const char *name =
            c == ANOTHERS ? "DNS:other.example,IP:127.0.0.1,IP:::1" : "DNS:localhost";
        own[c] =
            (lumen_certificate){.certificate = certificates[c], .key = keys[c], .source = "a test"};
        CHECK(lumen_make_certificate(name, certificates[c], keys[c], CERTIFICATE_BYTES) == 0);
    }
    CHECK(lm_tls_sessions_open(&sessions) == 0);
    CHECK(lm_tls_context_open(&context, &config) == 0);
    CHECK(lm_tls_door_open(&door, context, sessions) == 0);
    CHECK(lm_address_table_open(&addresses, 1, CLIENTS) == 0); /* one connection at a time */
    door->listen_fd = listen_anywhere();
    door->addresses = &addresses;
    door->counters = &counters;
    door->deliver = takes_none;
    door->owner = &offered;
    CHECK(lm_tls_handshakes_start(door) == 0);
}

static int dial(void) {
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* A client that speaks HTTP is told so; the failure is told once. */
static void speak_plainly(void) {
    static const char request[] = "GET / HTTP/1.1\r\n\r\n";
    char answer[512] = "", news[160];
    int fd = dial();
    CHECK(!lm_tls_door_news(door, news, sizeof news));
    CHECK(send(fd, request, sizeof request - 1, MSG_NOSIGNAL) == sizeof request - 1);
    CHECK(recv(fd, answer, sizeof answer - 1, MSG_WAITALL) > 0);
    CHECK(strncmp(answer, "HTTP/1.1 400 ", 13) == 0 && strstr(answer, "speaks TLS"));
    CHECK(lm_tls_door_news(door, news, sizeof news));
    CHECK(strcmp(news, "TLS: 1 handshakes failed, the last one because: the client does not speak "
                       "TLS") == 0);
    CHECK(!lm_tls_door_news(door, news, sizeof news));
    close(fd);
}

/* A client's whole connection: its handshake, until the server closes it. */
static void come_and_be_closed(const struct lm_tls_client *client, const char *host) {
    enum lm_tls_greeting greeting;
    char why[256] = "", bytes[4096];
    ssize_t got;
    int fd = dial();
    struct lm_tls_session *session = lm_tls_client_begin(client, fd, host, NULL);
    CHECK(session);
    while ((greeting = lm_tls_client_greet(client, session, host, why, sizeof why)) ==
           LM_TLS_WAITS) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        CHECK(poll(&readable, 1, -1) == 1);
    }
    CHECK_AT("a client of %s: %.99s", host, why);
    CHECK(greeting == LM_TLS_GREETED);
    do {
        got = recv(fd, bytes, sizeof bytes, 0); /* its tickets, then the end */
    } while (got > 0);
    CHECK(got == 0);
    lm_tls_session_close(client->openssl, session);
    close(fd);
}

int main(void) {
    if (!lm_openssl()) check_skip("test_tls_door", "there is no OpenSSL 3");
    check_watchdog(100, "a client that is closed");
    open_door();
    for (uint32_t c = 0; c < CLIENTS; c++) {
        const struct lm_tls_trust trust = {.authorities = certificates[clients[c].trusted],
                                           .source = "a test"};
        struct lm_tls_client *client;
        CHECK(lm_tls_client_open(&client, &trust, NULL) == 0);
        come_and_be_closed(client, clients[c].host);
        lm_tls_client_close(client);
    }
    speak_plainly();
    lm_tls_door_join(door);
    CHECK(lm_load_relaxed_u64(&offered) == CLIENTS && door->count == 0); /* relaxed: it has ended */
    CHECK(lm_load_relaxed_u64(&counters.tls_full) == CLIENTS);
    CHECK(lm_load_relaxed_u64(&counters.tls_crowded) == 0);
    CHECK(lm_load_relaxed_u64(&counters.tls_plain) == 1);
    lm_tls_door_close(door);
    lm_tls_sessions_close(sessions);
    lm_address_table_close(&addresses);
    check_watchdog(0, "");
    return check_finish("test_tls_door");
}
