/* load_report.c: see load_report.h. */
#include "wire/load_report.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "wire/http_scan.h"

/* Beyond it nobody weighs more; so a line has its room. */
static double bounded(double value) {
    return value < 99999999 ? value : 99999999;
}

enum lm_load_form lm_load_form_find(struct lm_slice value) {
    if (lm_http_same_word(value, "text", 4)) return LM_LOAD_TEXT;
    return lm_http_same_word(value, "json", 4) ? LM_LOAD_JSON : LM_LOAD_UNASKED;
}

size_t lm_load_write_line(const struct lm_load_figures *figures, enum lm_load_form form,
                          char line[LM_LOAD_LINE_BYTES]) {
    static const char text[] = "endpoint-load-metrics: TEXT application_utilization=%.4f,"
                               "rps_fractional=%.3f,eps=%.3f,named_metrics.waiting=%u,"
                               "named_metrics.running=%u\r\n";
    static const char json[] = "endpoint-load-metrics: JSON {\"application_utilization\":%.4f,"
                               "\"rps_fractional\":%.3f,\"eps\":%.3f,\"named_metrics\":"
                               "{\"waiting\":%u,\"running\":%u}}\r\n";
    const int bytes = snprintf(line, LM_LOAD_LINE_BYTES, form == LM_LOAD_JSON ? json : text,
                               bounded(figures->busy), bounded(figures->answered),
                               bounded(figures->failed), figures->waiting, figures->running);
    LM_ASSERT(bytes > 0 && bytes < LM_LOAD_LINE_BYTES);
    return (size_t)bytes;
}

/* ---- as a message ---- */

/* Numbers of its fields, each a double. */
enum { RPS_FRACTIONAL = 6, EPS = 7, APPLICATION_UTILIZATION = 9, DOUBLE_BYTES = 9 };

static void put_double(uint8_t *at, uint8_t number, double value) {
    const uint8_t is_fixed64 = 1;
    at[0] = (uint8_t)(number << 3 | is_fixed64);
    memcpy(at + 1, &value, sizeof value); /* little-endian, as every machine here is */
}

size_t lm_load_write_field(const struct lm_load_figures *figures,
                           uint8_t field[LM_LOAD_FIELD_BYTES]) {
    static const char name[] = "endpoint-load-metrics-bin";
    uint8_t message[3 * DOUBLE_BYTES], *at = field;
    put_double(message, RPS_FRACTIONAL, figures->answered);
    put_double(message + DOUBLE_BYTES, EPS, figures->failed);
    put_double(message + 2 * DOUBLE_BYTES, APPLICATION_UTILIZATION, figures->busy);
    *at++ = 0; /* neither kept nor looked up */
    *at++ = sizeof name - 1;
    memcpy(at, name, sizeof name - 1);
    at += sizeof name - 1;
    const size_t room = sodium_base64_ENCODED_LEN(sizeof message, sodium_base64_VARIANT_ORIGINAL);
    *at++ = (uint8_t)(room - 1); /* without the zero behind it */
    LM_ASSERT(at + room <= field + LM_LOAD_FIELD_BYTES);
    sodium_bin2base64((char *)at, room, message, sizeof message, sodium_base64_VARIANT_ORIGINAL);
    at += room - 1;
    return (size_t)(at - field);
}
