/* rows_request.h: a request in the form of KServe v1 and TensorFlow Serving ("instances", "inputs")
 * or MLflow ("dataframe_split", "dataframe_records"), from its JSON to the tensors. Rows, or
 * inputs, have names; what is not said follows from how the arrays are nested.
 *
 * Read with an Open Inference Protocol's parser, in the same two steps; a parser belongs to one
 * thread.
 */
#ifndef LM_FORMATS_ROWS_REQUEST_H
#define LM_FORMATS_ROWS_REQUEST_H

#include "formats/oip_request.h"

/* Reads everything but the values: sizes and timeout; all outputs are requested, as JSON. Returns
 * and `why` as lm_oip_read. */
enum lm_status lm_rows_read(struct lm_oip_parser *parser, const char *text, size_t bytes,
                            const struct lm_model *model, struct lm_oip_request *out, char *why,
                            size_t why_bytes);

/* After lm_rows_read said OK: checks the strings, and gives the bytes that lm_rows_values will
 * write for each input of strings; 0 for all others. */
enum lm_status lm_rows_strings_bytes(struct lm_oip_parser *parser,
                                     const struct lm_oip_request *request,
                                     const struct lm_model *model, size_t bytes_out[], char *why,
                                     size_t why_bytes);

/* After lm_rows_strings_bytes said OK, as lm_oip_values: writes all inputs. */
enum lm_status lm_rows_values(struct lm_oip_parser *parser, const struct lm_oip_request *request,
                              const struct lm_model *model, void *const inputs[], char *why,
                              size_t why_bytes);

#endif
