/* http_page.c: see http_page.h. Names come from configurations and model files: all are escaped. */
#include "parts/http_page.h"

#include <stdio.h>

#include "base/error.h"
#include "parts/native_codec.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">"
    "<meta name=\"viewport\" content=\"width=device-width\"><title>Lumen</title>\n<style>"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#223;background:#fff}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #dde}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
    "pre{background:#f4f5f9;padding:.7rem;overflow-x:auto}small{color:#667}"
    "@media(prefers-color-scheme:dark){body{color:#dde;background:#15171c}"
    "th,td{border-color:#333a46}pre{background:#1e222a}small{color:#99a}}"
    "</style>\n";

static const char script[] =
    "<script>\n"
    "let last = null;\n"
    "const cell = (row, name, text) => { row.querySelector('.' + name).textContent = text; };\n"
    "async function look() {\n"
    "  const state = document.getElementById('state');\n"
    "  try {\n"
    "    const ready = await fetch('/v2/health/ready');\n"
    "    state.textContent = ready.ok ? 'ready' : 'not ready';\n"
    "    const answer = await fetch('/v2/models/stats');\n"
    "    if (!answer.ok) { state.textContent += ', figures need a key'; return; }\n"
    "    const now = performance.now(), stats = (await answer.json()).model_stats;\n"
    "    for (const model of stats) {\n"
    "      const row = document.querySelector(`tr[data-model=\"${CSS.escape(model.name)}\"]`);\n"
    "      const s = model.inference_stats, before = last && last.models[model.name];\n"
    "      if (!row) continue;\n"
    "      const mean = part => part.count ? (part.ns / part.count / 1e3).toFixed(0) : '-';\n"
    "      const rate = before === undefined || before === null ? '-'\n"
    "        : ((s.success.count - before) / (now - last.at) * 1e3).toFixed(1);\n"
    "      cell(row, 'ok', s.success.count); cell(row, 'fail', s.fail.count);\n"
    "      cell(row, 'rate', rate); cell(row, 'queue', mean(s.queue));\n"
    "      cell(row, 'infer', mean(s.compute_infer)); cell(row, 'total', mean(s.success));\n"
    "    }\n"
    "    last = {at: now, models: Object.fromEntries("
    "stats.map(m => [m.name, m.inference_stats.success.count]))};\n"
    "  } catch (error) { state.textContent = 'no answer'; }\n"
    "}\n"
    "look(); setInterval(look, 1000);\n"
    "</script>\n";

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
        for (uint32_t d = 0; d < tensors[t].rank; d++) {
            if (tensors[t].dims[d] < 0) {
                fprintf(out, "%sn", d ? "," : "");
            } else {
                fprintf(out, "%s%lld", d ? "," : "", (long long)tensors[t].dims[d]);
            }
        }
        fputc(']', out);
    }
}

static void write_models(FILE *out, const struct lm_model *models, uint32_t model_count) {
    fputs("<table><tr><th>model<th>inputs, outputs<th class=n>answered<th class=n>failed"
          "<th class=n>per s<th class=n>queue µs<th class=n>infer µs<th class=n>total µs\n",
          out);
    for (uint32_t m = 0; m < model_count; m++) {
        fputs("<tr data-model=\"", out);
        write_text(out, models[m].name);
        fputs("\"><td>", out);
        write_text(out, models[m].name);
        fputs("<td>", out);
        write_tensors(out, models[m].inputs, models[m].input_count);
        fputs(" → ", out);
        write_tensors(out, models[m].outputs, models[m].output_count);
        fputs("<td class=\"n ok\"><td class=\"n fail\"><td class=\"n rate\"><td class=\"n queue\">"
              "<td class=\"n infer\"><td class=\"n total\">\n",
              out);
    }
    fputs("</table>\n", out);
}

/* The commands to try, for the first model. */
static void write_commands(FILE *out, const struct lm_model *model) {
    fputs("<h2>Try</h2>\n<pre>H=http://127.0.0.1:8000   <small># this server</small>\n"
          "curl $H/v2/models/",
          out);
    write_text(out, model->name);
    fputc('\n', out);
    if (model->input_count == 1) {
        size_t bytes = 0;
        lm_model_payload_bytes(model, LM_ENCODING_TENSORS, 1, &bytes);
        if (model->has_rgb8) {
            fprintf(out,
                    "<small># raw pixels, %u × %u × 3 bytes; the answer is JSON and the outputs' "
                    "bytes</small>\n",
                    model->rgb8.height, model->rgb8.width);
            fputs("curl --data-binary @image.rgb", out);
        } else {
            fprintf(out,
                    "<small># the tensor's %zu bytes; the answer is JSON and the outputs' "
                    "bytes</small>\n",
                    bytes);
            fputs("curl --data-binary @tensor.bin", out);
        }
        fputs(" -H 'Inference-Header-Content-Length: 0' $H/v2/models/", out);
        write_text(out, model->name);
        fputs("/infer --output answer.bin\n", out);
    }
    fputs("curl $H/v2/models/stats\nlumen bench --url $H --model ", out);
    write_text(out, model->name);
    fputs(" --seconds 5</pre>\n", out);
}

int lm_http_page(const struct lm_model *models, uint32_t model_count, const char *version,
                 struct lm_oip_document *out_document) {
    FILE *out = open_memstream(&out_document->text, &out_document->bytes);
    if (!out) return lm_error(LUMEN_E_NOMEM, "no memory for the page");
    fputs(head, out);
    fprintf(out, "<h1>Lumen %s <small id=state></small></h1>\n", version);
    write_models(out, models, model_count);
    write_commands(out, &models[0]);
    fputs("<p><small>Open Inference Protocol: <a href=\"/v2\">/v2</a>, "
          "<a href=\"/v2/models/stats\">/v2/models/stats</a>. Metrics for Prometheus are on their "
          "own port (8002 unless set).</small></p>\n",
          out);
    fputs(script, out);
    if (fclose(out) != 0) return lm_error(LUMEN_E_NOMEM, "no memory for the page");
    return 0;
}
