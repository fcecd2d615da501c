/* test_placement.c: the plan of cores on machines that are not this one, the words that explain it,
 * and what engine.cores may not name. */
#include "parts/placement.h"

#include "base/error.h"
#include "tree.h"

static struct lm_machine machine;
static struct lm_placement placement;

static void lists(void) {
    static const char *const good[] = {"0", "0-3,8", "5,7,9-10", "0-8191", "63-64,127-128", "8191"};
    static const char *const bad[] = {"-1", "1-",  "3-1", "1,,2", ",1",     "1,",
                                      "a",  "0x1", "1 2", "8192", "0-8192", "99999999999999"};
    char text[64];
    for (size_t g = 0; g < sizeof good / sizeof good[0]; g++) {
        struct lm_cpu_set set = {0};
        CHECK_AT("list %s", good[g]);
        CHECK(lm_cpu_set_parse(&set, good[g]));
        lm_cpu_set_text(&set, text, sizeof text);
        CHECK(strcmp(text, good[g]) == 0);
    }
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        struct lm_cpu_set set = {0};
        CHECK_AT("list %s", bad[b]);
        CHECK(!lm_cpu_set_parse(&set, bad[b]));
    }
    struct lm_cpu_set set = {0};
    CHECK(lm_cpu_set_parse(&set, "") && lm_cpu_set_parse(&set, "\n"));
    CHECK(lm_cpu_set_count(&set) == 0 && lm_cpu_set_next(&set, 0) == LM_CPUS_MAX);
    CHECK(lm_cpu_set_parse(&set, "1,3,5,7,9,11,13\n") && lm_cpu_set_count(&set) == 7);
    lm_cpu_set_text(&set, text, 12);
    CHECK(strcmp(text, "1,3,5,7...") == 0);
}

static int plan(const struct tree_machine *tree, const struct lm_placement_wish *wish) {
    tree_write(tree);
    lm_machine_read(&machine, root);
    return lm_placement_plan(&machine, wish, &placement);
}

/* The whole text of the plan, with two I/O threads or as many as nodes. */
static void expect(const struct tree_machine *tree, struct lm_placement_wish wish,
                   const char *expected) {
    char text[4096];
    wish.nodes_most = LM_NODES_MAX;
    if (!wish.io_count) wish.io_count = 2;
    CHECK(plan(tree, &wish) == 0);
    size_t bytes = lm_placement_text(&machine, &wish, &placement, text, sizeof text);
    CHECK(bytes < sizeof text);
    text[bytes] = '\0';
    if (strcmp(text, expected) != 0) fprintf(stderr, "%s", text);
    CHECK(strcmp(text, expected) == 0);
    char cut[40]; /* no more is written than there is room */
    memset(cut, '#', sizeof cut);
    CHECK(lm_placement_text(&machine, &wish, &placement, cut, 20) == bytes && cut[20] == '#');
}

#define ALONE "it shares its physical core with no other\n"
#define IDLE "the kernel moves it to a core that is idle\n"
#define MASK ", which is the affinity mask of this process\n"

static void machines(void) {
    expect(&(struct tree_machine){.name = "one-node", .present = "0-3", .nodes = {"0-3"}},
           (struct lm_placement_wish){0},
           "cores: 0-3" MASK "nodes: 1, since the machine has one\n"
           "node 0: cores 0-3\n"
           "  I/O threads 0-1: cores 0-3: " IDLE "  workers 0-3: cores 0-3, one each: " ALONE);
    static const struct tree_machine two = {.name = "two-nodes",
                                            .present = "0-7",
                                            .nodes = {"0-3", "4-7"},
                                            .distances = {"10 21\n", "21 10\n"}};
    expect(&two, (struct lm_placement_wish){0},
           "cores: 0-7" MASK "nodes: 2, as few as have the cores for 8 workers\n"
           "node 0: cores 0-3, memory of the machine's node 0\n"
           "  I/O thread 0: cores 0-3: " IDLE "  workers 0-3: cores 0-3, one each: " ALONE
           "node 1: cores 4-7, memory of the machine's node 1\n"
           "  I/O thread 1: cores 4-7: " IDLE "  workers 4-7: cores 4-7, one each: " ALONE);
    /* Node 1 has cores alone: they work with the memory that is nearest, which is node 2's. */
    expect(&(struct tree_machine){.name = "memory-less",
                                  .present = "0-5",
                                  .nodes = {"0-1", "2-3", "4-5"},
                                  .distances = {"10 40 20\n", "40 10 12\n", "20 12 10\n"},
                                  .memory = "0,2"},
           (struct lm_placement_wish){0},
           "cores: 0-5" MASK "nodes: 2, as few as have the cores for 6 workers\n"
           "node 0: cores 0-1, memory of the machine's node 0\n"
           "  I/O thread 0: cores 0-1: " IDLE "  workers 0-1: cores 0-1, one each: " ALONE
           "node 1: cores 2-5, memory of the machine's node 2\n"
           "  I/O thread 1: cores 2-5: " IDLE "  workers 2-5: cores 2-5, one each: " ALONE);
    expect(
        &(struct tree_machine){
            .name = "offline", .present = "0-7", .online = "0-2,4", .nodes = {"0-2,4"}},
        (struct lm_placement_wish){0},
        "cores: 0-2,4" MASK "cores 3,5-7 are offline\n"
        "nodes: 1, since the machine has one\nnode 0: cores 0-2,4\n"
        "  I/O threads 0-1: cores 0-2,4: " IDLE "  workers 0-3: cores 0-2,4, one each: " ALONE);
    expect(&(struct tree_machine){.name = "small-cpuset",
                                  .present = "0-15",
                                  .allowed = "9-11",
                                  .nodes = {"0-7", "8-15"},
                                  .quota = "200000 100000\n"},
           (struct lm_placement_wish){0},
           "cores: 9-11" MASK "the cgroup pays for 2 of them (cpu.max)\n"
           "nodes: 1, as few as have the cores for 2 workers\n"
           "node 0: cores 9-11, memory of the machine's node 1\n"
           "  I/O threads 0-1: cores 9-11: " IDLE "  workers 0-1: cores 9-10, one each: " ALONE);
    /* One of each pair first, whatever their numbers; all workers of one cache before the next. */
    expect(&(struct tree_machine){.name = "smt",
                                  .present = "0-15",
                                  .nodes = {"0-15"},
                                  .sibling_distance = 8,
                                  .cores_per_cache = 4},
           (struct lm_placement_wish){.workers = 10},
           "cores: 0-15" MASK "nodes: 1, since the machine has one\nnode 0: cores 0-15\n"
           "  I/O threads 0-1: cores 0-15: " IDLE "  workers 0-7: cores 0-7, one each: " ALONE
           "  workers 8-9: cores 8-9, one each: no physical core is left without a worker\n");
    expect(&(struct tree_machine){.name = "no-smt-isolated",
                                  .present = "0-7",
                                  .allowed = "0-5",
                                  .nodes = {"0-7"},
                                  .isolated = "4-7\n",
                                  .cpuset = "0-6\n"},
           (struct lm_placement_wish){.workers = 3, .io_count = 2, .io_runs_models = true},
           "cores: 0-5" MASK
           "cores 4-6 are kept free by the kernel (isolcpus, nohz_full) and come first\n"
           "cores 6 of these are not in the mask: engine.cores: isolated takes them\n"
           "nodes: 1, since the machine has one\nnode 0: cores 0-5\n"
           "  I/O threads 0-1: cores 4-5, one each: the kernel keeps it free\n"
           "  workers 0-1: cores 4-5, one each: the kernel keeps it free\n"
           "  worker 2: core 0: " ALONE);
}

/* 256 cores in 2 nodes with SMT, as two processors of 64 cores have: more than workers. */
static void many(void) {
    static const struct tree_machine large = {.name = "256",
                                              .present = "0-255",
                                              .nodes = {"0-63,128-191", "64-127,192-255"},
                                              .distances = {"10 32\n", "32 10\n"},
                                              .sibling_distance = 128,
                                              .cores_per_cache = 8};
    struct lm_placement_wish wish = {.nodes_most = LM_NODES_MAX, .io_count = 3};
    CHECK(plan(&large, &wish) == 0);
    CHECK(placement.node_count == 2 && placement.worker_count == LUMEN_WORKERS_MAX);
    CHECK(placement.nodes[0].worker_count == 32 && placement.nodes[1].worker_count == 32);
    CHECK(placement.nodes[0].io_count == 2 && placement.nodes[1].io_count == 1);
    for (uint32_t w = 0; w < 64; w++) {
        CHECK(placement.workers[w].cpu == (int32_t)(w < 32 ? w : 64 + w - 32));
        CHECK(placement.workers[w].node == w / 32);
    }
    CHECK(placement.nodes[0].nearest[0] == 1 && placement.nodes[1].nearest[0] == 0);
    /* Fewer workers than a node has cores: one node. */
    wish.workers = 40;
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0 && placement.node_count == 1);
    CHECK(!placement.confined);
    /* The settings may ask for other nodes than the machine has. */
    wish.nodes = 4;
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0 && placement.node_count == 4);
    for (uint32_t n = 0; n < 4; n++) {
        CHECK(placement.nodes[n].memory == (n < 2 ? 0 : 1));
        CHECK(placement.nodes[n].worker_count == 10);
        CHECK(lm_cpu_set_count(&placement.nodes[n].cpus) == 64);
    }
    CHECK(placement.nodes[0].nearest[0] == 1 && placement.nodes[3].nearest[0] == 2);
    wish.nodes = 1;
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0 && placement.node_count == 1);
    CHECK(placement.nodes[0].memory == -1 && placement.note[0] == '\0');
    wish = (struct lm_placement_wish){.nodes_most = 2, .nodes = 4, .io_count = 2};
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0 && placement.node_count == 2);
    CHECK(strstr(placement.note, "engine.nodes 4: 2, since") == placement.note);
}

/* More nodes and workers than cores, as tests on small machines have them. */
static void few(void) {
    static const struct tree_machine one = {.name = "one-core", .present = "0", .nodes = {"0"}};
    struct lm_placement_wish wish = {
        .nodes = 2, .nodes_most = 8, .workers = 3, .io_count = 2, .io_runs_models = true};
    CHECK(plan(&one, &wish) == 0);
    CHECK(placement.node_count == 2 && placement.confined);
    for (uint32_t n = 0; n < 2; n++) {
        CHECK(lm_cpu_set_has(&placement.nodes[n].cpus, 0) && placement.nodes[n].memory == -1);
        CHECK(placement.ios[n].cpu == -1 && placement.ios[n].node == n);
    }
    CHECK(placement.workers[0].node == 0 && placement.workers[2].node == 1);
    CHECK(placement.workers[0].cpu == -1);
    new_tree("nothing"); /* no sysfs: this process's own mask, one node */
    lm_machine_read(&machine, root);
    wish = (struct lm_placement_wish){.nodes_most = 8};
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0);
    CHECK(placement.node_count == 1 && placement.nodes[0].memory == -1);
    CHECK(placement.worker_count == lm_cpu_set_count(&machine.allowed));
}

static void spares_are(uint32_t count, const int32_t *cpus) {
    CHECK(placement.spare_count == count);
    for (uint32_t s = 0; s < count; s++) {
        const struct lm_place *place = &placement.workers[placement.worker_count + s];
        CHECK(place->cpu == cpus[s] && place->node == 0);
    }
}

/* Workers that may come later: on the node's other cores, in the order of the first ones. */
static void spare(void) {
    static const struct tree_machine smt = {
        .name = "spare-smt", .present = "0-3", .nodes = {"0-3"}, .sibling_distance = 2};
    static const struct tree_machine two = {.name = "spare-two",
                                            .present = "0-7",
                                            .nodes = {"0-3", "4-7"},
                                            .distances = {"10 21\n", "21 10\n"}};
    struct lm_placement_wish wish = {.nodes_most = 8, .io_count = 1, .workers = 1};
    CHECK(plan(&smt, &wish) == 0);
    spares_are(3, (const int32_t[]){1, 2, 3});
    wish.workers = 0; /* as many as cores */
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0);
    spares_are(0, NULL);
    wish.workers = 6; /* no core for each */
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0);
    spares_are(0, NULL);
    /* The quota of a cgroup may grow: all cores have places. */
    struct tree_machine paid = smt;
    paid.name = "spare-paid";
    paid.quota = "200000 100000\n";
    wish.workers = 0;
    CHECK(plan(&paid, &wish) == 0 && placement.worker_count == 2);
    spares_are(2, (const int32_t[]){2, 3});
    wish.workers = 3; /* one node of two has them */
    CHECK(plan(&two, &wish) == 0 && placement.node_count == 1);
    spares_are(1, (const int32_t[]){3});
    wish.workers = 4; /* one node has just them */
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0 && placement.node_count == 1);
    spares_are(0, NULL);
    wish.workers = 5; /* both */
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0 && placement.node_count == 2);
    spares_are(0, NULL);
    wish = (struct lm_placement_wish){.nodes_most = 8, .io_count = 1, .no_workers = true};
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0);
    spares_are(0, NULL);
}

static void named_cores(void) {
    static const struct tree_machine tree = {.name = "named",
                                             .present = "0-11",
                                             .online = "0-7,10-11",
                                             .allowed = "0-5",
                                             .nodes = {"0-3,8-9", "4-7,10-11"},
                                             .isolated = "7,11\n",
                                             .cpuset = "0-7\n",
                                             .quota = "300000 100000\n"};
    static const struct {
        const char *cores, *found;
    } refused[] = {
        {"0,12-13,99", "engine.cores: expected cores of 0-5,7, found 12-13,99, which this machine "
                       "does not have"},
        {"1,8-9", "engine.cores: expected cores of 0-5,7, found 8-9, which are offline"},
        {"4-7,11", "engine.cores: expected cores of 0-5,7 (the affinity mask or the cpuset of this "
                   "process), found 6,11, which this process may not use"},
        {"one", "engine.cores: expected auto, isolated or a list such as 0-3,8, found 'one'"},
        {"", "engine.cores: expected auto, isolated or a list such as 0-3,8, found ''"},
    };
    struct lm_placement_wish wish = {.nodes_most = 8, .cores = "auto", .io_count = 1};
    CHECK(plan(&tree, &wish) == 0);
    CHECK(placement.worker_count == 3 && placement.node_count == 1 && !placement.confined);
    for (size_t r = 0; r < sizeof refused / sizeof refused[0]; r++) {
        wish.cores = refused[r].cores;
        CHECK_AT("cores %s", wish.cores);
        CHECK(lm_placement_plan(&machine, &wish, &placement) == LUMEN_E_INVALID);
        CHECK(strcmp(lm_error_last(), refused[r].found) == 0);
    }
    wish.cores = "3,5,7"; /* an isolated core of the cpuset, outside of the mask */
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0);
    CHECK(placement.confined && placement.node_count == 2 && placement.worker_count == 3);
    CHECK(placement.workers[0].cpu == 3 && placement.workers[1].cpu == 7 &&
          placement.workers[2].cpu == 5);
    wish.cores = "isolated";
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0);
    CHECK(placement.worker_count == 1 && placement.workers[0].cpu == 7 && placement.confined);
    machine.isolated = (struct lm_cpu_set){0};
    CHECK(lm_placement_plan(&machine, &wish, &placement) == 0);
    CHECK(placement.worker_count == 3 && !placement.confined);
    CHECK(strstr(placement.note, "engine.cores isolated: this kernel keeps no core free"));
}

static void are(const struct lm_cpu_set *set, const char *expected) {
    char text[64];
    lm_cpu_set_text(set, text, sizeof text);
    CHECK_AT("cores %s", text);
    CHECK(strcmp(text, expected) == 0);
}

/* Cores that are offline are neither allowed nor kept free, where no cpuset leaves them out. */
static void offline_cores(void) {
    tree_write(&(struct tree_machine){.name = "offline-cores",
                                      .present = "0-7",
                                      .online = "0-5",
                                      .allowed = "0-6",
                                      .nodes = {"0-7"},
                                      .isolated = "3,5-7\n"});
    lm_machine_read(&machine, root);
    are(&machine.present, "0-7");
    are(&machine.online, "0-5");
    are(&machine.allowed, "0-5");
    are(&machine.isolated, "3,5");
}

int main(void) {
    tree_top = check_temporary_directory();
    lists();
    machines();
    many();
    few();
    spare();
    named_cores();
    offline_cores();
    return check_finish("test_placement");
}
