/* rules.h: one client's story at a time, in virtual time and with no fault, so that a rule can be
 * told exactly: when a connection ends, what every counter says, what a row of the trace holds.
 */
#ifndef TESTS_SIM_RULES_H
#define TESTS_SIM_RULES_H

#include "client.h"

/* A deadline may be so late: it is kept in ticks, and checked a few times a second. */
#define SLACK_NS ((LM_TIMER_TICK_MS + LM_SWEEP_PERIOD_MS + 10) * SIM_MS)

enum { TALK_ROOM = 96 << 10 };

/* The client's end of one connection. */
struct talk {
    struct peer *peer;
    uint8_t in[TALK_ROOM];
    uint32_t in_bytes;
    bool deaf; /* it reads nothing */
};

/* A story: changes of the calm plan first, then what happens. */
struct rule {
    const char *name;
    void (*plan)(struct sim_plan *plan); /* NULL: as it is */
    void (*tell)(void);
};
extern const struct rule rules_of_bounds[], rules_of_cache[], rules_of_clocks[], rules_of_ends[],
    rules_of_entry[], rules_of_counts[], rules_of_http[], rules_of_http2[], rules_of_own[],
    rules_of_pictures[], rules_of_shadow[], rules_of_slot_wait[];
extern const size_t rules_of_bounds_count, rules_of_cache_count, rules_of_clocks_count,
    rules_of_entry_count, rules_of_counts_count, rules_of_ends_count, rules_of_http_count,
    rules_of_http2_count, rules_of_own_count, rules_of_pictures_count, rules_of_shadow_count,
    rules_of_slot_wait_count;

void rules_run(void);

/* Lets so much time go by. */
void pass(uint64_t ns);
void talk_open(struct talk *talk);
void talk_send(struct talk *talk, const void *bytes, size_t count);
void talk_text(struct talk *talk, const char *text);
void talk_close(struct talk *talk);
/* Waits for the server to end the connection; fails when it does not within `least` and `most` from
 * now. What came is in `in`. */
void talk_ends(struct talk *talk, uint64_t least_ns, uint64_t most_ns);
/* Waits for so many bytes; `in` holds these from its front. */
void talk_reads(struct talk *talk, uint32_t count, uint64_t most_ns);
void talk_takes_nothing(struct talk *talk, uint64_t for_ns);

/* A native request of a model's rows, of zeros; `id` comes back. */
struct ask {
    uint64_t id;
    uint32_t rows, timeout_us;
    uint16_t model, flags;
    bool poison, lies;
    uint32_t most; /* bytes of it that are sent, 0: all */
};
void talk_asks(struct talk *talk, const struct ask *ask);
/* Its first bytes now, the others some time later. */
void talk_asks_late(struct talk *talk, const struct ask *ask, uint64_t later_ns);
/* Its reply, whose status must be this; returns its head. */
struct lm_native_reply talk_gets(struct talk *talk, uint64_t id, enum lm_status status);
void talk_pings(struct talk *talk, uint8_t id);
/* An HTTP request: its method and path, header lines, body. */
void talk_requests(struct talk *talk, const char *line, const char *headers, const char *body);
/* An HTTP answer with this code, and this text somewhere in it. */
void talk_answered(struct talk *talk, uint32_t code, const char *text);

/* The whole answer to GET, with its head. */
const char *talk_page(struct talk *talk, const char *path);

/* Every word that is not 0, but for times, as "io.requests=1 tiny.ok=1 ..."; and nothing else. */
void counts(const char *expected);
/* The number behind some text. */
uint64_t number_after(const char *text, const char *before);
void near_ns(const char *what, uint64_t found_ns, uint64_t expected_ns, uint64_t within_ns);

#define IO_WORD(name) lm_load_relaxed_u64(&sim_shared.ios[0].stats->io.name)
#define WORKER_WORD(name) lm_load_relaxed_u64(&sim_shared.workers[0].stats->worker.name)
#define IO_MODEL_WORD(model, name) \
    lm_load_relaxed_u64(&sim_shared.ios[0].stats->models[model].io.name)
#define WORKER_MODEL_WORD(model, name) \
    lm_load_relaxed_u64(&sim_shared.workers[0].stats->models[model].worker.name)

#endif
