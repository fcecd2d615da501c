/* pattern.c: see pattern.h. */
#include "text/pattern.h"

#include <stdbool.h>

#include "text/utf8.h"

/* The bytes of the char at `at` if it is of the mask, or 0. The window holds UTF-8 alone. */
static uint32_t char_of(const struct lm_pattern *pattern, uint32_t mask, const uint8_t *at) {
    uint32_t bytes;
    if (at == pattern->end) return 0;
    const uint32_t point = lm_utf8_at(at, pattern->end, &bytes);
    const uint32_t classes = pattern->tokenizer->header->classes;
    return lm_text_entry(pattern->tokenizer, classes, point) & mask ? bytes : 0;
}

static const uint8_t *run_of(const struct lm_pattern *pattern, const struct lm_text_op *op,
                             const uint8_t *at, uint32_t *count_out) {
    uint32_t count = 0, bytes;
    while (count < op->most && (bytes = char_of(pattern, op->mask, at))) {
        at += bytes;
        count++;
    }
    *count_out = count;
    return at;
}

/* Where a match of the operations from `at_op` on ends; NULL: there is none. Each calls itself with
 * a later one only, so it goes no deeper than there are operations. */
static const uint8_t *match(const struct lm_pattern *pattern, uint32_t at_op, const uint8_t *at) {
    for (;;) {
        const struct lm_text_op *op = &pattern->tokenizer->ops[at_op];
        const uint8_t *found;
        uint32_t count;
        switch ((enum lm_text_op_kind)op->what) {
        case LM_TEXT_OP_DONE: return at;
        case LM_TEXT_OP_JUMP: at_op = op->other; continue;
        case LM_TEXT_OP_EITHER:
            found = match(pattern, at_op + 1, at);
            if (found) return found;
            at_op = op->other;
            continue;
        case LM_TEXT_OP_NOT_AHEAD:
            if (char_of(pattern, op->mask, at)) return NULL;
            break;
        case LM_TEXT_OP_END:
            if (at != pattern->end) return NULL;
            break;
        case LM_TEXT_OP_CHARS:
            at = run_of(pattern, op, at, &count);
            if (count < op->least) return NULL;
            for (; count > op->least; count--) {
                found = match(pattern, at_op + 1, at);
                if (found) return found;
                do at--;
                while ((*at & 0xC0) == 0x80);
            }
            break;
        case LM_TEXT_OP_KINDS: return NULL;
        }
        at_op++;
    }
}

const uint8_t *lm_pattern_search(const struct lm_pattern *pattern, const uint8_t *at,
                                 const uint8_t **begin_out) {
    const struct lm_text_op *op = &pattern->tokenizer->ops[pattern->op];
    const bool is_run = op->what == LM_TEXT_OP_CHARS && op->least <= 1 && op->most == UINT32_MAX;
    while (at < pattern->end) {
        const uint8_t *end = match(pattern, pattern->op, at);
        uint32_t count = 0, bytes;
        if (end && end > at) {
            *begin_out = at;
            return end;
        }
        /* A run that led to no match from its start leads to none from within it. */
        const uint8_t *behind = is_run ? run_of(pattern, op, at, &count) : at;
        lm_utf8_at(at, pattern->end, &bytes);
        at = count > 0 ? behind : at + bytes;
    }
    return NULL;
}
