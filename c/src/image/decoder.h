/* decoder.h: a JPEG or PNG file to rows of RGB pixels, in slices of time.
 *
 * A decoder has one picture at a time. One thread at a time calls what is here: a worker, or an I/O
 * thread that runs models itself; a picture may pass to another thread between two calls. The
 * memory is mapped at open: no picture allocates, and none can take more. Pixels are Pillow's,
 * after convert("RGB"), but for 16-bit greys: those keep their upper eight bits.
 *
 *   lm_image_begin   reads the header, checks the limits
 *   lm_image_step    until LM_IMAGE_DONE or LM_IMAGE_FAILED
 *   lm_image_end     at any time after a begin, whatever that returned
 */
#ifndef LM_IMAGE_DECODER_H
#define LM_IMAGE_DECODER_H

#include "image/info.h"
#include "image/rows.h"

struct lm_image_decoder;

/* For progressive and interlaced pictures of up to `max_whole_pixels`, and the rows of any other.
 * But for those of usual rows, pages are used when first touched; they stay. Returns 0 or
 * LUMEN_E_*. */
int lm_image_decoder_open(struct lm_image_decoder **decoder_out, uint64_t max_whole_pixels);
void lm_image_decoder_close(struct lm_image_decoder *decoder);

/* `file` and `plan` stay until lm_image_end. False: `why` is a sentence. */
bool lm_image_begin(struct lm_image_decoder *decoder, const struct lm_image_plan *plan,
                    const uint8_t *file, size_t bytes, struct lm_image_info *info_out, char *why,
                    size_t why_bytes);
/* Puts rows until the clock (lm_now_ns) says `until_ns`, a few at least. MORE: the time is over.
 * FAILED: `why` is a sentence. */
enum lm_image_step lm_image_step(struct lm_image_decoder *decoder, struct lm_image_rows *rows,
                                 uint64_t until_ns, char *why, size_t why_bytes);
void lm_image_end(struct lm_image_decoder *decoder);

#endif
