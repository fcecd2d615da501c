/* openai_request.h: what a gateway has to know of a request in OpenAI's form, read once from its
 * text, which goes on as it is: the model that it names, and where. A parser belongs to one thread,
 * and allocates only when it is opened.
 */
#ifndef LM_FORMATS_OPENAI_REQUEST_H
#define LM_FORMATS_OPENAI_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lm_openai_parser;

struct lm_openai_request {
    const char *model; /* its name, without escapes; until the parser reads another text */
    size_t model_bytes;
    size_t name_at, name_bytes; /* the same in the text, with its quotes */
    bool streams;               /* the answer comes in pieces */
    bool has_stream_options;
    size_t fields_at;      /* where its first field begins, or its end */
    uint64_t tokens_max;   /* that an answer may have; 0: it is not said */
    uint64_t answers;      /* 1, or `n` or `best_of`; below 2^32, like tokens_max */
    uint64_t prompt_bytes; /* of all strings, but for files in them ("data:"): quotes and all */
};

/* For texts of up to `text_bytes_max`. Returns 0, LUMEN_E_INVALID or LUMEN_E_NOMEM. */
int lm_openai_parser_open(struct lm_openai_parser **out, size_t text_bytes_max);
void lm_openai_parser_close(struct lm_openai_parser *parser); /* NULL is allowed */

/* Behind the text LM_OIP_PADDING bytes can be read. What lies deeper than the outermost object is
 * for the upstream to judge. OK, or BAD_REQUEST with the sentence. */
enum lm_status lm_openai_read(struct lm_openai_parser *parser, const char *text, size_t bytes,
                              struct lm_openai_request *request_out, char *why, size_t why_bytes);

#endif
