/* rows_columns.h: the columns of a data frame, compared with a model's inputs. C++, for
 * rows_request.cc alone. No state: any thread.
 */
#ifndef LM_FORMATS_ROWS_COLUMNS_H
#define LM_FORMATS_ROWS_COLUMNS_H

#include "formats/oip_json.h"

namespace lm_oip {

enum { INPUT_NAMES_BYTES = 200 };

/* "'age', 'fare'": the model's inputs, as many as a sentence holds. */
struct input_names {
    char text[INPUT_NAMES_BYTES];

    explicit input_names(const struct lm_model *model) {
        size_t used = 0;
        text[0] = '\0';
        for (uint32_t i = 0; i < model->input_count; i++) {
            const shown name(model->inputs[i].name);
            if (used + strlen(name.text) + 8 > sizeof text) {
                snprintf(text + used, sizeof text - used, ", ...");
                return;
            }
            used += (size_t)snprintf(text + used, sizeof text - used, "%s'%s'", i ? ", " : "",
                                     name.text);
        }
    }
};

/* Each of these says in `body` how many columns there are; false: refused, with the sentence. */

/* By position: columns of the one input. Their names are the client's own, and may be numbers. */
bool count_columns(const complaint &c, const struct lm_model *model, const array &columns,
                   rows_body *body);
/* By name: each column is an input. */
bool map_columns(const complaint &c, const struct lm_model *model, const array &columns,
                 rows_body *body);
/* By position, named by the record that begins at `at`. */
bool name_columns(const complaint &c, const struct lm_model *model, const char *at,
                  rows_body *body);

} // namespace lm_oip

#endif
