/* fuzz_openai_request.cc: any bytes as a request in OpenAI's form. What is accepted names one
 * model, where it says; with another name in its place it names that one. And as an answer, whose
 * usage is the same in any two pieces. Rows 52 and 53 of the project's list of hostile inputs. */
#include "base/cxx.h"
#include "fuzz.h"
extern "C" {
#include "formats/oip_request.h"
#include "formats/openai_request.h"
#include "formats/openai_usage.h"
}

static struct lm_openai_parser *parser;

static enum lm_status read_text(const char *text, size_t count, struct lm_openai_request *out,
                                char why[256]) {
    char *padded = (char *)malloc(count + LM_OIP_PADDING);
    HOLDS(padded);
    if (count) memcpy(padded, text, count);
    memset(padded + count, 0xff, LM_OIP_PADDING);
    enum lm_status status = lm_openai_read(parser, padded, count, out, why, 256);
    free(padded);
    return status;
}

static void read_usage(const char *text, size_t count, size_t first) {
    struct lm_usage_reader whole = {}, pieces = {};
    lm_usage_feed(&whole, text, count);
    lm_usage_feed(&pieces, text, first);
    lm_usage_feed(&pieces, text + first, count - first);
    HOLDS(whole.tokens == pieces.tokens && whole.is_known == pieces.is_known);
    HOLDS(whole.events == pieces.events && whole.events <= count / 5);
    HOLDS(whole.is_known == (whole.tokens > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    const char *text = (const char *)input;
    char why[256] = "";
    read_usage(text, count, count ? fuzz_seed(input, count) % count : 0);
    struct lm_openai_request asked;
    if (!parser) HOLDS(lm_openai_parser_open(&parser, 1 << 16) == 0);
    if (read_text(text, count, &asked, why) != LM_STATUS_OK) {
        HOLDS(why[0] != '\0');
        return 0;
    }
    HOLDS(asked.model && asked.name_bytes >= 2 && asked.name_at + asked.name_bytes <= count);
    HOLDS(asked.fields_at < asked.name_at && asked.prompt_bytes <= count && asked.answers > 0);
    HOLDS(text[asked.name_at] == '"' && text[asked.name_at + asked.name_bytes - 1] == '"');
    static const char other[] = "\"another\"";
    const size_t bytes = sizeof other - 1, behind = asked.name_at + asked.name_bytes;
    char *renamed = (char *)malloc(count + bytes);
    HOLDS(renamed);
    memcpy(renamed, text, asked.name_at);
    memcpy(renamed + asked.name_at, other, bytes);
    memcpy(renamed + asked.name_at + bytes, text + behind, count - behind);
    struct lm_openai_request again;
    HOLDS(read_text(renamed, count - asked.name_bytes + bytes, &again, why) == LM_STATUS_OK);
    HOLDS(again.model_bytes == bytes - 2 && memcmp(again.model, other + 1, bytes - 2) == 0);
    HOLDS(again.streams == asked.streams && again.tokens_max == asked.tokens_max);
    free(renamed);
    return 0;
}
