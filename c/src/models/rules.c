/* rules.c: see rules.h. */
#include "models/rules.h"

#include <string.h>

#include "base/error.h"

#define BIT(value) (1ull << (value))
#define ENGINE_OF_SESSIONS (BIT(LUMEN_ENGINE_AUTO) | BIT(LUMEN_ENGINE_ORT))
#define NULL_OR_1 (BIT(0) | BIT(1))

#define SEQUENCES(setting, allowed, expected) \
    {LUMEN_BESIDE_SEQUENCES,                  \
     0,                                       \
     "sequences",                             \
     setting,                                 \
     allowed,                                 \
     expected,                                \
     "its requests depend on those before"}
#define PROCESS(setting, allowed, expected) \
    {LUMEN_BESIDE_PROCESS,                  \
     0,                                     \
     "isolation: process",                  \
     setting,                               \
     allowed,                               \
     expected,                              \
     "a worker waits for the process that runs it"}
#define PROVIDERS(setting, allowed, expected, because) \
    {LUMEN_BESIDE_PROVIDERS, 0, "other providers than cpu", setting, allowed, expected, because}
#define TEXT(setting, allowed, expected) \
    {LUMEN_BESIDE_TEXT, 0, "text", setting, allowed, expected, "each text has a Run of its own"}

static const lumen_rule rules[] = {
    SEQUENCES("isolation", BIT(LUMEN_ISOLATION_NONE), "none"),
    SEQUENCES("response_cache", BIT(0), "false"),
    SEQUENCES("engine", ENGINE_OF_SESSIONS, "auto or onnxruntime"),
    SEQUENCES("width", NULL_OR_1, "auto or 1"),
    SEQUENCES("batch_size", NULL_OR_1, "null or 1"),
    SEQUENCES("max_rows", NULL_OR_1, "0 or 1"),
    PROCESS("run", BIT(LUMEN_RUN_AUTO) | BIT(LUMEN_RUN_WORKER), "auto or worker"),
    PROCESS("engine", ENGINE_OF_SESSIONS, "auto or onnxruntime"),
    PROCESS("width", NULL_OR_1, "auto or 1"),
    PROVIDERS("engine", ENGINE_OF_SESSIONS, "auto or onnxruntime", "it runs on the CPU alone"),
    PROVIDERS("width", NULL_OR_1, "auto or 1", "providers have threads of their own"),
    TEXT("isolation", BIT(LUMEN_ISOLATION_NONE), "none"),
    TEXT("engine", ENGINE_OF_SESSIONS, "auto or onnxruntime"),
    TEXT("batch_size", NULL_OR_1, "null or 1"),
    TEXT("run", BIT(LUMEN_RUN_AUTO) | BIT(LUMEN_RUN_WORKER), "auto or worker"),
};

const lumen_rule *lumen_rules(uint32_t *count) {
    *count = sizeof rules / sizeof rules[0];
    return rules;
}

#define VALUE(section, type, name, least, most) \
    if (strcmp(setting, #name) == 0) return config->name;

static uint64_t value_of(const lumen_model_config *config, const char *setting) {
    LUMEN_MODEL_SETTINGS(VALUE)
    return 0;
}

int lm_rules_check(const lumen_model_config *config, uint32_t kinds) {
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        const lumen_rule *rule = &rules[r];
        const uint64_t found = value_of(config, rule->setting);
        if (!(kinds >> rule->kind & 1) || (found < 64 && rule->allowed >> found & 1)) continue;
        return lm_error(LUMEN_E_INVALID, "%s: expected %s beside %s, found %llu: %s", rule->setting,
                        rule->expected, rule->beside, (unsigned long long)found, rule->because);
    }
    return 0;
}
