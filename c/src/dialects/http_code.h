/* http_code.h: HTTP's status codes and their reason phrases. Any thread. */
#ifndef LM_DIALECTS_HTTP_CODE_H
#define LM_DIALECTS_HTTP_CODE_H

#include <stdint.h>

#include "base/status.h"

uint32_t lm_http_code(enum lm_status status);
const char *lm_http_reason(uint32_t code);

#endif
