/* model_set.c: see model_set.h. */
#include "flow/model_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { PLACES_MIN = 16 };

/* FNV-1a. The names are the owner's, not the clients': nobody chooses them to collide. */
static uint32_t hash_of(const char *name, size_t bytes) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    return hash;
}

/* ---- making ---- */

/* Links an index among those of its hash, which stay in order. */
static void link_name(struct lm_model_set *set, const struct lm_model *model) {
    uint16_t *link = &set->heads[hash_of(model->base, strlen(model->base)) & (set->places - 1)];
    while (*link != LM_NO_INDEX && *link < model->index) link = &set->at[*link].next;
    set->at[model->index].next = *link;
    *link = (uint16_t)model->index;
}

static void *longer(void *list, size_t count, size_t bytes, bool *is_whole) {
    void *grown = realloc(list, count * bytes);
    *is_whole = *is_whole && grown;
    return grown ? grown : list;
}

/* Makes the lists as long as the index asks for. */
static int grow(struct lm_model_set *set, uint32_t index) {
    uint32_t places = set->places ? set->places : PLACES_MIN;
    bool is_whole = true;
    while (places <= index) places *= 2;
    if (places == set->places) return 0;
    set->models = longer(set->models, places, sizeof *set->models, &is_whole);
    set->called_inside = longer(set->called_inside, places, sizeof *set->models, &is_whole);
    set->ensembles = longer(set->ensembles, places, sizeof *set->models, &is_whole);
    set->at = longer(set->at, places, sizeof *set->at, &is_whole);
    set->numbers = longer(set->numbers, places, sizeof *set->numbers, &is_whole);
    set->heads = longer(set->heads, places, sizeof *set->heads, &is_whole);
    if (!is_whole) return lm_error(LUMEN_E_NOMEM, "no memory for a set of models");
    for (uint32_t m = set->places; m < places; m++) set->at[m] = (struct lm_model_place){0};
    memset(set->numbers + set->places, 0xff, (places - set->places) * sizeof *set->numbers);
    memset(set->heads, 0xff, places * sizeof *set->heads);
    set->places = places;
    for (uint32_t m = 0; m < set->count; m++) link_name(set, set->models[m]);
    return 0;
}

/* Adds to a list in the order of the indexes; mostly it is the last one. */
static void insert(struct lm_model **list, uint32_t *count, struct lm_model *model) {
    uint32_t at = (*count)++;
    for (; at > 0 && list[at - 1]->index > model->index; at--) list[at] = list[at - 1];
    list[at] = model;
}

int lm_model_set_add(struct lm_model_set *set, struct lm_model *model) {
    LM_ASSERT(model->index < LUMEN_MODELS_MAX && !lm_model_set_find(set, model->index));
    int code = grow(set, model->index);
    if (code) return code;
    set->at[model->index].model = model;
    set->numbers[model->index] = (uint16_t)model->number;
    link_name(set, model);
    insert(set->models, &set->count, model);
    if (model->text || lm_model_is_elsewhere(model))
        insert(set->called_inside, &set->called_inside_count, model);
    if (model->steps) insert(set->ensembles, &set->ensemble_count, model);
    set->own_count += !lm_model_is_elsewhere(model);
    model->sets++;
    return 0;
}

void lm_model_set_close(struct lm_model_set *set) {
    free(set->models);
    free(set->called_inside);
    free(set->ensembles);
    free(set->at);
    free(set->numbers);
    free(set->heads);
}

/* ---- asking ---- */

/* From this index on, the first model whose name's base is that. */
static struct lm_model *of_base(const struct lm_model_set *set, uint16_t index, const char *base,
                                size_t bytes) {
    for (; index != LM_NO_INDEX; index = set->at[index].next) {
        struct lm_model *model = set->at[index].model;
        if (strncmp(model->base, base, bytes) == 0 && !model->base[bytes]) return model;
    }
    return NULL;
}

static struct lm_model *first_of(const struct lm_model_set *set, const char *base, size_t bytes) {
    if (!set->places || bytes >= LM_NAME_BYTES_MAX) return NULL;
    return of_base(set, set->heads[hash_of(base, bytes) & (set->places - 1)], base, bytes);
}

struct lm_model *lm_model_set_next(const struct lm_model_set *set, const char *base,
                                   const struct lm_model *after) {
    const size_t bytes = strlen(base);
    return after ? of_base(set, set->at[after->index].next, base, bytes)
                 : first_of(set, base, bytes);
}

const char *lm_model_set_changed(const struct lm_model_set *set, uint32_t index,
                                 uint32_t signature) {
    const struct lm_model *model = lm_model_set_find(set, index);
    if (!model) return "the model was unloaded while the request came";
    if (model->signature == signature) return NULL;
    return "the model was replaced, while the request came, by one with other tensors: ask for its "
           "tensors again";
}

struct lm_model *lm_model_set_version(const struct lm_model_set *set, const char *base,
                                      uint32_t version) {
    struct lm_model *found = NULL;
    for (struct lm_model *model = lm_model_set_next(set, base, NULL); model;
         model = lm_model_set_next(set, base, model)) {
        if (version && model->version != version) continue;
        if (!found || model->version > found->version) found = model;
    }
    return found;
}

struct lm_model *lm_model_set_named(const struct lm_model_set *set, const char *name) {
    const char *colon = strrchr(name, ':');
    const size_t lengths[] = {strlen(name), colon ? (size_t)(colon - name) : 0};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        struct lm_model *model = lengths[l] ? first_of(set, name, lengths[l]) : NULL;
        for (; model; model = of_base(set, set->at[model->index].next, name, lengths[l])) {
            if (strcmp(model->name, name) == 0) return model;
        }
    }
    return NULL;
}
