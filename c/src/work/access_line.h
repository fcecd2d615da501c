/* access_line.h: a row of the access log as a line of text or of JSON. Telemetry thread only. */
#ifndef LM_WORK_ACCESS_LINE_H
#define LM_WORK_ACCESS_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "parts/trace.h"

/* `model`: its name; NULL: it names none. `offset_ns`: from the monotonic clock to the time of day.
 * Returns the line's bytes, with its end; at most LM_LINE_BYTES_MAX. */
size_t lm_access_log_line(char *line, const struct lm_trace_record *row, const char *model,
                          uint64_t offset_ns, bool as_json);

#endif
