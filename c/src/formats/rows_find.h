/* rows_find.h: the rows of a request in the form of KServe v1, TensorFlow Serving or MLflow, found
 * in its text before simdjson sees it. They are nearly all of the text; rows_values.cc reads them
 * from there, and simdjson gets the text without them. No state: any thread. */
#ifndef LM_FORMATS_ROWS_FIND_H
#define LM_FORMATS_ROWS_FIND_H

#include "formats/oip_find.h"

/* Which field of the request they are; the `input` of what lm_rows_find finds. */
enum lm_rows_field {
    LM_ROWS_INSTANCES, /* instances */
    LM_ROWS_INPUTS,    /* inputs */
    LM_ROWS_RECORDS,   /* dataframe_records */
    LM_ROWS_SPLIT      /* dataframe_split.data */
};

/* Finds these fields where they are arrays or objects: from the first bracket to the one that
 * closes as many, outside of strings. Nothing else is promised of what lies between. Returns how
 * many, at most LM_TENSORS_MAX. */
uint32_t lm_rows_find(const char *text, size_t bytes, struct lm_oip_data found[LM_TENSORS_MAX]);

/* Behind the array or object, or the string, that begins at `at`; NULL when it does not end.
 * `children_out`: elements of the array, or fields of the object. */
const char *lm_rows_pass(const char *at, const char *end, size_t *children_out);

#endif
