/* jpeg_text.c: see jpeg_text.h. */
#include "image/jpeg_text.h"

#include <jerror.h>
#include <string.h>

/* Messages that only programs print. */
#define JCOPYRIGHT_SHORT ""
#define JVERSION ""

/* jerror.h is a list of JMESSAGE lines, for this. */
#define JMESSAGE(code, string) string,
static const char *const messages[] = {
#include <jerror.h>
};

void lm_jpeg_text(j_common_ptr info, char *text) {
    size_t code = (size_t)info->err->msg_code;
    const char *format = messages[code < sizeof messages / sizeof messages[0] ? code : 0];
    const int *values = info->err->msg_parm.i;
    if (strstr(format, "%s")) {
        snprintf(text, JMSG_LENGTH_MAX, format, info->err->msg_parm.s);
    } else {
        snprintf(text, JMSG_LENGTH_MAX, format, values[0], values[1], values[2], values[3],
                 values[4], values[5], values[6], values[7]);
    }
}
