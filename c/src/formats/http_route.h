/* http_route.h: what a request asks for: the routes of the Open Inference Protocol, of KServe v1
 * and TensorFlow Serving, of MLflow, and the page.
 *
 * Paths are compared as they are: nothing is normalised, nothing but a name is decoded, and a name
 * is looked up in a table, never made a path. Of a query only the model of /invocations and the top
 * of an inference are looked at. A target may be a whole URI (RFC 9112 3.2.2): then its host
 * counts, and not the Host header's. No state: any thread.
 */
#ifndef LM_FORMATS_HTTP_ROUTE_H
#define LM_FORMATS_HTTP_ROUTE_H

#include "base/limits.h"
#include "wire/http_parser.h"

enum lm_http_route {
    LM_ROUTE_PAGE,              /* GET  / */
    LM_ROUTE_FIGURES,           /* GET  /figures */
    LM_ROUTE_LIVE,              /* GET  /v2/health/live */
    LM_ROUTE_READY,             /* GET  /v2/health/ready, and MLflow's /ping and /health */
    LM_ROUTE_SERVER_METADATA,   /* GET  /v2 */
    LM_ROUTE_MODEL_READY,       /* GET  /v2/models/M[/versions/V]/ready */
    LM_ROUTE_MODEL_METADATA,    /* GET  /v2/models/M[/versions/V] */
    LM_ROUTE_MODEL_CONFIG,      /* GET  /v2/models/M[/versions/V]/config */
    LM_ROUTE_MODEL_STATS,       /* GET  /v2/models/M[/versions/V]/stats */
    LM_ROUTE_ALL_STATS,         /* GET  /v2/models/stats */
    LM_ROUTE_INFER,             /* POST, PUT /v2/models/M[/versions/V]/infer[?top=K] */
    LM_ROUTE_GRPC_INFER,        /* the same, asked by gRPC */
    LM_ROUTE_PREDICT,           /* POST /v1/models/M[/versions/V]:predict */
    LM_ROUTE_INVOCATIONS,       /* POST /invocations[?model=M] */
    LM_ROUTE_V1_MODELS,         /* GET  /v1/models */
    LM_ROUTE_V1_MODEL,          /* GET  /v1/models/M[/versions/V] */
    LM_ROUTE_V1_METADATA,       /* GET  /v1/models/M[/versions/V]/metadata */
    LM_ROUTE_INFO,              /* GET  /info: Text Embeddings Inference's */
    LM_ROUTE_REPOSITORY_INDEX,  /* POST /v2/repository/index */
    LM_ROUTE_REPOSITORY_LOAD,   /* POST /v2/repository/models/M/load */
    LM_ROUTE_REPOSITORY_UNLOAD, /* POST /v2/repository/models/M/unload */
    /* In these six `name` is the region's, empty for all regions. */
    LM_ROUTE_SYSTEM_SHM_STATUS,     /* GET  /v2/systemsharedmemory[/region/R]/status */
    LM_ROUTE_SYSTEM_SHM_REGISTER,   /* POST /v2/systemsharedmemory/region/R/register */
    LM_ROUTE_SYSTEM_SHM_UNREGISTER, /* POST /v2/systemsharedmemory[/region/R]/unregister */
    LM_ROUTE_CUDA_SHM_STATUS,       /* the same below /v2/cudasharedmemory */
    LM_ROUTE_CUDA_SHM_REGISTER,
    LM_ROUTE_CUDA_SHM_UNREGISTER,
    LM_ROUTE_TRACE_SETTING, /* GET, POST /v2[/models/M]/trace/setting */
    LM_ROUTE_LOGGING,       /* GET, POST /v2/logging */
    /* Texts, whose model the body names (texts_request.h). */
    LM_ROUTE_EMBEDDINGS, /* POST [/v1]/embeddings: OpenAI's */
    LM_ROUTE_TEXTS, /* POST /: Text Embeddings Inference's: /embed or /predict, as its only model is
                     */
    LM_ROUTE_EMBED, /* POST /embed: its, and the next six */
    LM_ROUTE_EMBED_ALL,    /* POST /embed_all: a vector for each token */
    LM_ROUTE_TOKENIZE,     /* POST /tokenize */
    LM_ROUTE_DECODE,       /* POST /decode */
    LM_ROUTE_PREDICT_TEXT, /* POST /predict */
    LM_ROUTE_SIMILARITY,   /* POST /similarity */
    LM_ROUTE_RERANK,       /* POST /rerank: Jina's too */
    LM_ROUTE_RERANK_V1,    /* POST /v1/rerank: Cohere's and Jina's */
    LM_ROUTE_RERANK_V2,    /* POST /v2/rerank: Cohere's */
    /* Routes that upstreams alone answer, in OpenAI's form (dialects/upstream.h). */
    LM_ROUTE_CHAT,        /* POST /v1/chat/completions */
    LM_ROUTE_COMPLETIONS, /* POST /v1/completions */
    LM_ROUTE_RESPONSES,   /* POST /v1/responses */
    LM_ROUTE_ENTITIES     /* POST /v1/models/M[/versions/V]:entities; / of such a model */
};

/* Whether the route runs a model, and whether its body is rows with names (rows_request.h) or texts
 * (texts_request.h); of texts, whether the body names the model, which else the path does. */
static inline bool lm_http_is_rows(uint8_t route) {
    return route == LM_ROUTE_PREDICT || route == LM_ROUTE_INVOCATIONS;
}
static inline bool lm_http_is_texts(uint8_t route) {
    return route >= LM_ROUTE_EMBEDDINGS && route <= LM_ROUTE_ENTITIES;
}
/* Whether it brings a query and texts that are ranked. */
static inline bool lm_http_ranks(uint8_t route) {
    return route >= LM_ROUTE_RERANK && route <= LM_ROUTE_RERANK_V2;
}
/* Whether its reply follows from a model's tokenizer alone. */
static inline bool lm_http_is_tokens(uint8_t route) {
    return route == LM_ROUTE_TOKENIZE || route == LM_ROUTE_DECODE;
}
static inline bool lm_http_body_names_model(uint8_t route) {
    return lm_http_is_texts(route) && route != LM_ROUTE_ENTITIES;
}
/* Whether a model of an upstream may be asked so. */
static inline bool lm_http_may_go_elsewhere(uint8_t route) {
    return lm_http_body_names_model(route) || route == LM_ROUTE_INFER;
}
/* Whether upstreams alone answer it. */
static inline bool lm_http_is_upstreams(uint8_t route) {
    return route >= LM_ROUTE_CHAT && route <= LM_ROUTE_RESPONSES;
}
/* Whether it asks as the Open Inference Protocol does. */
static inline bool lm_http_is_tensors(uint8_t route) {
    return route == LM_ROUTE_INFER || route == LM_ROUTE_GRPC_INFER;
}
static inline bool lm_http_is_inference(uint8_t route) {
    return lm_http_is_tensors(route) || lm_http_is_rows(route) || lm_http_is_texts(route);
}

enum {
    LM_ROUTE_COUNT = LM_ROUTE_ENTITIES + 1,
    LM_ROUTE_NONE = UINT8_MAX /* no such path, or a head that cannot be read */
};
/* A word for a route, or for LM_ROUTE_NONE, for logs. */
const char *lm_http_route_name(uint8_t route);

#define LM_HTTP_VERSION_ANY UINT32_MAX

struct lm_http_match {
    enum lm_http_route route;
    uint32_t version; /* ANY when the path names none */
    bool no_body;     /* HEAD: answered as GET is, without the body */
    uint8_t top;      /* classes that a picture is answered with; 0: not said */
    uint32_t name_bytes;
    char name[LM_NAME_BYTES_MAX]; /* decoded, printable ASCII, terminated; or empty */
    struct lm_slice host;         /* the target's, or else the Host header's; may be absent */
    const char *allow;            /* with 405: the methods, as the Allow header lists them */
    const char *why;              /* with 400, 421 and 501: what was expected */
};

/* 200: found, match_out is filled in. Otherwise the status to answer: 400 (no path, a bad escape, a
 * bad host in the target, a name that no text is), 404, 405 (match_out->allow is set), 421 (the
 * target's scheme is not http), 501 (a method unheard of). The connection stays usable after each
 * of them. */
int lm_http_find_route(const struct lm_http_head *head, struct lm_http_match *match_out);

#endif
