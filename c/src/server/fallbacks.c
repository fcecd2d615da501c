/* fallbacks.c: which models may answer in the place of one that cannot. Control thread. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/state.h"

struct lm_fallback_names {
    struct lm_fallback_names *next;
    char *names[1 + LUMEN_FALLBACKS_MAX]; /* the model's, then the others' */
};

void lm_server_forget_fallbacks(lumen_server *server) {
    while (server->fallbacks) {
        struct lm_fallback_names *one = server->fallbacks;
        server->fallbacks = one->next;
        for (uint32_t n = 0; n <= LUMEN_FALLBACKS_MAX; n++) free(one->names[n]);
        free(one);
    }
}

/* false: there is no memory. */
static bool keep(lumen_server *server, const lumen_fallback *fallback) {
    struct lm_fallback_names *one = calloc(1, sizeof *one);
    if (!one) return false;
    one->next = server->fallbacks;
    server->fallbacks = one;
    one->names[0] = strdup(fallback->model);
    bool is_whole = one->names[0];
    for (uint32_t o = 0; o < fallback->other_count; o++) {
        one->names[1 + o] = strdup(fallback->others[o]);
        is_whole = is_whole && one->names[1 + o];
    }
    return is_whole;
}

/* One's list in this set; NULL: it has none. */
static void bind_list(struct lm_fallback_list *list, const struct lm_model_set *set,
                      const struct lm_fallback_names *one) {
    uint64_t words[LM_FALLBACK_WORDS] = {0};
    uint32_t n = 0;
    for (uint32_t o = 1; one && o <= LUMEN_FALLBACKS_MAX && one->names[o]; o++) {
        const struct lm_model *model = lm_model_set_named(set, one->names[o]);
        if (!model) continue;
        words[n / LM_FALLBACKS_A_WORD] |= (uint64_t)(model->index + 1)
                                          << 16 * (n % LM_FALLBACKS_A_WORD);
        n++;
    }
    for (uint32_t w = 0; w < LM_FALLBACK_WORDS; w++) /* relaxed: as in fallbacks.h */
        lm_store_relaxed_u64(&list->words[w], words[w]);
}

void lm_server_bind_fallbacks(lumen_server *server, const struct lm_model_set *set) {
    struct lm_fallbacks *fallbacks = &server->shared.fallbacks;
    const struct lm_fallback_names *lists[LUMEN_MODELS_MAX] = {NULL};
    if (!server->fallbacks && !lm_fallbacks_are_any(fallbacks)) return;
    for (const struct lm_fallback_names *one = server->fallbacks; one; one = one->next) {
        const struct lm_model *model = lm_model_set_named(set, one->names[0]);
        if (model) lists[model->index] = one;
    }
    for (uint32_t m = 0; m < LUMEN_MODELS_MAX; m++) bind_list(&fallbacks->of[m], set, lists[m]);
    lm_store_relaxed_u32(&fallbacks->any, server->fallbacks != NULL); /* relaxed: as above */
}

int lumen_set_fallbacks(lumen_server *server, const lumen_fallback *fallbacks, uint32_t count) {
    bool is_kept = true;
    for (uint32_t f = 0; f < count; f++)
        if (!fallbacks[f].model || fallbacks[f].other_count > LUMEN_FALLBACKS_MAX)
            return lm_error(LUMEN_E_INVALID,
                            "fallbacks: expected a model and at most %d others, found %u",
                            LUMEN_FALLBACKS_MAX, fallbacks[f].other_count);
    pthread_mutex_lock(&server->control);
    lm_server_forget_fallbacks(server);
    for (uint32_t f = 0; is_kept && f < count; f++) is_kept = keep(server, &fallbacks[f]);
    if (!is_kept) lm_server_forget_fallbacks(server);
    lm_server_bind_fallbacks(server, server->set);
    pthread_mutex_unlock(&server->control);
    return is_kept ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for the names of fallbacks");
}
