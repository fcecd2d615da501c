/* process.c: see process.h.
 *
 * `word` is seq_cst wherever a worker enters or a process ends, so that the control thread closes a
 * handle only when no worker that saw its number is left.
 */
#include "models/process.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "models/model.h"

enum {
    WAITING_BITS = 16,
    LOOK_NS = 10000000, /* at the process, while it does not answer */
    END_MS = 2000       /* of a process that is killed */
};

/* ---- both sides ---- */

void lm_box_sleep(lm_atomic_u32 *word, uint32_t value, uint64_t most_ns) {
    struct timespec most = {.tv_sec = (time_t)(most_ns / 1000000000u),
                            .tv_nsec = (long)(most_ns % 1000000000u)};
    /* Not FUTEX_PRIVATE: the other side is another process. */
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, most_ns ? &most : NULL, NULL, 0);
}

void lm_box_wake(lm_atomic_u32 *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static uint64_t mix(uint64_t hash, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

static uint64_t mix_tensor(uint64_t hash, const struct lm_tensor *tensor) {
    hash = mix(hash, tensor->name, strlen(tensor->name) + 1);
    hash = mix(hash, &tensor->dtype, sizeof tensor->dtype);
    hash = mix(hash, &tensor->rank, sizeof tensor->rank);
    hash = mix(hash, tensor->dims, tensor->rank * sizeof tensor->dims[0]);
    hash = mix(hash, tensor->free, tensor->rank * sizeof tensor->free[0]);
    return mix(hash, &tensor->row_bytes, sizeof tensor->row_bytes);
}

uint64_t lm_process_signature(const struct lm_model *model) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < model->input_count; i++) hash = mix_tensor(hash, &model->inputs[i]);
    for (uint32_t o = 0; o < model->output_count; o++) hash = mix_tensor(hash, &model->outputs[o]);
    return hash;
}

/* ---- opening ---- */

int lm_process_open(struct lm_process **process_out, struct lm_common_memory *common,
                    const struct lm_model *model, uint32_t boxes, uint64_t hang_ns, uint64_t key) {
    *process_out = NULL;
    struct lm_process *process = aligned_alloc(LM_CACHE_LINE, sizeof *process);
    if (!process) return lm_error(LUMEN_E_NOMEM, "no memory for the process of a model");
    memset(process, 0, sizeof *process);
    process->key = key;
    process->common = common;
    process->box_count = boxes;
    process->hang_ns = hang_ns;
    lm_store_relaxed_u64(&process->word, 1u << WAITING_BITS); /* relaxed: no other thread yet */
    process->copies = calloc(boxes, sizeof *process->copies);
    int code = process->copies
                   ? lm_common_memory_take(common, &process->memory,
                                           sizeof(struct lm_boxes) + boxes * sizeof(struct lm_box),
                                           LUMEN_HUGE_NONE)
                   : lm_error(LUMEN_E_NOMEM, "no memory for the process of a model");
    if (code) {
        free(process->copies);
        free(process);
        return code;
    }
    process->boxes = process->memory.base;
    process->boxes->signature = lm_process_signature(model);
    *process_out = process;
    return 0;
}

static void close_handle(struct lm_process *process) {
    /* relaxed, both: no worker waits */
    uint32_t handle = lm_load_relaxed_u32(&process->handle);
    if (handle) close((int)handle - 1);
    lm_store_relaxed_u32(&process->handle, 0);
}

int lm_process_open_rooms(struct lm_process *process, uint32_t nodes, uint32_t slots) {
    int code = 0;
    for (uint32_t n = 0; !code && n < nodes; n++)
        code = lm_process_room_open(&process->rooms[n], slots);
    return code;
}

/* Whether none runs. One that the kernel cannot end at once keeps its memory. */
static bool kill_it(const struct lm_process *process) {
    /* relaxed: no worker waits */
    struct pollfd ended = {.fd = (int)lm_load_relaxed_u32(&process->handle) - 1, .events = POLLIN};
    if (ended.fd < 0) return true;
    (void)syscall(SYS_pidfd_send_signal, ended.fd, SIGKILL, NULL, 0);
    return poll(&ended, 1, END_MS) == 1;
}

void lm_process_close(struct lm_process *process) {
    if (!process) return;
    const bool has_ended = kill_it(process);
    close_handle(process);
    for (uint32_t n = 0; n < LM_NODES_MAX; n++) lm_process_room_close(&process->rooms[n]);
    for (uint32_t b = 0; has_ended && b < process->box_count; b++)
        lm_common_memory_give_back(process->common, &process->copies[b]);
    if (has_ended) lm_common_memory_give_back(process->common, &process->memory);
    free(process->copies);
    free(process);
}

/* ---- whether there is one ---- */

/* The process of that number takes no further request. */
static void end_number(struct lm_process *process, uint32_t number, uint32_t end) {
    uint64_t word = lm_load_seq_cst_u64(&process->word);
    while (word >> WAITING_BITS == number) {
        lm_store_relaxed_u32(&process->end, end); /* relaxed: for a sentence; as J1 shows it */
        /* J1: seq_cst: workers count themselves in the same word; pairs with J2 */
        if (lm_cas_seq_cst_u64(&process->word, &word, word + (1u << WAITING_BITS))) return;
    }
}

uint32_t lm_process_next(struct lm_process *process) {
    /* J3: seq_cst: the last worker that used the handle has left; pairs with J2 and J4 */
    uint64_t word = lm_load_seq_cst_u64(&process->word);
    if ((word & ((1u << WAITING_BITS) - 1)) != 0) return 0;
    close_handle(process);
    process->is_starting = true;
    return (uint32_t)(word >> WAITING_BITS);
}

int lm_process_started(struct lm_process *process, pid_t pid) {
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    process->is_starting = handle < 0;
    if (handle < 0) {
        return lm_error_errno(LUMEN_E_UNSUPPORTED, errno,
                              "isolation: process: cannot watch process %d (pidfd_open, Linux 5.3)",
                              (int)pid);
    }
    lm_store_relaxed_u32(&process->handle, (uint32_t)handle + 1); /* relaxed: shown by J5 */
    /* J5: release: the handle; pairs with J6 */
    lm_store_release_u32(&process->started, lm_process_number(process));
    return 0;
}

void lm_process_ended(struct lm_process *process, uint32_t end) {
    process->is_starting = false;
    /* relaxed: written by this thread. A worker may have noticed before. */
    end_number(process, lm_load_relaxed_u32(&process->started), end);
    for (uint32_t b = 0; b < process->box_count; b++)
        lm_box_wake(&process->boxes->boxes[b].answered);
}

static bool is_up(const struct lm_process *process, uint32_t number) {
    /* J6: acquire: the handle; pairs with J5 */
    if (lm_load_acquire_u32(&process->started) != number) return false;
    /* J7: acquire: its boxes are served; pairs with J8 in models/process_serve.c */
    return lm_load_acquire_u32(&process->boxes->ready) == number;
}

bool lm_process_is_up(const struct lm_process *process) {
    return is_up(process, lm_process_number(process));
}

void lm_process_want(struct lm_process *process, uint32_t workers) {
    process->wanted = workers;
    lm_store_relaxed_u32(&process->boxes->refused, 0); /* relaxed, both: numbers alone */
    lm_store_relaxed_u32(&process->boxes->wanted, workers);
    lm_box_wake(&process->boxes->wanted);
}

int lm_process_serves(const struct lm_process *process, uint32_t workers) {
    const struct lm_boxes *boxes = process->boxes;
    if (!lm_process_is_up(process)) return LUMEN_E_AGAIN;
    if (lm_load_acquire_u32(&boxes->served) >= workers) return 0; /* as J17 */
    /* relaxed: a number alone */
    return lm_load_relaxed_u32(&boxes->refused) < workers ? LUMEN_E_AGAIN : LUMEN_E_MODEL;
}

const char *lm_process_why(const struct lm_process *process, const char *model, char *text,
                           size_t text_bytes) {
    uint32_t end = lm_process_end(process);
    if (end == 0) {
        snprintf(text, text_bytes, "the process of model '%.128s' is being started", model);
    } else {
        bool by_signal = end < 256;
        snprintf(text, text_bytes,
                 "the process of model '%.128s' ended %s %u; it is being restarted", model,
                 by_signal ? "by signal" : "with status", by_signal ? end : end - 256);
    }
    return text;
}

/* ---- a worker's request ---- */

/* Whether it has ended, and how: 0 while it has not. The control thread reaps it later. */
static uint32_t look(int handle) {
    siginfo_t info = {.si_pid = 0};
    struct pollfd ended = {.fd = handle, .events = POLLIN};
    if (poll(&ended, 1, 0) < 1) return 0;
    int failed = waitid(P_PIDFD, (id_t)handle, &info, WEXITED | WNOHANG | WNOWAIT);
    if (failed || info.si_pid == 0) return 256; /* reaped meanwhile: nothing more is known */
    uint32_t status = (uint32_t)info.si_status;
    return info.si_code == CLD_EXITED ? 256 + status : status;
}

/* Sleeps until the request is answered. false: the process has ended. */
static bool wait_for_answer(struct lm_process *process, struct lm_box *box, uint32_t request,
                            uint32_t number) {
    /* relaxed: shown by J6 */
    int handle = (int)lm_load_relaxed_u32(&process->handle) - 1;
    uint64_t began_ns = 0, looked_ns = 0;
    for (;;) {
        /* J9: acquire: outputs, code and sentence; pairs with J10 in models/process_serve.c */
        uint32_t answered = lm_load_acquire_u32(&box->answered);
        if (answered == request) return true;
        if (lm_process_number(process) != number) return false;
        lm_box_sleep(&box->answered, answered, LOOK_NS);
        uint64_t now_ns = lm_now_ns();
        if (!began_ns) began_ns = looked_ns = now_ns;
        if (now_ns < looked_ns + LOOK_NS) continue;
        looked_ns = now_ns;
        uint32_t end = look(handle);
        if (end) end_number(process, number, end);
        if (!end && process->hang_ns && now_ns > began_ns + process->hang_ns)
            (void)syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0);
    }
}

/* A request's tensors, inputs before outputs, and where the process finds them. */
struct tensors {
    uint32_t count, inputs;
    uint8_t *at[2 * LM_TENSORS_MAX];
    uint8_t *common[2 * LM_TENSORS_MAX]; /* the same place, or that of the copy */
    size_t bytes[2 * LM_TENSORS_MAX];    /* of those that are copied */
};

static bool is_common(const struct lm_process *process, const uint8_t *at) {
    const uintptr_t base = (uintptr_t)process->common->base;
    return (uintptr_t)at - base < process->common->bytes;
}

/* Finds memory for the copies of what lies elsewhere: slots do, where the model came to a server
 * whose arenas no process shares. */
static int place(struct lm_process *process, uint32_t worker, const struct lm_model *model,
                 const struct lm_sizes *sizes, struct tensors *tensors) {
    struct lm_mapping *copies = &process->copies[worker];
    size_t total = 0;
    for (uint32_t t = 0; t < tensors->count; t++) {
        const uint32_t o = t - tensors->inputs;
        tensors->common[t] = tensors->at[t];
        tensors->bytes[t] = 0;
        if (is_common(process, tensors->at[t])) continue;
        lm_tensor_bytes(t < tensors->inputs ? &model->inputs[t] : &model->outputs[o], sizes,
                        &tensors->bytes[t]);
        total += lm_align_up(tensors->bytes[t] + 1, LM_SLOT_ALIGN);
    }
    if (total > copies->bytes) {
        lm_common_memory_give_back(process->common, copies);
        int code = lm_common_memory_take(process->common, copies, total, LUMEN_HUGE_NONE);
        if (code) return code;
    }
    uint8_t *next = copies->base;
    for (uint32_t t = 0; t < tensors->count; t++) {
        if (is_common(process, tensors->at[t])) continue;
        tensors->common[t] = next;
        next += lm_align_up(tensors->bytes[t] + 1, LM_SLOT_ALIGN);
    }
    return 0;
}

static void ask(const struct lm_process *process, struct lm_box *box, int32_t cpu,
                const struct tensors *tensors, const struct lm_sizes *sizes, uint32_t request) {
    box->cpu = cpu;
    box->sizes = *sizes;
    for (uint32_t t = 0; t < tensors->count; t++) {
        if (t < tensors->inputs && tensors->bytes[t])
            memcpy(tensors->common[t], tensors->at[t], tensors->bytes[t]);
        box->places[t] = (uint64_t)(tensors->common[t] - process->common->base);
    }
    /* J11: release: what is asked; pairs with J12 in models/process_serve.c */
    lm_store_release_u32(&box->asked, request);
    lm_box_wake(&box->asked);
}

static void take_copies(const struct tensors *tensors) {
    for (uint32_t t = tensors->inputs; t < tensors->count; t++) {
        if (tensors->bytes[t]) memcpy(tensors->at[t], tensors->common[t], tensors->bytes[t]);
    }
}

int lm_process_run(struct lm_process *process, uint32_t worker, int32_t cpu,
                   const struct lm_model *model, void *const *inputs, void *const *outputs,
                   const struct lm_sizes *sizes) {
    LM_DEBUG_ASSERT(worker < process->box_count);
    struct lm_box *box = &process->boxes->boxes[worker];
    struct tensors tensors; /* not zeroed: there may be hundreds */
    char why[LM_TEXT_BYTES_MAX];
    tensors.inputs = model->input_count;
    tensors.count = model->input_count + model->output_count;
    for (uint32_t t = 0; t < tensors.count; t++)
        tensors.at[t] = t < tensors.inputs ? inputs[t] : outputs[t - tensors.inputs];
    int code = place(process, worker, model, sizes, &tensors);
    if (code) return code;
    /* J2: seq_cst: from here on the handle of this number stays; pairs with J1 and J3 */
    uint64_t word = lm_add_seq_cst_u64(&process->word, 1);
    uint32_t number = (uint32_t)(word >> WAITING_BITS);
    bool answered = false;
    /* J17: acquire: the box's thread; pairs with J16 in models/process_serve.c */
    if (is_up(process, number) && worker < lm_load_acquire_u32(&process->boxes->served)) {
        uint32_t request = lm_load_relaxed_u32(&box->asked) + 1; /* relaxed: own word */
        ask(process, box, cpu, &tensors, sizes, request);
        answered = wait_for_answer(process, box, request, number);
    }
    /* J4: acq_rel: it is done with the handle; pairs with J3 */
    (void)lm_sub_acq_rel_u64(&process->word, 1);
    if (!answered) {
        return lm_error(LUMEN_E_STATE, "%s", lm_process_why(process, model->name, why, sizeof why));
    }
    /* The process may have written anything. */
    box->error[sizeof box->error - 1] = '\0';
    if (box->code >= 0) {
        take_copies(&tensors);
        return 0;
    }
    return lm_error(box->code == LUMEN_E_INVALID ? LUMEN_E_INVALID : LUMEN_E_ORT, "%s", box->error);
}
