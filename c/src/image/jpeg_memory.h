/* jpeg_memory.h: libjpeg-turbo's memory manager on the memory of one picture. Called by libjpeg on
 * the thread that decodes.
 *
 * Nothing is freed: the owner of the memory forgets a picture's objects all at once, before the
 * next picture. Memory that is not there is JERR_OUT_OF_MEMORY, as from libjpeg's own manager.
 */
#ifndef LM_IMAGE_JPEG_MEMORY_H
#define LM_IMAGE_JPEG_MEMORY_H

#include <stdio.h> /* jpeglib.h needs it */

#include <jpeglib.h>

#include "image/bump.h"

/* Replaces the methods of info->mem, except its end. info->client_data begins with the lm_bump. */
void lm_jpeg_memory_set(struct jpeg_decompress_struct *info);

#endif
