/* text_model.h: a model of texts: clients send texts, each becomes tokens, a Run of the graph and
 * one row of numbers. The graph's tensors are its own; clients see `text` (and `text_pair`),
 * `embedding`, `scores` or `entities`, and `tokens`.
 *
 * No text waits for another one's tokens: each has a Run of its length, without padding. Opened and
 * closed by the control thread; Runs of several workers at a time, each in its own room.
 */
#ifndef LM_MODELS_TEXT_MODEL_H
#define LM_MODELS_TEXT_MODEL_H

#include "lumen.h"
#include "models/text_ask.h"
#include "models/text_entities.h"
#include "onnx/ort.h"
#include "onnx/tensor.h"
#include "text/encode.h"

/* The inputs that a graph of texts may have. */
enum lm_text_input {
    LM_TEXT_IDS,
    LM_TEXT_MASK, /* ones */
    LM_TEXT_TYPES,
    LM_TEXT_POSITIONS,
    LM_TEXT_INPUTS
};

struct lm_text_model {
    struct lm_mapping file; /* of the tokenizer */
    struct lm_tokenizer tokenizer;
    char input_names[LM_TEXT_INPUTS][LM_TENSOR_NAME_BYTES_MAX];
    int dtypes[LM_TEXT_INPUTS];
    enum lm_text_input inputs[LM_TEXT_INPUTS];
    uint32_t input_count;
    char output_name[LM_TENSOR_NAME_BYTES_MAX];
    uint32_t output_rank;
    uint32_t width;  /* numbers of a token's vector, or of a text's */
    uint32_t values; /* numbers that a text is answered with */
    uint32_t task, pooling, activation, tokens_max;
    bool normalises, has_pairs, may_cut;
    struct lm_text_entities entities; /* of that task */
    struct lm_text *prompts;          /* with their names, which are terminated */
    const char **prompt_names;
    uint32_t prompt_count, default_prompt; /* 1 + its number; 0: none */
    size_t prompt_bytes_max;               /* of the longest one */
    int64_t *ones, *positions;             /* of tokens_max tokens, for all workers */
    /* For each worker the tokens of one text; touched by those that there are. */
    struct lm_mapping rooms;
    size_t room_bytes; /* of each; of it, what reading a text needs, and its entities */
    size_t scratch_bytes, entity_bytes;
};

/* Runs of some texts, as their thread gives them. */
struct lm_text_run {
    const struct lm_ort *ort;
    OrtSession *session;
    uint32_t worker; /* whose room is used */
    uint32_t first;  /* of the request's texts, for sentences */
    uint32_t rows;
    struct lm_text_ask ask;
};

/* NULL is allowed. */
void lm_text_model_close(struct lm_text_model *text);
/* The texts are `inputs`, as on the wire; `outputs` have room for what each is answered with, and
 * for its number of tokens. Returns 0 or LUMEN_E_*. */
int lm_text_run_in_place(const struct lm_text_model *text, const struct lm_text_run *run,
                         void *const *inputs, void *const *outputs);
/* The same on values, of which outputs that are NULL are made. The texts are copied, for what tries
 * a model. */
int lm_text_run_on_values(const struct lm_text_model *text, struct lm_text_run *run,
                          OrtValue **values);

/* 1 + the number of a prompt; 0: there is none of that name. */
uint16_t lm_text_model_find_prompt(const struct lm_text_model *text, const char *name,
                                   size_t bytes);
/* Their names, for a sentence. */
void lm_text_model_list_prompts(const struct lm_text_model *text, char *out, size_t bytes);

/* One Run of the tokens in a room. The caller closes the output, also after a failure; its numbers,
 * and how many each vector has, are known only after success. Returns 0 or LUMEN_E_*. */
int lm_text_run_tokens(const struct lm_text_model *text, const struct lm_ort *ort,
                       OrtSession *session, const struct lm_text_room *room, uint32_t tokens,
                       OrtValue **output_out, const float **data_out, size_t *width_out);

#endif
