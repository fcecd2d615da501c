/* process.h: the process of a model with `isolation: process`, as the server sees it. Each worker
 * has a box in memory that both map. A request's worker writes to its box where the tensors lie,
 * wakes the thread of the process that belongs to the box, and sleeps until that has run the model.
 *
 * The thread that opens or closes the model does so with it; the control thread says which process
 * there is, and that it has ended; workers ask it; any thread asks whether it is there. The other
 * side is process_serve.h.
 */
#ifndef LM_MODELS_PROCESS_H
#define LM_MODELS_PROCESS_H

#include "base/atomics.h"
#include "base/common_memory.h"
#include "base/limits.h"
#include "models/process_room.h"
#include "onnx/tensor.h"

struct lm_model;

/* What a worker asks, and is answered. A box has one request at a time. */
struct lm_box {
    LM_CACHE_ALIGNED lm_atomic_u32 asked;    /* counts requests; the process sleeps on it */
    LM_CACHE_ALIGNED lm_atomic_u32 answered; /* the last one that was; the worker sleeps on it */
    int32_t cpu;                             /* that the worker is pinned to; -1: none */
    int32_t code;                            /* of the answer: 0 or LUMEN_E_* */
    struct lm_sizes sizes;
    uint64_t places[2 * LM_TENSORS_MAX]; /* of inputs, then outputs, in the common memory */
    char error[LM_TEXT_BYTES_MAX];
};

struct lm_boxes {
    lm_atomic_u32 ready;   /* the number of the process that takes requests */
    lm_atomic_u32 served;  /* boxes, the first, that it serves: written before `ready`, and later */
    lm_atomic_u32 wanted;  /* so many are to be; the process sleeps on it */
    lm_atomic_u32 refused; /* it has found that it cannot serve so many */
    uint64_t signature;    /* of the tensors, as the server read them */
    uint64_t warm_ns;      /* of a Run of the largest row, once it was warm; before `ready` */
    struct lm_box boxes[]; /* one per worker that may come */
};

struct lm_process {
    uint64_t key;     /* by which Python names it */
    bool is_starting; /* control thread: one is being started, of which there is no handle yet */
    struct lm_common_memory *common;
    struct lm_mapping memory;
    struct lm_boxes *boxes;
    uint32_t box_count;
    uint32_t wanted;           /* control thread: boxes that are to be served */
    struct lm_mapping *copies; /* by box: of tensors that lie elsewhere; its worker's, as needed */
    uint64_t hang_ns;          /* a Run that takes longer ends the process; 0: none does */
    /* The number of the process, from 1 on, above 16 bits that count the workers that wait for it.
     * The number grows when a process has ended. */
    lm_atomic_u64 word;
    lm_atomic_u32 handle;  /* 1 + its pidfd; 0: nobody has started it */
    lm_atomic_u32 started; /* the number that `handle` is of */
    lm_atomic_u32 end;     /* of the last process that ended: its signal, or 256 + its status */
    struct lm_process_room rooms[LM_NODES_MAX]; /* of each node's workers */
};

/* A box for each worker that may come, and a key. Returns 0 or LUMEN_E_*. */
int lm_process_open(struct lm_process **process_out, struct lm_common_memory *common,
                    const struct lm_model *model, uint32_t boxes, uint64_t hang_ns, uint64_t key);
/* Control thread: so many workers are to be served, by a process that comes, or by this one soon.
 */
void lm_process_want(struct lm_process *process, uint32_t workers);
/* Returns 0 where it does; LUMEN_E_AGAIN: not yet; LUMEN_E_MODEL: it cannot. */
int lm_process_serves(const struct lm_process *process, uint32_t workers);
/* No thread uses it any more, and none is being started but by one that ends with the server. Ends
 * the process, which its parent reaps: the memory may be somebody else's next. NULL is allowed. */
void lm_process_close(struct lm_process *process);
/* Once it is known how many nodes and slots there are. Returns 0 or LUMEN_E_NOMEM. */
int lm_process_open_rooms(struct lm_process *process, uint32_t nodes, uint32_t slots);

/* The number of the process that is to be started; 0: a worker still waits for the last one. One of
 * the next two follows. */
uint32_t lm_process_next(struct lm_process *process);
/* It was started. Returns 0 or LUMEN_E_UNSUPPORTED. */
int lm_process_started(struct lm_process *process, pid_t pid);
/* It has ended, or could not be started, by this signal, or with 256 + this status: whoever waits
 * for it knows at once. */
void lm_process_ended(struct lm_process *process, uint32_t end);

/* Any thread: whether it takes requests. */
bool lm_process_is_up(const struct lm_process *process);
static inline uint32_t lm_process_number(const struct lm_process *process) {
    /* relaxed: says nothing about other memory */
    return (uint32_t)(lm_load_relaxed_u64(&process->word) >> 16);
}
/* Whether one was ever started. */
static inline bool lm_process_was_started(const struct lm_process *process) {
    return lm_load_relaxed_u32(&process->started) > 0; /* relaxed: says nothing about memory */
}
/* How the last one ended; 0: none has. */
static inline uint32_t lm_process_end(const struct lm_process *process) {
    return lm_load_relaxed_u32(&process->end); /* relaxed: for a sentence */
}
/* What becomes of requests while it is not there. Returns `text`. */
const char *lm_process_why(const struct lm_process *process, const char *model, char *text,
                           size_t text_bytes);

/* Worker `worker`, pinned to a core or not (-1): runs the model. Tensors that lie outside of the
 * common memory are copied. Returns 0, or LUMEN_E_* with the sentence. */
int lm_process_run(struct lm_process *process, uint32_t worker, int32_t cpu,
                   const struct lm_model *model, void *const *inputs, void *const *outputs,
                   const struct lm_sizes *sizes);

/* Tells the tensors of a model from those of others. */
uint64_t lm_process_signature(const struct lm_model *model);
/* Sleeps while the word has a value, at most so long (0: no bound). Both sides. */
void lm_box_sleep(lm_atomic_u32 *word, uint32_t value, uint64_t most_ns);
void lm_box_wake(lm_atomic_u32 *word);

#endif
