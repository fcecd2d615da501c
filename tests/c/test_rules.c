/* Each rule between a model's settings is held for its kind alone, value by value, and says what it
 * expected, beside what, and why. */
#include "models/rules.h"

#include <string.h>

#include "base/error.h"
#include "check.h"

#define PUT(section, type, name, least, most) \
    if (strcmp(setting, #name) == 0) config->name = (type)value;

static void put(lumen_model_config *config, const char *setting, uint64_t value) {
    LUMEN_MODEL_SETTINGS(PUT)
}

static bool may_be(const lumen_rule *rule, uint64_t value) {
    return value < 64 && rule->allowed >> value & 1;
}

int main(void) {
    uint32_t count = 0;
    const lumen_rule *rules = lumen_rules(&count);
    CHECK(count > 5);
    for (uint32_t r = 0; r < count; r++) {
        const lumen_rule *rule = &rules[r];
        const uint64_t values[] = {0, 1, 2, 3, 63, 64, UINT32_MAX};
        CHECK_AT("%s beside %s", rule->setting, rule->beside);
        CHECK(may_be(rule, 0) && !may_be(rule, 63)); /* the default, and some value is not */
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            lumen_model_config config = {.name = "m"};
            put(&config, rule->setting, values[v]);
            const uint32_t others = ~(1u << rule->kind);
            bool elsewhere = true; /* the same setting may have a rule of another kind */
            for (uint32_t o = 0; o < count; o++)
                elsewhere = elsewhere && (o == r || strcmp(rules[o].setting, rule->setting) != 0);
            if (elsewhere) CHECK(lm_rules_check(&config, others) == 0);
            int code = lm_rules_check(&config, 1u << rule->kind);
            CHECK(code == (may_be(rule, values[v]) ? 0 : LUMEN_E_INVALID));
            if (!code) continue;
            const char *said = lm_error_last();
            CHECK(strncmp(said, rule->setting, strlen(rule->setting)) == 0);
            CHECK(strstr(said, rule->expected) && strstr(said, rule->because));
            CHECK(strstr(said, rule->beside));
        }
    }
    return check_finish("test_rules");
}
