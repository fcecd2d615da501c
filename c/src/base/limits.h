/* limits.h: every limit of the server in one place, with the relations between them. Known at
 * compile time. */
#ifndef LM_BASE_LIMITS_H
#define LM_BASE_LIMITS_H

#include "lumen.h"

#define LM_SEQUENCES_BYTES_MAX (1ull << 40) /* of the states of all sequences of a model */
#define LM_KERNEL(major, minor, patch) (((major) << 16) + ((minor) << 8) + (patch))

enum {
    /* Models. */
    LM_NAME_BYTES_MAX = 256, /* a model's name with its terminator */
    LM_TENSORS_MAX = 256,    /* inputs, and outputs, of one model */
    LM_RANK_MAX = 8,         /* dimensions of one tensor */
    LM_TENSOR_NAME_BYTES_MAX = 256,
    LM_ROWS_MAX = 65536,
    LM_WARMUP_BYTES_MAX = 1 << 30,    /* of an input of a warm-up request */
    LM_SEQUENCE_GROUP_MAX = 256,      /* entries that a request looks at for its sequence */
    LM_SEQUENCE_TEXT_BYTES_MAX = 128, /* a sequence's number, where it is a text */
    /* Free dimensions of a model beside the rows: their number, their sizes where the configuration
     * sets none (of token ids, and of other tensors as many as fit these bytes), the rows then. */
    LM_FREE_DIMS_MAX = 8,
    LM_FREE_TOKENS = 512,
    LM_FREE_ROW_BYTES = 4 << 20,
    LM_FREE_SIZE_MAX = 1 << 20,
    LM_FREE_ROWS = 32,
    LM_LABEL_BYTES_MAX = 1024, /* a class's name */
    /* Strings: the longest one; what memory is planned for each, its length included; what the
     * string tensors of a slot may keep between requests; outputs that have no known size. */
    LM_STRING_BYTES_MAX = 1 << 20,
    LM_STRING_PLANNED_BYTES = 64,
    LM_STRINGS_KEPT_BYTES = 16 << 10,
    LM_OUTPUT_BYTES = 1 << 20,
    LM_LABELS_BYTES_MAX = 64 << 20,
    LM_DESCRIBE_LABELS_BYTES_MAX = 64 << 10, /* of a model whose labels describe tells */

    /* Pictures. */
    LM_JPEG_BYTE_PIXELS = 4, /* of one byte of a photograph's file, before its header is read */
    /* Of a picture, before a worker looks after other requests: the first slice, which small ones
     * never exceed, also where their worker does not get its core all the time; and the next. */
    LM_DECODE_FIRST_NS = 10000000,
    LM_DECODE_SLICE_NS = 2000000,
    LM_BATCH_PIXELS = 1 << 20, /* of a request that may be part of a batch */
    LM_IMAGE_SCANS_MAX = 64,   /* of a progressive JPEG; encoders write about ten */

    /* JSON. */
    LM_JSON_DEPTH_MAX = 100, /* arrays and objects within each other */
    LM_COLUMNS_MAX = 1024,   /* with names, of the one input of a model */

    /* Connections. */
    LM_HOST_BYTES_MAX = 64, /* an address as text, with its terminator */
    LM_CONNECTIONS_MAX = LUMEN_CONNECTIONS_MAX,
    LM_DESCRIPTORS_BESIDE = 256,   /* what a process has open besides its connections */
    LM_PIPELINE_MAX = 64,          /* requests in flight on one connection; more are not read yet */
    LM_HEADER_BUFFER_BYTES = 4096, /* one provided buffer */
    LM_HEADER_BUFFERS = 1024,      /* power of two, per I/O thread */
    /* Requests that are parsed in a turn of an I/O thread: one of each connection that has bytes,
     * and so many more; a connection with more behind them goes on in a later turn, so many a turn.
     */
    LM_PARSES_PER_TURN = 256,
    LM_RESUMED_PER_TURN = 64,
    LM_HELD_PAGES_MAX = 65536, /* of bytes that may not be parsed yet, per I/O thread (held.h) */
    LM_HELD_LOOKS = 64,        /* connections with such bytes that are looked at in one sweep */
    LM_LISTEN_BACKLOG = 4096,
    LM_KEY_NAME_BYTES_MAX = 64,   /* a client's key, with its terminator */
    LM_REGIONS_MAX = 256,         /* of memory shared with clients, per I/O thread */
    LM_UNMAP_BYTES = 8 << 20,     /* of memory at once, and of such in a turn of an I/O thread */
    LM_UNIX_PATH_BYTES_MAX = 108, /* sun_path, with its terminator */
    LM_ASSIGNED_MAX = 1024,       /* connections that wait for another I/O thread; a power of two */
    LM_LINGER_BYTES_MAX = 64 << 10, /* read and dropped before a refused connection is closed */
    /* So much more of a refused body, as long as that many bytes come in each LM_LINGER_MS: some
     * clients look for an answer only when they have sent all. */
    LM_LINGER_BODY_BYTES_MAX = 32 << 20,
    LM_LINGER_STEP_BYTES = 256 << 10,
    LM_LINGER_MS = 1000,
    LM_TOKEN_BYTES_MAX = 256, /* what a client presents for its key */

    /* HTTP/2. */
    LM_HTTP2_CONNECTIONS_MAX = 32768,      /* of an I/O thread; others are ended at once */
    LM_HTTP2_STREAMS_MAX = 100,            /* of a connection: clients take it for granted */
    LM_STREAMS_MAX = 4096,                 /* of an I/O thread: entries beside its connections */
    LM_HTTP2_STREAM_WINDOW = 128 << 10,    /* of a body, ahead of who takes it */
    LM_HTTP2_CONNECTION_WINDOW = 16 << 20, /* of all bodies of a connection */
    LM_HTTP2_FRAME_MAX = 1 << 20,          /* that a client may send */
    LM_HTTP2_SENT_MAX = 64 << 10,          /* that the server sends: others have their turn */

    /* HTTP/1.1. */
    LM_HTTP_HEAD_BYTES_MAX = 16384, /* first line and headers, with the line that ends them */
    LM_HTTP_LINE_BYTES_MAX = 8192,  /* one header without its line end */
    LM_HTTP_HEADERS_MAX = 100,
    LM_HTTP_METHOD_BYTES_MAX = 24,
    LM_HTTP_TARGET_BYTES_MAX = 8192,
    LM_HTTP_HOST_BYTES_MAX = 255,
    LM_HTTP_KEEP_ALIVE_BYTES = 64, /* Connection and Keep-Alive, with their terminator */
    LM_HTTP_CHUNKS_MAX = 65536,    /* of one body, the last one of size 0 apart */
    LM_HTTP_CHUNK_DIGITS_MAX = 16,
    LM_HTTP_EXTENSION_BYTES_MAX = 4096, /* of all chunks of one body together */
    LM_HTTP_TRAILER_BYTES_MAX = 4096,
    LM_HTTP_FORM_HEAD_BYTES_MAX = 4096, /* of a form before its first part's content */

    /* Calls that load and unload models. */
    LM_ERRANDS_PER_IO = 8, /* at a time, of one I/O thread's connections */
    LM_ERRAND_TEXT_BYTES_MAX = 8192,

    /* HTTP. LM_HTTP_HEAD_BYTES_MAX and its kin: http_parser.h's limits. */
    LM_HTTP_JSON_BYTES_MAX = 8192, /* before blobs; more is parsed by the worker */
    /* A compressed body may hold so many times its own bytes, so many rows as tensors, and JSON. */
    LM_INFLATE_TIMES_MAX = 32,
    LM_INFLATE_ROWS = 4,
    LM_INFLATE_JSON_BYTES = 4096,
    LM_HTTP_BLOCKS = 1024, /* heads that arrive in pieces, and requests that wait for a slot, per
                              I/O thread */
    LM_HOST_NAME_BYTES_MAX = 256,

    /* Slots and queues. */
    LM_SLOT_ALIGN = 64,
    /* server.max_request_bytes and arena_bytes where nobody sets them, and no model needs more; a
     * row as JSON is no reason for more than the third. */
    LM_AUTO_REQUEST_BYTES = 8 << 20,
    LM_AUTO_ARENA_BYTES = 256 << 20,
    LM_AUTO_TEXT_BYTES = 32 << 20,
    LM_AUTO_MEMORY_SHARE = 4, /* of the machine's memory, at most one in so many */
    LM_SLOTS_MAX = 2 * LUMEN_QUEUE_CAPACITY_MAX,
    LM_REPLY_SLOT_BYTES =
        960, /* class 0: what is left of a small reply that did not fit the socket */
    LM_REPLY_SLOTS = 256,
    LM_OPTIONALS_MAX = 16, /* inputs of a model that have a value in its graph */
    LM_OPTIONAL_ELEMENTS_MAX = 1024,
    LM_MODEL_SLOT_BYTES_MIN = 1280, /* so that a request never takes a reply's slot */
    LM_SMALL_SLOT_BYTES = 64 << 10, /* slots up to this size may be as many as the queue holds */
    LM_HOT_SLOT_BYTES = 4 << 20,    /* larger slots get their pages when first used */
    LM_LATER_SLOT_BYTES = 1 << 20,  /* of a server without models, for those that come later */
    LM_SLOTS_PER_WORKER = 32,       /* of the larger ones */
    LM_SLOTS_MIN = 64,
    LM_ANNEXES_MAX = 6, /* sizes of slots that come later, of each I/O thread */
    LM_ANNEX_SLOTS = 8, /* of one size, at least; with many workers: */
    LM_ANNEX_PER_WORKER = 2,
    LM_RUN_ARENA_BYTES = 256 << 20, /* per worker, for ONNX Runtime; used pages alone count */
    LM_BATCH_MAX = LUMEN_BATCH_MAX, /* requests served together */
    LM_BATCH_SIZES = 16, /* of one model: Runs of more different sizes are in no batch_stats */
    LM_RUNNERS_MAX = LUMEN_WORKERS_MAX +
        LUMEN_IO_THREADS_MAX, /* workers, and those of I/O threads */
    LM_PROMPT_BYTES_MAX = 16384,
    LM_TEXT_WIDTH_MAX = 65536,                             /* numbers of a token's vector */
    LM_ANSWERERS_MAX = LM_RUNNERS_MAX + LUMEN_WORKERS_MAX, /* and the threads for many texts */
    LM_SHADOW_ROOM = LM_ANSWERERS_MAX,                     /* of the thread that runs copies */
    LM_TEXT_VECTORS_BYTES_MAX = 64 << 20,                  /* of all tokens of a request */
    LM_BULK_TEXTS = 8,       /* a request of so many texts is one for these threads */
    LM_FIRST_TEXTS_MAX = 64, /* of one that its client puts first: more would hold a worker long */
    LM_BULK_BYTES = 8 << 10, /* a body of more is taken for one, before it is read */
    LM_BULK_TOKENS = 4096,   /* that wait for them, a power of two */
    LM_SHADOWS_MAX = 8,      /* copies of an I/O thread's requests, a power of two */
    LM_SHADOW_SHARE = 4,     /* while more than one in so many of a class's slots is free */
    LM_NODES_MAX = LUMEN_NODES_MAX,
    LM_SERVER_NAME_BYTES_MAX = 65,    /* server.name, with its terminator */
    LM_CORES_BYTES_MAX = 256,         /* engine.cores, with its terminator */
    LM_WIDTH_MAX = LUMEN_WORKERS_MAX, /* cores of one Run */
    /* So long may a helper run before the kernel gives another thread its turn, where both could;
     * but a thread that wakes with a shorter slice, as all others have, preempts it at once. */
    LM_HELPER_SLICE_NS = 100000000,
    LM_WIDE_RUN_NS = 1000000,   /* with `width: auto` a shorter Run has one core */
    LM_REAL_TIME_NS = 50000000, /* a real-time thread that has not slept for so long steps down */
    LM_GAIN_SHIFT = 8,          /* bits behind the point of a ratio of times */
    /* Exit status of a model's process whose memory has leaked. */
    LM_PROCESS_LEAKED = 3,
    LM_TEXT_BYTES_MAX = 512, /* an error sentence on the wire */
    LM_SLOT_WAITERS_MAX = LM_HEADER_BUFFERS /
        2, /* requests that may wait for a slot, per I/O thread */

    /* Rings: io_uring or epoll. */
    LM_RECV_BYTES_MAX = 1 << 30, /* of one receive: results have 31 bits */
    LM_SEND_BYTES_MAX = 1 << 30,
    LM_SELF_TEST_MS = 2000,          /* what takes longer is broken, also on an emulated machine */
    LM_EPOLL_EVENTS = 256,           /* looked at together */
    LM_EPOLL_TURN_BYTES = 256 << 10, /* of one connection, then it is the next one's turn */
    LM_EPOLL_TURN_ACCEPTS = 64,
    LM_EPOLL_SEND_PARTS = 64, /* of a message that are sent together */
    LM_SQ_ENTRIES = 1024,
    LM_CQ_ENTRIES_MIN = 4096,
    LM_COMPLETIONS_PER_TURN = 256,
    LM_FAILURE_DRAIN_MS = 1000, /* an I/O thread has failed: what the others are given to finish */
    LM_TICK_MS = 5,             /* while something has a deadline */
    LM_SHORT_RUN_NS = 50000,    /* an I/O thread runs it itself: two wake-ups take as long */
    LM_OWN_RUNS_NS = 200000,    /* and so much of them a turn */
    /* A Run that computes for so long on an I/O thread ends that for its model: all later ones are
     * the workers'. */
    LM_LONG_RUN_NS = 1000000,
    /* An I/O thread runs no request of more bytes, and of text or strings, which take longer. */
    LM_OWN_BODY_BYTES = 64 << 10,
    LM_OWN_TEXT_BYTES = 16 << 10,
    LM_SIZED_BYTES = 1 << 20,    /* of text or strings: of a class of cost (flow/estimate.c) */
    LM_PROBED_BYTES = 256 << 10, /* of a request's pictures, in which their sides are looked for */
    LM_CACHED_BYTES_MAX = 1 << 20, /* of a request, and of its outputs, for the response cache */
    LM_CACHE_LOOKS_NS = 200000,    /* an I/O thread looks requests up for so long a turn */
    LM_STUCK_TICK_NS = 100000,     /* while another thread stands in the middle of an operation */
    LM_IDLE_TICK_MS = 100, /* how late at most a returned slot is noticed, or the end of a wait */
    /* Reserve (flow/slot_wait.h): one in so many slots of each class, and of max_in_flight, is for
     * requests whose bytes have arrived: the whole body, or so much of it. */
    LM_RESERVE_ONE_IN = 4,
    LM_HERE_BYTES = 256 << 10,
    /* A client that holds one of the last slots and moves less than this in that time loses it. */
    LM_SLOW_WINDOW_MS = 250,
    LM_SLOW_WINDOW_BYTES = 8 << 10,
    LM_SLOW_BODY_MS = 50, /* a body that takes longer is no work for the workers yet */
    /* The same where the kernel does not say what moved. */
    LM_STALL_MS = 1000,
    LM_STALL_BYTES_PER_MS = 8192,
    LM_EVICT_PERIOD_MS = 50,
    LM_STARVED_RETRY_MS = 50,
    LM_PARK_RETRY_MS = 50,
    LM_UNPARKING_MAX = LM_HEADER_BUFFERS / 4, /* that wait for descriptors, with bytes in buffers */
    LM_TIMER_TICK_MS = 64,                    /* what a connection's deadline is kept in */
    LM_MODEST_DIM = 256, /* of what a start runs of free dimensions, unless the largest
                            takes no more than LM_WARM_NS */
    LM_WARM_NS = 100000000,
    LM_SWEEP_PERIOD_MS = 250,
    LM_EXPIRIES_PER_TURN = 16,  /* connections that are timed out before others get a turn */
    LM_PLACE_TURN_NS = 1000000, /* an I/O thread lets another one take a place first (places.h) */
    LM_WAITING_NS = 1000000,    /* between two looks at the deadlines of all that wait for a slot */
    LM_PROBE_MS_MAX = 10000,    /* between two requests that test an estimate of cost (gate.c) */
    LM_OVERDUE_NS = 50000000,   /* past a deadline: the I/O thread answers in a worker's place */
    LM_ACCEPT_PAUSE_MS = 100,   /* after the process ran out of descriptors */

    /* Idle workers: spin this long before the futex, in PAUSE instructions of about 26 ns. */
    LM_SPIN_PAUSES = 1000,
    /* Rests of an I/O thread (flow/rest.h): while the workers have enough to do, and at most, while
     * it shares its core and turns requests away. */
    LM_REST_NS = 200000,
    LM_MAKE_ROOM_NS_MAX = 1000000,
    LM_IO_POLL_NS = 50000, /* idle I/O threads with a core of their own: the cost of two wake-ups */
};

/* Requests a second, where there is a limit. */
#define LM_RATE_MIN 0.001
#define LM_RATE_MAX 1e9

_Static_assert((LM_HEADER_BUFFERS & (LM_HEADER_BUFFERS - 1)) == 0,
               "buffer rings are powers of two");
_Static_assert(LM_HEADER_BUFFERS <= 32768, "the kernel's bound on a buffer ring");
_Static_assert(LM_TEXT_BYTES_MAX <= LM_REPLY_SLOT_BYTES, "an error sentence fits a reply slot");
_Static_assert(LM_REPLY_SLOT_BYTES < LM_MODEL_SLOT_BYTES_MIN, "class 0 is for replies alone");
_Static_assert(LM_CONNECTIONS_MAX <= 1 << 24, "a connection index has 32 bits, with room to spare");
_Static_assert(LM_HTTP_TARGET_BYTES_MAX < LM_HTTP_HEAD_BYTES_MAX &&
                   LM_HTTP_LINE_BYTES_MAX < LM_HTTP_HEAD_BYTES_MAX,
               "a long target is 414 and a long header is named before the whole head is too long");
_Static_assert(LM_TENSORS_MAX <= 256 && LM_TENSORS_MAX % 64 == 0, "an index has 8 bits");
_Static_assert(LUMEN_WORKERS_MAX <= 64, "sleeping workers are one 64-bit word");

#endif
