/* hpack_text.c: see hpack_text.h.
 *
 * The code is canonical: of codes as long as each other, the next symbol has the next number. So
 * the lengths in use, each with its last code, and the symbols in the order of their codes are all
 * of the table.
 */
#include "wire/hpack_text.h"

#include <stdbool.h>

enum { WINDOW_BITS = 32, PADDING_BITS = 7, SYMBOLS = 256 };

static const struct {
    uint32_t last, first; /* its codes, at the left end of 32 bits; ones behind the last */
    uint8_t bits;
    uint8_t at; /* of the first code's symbol */
} lengths[] = {
    {0x4fffffff, 0x00000000, 5, 0},    {0xb7ffffff, 0x50000000, 6, 10},
    {0xf7ffffff, 0xb8000000, 7, 36},   {0xfdffffff, 0xf8000000, 8, 68},
    {0xff3fffff, 0xfe000000, 10, 74},  {0xff9fffff, 0xff400000, 11, 79},
    {0xffbfffff, 0xffa00000, 12, 82},  {0xffefffff, 0xffc00000, 13, 84},
    {0xfff7ffff, 0xfff00000, 14, 90},  {0xfffdffff, 0xfff80000, 15, 92},
    {0xfffe5fff, 0xfffe0000, 19, 95},  {0xfffedfff, 0xfffe6000, 20, 98},
    {0xffff47ff, 0xfffee000, 21, 106}, {0xffffafff, 0xffff4800, 22, 119},
    {0xffffe9ff, 0xffffb000, 23, 145}, {0xfffff5ff, 0xffffea00, 24, 174},
    {0xfffff7ff, 0xfffff600, 25, 186}, {0xfffffbbf, 0xfffff800, 26, 190},
    {0xfffffe1f, 0xfffffbc0, 27, 205}, {0xffffffef, 0xfffffe20, 28, 224},
    {0xffffffff, 0xfffffff0, 30, 253},
};

/* The one behind them, which no string may hold, is the end of a string. */
static const uint8_t symbols[SYMBOLS] = {
    48,  49,  50,  97,  99,  101, 105, 111, 115, 116, 32,  37,  45,  46,  47,  51,  52,  53,  54,
    55,  56,  57,  61,  65,  95,  98,  100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58,  66,
    67,  68,  69,  70,  71,  72,  73,  74,  75,  76,  77,  78,  79,  80,  81,  82,  83,  84,  85,
    86,  87,  89,  106, 107, 113, 118, 119, 120, 121, 122, 38,  42,  44,  59,  88,  90,  33,  34,
    40,  41,  63,  39,  43,  124, 35,  62,  0,   36,  64,  91,  93,  126, 94,  125, 60,  96,  123,
    92,  195, 208, 128, 130, 131, 162, 184, 194, 224, 226, 153, 161, 167, 172, 176, 177, 179, 209,
    216, 217, 227, 229, 230, 129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173,
    178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233, 1,   135, 137, 138, 139, 140, 141,
    143, 147, 149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174, 175, 180, 182, 183, 188, 191,
    197, 231, 239, 9,   142, 144, 145, 148, 159, 171, 206, 215, 225, 236, 237, 199, 207, 234, 235,
    192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242, 243, 255, 203, 204, 211, 212,
    214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254, 2,   3,   4,   5,
    6,   7,   8,   11,  12,  14,  15,  16,  17,  18,  19,  20,  21,  23,  24,  25,  26,  27,  28,
    29,  30,  31,  127, 220, 249, 10,  13,  22};

ptrdiff_t lm_hpack_text(const uint8_t *coded, size_t bytes, char *out, size_t room) {
    const uint8_t *end = coded + bytes;
    uint64_t window = 0; /* its `bits` lowest are still to be read */
    uint32_t bits = 0;
    size_t written = 0;
    for (;;) {
        while (bits < WINDOW_BITS && coded < end) {
            window = window << 8 | *coded++;
            bits += 8;
        }
        /* The next 32 bits, with ones behind the last, as a string is padded. */
        const uint64_t padded = bits < WINDOW_BITS ? ~(~window << (WINDOW_BITS - bits))
                                                   : window >> (bits - WINDOW_BITS);
        const uint32_t next = (uint32_t)padded;
        size_t row = 0;
        while (next > lengths[row].last) row++;
        if (lengths[row].bits > bits)
            return bits <= PADDING_BITS && next == UINT32_MAX ? (ptrdiff_t)written
                                                              : LM_HPACK_TEXT_BAD;
        const uint32_t symbol =
            lengths[row].at + ((next - lengths[row].first) >> (WINDOW_BITS - lengths[row].bits));
        if (symbol == SYMBOLS) return LM_HPACK_TEXT_BAD;
        if (written == room) return LM_HPACK_TEXT_FULL;
        out[written++] = (char)symbols[symbol];
        bits -= lengths[row].bits;
    }
}
