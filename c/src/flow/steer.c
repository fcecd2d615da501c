/* steer.c: see steer.h. The program is in the kernel's first filter language: it needs no
 * privilege, and runs once for each connection. It answers with a listener's place among those of
 * the port, which is the number of its I/O thread. Source: socket(7), SO_ATTACH_REUSEPORT_CBPF.
 */
#include "flow/steer.h"

#include <errno.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include "flow/accept.h"

/* A range of cores takes at most INSTRUCTIONS_EACH; of a machine with more ranges than fit, the
 * last cores choose any thread. */
enum { INSTRUCTIONS_MAX = 4000, INSTRUCTIONS_EACH = 6 };

struct program {
    struct sock_filter code[INSTRUCTIONS_MAX];
    uint16_t count;
};

static void add(struct program *program, uint16_t code, uint32_t value, uint8_t if_true,
                uint8_t if_false) {
    program->code[program->count++] =
        (struct sock_filter){.code = code, .jt = if_true, .jf = if_false, .k = value};
}

/* Any of the I/O threads of a range. */
static void choose(struct program *program, uint32_t first, uint32_t count) {
    add(program, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_RANDOM), 0, 0);
    add(program, BPF_ALU | BPF_MOD | BPF_K, count, 0, 0);
    add(program, BPF_ALU | BPF_ADD | BPF_K, first, 0, 0);
    add(program, BPF_RET | BPF_A, 0, 0, 0);
}

static void add_node(struct program *program, const struct lm_cpu_set *cpus, uint32_t first,
                     uint32_t count) {
    for (uint32_t from = lm_cpu_set_next(cpus, 0), last; from < LM_CPUS_MAX;
         from = lm_cpu_set_next(cpus, last + 1)) {
        for (last = from; lm_cpu_set_has(cpus, last + 1);) last++;
        if (program->count + INSTRUCTIONS_EACH + 4 > INSTRUCTIONS_MAX) return;
        add(program, BPF_JMP | BPF_JGE | BPF_K, from, 0, 5); /* past this range's instructions */
        add(program, BPF_JMP | BPF_JGT | BPF_K, last, 4, 0);
        choose(program, first, count);
    }
}

int lm_steer_listeners(const struct lm_shared *shared, const struct lm_placement_node *nodes) {
    static struct program program; /* too large for a stack; control thread only */
    program.count = 0;
    add(&program, BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_CPU), 0, 0);
    uint32_t first = 0;
    for (uint32_t n = 0; n < shared->node_count; n++) {
        add_node(&program, &nodes[n].receives, first, nodes[n].io_count);
        first += nodes[n].io_count;
    }
    choose(&program, 0, shared->io_count);
    const struct sock_fprog attached = {.len = program.count, .filter = program.code};
    int fd = shared->ios[0].listen_fds[LM_LISTENER_TCP];
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &attached, sizeof attached) == 0
               ? 0
               : errno;
}
