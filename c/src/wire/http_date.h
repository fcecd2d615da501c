/* http_date.h: the Date header of a reply: a server with a clock must send one (RFC 9110 6.6.1).
 * Any thread; no lock, no allocation.
 */
#ifndef LM_WIRE_HTTP_DATE_H
#define LM_WIRE_HTTP_DATE_H

#include <stdint.h>

enum { LM_HTTP_DATE_LINE_BYTES = 37 }; /* without a terminator */

/* Writes "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n" and a terminator, for seconds since 1970. */
void lm_http_date_write(char line[LM_HTTP_DATE_LINE_BYTES + 1], uint64_t unix_s);

/* The line of this moment. Each thread writes its own, once a second; it is good until the thread
 * asks again. */
const char *lm_http_date_line(void);

#endif
