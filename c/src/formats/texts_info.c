/* texts_info.c: see texts_info.h. */
#include "formats/texts_info.h"

#include <stdio.h>

#include "base/json_text.h"
#include "formats/oip_document.h"
#include "formats/texts_kinds.h"
#include "models/text_model.h"

static void write_label(FILE *out, const struct lm_labels *labels, uint32_t number) {
    uint32_t bytes = 0;
    const char *label = lm_labels_get(labels, number, &bytes);
    lm_json_write_bytes(out, label ? label : "", label ? bytes : 0);
}

static void write_labels(FILE *out, const struct lm_labels *labels) {
    fputs("\"id2label\":{", out);
    for (uint32_t l = 0; l < labels->count; l++) {
        fprintf(out, "%s\"%u\":", l ? "," : "", l);
        write_label(out, labels, l);
    }
    fputs("},\"label2id\":{", out);
    for (uint32_t l = 0; l < labels->count; l++) {
        if (l) fputc(',', out);
        write_label(out, labels, l);
        fprintf(out, ":%u", l);
    }
    fputc('}', out);
}

static void write_pooling(FILE *out, uint32_t pooling) {
    static const struct {
        uint32_t pooling;
        const char *name;
    } all[] = {{LUMEN_POOLING_CLS, "cls"},
               {LUMEN_POOLING_MAX, "max"},
               {LUMEN_POOLING_MEAN, "mean"},
               {LUMEN_POOLING_MEAN_SQRT_LEN, "mean_sqrt_len"},
               {LUMEN_POOLING_WEIGHTED_MEAN, "weightedmean"},
               {LUMEN_POOLING_LAST_TOKEN, "last_token"}};
    const char *between = "";
    fputs("\"pooling\":\"", out);
    for (size_t p = 0; p < sizeof all / sizeof *all; p++) {
        if (!(pooling & all[p].pooling)) continue;
        fprintf(out, "%s%s", between, all[p].name);
        between = "+";
    }
    fputc('"', out);
}

static void write_kind(FILE *out, const struct lm_model *model) {
    fprintf(out, "{\"%s\":{", lm_texts_kind_of(model)->info);
    if (model->labels.count > 0)
        write_labels(out, &model->labels);
    else
        write_pooling(out, model->text->pooling);
    fputs("}}", out);
}

static int write_model(FILE *out, const struct lm_model *model, const struct lm_texts_info *info,
                       struct lm_oip_document *document) {
    const struct lm_text_model *text = model->text;
    fputs("{\"model_id\":", out);
    lm_json_write(out, model->base);
    fputs(",\"served_model_name\":", out);
    lm_json_write(out, model->base);
    fputs(",\"model_sha\":null,\"model_dtype\":\"float32\",\"model_type\":", out);
    write_kind(out, model);
    fprintf(out, ",\"max_input_length\":%u,\"max_client_batch_size\":%u,\"auto_truncate\":%s",
            text->tokens_max, model->max_rows, text->may_cut ? "true" : "false");
    /* No text waits for another one's tokens: a Run has one text. */
    fprintf(out, ",\"max_batch_tokens\":%u,\"max_batch_requests\":1", text->tokens_max);
    fprintf(out, ",\"max_concurrent_requests\":%u,\"tokenization_workers\":%u", info->requests_max,
            info->worker_count);
    fputs(",\"prompts\":[", out);
    for (uint32_t p = 0; p < text->prompt_count; p++) {
        if (p) fputc(',', out);
        lm_json_write(out, text->prompt_names[p]);
    }
    fputs("],\"default_prompt\":", out);
    if (text->default_prompt)
        lm_json_write(out, text->prompt_names[text->default_prompt - 1]);
    else
        fputs("null", out);
    fputs(",\"version\":", out);
    lm_json_write(out, info->version);
    fputs(",\"sha\":null,\"docker_label\":null}", out);
    return lm_oip_close_document(out, document);
}

int lm_texts_info_write(struct lm_model *const *models, uint32_t model_count,
                        const struct lm_texts_info *info, struct lm_oip_document *out) {
    *out = (struct lm_oip_document){0};
    for (uint32_t m = 0; m < model_count; m++) {
        if (!models[m]->text) continue;
        FILE *file = lm_oip_open_document(out);
        return file ? write_model(file, models[m], info, out) : lm_oip_no_document();
    }
    return 0;
}
