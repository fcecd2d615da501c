/* test_abi.c: what crosses the library's border. The ABI table leaves no byte of a public struct
 * unexplained, and the release library exports the functions of lumen.h and nothing else. */
#include <ctype.h>
#include <limits.h>

#include "check.h"
#include "lumen_budgets.h"
#include "lumen_load.h"
#include "lumen_report.h"
#include "lumen_traces.h"
#include "lumen_traffic.h"
#include "lumen_upstreams.h"

enum { FUNCTIONS_MAX = 64, NAME_MAX_BYTES = 64 };

static char here[PATH_MAX]; /* the directory of this program: c/build/<variant> */

/* ---- the table ---- */

/* Fields in order, each where the one before ends but for padding to at most 8; `row` is the whole.
 */
static uint32_t check_struct(const lumen_abi_field *table, uint32_t row, uint32_t count) {
    const lumen_abi_field *whole = &table[row];
    uint32_t end = 0, at = row + 1;
    CHECK(whole->field_name[0] == '\0' && whole->offset == 0 && whole->size > 0);
    for (; at < count && strcmp(table[at].struct_name, whole->struct_name) == 0; at++) {
        CHECK_AT("%s.%s", table[at].struct_name, table[at].field_name);
        CHECK(table[at].field_name[0] && table[at].size > 0);
        CHECK(table[at].offset >= end && table[at].offset - end < 8);
        end = table[at].offset + table[at].size;
        CHECK(end <= whole->size);
        for (uint32_t other = row + 1; other < at; other++)
            CHECK(strcmp(table[other].field_name, table[at].field_name));
    }
    CHECK(at > row + 1);
    CHECK(whole->size - end < 8);
    return at;
}

static void table_covers_all(void) {
    static const struct {
        const char *name;
        size_t bytes;
    } structs[] = {{"lumen_key_config", sizeof(lumen_key_config)},
                   {"lumen_config", sizeof(lumen_config)},
                   {"lumen_model_config", sizeof(lumen_model_config)},
                   {"lumen_rule", sizeof(lumen_rule)},
                   {"lumen_certificate", sizeof(lumen_certificate)},
                   {"lumen_tls_config", sizeof(lumen_tls_config)},
                   {"lumen_certificate_info", sizeof(lumen_certificate_info)},
                   {"lumen_errand", sizeof(lumen_errand)},
                   {"lumen_process", sizeof(lumen_process)},
                   {"lumen_slot_class", sizeof(lumen_slot_class)},
                   {"lumen_info", sizeof(lumen_info)},
                   {"lumen_stats_header", sizeof(lumen_stats_header)},
                   {"lumen_stats_field", sizeof(lumen_stats_field)},
                   {"lumen_stats_block", sizeof(lumen_stats_block)},
                   {"lumen_load_config", sizeof(lumen_load_config)},
                   {"lumen_load_result", sizeof(lumen_load_result)},
                   {"lumen_abi_field", sizeof(lumen_abi_field)},
                   {"lumen_dim", sizeof(lumen_dim)},
                   {"lumen_image_config", sizeof(lumen_image_config)},
                   {"lumen_option", sizeof(lumen_option)},
                   {"lumen_provider", sizeof(lumen_provider)},
                   {"lumen_expert", sizeof(lumen_expert)},
                   {"lumen_experts_config", sizeof(lumen_experts_config)},
                   {"lumen_step_tensor", sizeof(lumen_step_tensor)},
                   {"lumen_step", sizeof(lumen_step)},
                   {"lumen_steps_config", sizeof(lumen_steps_config)},
                   {"lumen_warmup_tensor", sizeof(lumen_warmup_tensor)},
                   {"lumen_warmup", sizeof(lumen_warmup)},
                   {"lumen_state", sizeof(lumen_state)},
                   {"lumen_declared", sizeof(lumen_declared)},
                   {"lumen_sequences_config", sizeof(lumen_sequences_config)},
                   {"lumen_fallback", sizeof(lumen_fallback)},
                   {"lumen_budget_config", sizeof(lumen_budget_config)},
                   {"lumen_budget", sizeof(lumen_budget)},
                   {"lumen_span", sizeof(lumen_span)},
                   {"lumen_traffic", sizeof(lumen_traffic)},
                   {"lumen_load_report", sizeof(lumen_load_report)},
                   {"lumen_upstream_address", sizeof(lumen_upstream_address)},
                   {"lumen_upstream_config", sizeof(lumen_upstream_config)},
                   {"lumen_text_config", sizeof(lumen_text_config)}};
    uint32_t version = 0, count = 0, row = 0, found = 0;
    const lumen_abi_field *table = lumen_abi(&version, &count);
    CHECK(version == LUMEN_ABI_VERSION && count > 0);
    while (row < count) {
        const char *name = table[row].struct_name;
        CHECK_AT("struct %s", name);
        uint32_t known = 0;
        for (size_t s = 0; s < sizeof structs / sizeof structs[0]; s++) {
            known += strcmp(structs[s].name, name) == 0 && structs[s].bytes == table[row].size;
        }
        CHECK(known == 1);
        row = check_struct(table, row, count);
        found++;
    }
    CHECK(found == sizeof structs / sizeof structs[0]);
}

/* ---- the exports ---- */

struct names {
    char name[FUNCTIONS_MAX][NAME_MAX_BYTES];
    uint32_t count;
};

static void add_name(struct names *names, const char *start, size_t bytes) {
    CHECK(names->count < FUNCTIONS_MAX && bytes > 0 && bytes < NAME_MAX_BYTES);
    memcpy(names->name[names->count], start, bytes);
    names->name[names->count++][bytes] = '\0';
}

static bool has_name(const struct names *names, const char *name) {
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->name[i], name) == 0) return true;
    }
    return false;
}

/* The functions that a public header declares: LUMEN_API, then the name before the bracket. */
static void read_header(const char *name, struct names *names) {
    char path[PATH_MAX + 64], line[512];
    snprintf(path, sizeof path, "%s/../../include/%s", here, name);
    FILE *file = fopen(path, "re");
    CHECK_AT("%.120s", path);
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "LUMEN_API ", 10) != 0) continue;
        char *bracket = strchr(line, '(');
        CHECK(bracket != NULL);
        char *start = bracket;
        while (isalnum((unsigned char)start[-1]) || start[-1] == '_') start--;
        add_name(names, start, (size_t)(bracket - start));
    }
    fclose(file);
}

/* Returns false when there is no nm. */
static bool read_library(const char *path, struct names *names) {
    char command[2 * PATH_MAX], line[512];
    snprintf(command, sizeof command, "nm -D --defined-only '%s' 2>/dev/null", path);
    FILE *output = popen(command, "re");
    CHECK(output != NULL);
    while (fgets(line, sizeof line, output)) {
        char *name = strrchr(line, ' ');
        CHECK(name != NULL);
        add_name(names, name + 1, strcspn(name + 1, "\n@"));
    }
    return pclose(output) == 0 && names->count > 0;
}

static void exports(void) {
    static struct names declared, exported;
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/../release/liblumen_uring.so", here);
    if (access(path, R_OK) != 0)
        check_skip("test_abi", "the table is right; no release library to look at: make lib");
    read_header("lumen.h", &declared);
    read_header("lumen_budgets.h", &declared);
    read_header("lumen_traces.h", &declared);
    read_header("lumen_report.h", &declared);
    read_header("lumen_traffic.h", &declared);
    read_header("lumen_upstreams.h", &declared);
    read_header("lumen_load.h", &declared);
    CHECK(declared.count >= 10);
    if (!read_library(path, &exported))
        check_skip("test_abi", "the table is right; no nm to list the exports");
    for (uint32_t i = 0; i < exported.count; i++) {
        CHECK_AT("%s is exported; declared? (an old library? make lib)", exported.name[i]);
        CHECK(strncmp(exported.name[i], "lumen_", 6) == 0 && has_name(&declared, exported.name[i]));
    }
    for (uint32_t i = 0; i < declared.count; i++) {
        CHECK_AT("%s is declared; exported? (an old library? make lib)", declared.name[i]);
        CHECK(has_name(&exported, declared.name[i]));
    }
}

int main(void) {
    ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
    CHECK(length > 0);
    *strrchr(here, '/') = '\0';
    CHECK(lumen_version()[0] != '\0');
    table_covers_all();
    exports();
    return check_finish("test_abi");
}
