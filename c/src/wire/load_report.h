/* load_report.h: how loaded a server is, as its answers say it to balancers: the header
 * endpoint-load-metrics as text or JSON, and gRPC's trailer of the same (Open Request Cost
 * Aggregation, xds.data.orca.v3.OrcaLoadReport). No state: any thread.
 */
#ifndef LM_WIRE_LOAD_REPORT_H
#define LM_WIRE_LOAD_REPORT_H

#include <stddef.h>
#include <stdint.h>

#include "wire/http_parser.h"

enum lm_load_form { LM_LOAD_UNASKED, LM_LOAD_TEXT, LM_LOAD_JSON };

struct lm_load_figures {
    double busy;     /* 1: all are, all the time */
    double queued;   /* requests that wait, for each worker */
    double answered; /* requests a second, */
    double failed;   /* and those that were refused for lack of time or room, or failed */
    uint32_t waiting, running;
};

enum { LM_LOAD_LINE_BYTES = 224, LM_LOAD_FIELD_BYTES = 80 };

/* The value of endpoint-load-metrics-format: "text" or "json"; anything else asks for nothing. */
enum lm_load_form lm_load_form_find(struct lm_slice value);
/* Writes the header's line with its end, and a zero. Returns its bytes. */
size_t lm_load_write_line(const struct lm_load_figures *figures, enum lm_load_form form,
                          char line[LM_LOAD_LINE_BYTES]);
/* Writes the field endpoint-load-metrics-bin as HTTP/2's blocks have it. Returns its bytes. */
size_t lm_load_write_field(const struct lm_load_figures *figures,
                           uint8_t field[LM_LOAD_FIELD_BYTES]);

#endif
