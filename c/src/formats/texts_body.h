/* texts_body.h: where a request has its texts, in a parser's tree. C++, for oip_json.h and
 * texts_request.cc alone; it belongs to one thread.
 */
#ifndef LM_FORMATS_TEXTS_BODY_H
#define LM_FORMATS_TEXTS_BODY_H

#include <string_view>

#include "formats/json_dom.h"

struct lm_tokenizer;

namespace lm_oip {

struct texts_body {
    simdjson::dom::object root;
    std::string_view model;
    /* One text, or several; a query stands in front of each, or before all as one more. */
    bool is_one, has_query, query_is_row;
    std::string_view one, second, query;
    bool has_second; /* of a pair that is the whole input */
    simdjson::dom::array list;
    /* Of a request that brings ids: whose they are, which makes texts of them (texts_ids.h). */
    const struct lm_tokenizer *tokenizer;
    bool skips_special;
};

} // namespace lm_oip

#endif
