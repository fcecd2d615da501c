/* http_site.h: whether a request over HTTP names this server, and comes from no page of another
 * site: both ports ask here. Any thread; no state.
 */
#ifndef LM_WIRE_HTTP_SITE_H
#define LM_WIRE_HTTP_SITE_H

#include "base/limits.h"
#include "lumen.h"
#include "wire/http_parser.h"

/* server.hosts. */
struct lm_http_hosts {
    char names[LUMEN_HOSTS_MAX][LM_HOST_NAME_BYTES_MAX];
    uint32_t count;
};

/* At most LUMEN_HOSTS_MAX names, each shorter than LM_HOST_NAME_BYTES_MAX. */
void lm_http_hosts_set(struct lm_http_hosts *hosts, const char *const *names, uint32_t count);

/* For the headers Host and Origin, with `at` NULL where there is none: 0 where the request may be
 * answered, else the status: 421 for a foreign Host, 403 for a foreign Origin. */
uint32_t lm_http_site_refusal(const struct lm_http_hosts *hosts, struct lm_slice host,
                              struct lm_slice origin);

#endif
