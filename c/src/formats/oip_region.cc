/* oip_region.cc: see oip_region.h. */
#include "formats/oip_fields.h"
#include "formats/oip_json.h"
extern "C" {
#include "formats/oip_region.h"
}

using namespace lm_oip;

namespace {

bool read_region(const complaint &r, const object &root, struct lm_shm_info *out) {
    enum { KEY, OFFSET, SIZE, COUNT };
    static constexpr std::string_view names[COUNT] = {"key", "offset", "byte_size"};
    const place where("request");
    fields<COUNT> found;
    std::string_view key;
    if (!read_fields(r, root, where, names, &found)) return false;
    for (size_t i : {KEY, SIZE}) {
        if (!found.there[i]) return r.wrong("request: field \"%s\" is missing", names[i].data());
    }
    if (!read_string(r, found.values[KEY], where, "key", &key)) return false;
    if (key.size() >= sizeof out->key || key.find('\0') != key.npos) {
        return r.wrong("request: key: expected at most %zu bytes, found %zu", sizeof out->key - 1,
                       key.size());
    }
    memcpy(out->key, key.data(), key.size());
    out->key[key.size()] = '\0';
    out->offset = 0;
    return (!found.there[OFFSET] ||
            read_natural(r, found.values[OFFSET], where, "offset", &out->offset)) &&
           read_natural(r, found.values[SIZE], where, "byte_size", &out->bytes);
}

} // namespace

enum lm_status lm_oip_read_region(struct lm_oip_parser *parser, const char *text, size_t bytes,
                                  struct lm_shm_info *out, char *why, size_t why_bytes) {
    object root;
    const complaint r = {why, why_bytes};
    enum lm_status status = parse(parser, lm_oip_find_data, text, bytes, &root, r);
    if (status != LM_STATUS_OK) return status;
    return read_region(r, root, out) ? LM_STATUS_OK : LM_STATUS_BAD_REQUEST;
}
