/* bounds.c: see bounds.h. One walk over the nodes in their order. A table has the names
 * of all values that were made before a node, and whether each is known: it follows from constants
 * and shapes. A name that is not in the table is an input of the graph, or of a node that comes
 * later: it is not known.
 */
#include "onnx/bounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/fields.h"
#include "onnx/operators.h"

/* Of such a file, and of newer ones, the initializers that are listed as inputs may be replaced by
 * what a request brings; in older ones all had to be listed. */
enum { IR_OVERRIDES = 4 };

struct value {
    struct lm_bytes name; /* NULL: the entry is free */
    bool is_known;
};

struct walk {
    struct value *values; /* a table of hashes with at least one free entry */
    size_t mask;
    char *why;
};

/* ---- the values ---- */

static struct value *entry_of(const struct walk *walk, struct lm_bytes name) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (const uint8_t *at = name.at; at < name.end; at++) hash = (hash ^ *at) * 0x100000001b3u;
    for (size_t at = (size_t)(hash ^ hash >> 32);; at++) {
        struct value *value = &walk->values[at & walk->mask];
        if (!value->name.at) return value;
        if (lm_bytes_count(value->name) == lm_bytes_count(name) &&
            memcmp(value->name.at, name.at, lm_bytes_count(name)) == 0)
            return value;
    }
}

/* The first word about a name holds, unless a later one trusts it less. */
static void add(const struct walk *walk, struct lm_bytes name, bool is_known) {
    struct value *value = entry_of(walk, name);
    *value = (struct value){name, is_known && (!value->name.at || value->is_known)};
}

/* An input that is left out has no name. */
static bool is_known(const struct walk *walk, struct lm_bytes name) {
    return lm_bytes_count(name) == 0 || entry_of(walk, name)->is_known;
}

static uint64_t count_names(struct lm_bytes graph) {
    struct lm_onnx_field field;
    struct lm_bytes name;
    uint64_t count = 0;
    while (graph.at < graph.end && lm_onnx_read_field(&graph, &field)) {
        count += field.number == LM_ONNX_GRAPH_INITIALIZER || field.number == LM_ONNX_GRAPH_INPUT;
        if (field.number != LM_ONNX_GRAPH_NODE) continue;
        while (lm_onnx_find_field(&field.value, LM_ONNX_NODE_OUTPUT, &name)) count++;
    }
    return count;
}

/* The names that these messages of the graph have. */
static void add_all(const struct walk *walk, struct lm_bytes graph, uint64_t number,
                    uint64_t name_number, bool is_known) {
    struct lm_bytes message, name;
    while (lm_onnx_find_field(&graph, number, &message)) {
        if (lm_onnx_find_field(&message, name_number, &name)) add(walk, name, is_known);
    }
}

/* ---- the nodes ---- */

/* Letters and digits of a name from the file, which goes into JSON and onto a terminal. */
static const char *plain(struct lm_bytes name, char *text, size_t text_bytes) {
    size_t used = 0;
    for (; name.at < name.end && used + 1 < text_bytes; name.at++) {
        bool letter = (*name.at >= 'a' && *name.at <= 'z') || (*name.at >= 'A' && *name.at <= 'Z');
        bool kept = letter || (*name.at >= '0' && *name.at <= '9') || *name.at == '.';
        text[used++] = kept ? (char)*name.at : '_';
    }
    text[used] = '\0';
    return text;
}

/* The last one counts, as Protocol Buffers have it. */
static struct lm_bytes last_of(struct lm_bytes node, uint64_t number) {
    struct lm_bytes found = {(const uint8_t *)"", (const uint8_t *)""}, value;
    while (lm_onnx_find_field(&node, number, &value)) found = value;
    return found;
}

/* Whether the node's time is bounded. Its outputs are in the table then. */
static bool walk_node(const struct walk *walk, struct lm_bytes node) {
    struct lm_bytes operator_name = last_of(node, LM_ONNX_NODE_OPERATOR), fields = node, name;
    struct lm_bytes domain = last_of(node, LM_ONNX_NODE_DOMAIN);
    const struct lm_onnx_operator *kind = lm_onnx_operator_find(domain, operator_name);
    char text[64], from[48];
    bool all_known = true;
    if (!kind) {
        bool is_custom = lm_bytes_count(domain) > 0;
        snprintf(walk->why, LM_ONNX_WHY_BYTES, "it has %s%s%s, which may take any time",
                 plain(domain, from, sizeof from), is_custom ? "." : "",
                 plain(operator_name, text, sizeof text));
        return false;
    }
    for (uint32_t i = 0; lm_onnx_find_field(&fields, LM_ONNX_NODE_INPUT, &name); i++) {
        bool known = is_known(walk, name);
        all_known = all_known && known;
        if (known || i >= 8 || !(kind->sizes >> i & 1)) continue;
        snprintf(walk->why, LM_ONNX_WHY_BYTES,
                 "a value of the request decides how much its %s makes", kind->name);
        return false;
    }
    bool known = kind->is_constant || (all_known && !kind->is_random);
    while (lm_onnx_find_field(&node, LM_ONNX_NODE_OUTPUT, &name)) add(walk, name, known);
    return true;
}

static bool walk_graph(struct lm_bytes graph, bool overrides, char *why) {
    struct walk walk = {.why = why};
    struct lm_onnx_field field;
    uint64_t names = count_names(graph), room = 16;
    while (room < 2 * names) room *= 2;
    walk.mask = room - 1;
    walk.values = calloc(room, sizeof *walk.values);
    bool bounded = walk.values != NULL;
    if (!bounded) snprintf(why, LM_ONNX_WHY_BYTES, "there was no memory to look at its graph");
    if (bounded && overrides) add_all(&walk, graph, LM_ONNX_GRAPH_INPUT, LM_ONNX_INFO_NAME, false);
    if (bounded) add_all(&walk, graph, LM_ONNX_GRAPH_INITIALIZER, LM_ONNX_TENSOR_NAME, true);
    while (bounded && graph.at < graph.end) {
        bounded = lm_onnx_read_field(&graph, &field);
        if (!bounded) snprintf(why, LM_ONNX_WHY_BYTES, "its graph cannot be read");
        if (bounded && field.number == LM_ONNX_GRAPH_NODE) bounded = walk_node(&walk, field.value);
    }
    free(walk.values);
    return bounded;
}

bool lm_onnx_is_bounded(const uint8_t *bytes, size_t count, char why[LM_ONNX_WHY_BYTES]) {
    struct lm_bytes model = {bytes, bytes + count}, graph = {0};
    struct lm_onnx_field field;
    uint64_t ir_version = 0, graphs = 0;
    if (count > 8 && memcmp(bytes + 4, "ORTM", 4) == 0) {
        snprintf(why, LM_ONNX_WHY_BYTES,
                 "its file has the form of ONNX Runtime, whose graph is not looked at");
        return false;
    }
    while (model.at < model.end) {
        if (!lm_onnx_read_field(&model, &field)) {
            graphs = 0;
            break;
        }
        if (field.number == LM_ONNX_MODEL_IR_VERSION) ir_version = field.word;
        if (field.number == LM_ONNX_MODEL_FUNCTIONS) {
            snprintf(why, LM_ONNX_WHY_BYTES,
                     "it has functions of its own, which may take any time");
            return false;
        }
        if (field.number != LM_ONNX_MODEL_GRAPH || !field.value.at) continue;
        graph = field.value;
        graphs++;
    }
    if (graphs == 1) return walk_graph(graph, ir_version >= IR_OVERRIDES, why);
    /* Several are one for Protocol Buffers. */
    snprintf(why, LM_ONNX_WHY_BYTES, "its graph cannot be read");
    return false;
}
