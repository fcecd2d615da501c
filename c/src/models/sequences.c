/* sequences.c: see sequences.h. The table of open sequences, and a Run of one.
 *
 * seq_cst: two requests that begin one sequence at once have entries of their own, until each has
 * shown its key and looked for the other's; at least one must see the other then. */
#include "models/sequences.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "models/sequence_table.h"

/* SipHash under a secret key: a client chooses its id, and must not choose what it is found by.
 * Two sequences have one key in the table for one pair in 2^64, which nobody can foresee. */
uint64_t lm_sequence_key(const struct lm_sequences *sequences, const struct lm_sequence_ask *ask) {
    uint8_t message[2 * sizeof(uint64_t) + LM_SEQUENCE_TEXT_BYTES_MAX];
    uint64_t key;
    _Static_assert(sizeof key == crypto_shorthash_BYTES, "a key is what SipHash gives");
    LM_DEBUG_ASSERT(ask->text_bytes <= sizeof ask->text);
    memcpy(message, &ask->owner, sizeof ask->owner);
    memcpy(message + sizeof ask->owner, &ask->id, sizeof ask->id); /* 0: a text follows */
    memcpy(message + 2 * sizeof(uint64_t), ask->text, ask->text_bytes);
    crypto_shorthash((uint8_t *)&key, message, 2 * sizeof(uint64_t) + ask->text_bytes,
                     sequences->secret);
    return key ? key : 1;
}

/* The entries that a sequence may have: its group's. */
struct group {
    uint32_t first, end;
};

/* As many groups of nearly one size as keep a request's look at its own short. */
static struct group group_of(const struct lm_sequences *sequences, uint64_t key) {
    const uint64_t entries = sequences->max_open;
    const uint64_t groups = (entries + LM_SEQUENCE_GROUP_MAX - 1) / LM_SEQUENCE_GROUP_MAX;
    const uint64_t at = (key >> 32) * groups >> 32;
    return (struct group){(uint32_t)(at * entries / groups),
                          (uint32_t)((at + 1) * entries / groups)};
}

static bool claim(struct lm_sequence *one, uint64_t state) {
    /* Z1: seq_cst: the owner sees what the one before it left; pairs with Z2, Z3 */
    return lm_cas_seq_cst_u64(&one->state, &state, LM_SEQUENCE_IS_BUSY);
}

static void let_go(struct lm_sequence *one, uint64_t state) {
    /* Z2: release: what this owner did; pairs with Z1 */
    lm_store_release_u64(&one->state, state);
}

/* The owner ends the sequence. */
static void drop(struct lm_sequences *sequences, uint32_t at) {
    /* Z4: release: all of the sequence, before it may begin anew elsewhere; pairs with Z5 */
    lm_store_release_u64(&sequences->keys[at], 0);
    let_go(&sequences->table[at], LM_SEQUENCE_IS_FREE);
}

static bool is_idle(const struct lm_sequences *sequences, const struct lm_sequence *one,
                    uint64_t now_ns) {
    /* relaxed: a hint for all but the owner */
    return now_ns > lm_load_relaxed_u64(&one->used_ns) + sequences->idle_ns;
}

/* Takes the open sequence of that key. */
static enum lm_sequence_found find(struct lm_sequences *sequences, struct group group, uint64_t key,
                                   uint64_t now_ns, uint32_t *at_out) {
    for (uint32_t at = group.first; at < group.end; at++) {
        struct lm_sequence *one = &sequences->table[at];
        /* Z5: acquire: what the last owner of the key did; pairs with Z4 */
        if (lm_load_acquire_u64(&sequences->keys[at]) != key) continue;
        if (!claim(one, LM_SEQUENCE_IS_OPEN)) {
            /* relaxed: the claim has seen what came before. A thread that had the entry may have
             * left it since, so the state does not tell. */
            if (lm_load_relaxed_u64(&sequences->keys[at]) == key) return LM_SEQUENCE_BUSY;
            continue;
        }
        bool is_it = lm_load_relaxed_u64(&sequences->keys[at]) == key; /* relaxed: it is ours now */
        if (is_it && !is_idle(sequences, one, now_ns)) {
            *at_out = at;
            return LM_SEQUENCE_TAKEN;
        }
        if (is_it) {
            drop(sequences, at);
        } else {
            let_go(one, LM_SEQUENCE_IS_OPEN);
        }
    }
    return LM_SEQUENCE_UNKNOWN;
}

/* Takes an entry that nobody needs: a free one, else one that was idle for too long. */
static bool take_any(struct lm_sequences *sequences, struct group group, uint64_t now_ns,
                     uint32_t *at_out) {
    for (uint32_t at = group.first; at < group.end; at++) {
        struct lm_sequence *one = &sequences->table[at];
        *at_out = at;
        /* relaxed: the claim decides */
        if (lm_load_relaxed_u64(&one->state) == LM_SEQUENCE_IS_FREE &&
            claim(one, LM_SEQUENCE_IS_FREE))
            return true;
    }
    for (uint32_t at = group.first; at < group.end; at++) {
        struct lm_sequence *one = &sequences->table[at];
        *at_out = at;
        if (!is_idle(sequences, one, now_ns) || !claim(one, LM_SEQUENCE_IS_OPEN)) continue;
        if (is_idle(sequences, one, now_ns)) return true;
        let_go(one, LM_SEQUENCE_IS_OPEN);
    }
    return false;
}

/* The entry is this sequence's from now on. BUSY: another entry is too, since two requests began
 * the same sequence at once; SHARE: its owner has others enough. Each request shows its key before
 * it looks, so that of two requests at once at least one sees the other. */
static enum lm_sequence_found show(struct lm_sequences *sequences, struct group group, uint32_t own,
                                   uint64_t key, const struct lm_sequence_ask *ask,
                                   uint64_t now_ns) {
    uint32_t others = 0, half = (group.end - group.first) / 2;
    /* relaxed: other threads see both with the key */
    lm_store_relaxed_u64(&sequences->table[own].owner, ask->owner);
    lm_store_relaxed_u64(&sequences->table[own].used_ns, now_ns);
    /* Z3: seq_cst: a key is shown before others are looked at; pairs with Z3, Z1 */
    lm_store_seq_cst_u64(&sequences->keys[own], key);
    for (uint32_t at = group.first; at < group.end; at++) {
        const struct lm_sequence *one = &sequences->table[at];
        uint64_t found = at == own ? 0 : lm_load_seq_cst_u64(&sequences->keys[at]);
        if (found == key) return LM_SEQUENCE_BUSY;
        /* relaxed: as old as the key, or of a later sequence; an idle one gives way to anybody */
        others += found && lm_load_relaxed_u64(&one->owner) == ask->owner &&
                  !is_idle(sequences, one, now_ns);
    }
    bool has_enough = ask->is_bounded && others >= (half ? half : 1);
    return has_enough ? LM_SEQUENCE_SHARE : LM_SEQUENCE_TAKEN;
}

/* Keeps the id that the graph is told, as the control's tensor wants it. */
static void set_id(const struct lm_sequences *sequences, uint32_t at,
                   const struct lm_sequence_ask *ask) {
    uint8_t *to = lm_sequence_memory(sequences, at);
    if (!lm_is_string(&sequences->controls[LM_CONTROL_ID].tensor)) {
        memcpy(to, &ask->id, sizeof ask->id); /* a smaller type is the low bytes: little-endian */
        return;
    }
    char digits[24];
    bool is_text = ask->text_bytes > 0;
    int count = is_text ? 0 : snprintf(digits, sizeof digits, "%" PRIu64, ask->id);
    uint32_t bytes = is_text ? ask->text_bytes : (uint32_t)count;
    memcpy(to, &bytes, sizeof bytes); /* as on the wire */
    memcpy(to + sizeof bytes, is_text ? ask->text : digits, bytes);
}

enum lm_sequence_found lm_sequences_take(struct lm_sequences *sequences,
                                         const struct lm_sequence_ask *ask, uint64_t now_ns,
                                         struct lm_sequence_turn *turn_out) {
    uint64_t key = lm_sequence_key(sequences, ask);
    struct group group = group_of(sequences, key);
    uint32_t at = 0;
    enum lm_sequence_found found = find(sequences, group, key, now_ns, &at);
    if (found == LM_SEQUENCE_BUSY) return found;
    bool is_new = found == LM_SEQUENCE_UNKNOWN;
    if (is_new) {
        if (!ask->starts) return found;
        if (!take_any(sequences, group, now_ns, &at)) return LM_SEQUENCE_FULL;
        found = show(sequences, group, at, key, ask, now_ns);
        if (found != LM_SEQUENCE_TAKEN) {
            drop(sequences, at);
            return found;
        }
    }
    *turn_out = (struct lm_sequence_turn){
        .at = at, .is_new = is_new, .starts = ask->starts, .ends = ask->ends};
    if (is_new) set_id(sequences, at, ask);
    return LM_SEQUENCE_TAKEN;
}

void lm_sequences_leave(struct lm_sequences *sequences, const struct lm_sequence_turn *turn,
                        bool answered, uint64_t now_ns) {
    struct lm_sequence *one = &sequences->table[turn->at];
    if (answered ? turn->ends : turn->is_new) {
        drop(sequences, turn->at);
        return;
    }
    if (answered) one->half ^= 1;
    lm_store_relaxed_u64(&one->used_ns, now_ns); /* relaxed: as in is_idle */
    let_go(one, LM_SEQUENCE_IS_OPEN);
}

/* ---- a Run ---- */

static uint32_t put_controls(const struct lm_sequences *sequences,
                             const struct lm_sequence_turn *turn, const OrtValue **inputs) {
    const bool said[] = {[LM_CONTROL_START] = turn->starts,
                         [LM_CONTROL_END] = turn->ends,
                         [LM_CONTROL_READY] = true,
                         [LM_CONTROL_ID] = false};
    uint32_t count = 0;
    for (uint32_t c = 0; c < LM_CONTROL_COUNT; c++) {
        const struct lm_sequence_control *control = &sequences->controls[c];
        if (!control->tensor.name[0]) continue;
        inputs[count] = control->values[said[c]];
        if (c == LM_CONTROL_ID && turn->at != LM_SEQUENCE_NONE)
            inputs[count] = *lm_sequence_values(sequences, turn->at);
        count++;
    }
    return count;
}

int lm_sequences_run(struct lm_sequences *sequences, const struct lm_ort *ort, OrtSession *session,
                     const struct lm_sequence_turn *turn, OrtValue **values, uint32_t inputs,
                     uint32_t outputs) {
    const OrtValue *taken[LM_TENSORS_MAX];
    OrtValue *made[LM_TENSORS_MAX];
    const uint32_t states = sequences->state_count;
    const bool is_none = turn->at == LM_SEQUENCE_NONE;
    int code = is_none ? 0 : lm_sequence_hold(sequences, ort, turn->at, turn->is_new);
    if (code) return code;
    OrtValue **own = is_none ? NULL : lm_sequence_values(sequences, turn->at) + 1;
    const uint32_t half = is_none ? 0 : sequences->table[turn->at].half;
    memcpy(taken, values, inputs * sizeof *taken);
    memcpy(made, values + inputs, outputs * sizeof *made);
    uint32_t at = inputs + put_controls(sequences, turn, &taken[inputs]);
    for (uint32_t s = 0; s < states; s++) {
        taken[at + s] = turn->starts ? sequences->states[s].initial_value : own[half * states + s];
        made[outputs + s] = is_none ? NULL : own[(half ^ 1) * states + s];
    }
    code = lm_ort_run(ort, session, sequences->input_names, taken, at + states,
                      sequences->output_names, made, outputs + states);
    memcpy(values + inputs, made, outputs * sizeof *made);
    for (uint32_t s = 0; is_none && s < states; s++) lm_ort_value_close(ort, made[outputs + s]);
    return code;
}
