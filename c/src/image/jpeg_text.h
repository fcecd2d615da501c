/* jpeg_text.h: libjpeg-turbo's messages. Used on the thread that decodes.
 *
 * jpeg_std_error would do, but Debian's static library has it with code that no shared library can
 * hold: the wheel's link fails over its `stderr`.
 */
#ifndef LM_IMAGE_JPEG_TEXT_H
#define LM_IMAGE_JPEG_TEXT_H

#include "image/jpeg_memory.h"

/* Writes the message that info->err holds, at most JMSG_LENGTH_MAX bytes with the terminator. */
void lm_jpeg_text(j_common_ptr info, char *text);

#endif
