/* decoder.h: the kinds of decoders that a tokenizer's file (file.h) may name. Any thread. */
#ifndef LM_TEXT_DECODER_H
#define LM_TEXT_DECODER_H

/* How tokens become a text again (decode.h). */
enum lm_text_decoder {
    LM_TEXT_JOINED,          /* with blanks between */
    LM_TEXT_FROM_WORDPIECE,  /* the mark goes on with a word */
    LM_TEXT_FROM_BYTE_LEVEL, /* chars stand for bytes */
    LM_TEXT_FROM_METASPACE,  /* the mark is a blank; none begins a text */
    LM_TEXT_FROM_PARTS,      /* the same of Replace, ByteFallback, Fuse and Strip */
    LM_TEXT_NO_DECODER,      /* another one, which is not implemented */
    LM_TEXT_DECODERS
};

#endif
