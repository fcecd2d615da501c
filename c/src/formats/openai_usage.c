/* openai_usage.c: see openai_usage.h.
 *
 * Inside of a string JSON has its quotes escaped: `"usage"` with quotes right around it is a
 * field's name wherever it stands. */
#include "formats/openai_usage.h"

#include <string.h>

enum { SEEKING, NAMED, INSIDE };

static const char word[] = "\"usage\"";
enum { WORD_BYTES = sizeof word - 1 };

static bool is_space(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* Looks for the word. Returns the bytes that are used: all, or those to its end. */
static size_t seek(struct lm_usage_reader *reader, const char *bytes, size_t count) {
    size_t at = 0;
    while (reader->matched > 0 && reader->matched < WORD_BYTES && at < count) {
        const char byte = bytes[at++];
        if (byte == word[reader->matched])
            reader->matched++;
        else
            reader->matched = byte == '"';
    }
    if (reader->matched == 0) {
        const char *found = memmem(bytes + at, count - at, word, WORD_BYTES);
        if (!found) {
            size_t tail = count - at < WORD_BYTES - 1 ? count - at : WORD_BYTES - 1;
            while (tail > 0 && memcmp(bytes + count - tail, word, tail) != 0) tail--;
            reader->matched = (uint8_t)tail;
            return count;
        }
        at = (size_t)(found - bytes) + WORD_BYTES;
        reader->matched = WORD_BYTES;
    }
    if (reader->matched < WORD_BYTES) return at;
    reader->matched = 0;
    reader->state = NAMED;
    return at;
}

/* A field's value has ended. */
static void take_number(struct lm_usage_reader *reader) {
    static const struct {
        const char *name;
        size_t offset;
    } names[] = {
        {"total_tokens", offsetof(struct lm_usage_reader, total)},
        {"prompt_tokens", offsetof(struct lm_usage_reader, asked)},
        {"input_tokens", offsetof(struct lm_usage_reader, asked)},
        {"completion_tokens", offsetof(struct lm_usage_reader, answered)},
        {"output_tokens", offsetof(struct lm_usage_reader, answered)},
    };
    for (size_t n = 0; reader->has_number && n < sizeof names / sizeof names[0]; n++) {
        const size_t bytes = strlen(names[n].name);
        if (bytes == reader->key_bytes && memcmp(reader->key, names[n].name, bytes) == 0)
            memcpy((char *)reader + names[n].offset, &reader->number, sizeof reader->number);
    }
    reader->has_number = false;
    reader->number = 0;
}

static void in_string(struct lm_usage_reader *reader, char byte) {
    if (reader->is_escaped) {
        reader->is_escaped = false;
    } else if (byte == '\\') {
        reader->is_escaped = true;
    } else if (byte == '"') {
        reader->in_string = false;
    } else if (reader->depth == 1 && reader->key_bytes < LM_USAGE_KEY_BYTES) {
        reader->key[reader->key_bytes++] = byte;
    }
}

static void close_object(struct lm_usage_reader *reader) {
    if (reader->depth == 1) take_number(reader);
    if (--reader->depth > 0) return;
    reader->state = SEEKING;
    const uint64_t parts = reader->asked + reader->answered;
    const uint64_t tokens = reader->total ? reader->total : parts;
    if (tokens) reader->tokens = tokens;
    reader->is_known = reader->is_known || tokens > 0;
}

static void inside(struct lm_usage_reader *reader, char byte) {
    if (reader->in_string) {
        in_string(reader, byte);
        return;
    }
    switch (byte) {
    case '"':
        reader->in_string = true;
        if (reader->depth == 1) reader->key_bytes = 0;
        break;
    case '{':
    case '[': reader->depth++; break;
    case '}':
    case ']': close_object(reader); break;
    case ',':
        if (reader->depth == 1) take_number(reader);
        break;
    default:
        if (reader->depth != 1 || byte < '0' || byte > '9') break;
        if (reader->number < UINT32_MAX)
            reader->number = reader->number * 10 + (uint64_t)(byte - '0');
        reader->has_number = true;
    }
}

/* Behind the name: a colon, and an object or something that says nothing. */
static void named(struct lm_usage_reader *reader, char byte) {
    if (is_space(byte) || byte == ':') return;
    reader->state = byte == '{' ? INSIDE : SEEKING;
    reader->depth = byte == '{';
    reader->total = reader->asked = reader->answered = reader->number = 0;
    reader->in_string = reader->is_escaped = reader->has_number = false;
    reader->key_bytes = 0;
    if (byte == '"') reader->matched = 1;
}

/* An event's data is a line, or several. */
static void count_events(struct lm_usage_reader *reader, const char *bytes, size_t count) {
    static const char begin[] = "data:";
    enum { BEGIN_BYTES = sizeof begin - 1, ELSEWHERE = BEGIN_BYTES + 1 };
    size_t at = 0;
    while (at < count) {
        if (reader->line == ELSEWHERE) {
            const char *end = memchr(bytes + at, '\n', count - at);
            if (!end) return;
            at = (size_t)(end - bytes) + 1;
            reader->line = 0;
        } else {
            const char byte = bytes[at++];
            reader->line = byte == '\n'                  ? 0
                           : byte == begin[reader->line] ? (uint8_t)(reader->line + 1)
                                                         : (uint8_t)ELSEWHERE;
            if (reader->line != BEGIN_BYTES) continue;
            reader->events++;
            reader->line = ELSEWHERE;
        }
    }
}

void lm_usage_feed(struct lm_usage_reader *reader, const char *bytes, size_t count) {
    size_t at = 0;
    count_events(reader, bytes, count);
    while (at < count) {
        if (reader->state == SEEKING)
            at += seek(reader, bytes + at, count - at);
        else if (reader->state == NAMED)
            named(reader, bytes[at++]);
        else
            inside(reader, bytes[at++]);
    }
}
