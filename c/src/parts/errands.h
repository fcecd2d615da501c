/* errands.h: requests that the control program answers, such as to load a model, and the way of
 * their answers back. A fixed table: each I/O thread has a few entries of its own, and one that
 * finds none free refuses the request.
 *
 * An entry is the I/O thread's until it is submitted, the control program's until it is finished,
 * and then the I/O thread's again. Where the client leaves meanwhile, `end` decides who is the
 * last: the control program then throws its answer away. No thread waits but the control program's,
 * in lm_errands_next. Functions of the I/O thread never allocate.
 */
#ifndef LM_PARTS_ERRANDS_H
#define LM_PARTS_ERRANDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/atomics.h"
#include "base/limits.h"
#include "base/memory.h"

enum lm_errand_state {
    LM_ERRAND_FREE,
    LM_ERRAND_WAITS, /* for the control program */
    LM_ERRAND_TAKEN, /* by it */
    LM_ERRAND_SPENT  /* its answer is sent: the control program frees that */
};

struct lm_errand {
    lm_atomic_u32 state; /* enum lm_errand_state */
    lm_atomic_u32 end;   /* 1: finished, or nobody waits for it any more */
    uint64_t ticket;     /* the smallest is the oldest */
    /* Of the I/O thread. */
    uint32_t io;
    uint32_t connection;
    uint32_t kind;     /* enum lumen_errand_kind */
    uint32_t is_asked; /* by a connection that waits for the answer */
    bool is_filling;   /* its body arrives, in `upload` */
    bool is_upload;
    size_t text_bytes;
    struct lm_mapping upload;     /* a body that is longer than `text`; bytes 0: there is none */
    char name[LM_NAME_BYTES_MAX]; /* of the model; or empty */
    char text[LM_ERRAND_TEXT_BYTES_MAX + 1]; /* of the body; terminated once it is submitted */
    /* Of the control program. */
    uint32_t code; /* of HTTP */
    uint32_t reply_bytes;
    char *reply;
};

struct lm_errands;

/* Whether the control program answers calls of this kind. */
bool lm_errands_take(const struct lm_errands *errands, uint32_t kind);
/* Bodies longer than `text` may have so many bytes; 0: there are none. */
uint64_t lm_errands_upload_bytes(const struct lm_errands *errands);

/* Control thread: before the I/O threads start, and after they have ended. `kinds` has a bit for
 * each kind. */
int lm_errands_open(struct lm_errands **errands_out, uint32_t io_count, uint32_t kinds,
                    uint64_t upload_bytes);
void lm_errands_close(struct lm_errands *errands);

/* I/O thread: an entry to fill in; NULL: all of its entries are in use. */
struct lm_errand *lm_errands_acquire(struct lm_errands *errands, uint32_t io);
/* I/O thread: hands it to the control program. */
void lm_errands_submit(struct lm_errands *errands, struct lm_errand *errand);
/* I/O thread: an entry with memory for a body of so many bytes, which is filled in turn by turn,
 * and then submitted or dropped. NULL: there is no entry or no memory, or another body is under
 * way. */
struct lm_errand *lm_errands_begin_upload(struct lm_errands *errands, uint32_t io, size_t bytes);
void lm_errands_drop(struct lm_errands *errands, struct lm_errand *errand);
/* I/O thread: entry e of its own, e < LM_ERRANDS_PER_IO. */
struct lm_errand *lm_errands_at(struct lm_errands *errands, uint32_t io, uint32_t e);
/* I/O thread: whether the answer is there. */
bool lm_errand_is_finished(const struct lm_errand *errand);
/* I/O thread: the answer is sent. */
void lm_errand_give(struct lm_errand *errand);
/* I/O thread: its client has gone. */
void lm_errand_abandon(struct lm_errand *errand);

/* Control program: the oldest one that waits, or NULL after so many milliseconds. */
struct lm_errand *lm_errands_next(struct lm_errands *errands, uint32_t timeout_ms);
/* Any thread: from here on lm_errands_next waits no more. */
void lm_errands_end(struct lm_errands *errands);
/* Control program: the number of an entry, and the entry that it has taken under a number; NULL:
 * none. */
uint32_t lm_errands_id(const struct lm_errands *errands, const struct lm_errand *errand);
struct lm_errand *lm_errands_taken(struct lm_errands *errands, uint32_t id);
/* Control program: gives the answer, which is copied. Returns 0 or LUMEN_E_NOMEM; then the answer
 * is an empty one of code 500. */
int lm_errands_finish(struct lm_errand *errand, uint32_t code, const char *reply, size_t bytes);

#endif
