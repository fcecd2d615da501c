/* placement.h: which core each thread gets, in which node, and why: a function of the machine and
 * the settings alone. Control thread, at start.
 *
 * Cores are taken in this order: those that the kernel keeps free, one of each physical core before
 * the second of any, those that share a cache one behind the other. A server has a node for each
 * memory node whose cores it uses; a machine without several of them, and a server that fits into
 * one, has one.
 */
#ifndef LM_PARTS_PLACEMENT_H
#define LM_PARTS_PLACEMENT_H

#include "base/limits.h"
#include "base/machine.h"
#include "lumen.h"

/* What the settings and the models ask for. */
struct lm_placement_wish {
    const char *cores;   /* engine.cores; NULL: auto */
    uint32_t nodes;      /* engine.nodes; 0: auto */
    uint32_t nodes_most; /* that the queue and the number of I/O threads allow */
    uint32_t workers;    /* engine.thread_count; 0: auto */
    bool no_workers;     /* I/O threads run all models, whatever their time */
    uint32_t io_count;   /* I/O threads; 0: not known yet */
    bool io_runs_models; /* every request of them: then they get a core each */
};

struct lm_place {
    int32_t cpu; /* -1: any core of its node */
    uint32_t node;
};

struct lm_placement_node {
    int32_t memory; /* the kernel's number of the node whose memory it uses; -1: of any */
    uint32_t core_count;
    int32_t cores[LUMEN_WORKERS_MAX]; /* the best ones, best first */
    struct lm_cpu_set cpus;           /* all of them */
    struct lm_cpu_set receives;       /* of the machine's cores: whose connections it gets */
    uint32_t worker_count;
    uint32_t io_count;
    uint32_t nearest[LM_NODES_MAX]; /* the other nodes */
};

struct lm_placement {
    struct lm_cpu_set cores; /* that the server may use */
    uint32_t core_count;     /* that pay for workers */
    bool confined; /* threads without a core of their own stay on the cores of their node */
    uint32_t node_count;
    struct lm_placement_node nodes[LM_NODES_MAX];
    uint32_t worker_count;
    uint32_t spare_count; /* behind these: the cores of workers that may come later */
    struct lm_place workers[LUMEN_WORKERS_MAX]; /* those of a node one behind the other */
    uint32_t io_count;
    struct lm_place ios[LUMEN_IO_THREADS_MAX]; /* likewise */
    char note[256];                            /* what was asked for and cannot be had; may be "" */
};

/* Returns 0, or LUMEN_E_INVALID with the cores that do not exist or may not be used. */
int lm_placement_plan(const struct lm_machine *machine, const struct lm_placement_wish *wish,
                      struct lm_placement *placement);

/* placement_text.c: the plan and its reasons as lines. Returns the bytes of all; at most `capacity`
 * are written. */
size_t lm_placement_text(const struct lm_machine *machine, const struct lm_placement_wish *wish,
                         const struct lm_placement *placement, char *text, size_t capacity);

#endif
