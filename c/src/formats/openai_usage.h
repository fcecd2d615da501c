/* openai_usage.h: how many tokens an answer in OpenAI's form says it was, read from its bytes as
 * they pass, in pieces of any size, whether they are one JSON text or a stream of events. Of
 * several statements the last one counts. Nothing is kept but what a word needs. Any thread; a
 * reader belongs to one.
 */
#ifndef LM_FORMATS_OPENAI_USAGE_H
#define LM_FORMATS_OPENAI_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LM_USAGE_KEY_BYTES = 24 };

/* All zeros at first. */
struct lm_usage_reader {
    uint8_t state;   /* how far it is: openai_usage.c */
    uint8_t matched; /* bytes of the word that is looked for */
    uint8_t key_bytes;
    bool in_string, is_escaped;
    bool has_number;
    bool is_known; /* some answer has said it */
    uint8_t line;  /* bytes of a line's beginning that are an event's */
    uint32_t depth;
    uint64_t number;
    uint64_t total, asked, answered; /* of the object that is being read */
    uint64_t tokens;                 /* what it was in all, where it is known */
    uint64_t events;                 /* lines that begin with "data:" */
    char key[LM_USAGE_KEY_BYTES];
};

void lm_usage_feed(struct lm_usage_reader *reader, const char *bytes, size_t count);

#endif
