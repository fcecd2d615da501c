/* class_list.h: the JSON that answers a picture over HTTP where the model's classes have names: the
 * largest values of an output, best first, as [{"label", "score", "index"}, ...]; of several
 * pictures a list of such lists. Composed by a worker in memory that the caller gives. No state, no
 * allocation.
 */
#ifndef LM_FORMATS_CLASS_LIST_H
#define LM_FORMATS_CLASS_LIST_H

#include "formats/oip_reply.h"

/* The output that holds the classes: the first of numbers with a value for each label; without
 * labels the first of numbers. output_count: there is none. */
uint32_t lm_class_list_output(const struct lm_model *model);

/* Upper bounds of what lm_class_list_write needs: of JSON, and of scratch memory. False when one
 * overflows. */
bool lm_class_list_bytes_max(const struct lm_oip_output *output, const struct lm_labels *labels,
                             uint32_t top, size_t *json_bytes_out, size_t *scratch_bytes_out);

/* Writes the `top` largest values of each row. Returns LM_STATUS_OK, or LM_STATUS_INFERENCE_FAILED
 * or LM_STATUS_TOO_LARGE with a sentence. */
enum lm_status lm_class_list_write(const struct lm_oip_output *output,
                                   const struct lm_labels *labels, uint32_t top,
                                   const struct lm_oip_room *room, size_t *bytes_out, char *why,
                                   size_t why_bytes);

#endif
