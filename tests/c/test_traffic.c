/* test_traffic.c: which version of a model answers: shares are kept over any few requests in a row,
 * sessions stay where they are, and versions that are not served leave theirs to the others. */
#include <string.h>

#include "check.h"
#include "parts/traffic.h"

enum { REQUESTS = 10000 };

static struct lm_traffic traffic;

static const struct lm_traffic_rule *set(uint32_t count, const uint32_t *weights) {
    lumen_traffic rule = {.name = "iris", .count = count};
    for (uint32_t v = 0; v < count; v++) {
        rule.versions[v] = v + 1;
        rule.weights[v] = weights[v];
    }
    CHECK(lm_traffic_set(&traffic, &rule, 1) == 0);
    CHECK(lm_traffic_find(&traffic, "rose") == NULL);
    return lm_traffic_find(&traffic, "iris");
}

static void shares(void) {
    const uint32_t weights[4] = {95, 0, 4, 1};
    const struct lm_traffic_rule *rule = set(4, weights);
    for (uint32_t start = 0; start < 3; start++) {
        uint32_t given[5] = {0};
        for (uint32_t r = 0; r < REQUESTS; r++)
            given[lm_traffic_pick(rule, 15, lm_traffic_turn(start * 123457 + r))]++;
        for (uint32_t v = 0; v < 4; v++) {
            const uint32_t due = REQUESTS / 100 * weights[v];
            CHECK_AT("version %u of %u requests", v + 1, REQUESTS);
            CHECK(given[v] + 5 >= due && given[v] <= due + 5);
        }
        CHECK(given[1] == 0 && given[4] == 0);
    }
    /* Of a hundred in a row no version has more than two too many or too few. */
    for (uint32_t r = 0, first = 0; r < 100; r++) {
        first += lm_traffic_pick(rule, 15, lm_traffic_turn(r)) == 0;
        if (r == 99) CHECK(first >= 93 && first <= 97);
    }
}

static void those_that_are_served(void) {
    const uint32_t weights[3] = {1, 0, 3};
    const struct lm_traffic_rule *rule = set(3, weights);
    for (uint32_t r = 0; r < 100; r++) {
        const uint32_t at = lm_traffic_turn(r);
        CHECK(lm_traffic_pick(rule, 1, at) == 0 && lm_traffic_pick(rule, 4, at) == 2);
        CHECK(lm_traffic_pick(rule, 2, at) == 3); /* only by its number */
        CHECK(lm_traffic_pick(rule, 0, at) == 3);
    }
    CHECK(lm_traffic_pick(rule, 5, 0) == 0 && lm_traffic_pick(rule, 5, UINT32_MAX) == 2);
}

static void sessions(void) {
    const uint32_t weights[2] = {50, 50};
    const struct lm_traffic_rule *rule = set(2, weights);
    uint32_t first = 0;
    CHECK(lm_traffic_session("", 0) == 0);
    for (uint32_t s = 0; s < REQUESTS; s++) {
        char name[16];
        const int bytes = snprintf(name, sizeof name, "user-%u", s);
        const uint16_t session = lm_traffic_session(name, (size_t)bytes);
        CHECK(session != 0 && session == lm_traffic_session(name, (size_t)bytes));
        first += lm_traffic_pick(rule, 3, lm_traffic_at_session(session)) == 0;
    }
    CHECK(first > REQUESTS * 45 / 100 && first < REQUESTS * 55 / 100);
}

static void refused(void) {
    lumen_traffic rule = {.name = "iris", .count = 1, .weights = {1}};
    char name[300];
    CHECK(lm_traffic_set(&traffic, &rule, 1) == 0 && traffic.count == 1);
    CHECK(lm_traffic_set(&traffic, &rule, LUMEN_TRAFFIC_MAX + 1) != 0);
    rule.weights[0] = 0;
    CHECK(lm_traffic_set(&traffic, &rule, 1) != 0);
    rule.weights[0] = LUMEN_WEIGHT_MAX + 1;
    CHECK(lm_traffic_set(&traffic, &rule, 1) != 0);
    rule.weights[0] = 1;
    rule.count = 0;
    CHECK(lm_traffic_set(&traffic, &rule, 1) != 0);
    rule.count = LUMEN_TRAFFIC_VERSIONS_MAX + 1;
    CHECK(lm_traffic_set(&traffic, &rule, 1) != 0);
    rule.count = 1;
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    rule.name = name;
    CHECK(lm_traffic_set(&traffic, &rule, 1) != 0);
    rule.name = "";
    CHECK(lm_traffic_set(&traffic, &rule, 1) != 0);
    rule.name = "iris";
    rule.shadow = 2;
    for (uint32_t percent = 0; percent <= 101; percent += 101) {
        rule.shadow_percent = percent;
        CHECK_AT("%u %% of the requests", percent);
        CHECK(lm_traffic_set(&traffic, &rule, 1) != 0);
    }
    CHECK(traffic.count == 1); /* what was there stays */
    CHECK(lm_traffic_set(&traffic, &rule, 0) == 0 && traffic.count == 0);
}

static void copies(void) {
    for (uint32_t percent = 1; percent <= 100; percent += 33) {
        uint32_t given = 0;
        for (uint32_t r = 0; r < REQUESTS; r++) given += lm_traffic_is_of(percent, r);
        CHECK_AT("%u %% of the requests", percent);
        CHECK(given + 5 >= REQUESTS / 100 * percent && given <= REQUESTS / 100 * percent + 5);
        CHECK(lm_traffic_is_of(percent, 0)); /* so that trying it shows something */
    }
    /* Of each version's requests, though both are counted in step. */
    uint32_t of_each[2] = {0};
    for (uint32_t r = 0; r < REQUESTS; r++)
        of_each[lm_traffic_turn(r) >> 31] += lm_traffic_is_of(50, r);
    CHECK(of_each[0] > REQUESTS * 24 / 100 && of_each[0] < REQUESTS * 26 / 100);
    CHECK(of_each[1] > REQUESTS * 24 / 100 && of_each[1] < REQUESTS * 26 / 100);
}

int main(void) {
    shares();
    copies();
    those_that_are_served();
    sessions();
    refused();
    return check_finish("test_traffic");
}
