/* steps_tell.c: see steps_tell.h. */
#include "models/steps_tell.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "models/model.h"

const char *lm_step_name(const lumen_step_tensor *map, uint32_t count, const char *tensor) {
    for (uint32_t m = 0; m < count; m++)
        if (strcmp(map[m].tensor, tensor) == 0) return map[m].name;
    return tensor;
}

const char *lm_step_output_name(const lumen_step *config, const char *tensor) {
    for (uint32_t m = 0; config->is_closed && m < config->output_count; m++)
        if (strcmp(config->outputs[m].tensor, tensor) == 0) return config->outputs[m].name;
    return config->is_closed ? "" : lm_step_name(config->outputs, config->output_count, tensor);
}

static void write_map(FILE *out, const char *key, const struct lm_tensor *tensors, uint32_t count,
                      const lumen_step *config, bool is_output) {
    const char *before = "";
    fprintf(out, ",\"%s\":{", key);
    for (uint32_t t = 0; t < count; t++) {
        const char *name = is_output
                               ? lm_step_output_name(config, tensors[t].name)
                               : lm_step_name(config->inputs, config->input_count, tensors[t].name);
        if (!*name) continue;
        fputs(before, out);
        lm_json_write(out, tensors[t].name);
        fputc(':', out);
        lm_json_write(out, name);
        before = ",";
    }
    fputc('}', out);
}

int lm_steps_tell(struct lm_steps *steps, const lumen_steps_config *config) {
    size_t bytes = 0;
    FILE *out = open_memstream(&steps->scheduling, &bytes);
    if (!out) return lm_error(LUMEN_E_NOMEM, "no memory for its steps");
    fputs("{\"step\":[", out);
    for (uint32_t s = 0; s < steps->count; s++) {
        const struct lm_model *model = steps->steps[s].model;
        fputs(s ? ",{\"model_name\":" : "{\"model_name\":", out);
        lm_json_write(out, model->base);
        fprintf(out, ",\"model_version\":%lld",
                strcmp(model->base, model->name) == 0 ? -1ll : (long long)model->version);
        write_map(out, "input_map", model->inputs, model->input_count, &config->steps[s], false);
        write_map(out, "output_map", model->outputs, model->output_count, &config->steps[s], true);
        fputs(",\"model_namespace\":\"\"}", out);
    }
    fputs("]}", out);
    return fclose(out) == 0 ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for its steps");
}
