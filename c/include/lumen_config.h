/* lumen_config.h: what a server is opened with: its limits, choices and settings, the keys of its
 * clients, its certificates. Plain data; strings are borrowed for the call.
 */
#ifndef LUMEN_CONFIG_H
#define LUMEN_CONFIG_H

#include <stdint.h>

enum { LUMEN_IO_AUTO = 0, LUMEN_IO_URING = 1, LUMEN_IO_EPOLL = 2 };
enum lumen_queue_type {
    LUMEN_QUEUE_MPMC = 0,    /* Vyukov's bounded ring */
    LUMEN_QUEUE_SCQ = 1,     /* scalable circular queue: lock-free */
    LUMEN_QUEUE_SPSC = 2,    /* one I/O thread, one worker: wait-free */
    LUMEN_QUEUE_NAIVE = 3,   /* mutex and condition variable: the baseline */
    LUMEN_QUEUE_BATCHED = 4, /* the same, handing over whole batches */
    LUMEN_QUEUE_INLINE = 5   /* no queue: each I/O thread runs the models itself */
};
enum { LUMEN_QUEUE_AUTO = 6 }; /* MPMC, but for short Runs: see LUMEN_RUN_AUTO */
/* The thread that runs a model. */
enum lumen_run {
    LUMEN_RUN_AUTO = 0,   /* with LUMEN_QUEUE_AUTO the I/O thread, as long as a Run is short; else
                           * a worker */
    LUMEN_RUN_INLINE = 1, /* the I/O thread that received the request */
    LUMEN_RUN_WORKER = 2
};
/* The engine that computes a model's answers. */
enum lumen_engine {
    LUMEN_ENGINE_AUTO = 0,   /* the native engine, where it was faster and equal at start */
    LUMEN_ENGINE_NATIVE = 1, /* refused where it cannot be */
    LUMEN_ENGINE_ORT = 2
};
/* Where a model runs. */
enum lumen_isolation {
    LUMEN_ISOLATION_NONE = 0,   /* in the server */
    LUMEN_ISOLATION_PROCESS = 1 /* in a process of its own, which may crash alone */
};
enum { LUMEN_ALLOCATOR_ARENA = 0, LUMEN_ALLOCATOR_STANDARD = 1 };
enum lumen_idle {
    LUMEN_IDLE_ADAPTIVE = 0,
    LUMEN_IDLE_SPIN = 1,
    LUMEN_IDLE_YIELD = 2,
    LUMEN_IDLE_PARK = 3
};
/* The pages of the arenas: those that the kernel joins by itself, those of the pool that an
 * administrator reserved (vm.nr_hugepages), or small ones. */
enum { LUMEN_HUGE_TRANSPARENT = 0, LUMEN_HUGE_EXPLICIT = 1, LUMEN_HUGE_NONE = 2 };
enum { LUMEN_CHANNELS_RGB = 0, LUMEN_CHANNELS_BGR = 1 };
/* A request beyond max_in_flight gets status 4 / HTTP 503 at once, or is not read until there is
 * room. */
enum { LUMEN_OVERLOAD_REFUSE = 0, LUMEN_OVERLOAD_WAIT = 1 };
/* Whether answers say how loaded the server is (endpoint-load-metrics): never, to clients that ask
 * for it, or to all. And HTTP's code of a request that was refused for lack of room or time. */
enum { LUMEN_ORCA_NEVER = 0, LUMEN_ORCA_ASKED = 1, LUMEN_ORCA_ALWAYS = 2 };
enum { LUMEN_OVERLOAD_503 = 0, LUMEN_OVERLOAD_429 = 1 };
/* Flags: may use the control endpoints from anywhere; its texts give way to all others; it is not
 * of a token, but of the name in a client's certificate. */
enum { LUMEN_KEY_ADMIN = 1, LUMEN_KEY_BULK = 2, LUMEN_KEY_SUBJECT = 4, LUMEN_KEY_FLAGS = 7 };

enum {
    LUMEN_WORKERS_MAX = 64,
    LUMEN_IO_THREADS_MAX = 16,
    LUMEN_NODES_MAX = 8,
    LUMEN_CONNECTIONS_MAX = 1048576,
    LUMEN_QUEUE_CAPACITY_MAX = 32768,
    LUMEN_BATCH_MAX = 256,
    LUMEN_MODELS_MAX = 4096,     /* at a time */
    LUMEN_EXPERTS_MAX = 8,       /* of a virtual model */
    LUMEN_STEPS_MAX = 16,        /* of an ensemble */
    LUMEN_WARMUPS_MAX = 64,      /* requests of a model */
    LUMEN_STATES_MAX = 120,      /* of a sequence */
    LUMEN_SEQUENCES_MAX = 65536, /* open at a time, of a model */
    LUMEN_TEXT_TOKENS_MAX = 32768,
    LUMEN_PROMPTS_MAX = 64, /* of a model of texts */
    LUMEN_SLOT_CLASSES_MAX = 16,
    LUMEN_FALLBACKS_MAX = 8, /* of a model */
    LUMEN_KEYS_MAX = 256,
    LUMEN_HOSTS_MAX = 32,
    LUMEN_CERTIFICATES_MAX = 32,
    LUMEN_UPSTREAMS_MAX = 16,
    LUMEN_UPSTREAM_ADDRESSES_MAX = 16,
    LUMEN_PROVIDERS_MAX = 8, /* of a model */
    LUMEN_PROVIDER_OPTIONS_MAX = 64
};

/* A client's key. Without any key nobody is asked for one. */
typedef struct lumen_key_config {
    const char *name;   /* for messages and metrics, 1..63 bytes */
    uint8_t sha256[32]; /* of the token, which is nowhere kept; or of the certificate's name */
    double rate;        /* requests a second; 0: no limit */
    double token_rate;  /* tokens of texts a second; 0: no limit */
    const char *const *models; /* names of those that it may use, with or without a version, also
                                * of models that come later; NULL: every model */
    uint32_t model_count;
    uint32_t burst;       /* requests at once, at least 1 where rate is set */
    uint32_t token_burst; /* the same of token_rate */
    uint32_t flags;       /* LUMEN_KEY_* */
} lumen_key_config;

/* The fields of lumen_config, in their order: of this list are made the struct, the table of
 * lumen_abi and the check of lumen_open. SETTING(section, type, name, least, most) is a number that
 * config.yaml has under the same name, in the same unit; it is refused outside of least..most.
 * FIELD(type, name) is any other field. Strings are borrowed for the call. */
#define LUMEN_CONFIG_FIELDS(SETTING, FIELD)                                                        \
    FIELD(uint32_t, abi_version)          /* LUMEN_ABI_VERSION */                                  \
    FIELD(uint32_t, access_as_json)       /* the form of the access log: 0 text, 1 JSON */         \
    FIELD(const char *, ort_library_path) /* libonnxruntime.so of the installed wheel */           \
    FIELD(const char *, name) /* of the server, for clients: 1 to 64 bytes; NULL: lumen */         \
    FIELD(const char *, host) /* an IPv4 or IPv6 address */                                        \
    SETTING(server, uint32_t, port, 0, 65535)      /* 0: any, see lumen_info.port */               \
    SETTING(server, uint32_t, grpc_port, 0, 65535) /* the same on another; 0: none */              \
    FIELD(const char *, unix_socket)               /* a path of at most 107 bytes; NULL: none */   \
    SETTING(server, uint32_t, unix_socket_mode, 0, 0777) /* of its file */                         \
    SETTING(server, uint32_t, io_backend, LUMEN_IO_AUTO, LUMEN_IO_EPOLL)                           \
    SETTING(server, uint32_t, io_threads, 0, LUMEN_IO_THREADS_MAX) /* 0: auto */                   \
    SETTING(server, uint32_t, max_connections, 1, LUMEN_CONNECTIONS_MAX)                           \
    SETTING(server, uint32_t, max_request_bytes, 0, 2u << 30) /* of one payload; 0: auto */        \
    SETTING(server, uint64_t, arena_bytes, 0, 1ull << 40)     /* of all slots together; 0: auto */ \
    SETTING(server, uint64_t, spill_bytes, 0, 1ull << 40) /* of answers beside slots; 0: auto */   \
    SETTING(server, uint32_t, shared_memory, 0, 1) /* clients may share memory with the server */  \
    SETTING(server, uint64_t, shared_memory_bytes, 0, 1ull << 40)  /* of all of them together */   \
    SETTING(server, uint64_t, response_cache_bytes, 0, 1ull << 40) /* of all models; 0: off */     \
    SETTING(server, uint32_t, default_timeout_ms, 0, 4294967)      /* 0: no deadline */            \
    SETTING(server, uint32_t, max_in_flight, 0, UINT32_MAX) /* unanswered requests; 0: auto */     \
    SETTING(server, uint32_t, overload, LUMEN_OVERLOAD_REFUSE, LUMEN_OVERLOAD_WAIT)                \
    SETTING(server, uint32_t, overload_status, LUMEN_OVERLOAD_503, LUMEN_OVERLOAD_429)             \
    SETTING(server, uint32_t, orca, LUMEN_ORCA_NEVER, LUMEN_ORCA_ALWAYS)                           \
    FIELD(double, rate) /* requests a second, 0.001 to 1e9, of all clients; 0: no limit */         \
    SETTING(server, uint32_t, burst, 0, UINT32_MAX) /* at once; beside a rate 1 or more */         \
    SETTING(server, uint32_t, header_timeout_ms, 0, 3600000) /* for a whole header; 0: none */     \
    SETTING(server, uint32_t, body_bytes_per_second, 0, UINT32_MAX) /* the least; 0: any speed */  \
    SETTING(server, uint32_t, reply_timeout_ms, 0, 3600000)   /* nothing of it is read; 0: none */ \
    SETTING(server, uint32_t, idle_timeout_seconds, 0, 86400) /* between requests; 0: none */      \
    SETTING(server, uint32_t, max_connection_age_seconds, 0, 604800) /* of HTTP; 0: none */        \
    SETTING(server, uint32_t, half_close, 0, 1)       /* HTTP: who sends no more may still read */ \
    SETTING(server, uint32_t, hang_seconds, 0, 86400) /* of one Run, then unready; 0: never */     \
    SETTING(server, uint32_t, connections_per_address, 0, UINT32_MAX) /* open at a time; 0: any */ \
    FIELD(const char *const *, hosts) /* that HTTP's Host may name besides localhost; "*": all */  \
    FIELD(uint32_t, host_count)       /* at most LUMEN_HOSTS_MAX */                                \
    FIELD(const lumen_key_config *, keys) /* copied */                                             \
    FIELD(uint32_t, key_count)            /* at most LUMEN_KEYS_MAX */                             \
    SETTING(engine, uint32_t, queue_type, LUMEN_QUEUE_MPMC, LUMEN_QUEUE_AUTO)                      \
    SETTING(engine, uint32_t, allocator_type, LUMEN_ALLOCATOR_ARENA, LUMEN_ALLOCATOR_STANDARD)     \
    SETTING(engine, uint32_t, thread_count, 0, LUMEN_WORKERS_MAX) /* 0: auto, the usable cores */  \
    SETTING(engine, uint32_t, queue_capacity, 2, LUMEN_QUEUE_CAPACITY_MAX) /* a power of two */    \
    SETTING(engine, uint32_t, batch_size, 1, LUMEN_BATCH_MAX) /* rows of one Run; 1: no batches */ \
    SETTING(engine, uint32_t, batch_delay_us, 0, 1000000)     /* a worker's wait for more rows */  \
    SETTING(engine, uint32_t, idle, LUMEN_IDLE_ADAPTIVE, LUMEN_IDLE_PARK) /* without work */       \
    SETTING(engine, uint32_t, busy_poll_us, 0, 1000000) /* 0: auto, by idle and the cores */       \
    FIELD(const char *, cores) /* "auto" or NULL, "isolated", or a list such as "0-3,8" */         \
    SETTING(engine, uint32_t, nodes, 0, LUMEN_NODES_MAX) /* 0: auto, the machine's */              \
    SETTING(engine, uint32_t, real_time, 0, 99)          /* SCHED_FIFO's priority; 0: none */      \
    SETTING(engine, uint32_t, lock_memory, 0, 1)         /* no page leaves memory */               \
    SETTING(engine, uint32_t, huge_pages, LUMEN_HUGE_TRANSPARENT, LUMEN_HUGE_NONE)                 \
    SETTING(engine, uint32_t, flush_denormals, 0, 1) /* the smallest numbers are zeros */          \
    FIELD(const char *, telemetry_csv_path)          /* a row per request; NULL: none */           \
    FIELD(const char *, access_path) /* a line per request; "-": stdout; NULL: none */

#define LUMEN_SETTING_MEMBER(section, type, name, least, most) type name;
#define LUMEN_FIELD_MEMBER(type, name) type name;
typedef struct lumen_config {
    LUMEN_CONFIG_FIELDS(LUMEN_SETTING_MEMBER, LUMEN_FIELD_MEMBER)
} lumen_config;
#undef LUMEN_FIELD_MEMBER
#undef LUMEN_SETTING_MEMBER

/* A certificate that the server shows, and its key. */
typedef struct lumen_certificate {
    const char *certificate;  /* PEM: the server's own, then those that lead to its authority's */
    const char *key;          /* PEM, without a password */
    const char *source;       /* where they come from, for messages */
    const char *const *hosts; /* names that it is for, "*.example.org" too; none: those it says */
    uint32_t host_count;
    uint32_t reserved;
} lumen_certificate;

/* Clients that need no certificate, that may show one, that must. */
enum { LUMEN_TLS_CLIENTS_ANY = 0, LUMEN_TLS_CLIENTS_ASKED = 1, LUMEN_TLS_CLIENTS_CERTIFIED = 2 };

typedef struct lumen_tls_config {
    uint32_t port;                         /* 0: any, see lumen_info.tls_port */
    uint32_t only;                         /* 1: nobody listens on lumen_config.port */
    uint32_t clients;                      /* LUMEN_TLS_CLIENTS_* */
    uint32_t certificate_count;            /* 1..LUMEN_CERTIFICATES_MAX */
    const lumen_certificate *certificates; /* the first: for clients that name no host of others */
    const char *client_ca; /* PEM: the authorities of clients' certificates; NULL: none */
} lumen_tls_config;

#endif
