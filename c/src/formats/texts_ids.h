/* texts_ids.h: a request of texts that brings the ids of their tokens: Text Embeddings Inference's
 * /decode. C++, for texts_request.cc alone; of the thread that has the parser.
 */
#ifndef LM_FORMATS_TEXTS_IDS_H
#define LM_FORMATS_TEXTS_IDS_H

#include "formats/oip_fields.h"
extern "C" {
#include "text/decode.h"
}

namespace lm_oip {

/* Takes a list of ids, or a list of such lists, of the body's tokenizer. false: it is refused, with
 * a sentence. */
bool read_ids(const complaint &say, const element &from, texts_body *body);

/* The texts of the body's ids as on the wire: counted, and written where there is a place. */
size_t put_ids(const texts_body &body, char *to);

} // namespace lm_oip

#endif
