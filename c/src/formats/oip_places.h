/* oip_places.h: where a tensor of a request is in shared memory, as its parameters say. C++, for
 * oip_request.cc alone; the thread of the parser. */
#ifndef LM_FORMATS_OIP_PLACES_H
#define LM_FORMATS_OIP_PLACES_H

#include "formats/oip_fields.h"

namespace lm_oip {

/* As the first fields of a tensor's parameters. */
enum { REGION, REGION_OFFSET, REGION_BYTES, REGION_FIELDS };

/* `values` are those of these fields; `out` says which tensor it is. */
inline bool read_place(const complaint &r, struct lm_shm_regions *regions,
                       const struct lm_tensor *tensor, const element *values, const bool *there,
                       struct lm_oip_place *out) {
    const char *what = out->is_output ? "output" : "input";
    const place where("%s '%s': parameters", what, shown(tensor->name).text);
    std::string_view name;
    uint64_t most = 0;
    if (!regions)
        return r.wrong("%s '%s': shared memory: expected JSON of at most %d bytes, neither "
                       "compressed nor in chunks, and over gRPC raw_input_contents, found a body "
                       "that is read whole",
                       what, shown(tensor->name).text, LM_HTTP_JSON_BYTES_MAX);
    if (!read_string(r, values[REGION], where, "shared_memory_region", &name)) return false;
    if (there[REGION_OFFSET] &&
        !read_natural(r, values[REGION_OFFSET], where, "shared_memory_offset", &out->offset))
        return false;
    if (!there[REGION_BYTES])
        return r.wrong("%s: field \"shared_memory_byte_size\" is missing", where.text);
    if (!read_natural(r, values[REGION_BYTES], where, "shared_memory_byte_size", &out->bytes))
        return false;
    if (!lm_shm_find(regions, name.data(), name.size(), &out->region, &most))
        return r.wrong("Unable to find shared memory region: '%s'", shown(name).text);
    if (out->offset > most || out->bytes > most - out->offset) {
        /* Clients look for these words of Triton's. */
        const char *words = out->offset > most ? "Invalid offset" : "Invalid offset + byte size";
        if (out->offset <= most && out->bytes > UINT64_MAX - out->offset)
            words = "Integer overflow detected: byte_size + offset";
        return r.wrong("%s for shared memory region: %s: expected a place within the "
                       "region's %llu bytes, found %llu bytes at %llu",
                       words, where.text, (unsigned long long)most, (unsigned long long)out->bytes,
                       (unsigned long long)out->offset);
    }
    return true;
}

/* Clients look for the first words, which are Triton's. */
inline bool wrong_bytes(const complaint &r, const struct lm_tensor *tensor, const char *field,
                        size_t expected, uint64_t found) {
    const char *least = lm_is_string(tensor) ? "at least " : "";
    const auto bytes = (unsigned long long)found;
    return r.wrong("unexpected total byte size %llu for input '%s', expecting %s%zu: %s: expected "
                   "%s%zu for its shape, found %llu",
                   bytes, shown(tensor->name).text, least, expected, field, least, expected, bytes);
}

inline bool add_place(const complaint &r, struct lm_oip_request *request,
                      const struct lm_oip_place &place) {
    if (request->place_count == LM_OIP_PLACES_MAX)
        return r.wrong("expected at most %d tensors in shared memory", LM_OIP_PLACES_MAX);
    request->places[request->place_count++] = place;
    return true;
}

} // namespace lm_oip

#endif
