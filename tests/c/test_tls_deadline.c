/* test_tls_deadline.c: until when a client of TLS must have moved: while records wait for it, and
 * while it has sent a part of one between two requests.
 */
#include "check.h"
#include "flow/tls.h"

enum { FD = 5, HEADER_NS = 1000, REPLY_NS = 50000 };

static lm_atomic_u64 entries[FD + 1];
static struct lm_tls_sessions sessions = {.entries = entries};
static struct lm_tls_session session;
static struct lm_shared shared = {
    .sessions = &sessions, .header_timeout_ns = HEADER_NS, .reply_timeout_ns = REPLY_NS};
static struct lm_io thread = {.shared = &shared};
static struct lm_connection connection = {.fd = FD, .transport = LM_TRANSPORT_TLS};

static uint64_t deadline_ns(enum lm_read_state state) {
    connection.in.read_state = (uint8_t)state;
    return lm_tls_deadline_ns(&thread, &connection);
}

int main(void) {
    static uint8_t rest[8];
    CHECK(deadline_ns(LM_READ_HEADER) == 0); /* it has no session */
    lm_tls_session_put(&sessions, FD, &session);
    CHECK(deadline_ns(LM_READ_HEADER) == 0);
    session.partial_ns = 7;
    CHECK(deadline_ns(LM_READ_HEADER) == 7 + HEADER_NS);
    CHECK(deadline_ns(LM_READ_PROLOGUE) == 7 + HEADER_NS);
    CHECK(deadline_ns(LM_READ_BODY) == 0 &&
          deadline_ns(LM_READ_WAIT) == 0); /* timers.c has theirs */
    connection.in_flight = 1; /* it may begin its next request, and waits for an answer */
    CHECK(deadline_ns(LM_READ_HEADER) == 0 && deadline_ns(LM_READ_PROLOGUE) == 0);
    session.rest = rest;
    session.blocked_ns = 9;
    CHECK(deadline_ns(LM_READ_HEADER) == 9 + REPLY_NS);
    CHECK(deadline_ns(LM_READ_BODY) == 9 + REPLY_NS);
    shared.reply_timeout_ns = 0;
    CHECK(deadline_ns(LM_READ_HEADER) == 0); /* there is no limit */
    connection.transport = LM_TRANSPORT_TCP;
    session.rest = NULL;
    connection.in_flight = 0;
    CHECK(deadline_ns(LM_READ_HEADER) == 0);
    return check_finish("test_tls_deadline");
}
