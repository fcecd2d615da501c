/* sequences.h: a model whose answers depend on the requests before: those of one sequence have one
 * state, which each Run takes and leaves behind.
 *
 * Some inputs of such a graph are not the request's. Controls tell it where a sequence begins and
 * ends, and its number; a state is an input, and the output that is the same state after the Run.
 * All other tensors are the model's, as if these were not there.
 *
 * A fixed number of sequences is open at a time, in a table that all threads share without a lock.
 * A long table is groups of entries, and a sequence's key says in which one it is: a request looks
 * at no more than that, and a group may be full while others are not.
 * Whoever takes a sequence owns it until it leaves it: a second request of the same sequence is
 * refused meanwhile. One that nobody asked for longer than the idle time gives way.
 *
 * Opened and closed by the control thread (sequences_open.h); taken, run and left by any thread
 * that runs models.
 */
#ifndef LM_MODELS_SEQUENCES_H
#define LM_MODELS_SEQUENCES_H

#include <sodium.h>

#include "base/atomics.h"
#include "base/memory.h"
#include "models/sequence_ask.h"
#include "onnx/ort.h"
#include "onnx/tensor.h"

enum lm_sequence_found {
    LM_SEQUENCE_TAKEN,
    LM_SEQUENCE_BUSY,    /* another request of it is being run */
    LM_SEQUENCE_UNKNOWN, /* it did not begin, has ended, or was idle for too long */
    LM_SEQUENCE_FULL,    /* as many as there may be in its group are open */
    LM_SEQUENCE_SHARE    /* half of these are its owner's, and there are other owners */
};

enum { LM_CONTROL_START, LM_CONTROL_END, LM_CONTROL_READY, LM_CONTROL_ID, LM_CONTROL_COUNT };

/* An input that says what Lumen knows. */
struct lm_sequence_control {
    struct lm_tensor tensor; /* of one element; name "": the graph has none */
    OrtValue *values[2];     /* false and true; of the id: 0 */
};

struct lm_sequence_state {
    char input[LM_TENSOR_NAME_BYTES_MAX], output[LM_TENSOR_NAME_BYTES_MAX];
    struct lm_tensor tensor; /* its free dimensions are 1 */
    bool has_input, has_output;
    uint8_t *initial; /* that a sequence begins with */
    size_t initial_bytes;
    OrtValue *initial_value;
    size_t offset; /* in each half of a sequence's memory */
};

struct lm_sequence;

struct lm_sequences {
    uint32_t max_open, state_count;
    uint64_t idle_ns;
    uint32_t input_count, output_count; /* that the graph has beside the model's */
    struct lm_sequence_control controls[LM_CONTROL_COUNT];
    struct lm_sequence_state *states;
    size_t id_bytes, half_bytes;
    uint8_t secret[crypto_shorthash_KEYBYTES]; /* of the hash that makes keys of ids */
    /* Of each sequence its id and two halves: the state, and the one that a Run makes. */
    struct lm_mapping memory;
    lm_atomic_u64 *keys; /* of the table: what is looked for; 0: none */
    struct lm_sequence *table;
    OrtValue **values; /* of each sequence: its id, the states of one half, of the other */
    const char **input_names, **output_names; /* of the graph: the model's, then these */
};

/* Finds the sequence, or begins it. `turn_out` is the caller's to leave when it is TAKEN. */
enum lm_sequence_found lm_sequences_take(struct lm_sequences *sequences,
                                         const struct lm_sequence_ask *ask, uint64_t now_ns,
                                         struct lm_sequence_turn *turn_out);
/* `answered`: the state that the Run made is the sequence's; otherwise all is as it was before: a
 * sequence that was open goes on where it was, and one that is new did not begin. */
void lm_sequences_leave(struct lm_sequences *sequences, const struct lm_sequence_turn *turn,
                        bool answered, uint64_t now_ns);
/* Runs the session. `values` are the model's, its inputs and then its outputs; an output that is
 * NULL is made. Returns 0 or LUMEN_E_ORT. */
int lm_sequences_run(struct lm_sequences *sequences, const struct lm_ort *ort, OrtSession *session,
                     const struct lm_sequence_turn *turn, OrtValue **values, uint32_t inputs,
                     uint32_t outputs);

#endif
