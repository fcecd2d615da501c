/* http_page.c: see http_page.h. What is the same for every server is formats/page.html, built in as
 * it is; it names the places of what is not. Names come from configurations and model files: all
 * are escaped. */
#include "formats/http_page.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/native_codec.h"
#include "formats/texts_kinds.h"
#include "models/layout.h"
#include "models/sizes.h"

__asm__(".pushsection .rodata\n"
        "lm_page: .incbin \"formats/page.html\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char lm_page[] __attribute__((visibility("hidden")));

/* A server, as its page shows it. */
struct page {
    struct lm_model *const *models;
    uint32_t model_count, shown; /* the first so many */
    const char *version;
    uint32_t port, metrics_port;
};

static void write_text(FILE *out, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '<' || *at == '>' || *at == '&' || *at == '"' || *at == '\'' || *at < 0x20) {
            fprintf(out, "&#%u;", *at);
        } else {
            fputc(*at, out);
        }
    }
}

static void write_tensors(FILE *out, const struct lm_tensor *tensors, uint32_t count) {
    for (uint32_t t = 0; t < count; t++) {
        if (t) fputs(", ", out);
        write_text(out, tensors[t].name);
        fprintf(out, " %s[", lm_dtype_name(tensors[t].dtype));
        if (tensors[t].any_rank) fputs("...", out);
        for (uint32_t d = 0; !tensors[t].any_rank && d < tensors[t].rank; d++) {
            if (tensors[t].dims[d] < 0) {
                fprintf(out, "%sn", d ? "," : "");
            } else {
                fprintf(out, "%s%lld", d ? "," : "", (long long)tensors[t].dims[d]);
            }
        }
        fputc(']', out);
    }
}

static int write_models(FILE *out, const struct page *page) {
    /* In the order of the table's head; a narrow screen shows the name beside each figure. */
    static const struct {
        const char *name;
        const char *label;
    } cells[] = {{"rate", "answers/s"}, {"p50", "p50"},        {"p99", "p99"},
                 {"wait", "mean wait"}, {"run", "mean run"},   {"answered", "answered"},
                 {"failed", "failed"},  {"refused", "refused"}};
    enum { CELLS = sizeof cells / sizeof cells[0] };
    for (uint32_t m = 0; m < page->shown; m++) {
        const struct lm_model *model = page->models[m];
        fputs("<tr data-model=\"", out);
        write_text(out, model->name);
        fputs("\"><td data-l=model><b>", out);
        write_text(out, model->name);
        fputs("</b><td data-l=takes><span>", out);
        write_tensors(out, model->inputs, model->input_count);
        fputs(" → ", out);
        write_tensors(out, model->outputs, model->output_count);
        fputs("</span>", out);
        for (size_t c = 0; c < CELLS; c++)
            fprintf(out, "<td class=n data-l=\"%s\"><span class=%s>–</span>", cells[c].label,
                    cells[c].name);
        fputc('\n', out);
    }
    return 0;
}

/* ---- commands to try ---- */

enum { EXAMPLE_SIZE = 32 };
enum { LITERAL_MAX = 64 }; /* elements that are written out */

/* The sizes of the request to try: a short one where sizes are free. */
static struct lm_sizes example_sizes(const struct lm_model *model) {
    struct lm_sizes sizes = lm_model_largest(model, 1);
    for (uint32_t place = 0; place < LM_FREE_DIMS_MAX; place++)
        if (sizes.free[place] > EXAMPLE_SIZE) sizes.free[place] = EXAMPLE_SIZE;
    return sizes;
}

static uint64_t element_count(const struct lm_model *model, const struct lm_tensor *tensor) {
    const struct lm_sizes sizes = example_sizes(model);
    int64_t dims[LM_RANK_MAX];
    uint64_t count = 1;
    uint32_t rank = lm_tensor_shape(tensor, &sizes, dims);
    for (uint32_t d = 0; d < rank; d++) count *= (uint64_t)dims[d];
    return count;
}

static bool json_can_say(const struct lm_model *model) {
    for (uint32_t t = 0; t < model->input_count + model->output_count; t++) {
        const struct lm_tensor *tensor =
            t < model->input_count ? &model->inputs[t] : &model->outputs[t - model->input_count];
        const char *name = lm_dtype_name(tensor->dtype);
        if (strcmp(name, "FP16") == 0 || strcmp(name, "BF16") == 0) return false;
    }
    return true;
}

static bool is_large(const struct lm_model *model) {
    for (uint32_t t = 0; t < model->input_count; t++)
        if (element_count(model, &model->inputs[t]) > LITERAL_MAX) return true;
    return false;
}

/* One row of every input, as JSON inside Python's r"""...""": an input of many elements is Python
 * that makes them. */
static void write_body(FILE *out, const struct lm_model *model) {
    fputs("{\"inputs\":[", out);
    for (uint32_t t = 0; t < model->input_count; t++) {
        const struct lm_tensor *tensor = &model->inputs[t];
        const struct lm_sizes sizes = example_sizes(model);
        uint64_t count = element_count(model, tensor);
        int64_t dims[LM_RANK_MAX];
        const char *type = lm_dtype_name(tensor->dtype);
        const char *zero = strcmp(type, "BOOL") == 0 ? "false" : "0", *quote = "\"";
        if (lm_is_string(tensor)) zero = "\"text\"", quote = "'";
        fputs(t ? ",{\"name\":" : "{\"name\":", out);
        lm_json_write(out, tensor->name);
        fprintf(out, ",\"datatype\":\"%s\",\"shape\":[", type);
        uint32_t rank = lm_tensor_shape(lm_tensor_of_client(tensor), &sizes, dims);
        for (uint32_t d = 0; d < rank; d++)
            fprintf(out, "%s%lld", d ? "," : "", (long long)dims[d]);
        fputs("],\"data\":[", out);
        if (count > LITERAL_MAX) {
            fprintf(out, "\"\"\" + \",\".join([%s%s%s] * %llu) + r\"\"\"", quote, zero, quote,
                    (unsigned long long)count);
        } else {
            for (uint64_t i = 0; i < count; i++) fprintf(out, i ? ",%s" : "%s", zero);
        }
        fputs("]}", out);
    }
    fputs("]}", out);
}

/* The body inside single quotes of a shell, inside HTML. */
static int write_quoted(FILE *out, const struct lm_model *model) {
    struct lm_oip_document text = {0};
    FILE *body = open_memstream(&text.text, &text.bytes);
    if (!body) return lm_error(LUMEN_E_NOMEM, "no memory for the page");
    write_body(body, model);
    if (fclose(body) != 0) return lm_error(LUMEN_E_NOMEM, "no memory for the page");
    for (char *at = text.text, *quote; at; at = quote ? quote + 1 : NULL) {
        quote = strchr(at, '\'');
        if (quote) *quote = '\0';
        write_text(out, at);
        if (quote) write_text(out, "'\\''");
    }
    lm_oip_document_close(&text);
    return 0;
}

/* In a path: what is neither letter nor digit is escaped. */
static void write_path(FILE *out, const char *name) {
    for (const unsigned char *at = (const unsigned char *)name; *at; at++) {
        bool plain = (*at >= '0' && *at <= '9') || ((*at | 0x20) >= 'a' && (*at | 0x20) <= 'z') ||
                     *at == '-' || *at == '_' || *at == '.';
        fprintf(out, plain ? "%c" : "%%%02X", *at);
    }
}

static int write_model_command(FILE *out, const struct lm_model *model) {
    bool large = is_large(model);
    size_t bytes = 0;
    int code = 0;
    if (!json_can_say(model)) { /* FP16 and BF16 travel as bytes */
        if (model->input_count != 1) {
            fputs("# FP16 and BF16 travel as bytes behind the JSON: docs/PROTOCOL.md", out);
            return 0;
        }
        const struct lm_sizes sizes = example_sizes(model);
        lm_model_payload_bytes(model, LM_ENCODING_TENSORS, &sizes, &bytes);
        fprintf(out,
                "head -c %zu /dev/zero |\n  curl --data-binary @- "
                "-H 'Inference-Header-Content-Length: 0' --output answer.bin ",
                bytes);
    } else if (large) {
        fputs("python3 -c 'print(r\"\"\"", out);
        code = write_quoted(out, model);
        fputs("\"\"\")' |\n  curl -d @- ", out);
    } else {
        fputs("curl -d '", out);
        code = write_quoted(out, model);
        fputs("' ", out);
    }
    fputs("$H/v2/models/", out);
    write_path(out, model->name);
    fputs("/infer", out);
    return code;
}

/* The kind of box that the page has for a model of texts or pictures (page.html); NULL: none. */
static const char *box_of(const struct lm_model *model) {
    if (model->text) return lm_texts_kind_of(model)->box;
    return model->input_plan.has_images && is_large(model) ? "picture" : NULL;
}

static void write_text_command(FILE *out, const struct lm_model *model) {
    const char *box = box_of(model);
    const bool names_it = strcmp(box, "entities") != 0;
    fputs("curl -d '{", out);
    if (names_it) {
        fputs("\"model\":\"", out);
        write_text(out, model->base);
        fputs("\",", out);
    }
    fputs(strcmp(box, "embedding") == 0 ? "\"input\":\"a text\"}' $H/v1/embeddings"
          : strcmp(box, "scores") == 0  ? "\"inputs\":\"a text\"}' $H/predict"
          : strcmp(box, "pairs") == 0
              ? "\"query\":\"a question\",\"texts\":[\"a text\",\"another\"]}' $H/rerank"
              : "\"inputs\":\"a text\"}' $H/v1/models/",
          out);
    if (names_it) return;
    write_path(out, model->name);
    fputs(":entities", out);
}

static int write_commands(FILE *out, const struct page *page) {
    int code = 0;
    for (uint32_t m = 0; !code && m < page->shown; m++) {
        const struct lm_model *model = page->models[m];
        const char *box = box_of(model);
        fprintf(out, "<details%s", m ? "" : " open");
        if (box) fprintf(out, " data-box=%s data-path=\"", box);
        if (box) write_path(out, model->name);
        fputs(box ? "\"><summary>" : "><summary>", out);
        write_text(out, model->name);
        if (model->text) {
            fputs(": a text</summary><pre class=try>", out);
            write_text_command(out, model);
        } else if (box) {
            fputs(": a picture</summary><pre class=try>curl -T PICTURE.jpg $H/v2/models/", out);
            write_path(out, model->name);
            fputs("/infer", out);
        } else {
            fputs(": one row of zeros</summary><pre class=try>", out);
            code = write_model_command(out, model);
        }
        fputs("</pre></details>\n", out);
    }
    if (page->model_count == 0) return 0;
    fputs("<p><small>A load for five seconds:</small></p>\n<pre>lumen bench --url $H --model ",
          out);
    write_text(out, page->models[0]->name);
    fputs(" --seconds 5</pre>\n", out);
    return code;
}

/* ---- the page ---- */

static int write_others(FILE *out, const struct page *page) {
    if (page->shown < page->model_count)
        fprintf(out,
                "<p><small>And %u models more: <a href=\"/v1/models\">/v1/models</a> has all "
                "names.</small></p>\n",
                page->model_count - page->shown);
    return 0;
}

static int write_version(FILE *out, const struct page *page) {
    fputs(page->version, out);
    return 0;
}

static int write_origin(FILE *out, const struct page *page) {
    fprintf(out, "http://127.0.0.1:%u", page->port);
    return 0;
}

static int write_metrics(FILE *out, const struct page *page) {
    if (page->metrics_port) {
        fprintf(out,
                "port %u, <a href=\"http://127.0.0.1:%u/metrics\">/metrics</a> on the "
                "server's machine",
                page->metrics_port, page->metrics_port);
    } else {
        fputs("none (server.metrics_port)", out);
    }
    return 0;
}

/* The places that the file names, <!--NAME-->, and who writes there. */
static const struct {
    const char *name;
    int (*write)(FILE *out, const struct page *page);
} places[] = {{"<!--version-->", write_version},     {"<!--origin-->", write_origin},
              {"<!--models-->\n", write_models},     {"<!--others-->\n", write_others},
              {"<!--commands-->\n", write_commands}, {"<!--metrics-->", write_metrics}};

/* Writes what is before the next place and the place. Returns 0 or LUMEN_E_NOMEM; NULL in `at_out`:
 * the page is whole. */
static int write_piece(FILE *out, const struct page *page, const char **at_out) {
    const char *at = *at_out, *end = strstr(at, "<!--");
    *at_out = NULL;
    fwrite(at, 1, end ? (size_t)(end - at) : strlen(at), out);
    for (size_t p = 0; end && p < sizeof places / sizeof places[0]; p++) {
        if (strncmp(end, places[p].name, strlen(places[p].name)) != 0) continue;
        *at_out = end + strlen(places[p].name);
        return places[p].write(out, page);
    }
    LM_ASSERT(!end);
    return 0;
}

int lm_http_page(struct lm_model *const *models, uint32_t model_count, const char *version,
                 uint32_t port, uint32_t metrics_port, struct lm_oip_document *out_document) {
    const uint32_t shown = model_count < LM_PAGE_MODELS ? model_count : LM_PAGE_MODELS;
    const struct page page = {models, model_count, shown, version, port, metrics_port};
    FILE *out = open_memstream(&out_document->text, &out_document->bytes);
    if (!out) return lm_error(LUMEN_E_NOMEM, "no memory for the page");
    int code = 0;
    for (const char *at = lm_page; at && !code;) code = write_piece(out, &page, &at);
    if (fclose(out) != 0) return lm_error(LUMEN_E_NOMEM, "no memory for the page");
    return code;
}
