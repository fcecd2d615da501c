/* oip_sequence.h: what a request's parameters say of its sequence. C++, for oip_request.cc alone.
 * No state: any thread. */
#ifndef LM_FORMATS_OIP_SEQUENCE_H
#define LM_FORMATS_OIP_SEQUENCE_H

#include "formats/oip_json.h"

namespace lm_oip {

/* `values` and `there` are those of sequence_id, sequence_start and sequence_end. */
bool read_sequence(const complaint &say, const struct lm_model *model, const element *values,
                   const bool *there, struct lm_sequence_ask *out);

} // namespace lm_oip

#endif
