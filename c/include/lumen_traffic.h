/* lumen_traffic.h: which version of a model answers the requests that name none, and which one runs
 * copies of requests. */
#ifndef LUMEN_TRAFFIC_H
#define LUMEN_TRAFFIC_H

#include <stdint.h>

#include "lumen.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LUMEN_TRAFFIC_MAX = 64, LUMEN_TRAFFIC_VERSIONS_MAX = 16, LUMEN_WEIGHT_MAX = 1000000 };

/* The versions of one model. */
typedef struct lumen_traffic {
    const char *name; /* of the model, without a version */
    uint32_t count;   /* of the versions, 1..LUMEN_TRAFFIC_VERSIONS_MAX */
    uint32_t sticky;  /* 1: requests with one Lumen-Session have one version */
    uint32_t versions[LUMEN_TRAFFIC_VERSIONS_MAX];
    uint32_t weights[LUMEN_TRAFFIC_VERSIONS_MAX]; /* 0..LUMEN_WEIGHT_MAX, not all 0 */
    uint32_t shadow; /* version that runs copies of requests which others answer; 0: none does */
    uint32_t shadow_percent; /* 1..100, of those requests */
} lumen_traffic;

/* Sets those of all models; of others, and where none of these versions is served, the highest
 * answers. After lumen_open, and at any time later. Returns 0, LUMEN_E_INVALID with what was
 * expected, or LUMEN_E_NOMEM. */
LUMEN_API int lumen_set_traffic(lumen_server *server, const lumen_traffic *traffic, uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
