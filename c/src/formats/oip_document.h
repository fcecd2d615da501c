/* oip_document.h: what oip_metadata.c and oip_config.c have in common: JSON documents that are
 * written once. Control thread. */
#ifndef LM_FORMATS_OIP_DOCUMENT_H
#define LM_FORMATS_OIP_DOCUMENT_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "formats/oip_metadata.h"

static inline FILE *lm_oip_open_document(struct lm_oip_document *document) {
    *document = (struct lm_oip_document){0};
    return open_memstream(&document->text, &document->bytes);
}

static inline int lm_oip_close_document(FILE *out, struct lm_oip_document *document) {
    if (fclose(out) == 0) return 0;
    free(document->text);
    *document = (struct lm_oip_document){0};
    return lm_error(LUMEN_E_NOMEM, "no memory for a model's description");
}

static inline int lm_oip_no_document(void) {
    return lm_error(LUMEN_E_NOMEM, "no memory for a model's description");
}

/* As clients see it. */
static inline void lm_oip_write_dims(FILE *out, const struct lm_tensor *of_graph, uint32_t from) {
    const struct lm_tensor *tensor = lm_tensor_of_client(of_graph);
    bool any = tensor->any_rank || (tensor->rank == 0 && !tensor->shape_known);
    fputc('[', out);
    for (uint32_t d = from; !any && d < tensor->rank; d++)
        fprintf(out, "%s%" PRId64, d > from ? "," : "", tensor->dims[d]);
    if (any) fputs("-1", out); /* any number of dimensions */
    fputc(']', out);
}

#endif
