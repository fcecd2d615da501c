/* test_tls_session.c: how many messages of handshakes a connection may bring behind its own: as
 * many in each second, however long it lasts. The clock is the test's. */
#include "check.h"
#include "tls/session.h"

enum { SECONDS = 3, RECORD_OF_CONTENT = 23 };

static uint64_t now_ns;

static void see(struct lm_tls_session *session, uint32_t messages, int is_written, int type) {
    for (uint32_t m = 0; m < messages; m++)
        lm_tls_see_message(is_written, LM_TLS1_2_VERSION, type, "", 0, NULL, session);
}

int main(void) {
    const uint32_t most = LM_TLS_MESSAGES_PER_SECOND;
    struct lm_tls_session session = {.now_ns = &now_ns}, greeted = {.now_ns = NULL};
    for (uint32_t second = 1; second <= SECONDS; second++) {
        CHECK_AT("second %u", second);
        now_ns = second * 1000000000ull;
        see(&session, most / 2, 0, LM_SSL3_RT_HANDSHAKE);
        now_ns += 999999999;
        see(&session, most - most / 2, 0, LM_SSL3_RT_HANDSHAKE);
        /* Neither this side's own messages count, nor content. */
        see(&session, most, 1, LM_SSL3_RT_HANDSHAKE);
        see(&session, most, 0, RECORD_OF_CONTENT);
        CHECK(!session.is_broken);
    }
    see(&session, 1, 0, LM_SSL3_RT_HANDSHAKE);
    CHECK(session.is_broken);
    /* In its own handshake, which has a bound of bytes, a client has no such clock. */
    see(&greeted, 2 * most, 0, LM_SSL3_RT_HANDSHAKE);
    CHECK(!greeted.is_broken);
    return check_finish("test_tls_session");
}
