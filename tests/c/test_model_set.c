/* test_model_set.c: a set of models finds each by its name, its version, its number and its index,
 * whatever the names and however many there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "flow/model_set.h"

enum { MANY = LUMEN_MODELS_MAX };
static struct lm_model *models;

static struct lm_model *model(uint32_t index, const char *base, uint32_t version, bool is_one_of) {
    struct lm_model *made = &models[index];
    memset(made, 0, sizeof *made);
    snprintf(made->base, sizeof made->base, "%s", base);
    if (is_one_of)
        snprintf(made->name, sizeof made->name, "%s:%u", base, version);
    else
        snprintf(made->name, sizeof made->name, "%s", base);
    made->version = version;
    made->index = made->number = index;
    return made;
}

static void add(struct lm_model_set *set, struct lm_model *made) {
    CHECK(lm_model_set_add(set, made) == 0);
}

static void an_empty_one(void) {
    struct lm_model_set set = {0};
    CHECK_AT("empty");
    CHECK(!lm_model_set_find(&set, 0) && !lm_model_set_named(&set, "a"));
    CHECK(!lm_model_set_version(&set, "a", 0) && !lm_model_set_next(&set, "", NULL));
    CHECK(lm_model_set_numbered(&set, 0) == LM_NO_INDEX);
    lm_model_set_close(&set);
}

static void names_and_versions(void) {
    struct lm_model_set set = {0};
    CHECK_AT("names and versions");
    /* In no order of their indexes. */
    add(&set, model(3, "iris", 2, true));
    add(&set, model(0, "iris", 10, true));
    add(&set, model(40, "iris", 1, true));
    add(&set, model(7, "iri", 1, false));
    add(&set, model(5, "a:b", 4, true));
    add(&set, model(6, "7", 1, false));
    CHECK(set.count == 6 && set.own_count == 6 && models[40].sets == 1);
    static const uint32_t order[] = {0, 3, 5, 6, 7, 40};
    for (uint32_t m = 0; m < set.count; m++) CHECK(set.models[m]->index == order[m]);
    CHECK(lm_model_set_version(&set, "iris", 0) == &models[0]);
    CHECK(lm_model_set_version(&set, "iris", 1) == &models[40]);
    CHECK(!lm_model_set_version(&set, "iris", 3) && !lm_model_set_version(&set, "iris:2", 0));
    CHECK(lm_model_set_version(&set, "iri", 0) == &models[7]);
    CHECK(lm_model_set_version(&set, "a:b", 4) == &models[5]);
    CHECK(lm_model_set_named(&set, "iris:2") == &models[3] && !lm_model_set_named(&set, "iris"));
    CHECK(lm_model_set_named(&set, "iri") == &models[7] && !lm_model_set_named(&set, "iri:1"));
    CHECK(lm_model_set_named(&set, "a:b:4") == &models[5] && !lm_model_set_named(&set, "a:b"));
    CHECK(!lm_model_set_named(&set, "") && !lm_model_set_named(&set, ":"));
    CHECK(lm_model_set_named(&set, "7") == &models[6]);
    const struct lm_model *one = NULL;
    static const uint32_t versions[] = {0, 3, 40};
    for (uint32_t v = 0; v < 3; v++) {
        one = lm_model_set_next(&set, "iris", one);
        CHECK(one == &models[versions[v]]);
    }
    CHECK(!lm_model_set_next(&set, "iris", one));
    /* A place that was another one's has another number. */
    struct lm_model *late = model(20, "late", 1, false);
    late->number = 7000;
    add(&set, late);
    CHECK(lm_model_set_numbered(&set, 7000) == 20 &&
          lm_model_set_numbered(&set, 20) == LM_NO_INDEX);
    CHECK(lm_model_set_numbered(&set, 5) == 5 && lm_model_set_numbered(&set, 1) == LM_NO_INDEX);
    CHECK(lm_model_set_numbered(&set, LM_NO_INDEX) == LM_NO_INDEX);
    CHECK(!lm_model_set_find(&set, 1) && !lm_model_set_find(&set, UINT32_MAX));
    lm_model_set_close(&set);
}

/* A model is not found by the beginning of its name, though both have the same hash. */
static void the_beginning_of_a_name(void) {
    struct lm_model_set set = {0};
    char name[] = "a?";
    CHECK_AT("the beginning of a name");
    for (uint32_t m = 0; m < 15; m++) {
        name[1] = (char)('a' + m);
        add(&set, model(m, name, 1, m % 2));
    }
    CHECK(!lm_model_set_version(&set, "a", 0) && !lm_model_set_next(&set, "a", NULL));
    CHECK(!lm_model_set_named(&set, "a") && !lm_model_set_named(&set, "a:1"));
    CHECK(lm_model_set_named(&set, "ai") == &models[8] &&
          lm_model_set_named(&set, "ah:1") == &models[7]);
    add(&set, model(15, "a", 1, true));
    CHECK(set.places == 16); /* so few that "a" and "ah" share one */
    CHECK(lm_model_set_version(&set, "a", 0) == &models[15]);
    CHECK(lm_model_set_named(&set, "a:1") == &models[15]);
    lm_model_set_close(&set);
}

/* As many as there may be, some with the same hash. */
static void many(void) {
    struct lm_model_set set = {0};
    char name[32];
    CHECK_AT("many");
    for (uint32_t m = 0; m < MANY; m++) {
        const uint32_t index = (m * 1337u) % MANY; /* each once: they have no common divisor */
        snprintf(name, sizeof name, "m%u", index / 2);
        add(&set, model(index, name, 1 + index % 2, true));
    }
    CHECK(set.count == MANY && set.places == MANY);
    for (uint32_t m = 0; m < MANY; m++) {
        CHECK(set.models[m] == &models[m] && lm_model_set_find(&set, m) == &models[m]);
        CHECK(lm_model_set_named(&set, models[m].name) == &models[m]);
        CHECK(lm_model_set_version(&set, models[m].base, 1 + m % 2) == &models[m]);
        CHECK(lm_model_set_version(&set, models[m].base, 0) == &models[m | 1]);
    }
    CHECK(!lm_model_set_find(&set, MANY) && !lm_model_set_named(&set, "m"));
    lm_model_set_close(&set);
}

int main(void) {
    models = calloc(MANY, sizeof *models);
    CHECK(models != NULL);
    an_empty_one();
    names_and_versions();
    the_beginning_of_a_name();
    many();
    free(models);
    return check_finish("test_model_set");
}
