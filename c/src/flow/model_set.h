/* model_set.h: the models that are served, and what is known of all of them together. A set is made
 * by the control thread and never changes once it is in force; threads reach it through one atomic
 * pointer (lm_shared.models). A change makes another set, of which most models are the same ones.
 * Each I/O thread counts the slots that use a set, so that a set which another one has replaced
 * can be closed when the last of them is back.
 *
 * Its lists are as long as the models need: a request finds its model by the hash of its name, or
 * by its index, however many there are.
 */
#ifndef LM_FLOW_MODEL_SET_H
#define LM_FLOW_MODEL_SET_H

#include "base/atomics.h"
#include "models/model.h"

struct lm_http_documents; /* dialects/http_documents.h */
struct lm_request_lists;  /* flow/request_lists.h */

/* Of one I/O thread, which alone writes it. */
struct lm_model_set_use {
    LM_CACHE_ALIGNED lm_atomic_u64 slots;
};

/* The place of one index. */
struct lm_model_place {
    struct lm_model *model; /* NULL: none has it */
    uint16_t next;          /* the next index of a name with the same hash, or LM_NO_INDEX */
};

struct lm_model_set {
    struct lm_model **models;        /* in the order of their indexes */
    struct lm_model **called_inside; /* those whose requests name them in the body: models of texts
                                      * and of upstreams */
    struct lm_model **ensembles;
    uint32_t count, called_inside_count, ensemble_count;
    uint32_t own_count;        /* of those that no upstream serves */
    struct lm_model_place *at; /* by index */
    uint16_t *numbers;         /* of each index; LM_NO_INDEX: none */
    uint16_t *heads;           /* by hash: the first index, or LM_NO_INDEX */
    uint32_t places;           /* of `at`, `numbers` and `heads`: 2^n, or 0 */
    char *description;         /* JSON, as the native protocol's describe says it */
    size_t description_bytes;
    struct lm_http_documents *documents; /* what HTTP answers of the server and its models */
    struct lm_request_lists *lists;      /* as long as these models need them */
    struct lm_model_set *retired;        /* the set that was replaced before it */
    uint64_t retired_at; /* once it is replaced: the turn after which none begins with it */
    struct lm_model_set_use used_by[LUMEN_IO_THREADS_MAX];
};

enum { LM_NO_INDEX = UINT16_MAX };
_Static_assert((int)LUMEN_MODELS_MAX < (int)LM_NO_INDEX, "an index has 16 bits");

/* The model of that index; NULL: none has it. */
static inline struct lm_model *lm_model_set_find(const struct lm_model_set *set, uint32_t index) {
    return index < set->places ? set->at[index].model : NULL;
}

/* The index of the model that native clients call so, or LM_NO_INDEX. */
static inline uint16_t lm_model_set_numbered(const struct lm_model_set *set, uint16_t number) {
    const struct lm_model *likely =
        lm_model_set_find(set, number); /* unless its place was anothers */
    if (likely && likely->number == number) return number;
    for (uint32_t m = 0; m < set->places; m++) {
        if (set->numbers[m] == number && set->at[m].model) return (uint16_t)m;
    }
    return LM_NO_INDEX;
}
/* The model of that name, BASE or BASE:VERSION, or NULL. */
struct lm_model *lm_model_set_named(const struct lm_model_set *set, const char *name);
/* The version of what clients call so, or its highest one where `version` is 0; NULL: there is
 * none. */
struct lm_model *lm_model_set_version(const struct lm_model_set *set, const char *base,
                                      uint32_t version);
/* Of the models that clients call so, the next one by index, or the first one behind NULL; NULL:
 * there is none. */
struct lm_model *lm_model_set_next(const struct lm_model_set *set, const char *base,
                                   const struct lm_model *after);
/* Why a request that was read for a model of that index and signature cannot go on in this set, for
 * its client; NULL: it can. */
const char *lm_model_set_changed(const struct lm_model_set *set, uint32_t index,
                                 uint32_t signature);

/* Adds a model that has its index, and counts the set in model->sets; before it is in force.
 * Returns 0 or LUMEN_E_NOMEM. */
int lm_model_set_add(struct lm_model_set *set, struct lm_model *model);
/* Frees its lists. */
void lm_model_set_close(struct lm_model_set *set);

#endif
