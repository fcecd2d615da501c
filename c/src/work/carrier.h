/* carrier.h: brings the bytes of a request to its tensors, from where its carrier (flow/carrier.h)
 * has them, and its outputs to where it wants them. Workers, and I/O threads that run models
 * themselves.
 */
#ifndef LM_WORK_CARRIER_H
#define LM_WORK_CARRIER_H

#include "flow/carrier.h"
#include "work/encoding.h"

/* Whether something is to be read before requests are grouped. */
static inline bool lm_carrier_is_read(const struct lm_request *request) {
    return request->carrier != LM_CARRIER_SLOT || lm_encodings[request->encoding].read;
}
/* Does that. Returns LM_STATUS_OK, or why the request is refused, with a sentence. */
enum lm_status lm_carrier_read(struct lm_worker *worker, struct lm_request *request, char *why,
                               size_t why_bytes);
/* After the Run: copies outputs that go to memory of the client there. Of a region the reply
 * carries none of their bytes. Returns 0 or LUMEN_E_INVALID: they do not fit there. */
int lm_carrier_put(const struct lm_request *request, const void *const *data, size_t *bytes);

/* I/O thread: a body of text is whole. Where it is a picture's file, as it is or in a form, its
 * first bytes tell, whatever the Content-Type: no JSON begins as these do. Of a model that takes
 * pictures all that begins otherwise than JSON is one, so that the decoder says what is wrong with
 * it. What is compressed is looked at by the worker. */
void lm_carrier_find_file(struct lm_request *request);

#endif
