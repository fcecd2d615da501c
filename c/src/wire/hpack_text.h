/* hpack_text.h: the strings of header blocks: Huffman's code of RFC 7541, appendix B. For hpack.c.
 * No state: any thread.
 */
#ifndef LM_WIRE_HPACK_TEXT_H
#define LM_WIRE_HPACK_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { LM_HPACK_TEXT_BAD = -1, LM_HPACK_TEXT_FULL = -2 };

/* Decodes a coded string to at most `room` bytes. Returns how many there are; BAD: it is no such
 * string; FULL: there is no room. */
ptrdiff_t lm_hpack_text(const uint8_t *coded, size_t bytes, char *out, size_t room);

#endif
