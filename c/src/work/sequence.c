/* sequence.c: see sequence.h. */
#include "work/sequence.h"

#include <inttypes.h>

#include "base/error.h"
#include "flow/state.h"
#include "models/sequences.h"

/* Requests of the native protocol have no place to name a sequence. */
static struct lm_sequence_ask asked(const struct lm_request *request) {
    struct lm_sequence_ask ask = {0};
    if (request->dialect != LM_DIALECT_NATIVE) ask = request->asked->sequence;
    ask.owner = request->owner;
    ask.is_bounded = request->owner_has_part;
    return ask;
}

/* Whether the graph's input for the id can hold this one. */
static bool check_number(const struct lm_request *request, const struct lm_sequence_ask *ask) {
    const struct lm_tensor *tensor = &request->model->sequences->controls[LM_CONTROL_ID].tensor;
    uint64_t most = tensor->dtype == ORT_INT32    ? INT32_MAX
                    : tensor->dtype == ORT_UINT32 ? UINT32_MAX
                    : tensor->dtype == ORT_INT64  ? INT64_MAX
                                                  : UINT64_MAX;
    if (!tensor->name[0] || tensor->dtype == ORT_STRING) return true;
    if (ask->text_bytes == 0 && ask->id <= most) return true;
    lm_error(LUMEN_E_INVALID,
             "parameters: sequence_id: expected an integer of 1 to %" PRIu64
             ", for input '%.64s' of model '%s'",
             most, tensor->name, request->model->name);
    return false;
}

/* A request that would be right a moment later is told so, by a status with Retry-After. */
static enum lm_status refuse(const struct lm_request *request, enum lm_sequence_found found) {
    const struct lm_sequences *sequences = request->model->sequences;
    const char *name = request->model->name;
    switch (found) {
    case LM_SEQUENCE_UNKNOWN:
        lm_error(LUMEN_E_INVALID,
                 "parameters: sequence_start: expected true: this sequence of model '%s' did not "
                 "begin, has ended, or had no request for %" PRIu64 " ms",
                 name, sequences->idle_ns / 1000000);
        return LM_STATUS_BAD_REQUEST;
    case LM_SEQUENCE_TAKEN: /* no refusal */
    case LM_SEQUENCE_BUSY:
        lm_error(LUMEN_E_INVALID,
                 "parameters: sequence_id: expected the next request of a sequence after the "
                 "answer to the last: model '%s' runs one of this sequence; send it again later",
                 name);
        break;
    case LM_SEQUENCE_FULL:
        lm_error(LUMEN_E_INVALID,
                 "parameters: sequence_start: expected fewer open sequences: model '%s' takes no "
                 "more now, of at most %u (sequences.max_open); send it again later",
                 name, sequences->max_open);
        break;
    case LM_SEQUENCE_SHARE:
        lm_error(LUMEN_E_INVALID,
                 "parameters: sequence_start: expected fewer open sequences of one key: model '%s' "
                 "keeps the rest of its %u for other keys (sequences.max_open); send it again "
                 "later",
                 name, sequences->max_open);
        break;
    }
    return LM_STATUS_OVERLOADED;
}

enum lm_status lm_sequence_begin(struct lm_request *request, uint64_t now_ns) {
    struct lm_sequences *sequences = request->model->sequences;
    if (!sequences) return LM_STATUS_OK;
    const struct lm_sequence_ask ask = asked(request);
    if (ask.id == 0 && ask.text_bytes == 0) {
        lm_error(LUMEN_E_INVALID,
                 "parameters: sequence_id: expected an integer above 0 or a string: requests of "
                 "model '%s' are parts of sequences",
                 request->model->name);
        return LM_STATUS_BAD_REQUEST;
    }
    if (!check_number(request, &ask)) return LM_STATUS_BAD_REQUEST;
    enum lm_sequence_found found = lm_sequences_take(sequences, &ask, now_ns, &request->turn);
    return found == LM_SEQUENCE_TAKEN ? LM_STATUS_OK : refuse(request, found);
}

void lm_sequence_end(struct lm_request *request, bool answered, uint64_t now_ns) {
    if (!request->model->sequences) return;
    const struct lm_connection *connection = lm_io_connection(request->io, request->connection);
    /* relaxed: a client that leaves now may have its answer or not */
    bool is_gone = lm_load_relaxed_u32(&connection->gone);
    lm_sequences_leave(request->model->sequences, &request->turn, answered && !is_gone, now_ns);
}
