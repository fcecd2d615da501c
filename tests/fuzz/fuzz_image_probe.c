/* fuzz_image_probe.c: any bytes as the beginning of a file, and as EXIF data. More bytes never take
 * back what fewer have told. */
#include "fuzz.h"
#include "image/exif.h"
#include "image/probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    uint64_t random = fuzz_seed(input, count);
    struct lm_image_probe whole, part;
    lm_image_probe(&whole, input, count);
    HOLDS(whole.orientation >= 1 && whole.orientation <= 8);
    HOLDS(whole.has_sides || (whole.width == 0 && whole.height == 0 && !whole.is_whole));
    size_t first = fuzz_below(&random, count + 1);
    uint8_t *beginning = fuzz_copy(input, first);
    lm_image_probe(&part, beginning, first);
    free(beginning);
    HOLDS(part.format == LM_IMAGE_NONE || part.format == whole.format);
    if (part.has_sides) {
        HOLDS(whole.has_sides && part.width == whole.width && part.height == whole.height);
        HOLDS(part.is_whole == whole.is_whole);
    }
    const char *name = lm_image_format_name(input, count);
    HOLDS(!name || name[0]);
    uint32_t orientation = lm_exif_orientation(input, count);
    HOLDS(orientation >= 1 && orientation <= 8);
    return 0;
}
