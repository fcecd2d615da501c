/* image_body.h: files of pictures, received into the slot, become the image tensor. Workers, and
 * I/O threads that run models themselves. Allocates nothing after it is opened.
 *
 * A large picture is decoded in slices (LM_DECODE_SLICE_NS). Between two of them its worker serves
 * requests that wait, but no large picture, for as long: so nobody waits for all of a picture.
 */
#ifndef LM_WORK_IMAGE_BODY_H
#define LM_WORK_IMAGE_BODY_H

#include "work/state.h"

/* Gives a worker its decoders, where a model takes pictures, and reserves their memory for the
 * largest picture; pages are taken when they are used. Returns 0 or LUMEN_E_*. The caller closes it
 * after an error too. */
int lm_image_desk_open(struct lm_worker *worker);
/* The same for a model that comes later, where its pictures are larger: decoders of its own. */
int lm_image_desk_extend(const struct lm_worker *worker, struct lm_model *model);
void lm_image_desk_close(struct lm_image_desk **desk);

/* Decodes the one file that is a request's `raw`. Returns LM_STATUS_OK, or why the request is
 * refused, with a sentence. */
enum lm_status lm_image_file_read(struct lm_worker *worker, struct lm_request *request, char *why,
                                  size_t why_bytes);
/* The same of several, each behind its length: a row each. */
enum lm_status lm_image_files_read(struct lm_worker *worker, struct lm_request *request, char *why,
                                   size_t why_bytes);

#endif
