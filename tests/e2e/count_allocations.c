/* count_allocations.c: counts calls of the allocator, for test_e2e_allocations.py.
 *
 * Loaded with LD_PRELOAD. Counts go to the file named by LUMEN_COUNTS, which the test maps too.
 * Nothing is counted until the test sets `armed`, with the I/O threads' ids in `io_tids`. Two
 * counts are kept: calls that come from within liblumen_uring.so, told by their return address, and
 * all calls whatsoever of the I/O threads, through libraries too, since those never run a model.
 *
 * ONNX Runtime's Release functions end in a jump to free, which leaves the address of our call of
 * Release as the return address. So a free counts as ours only if the call before the return
 * address goes to free and nowhere else.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { IO_TIDS = 16, KINDS = 8 };
enum kind { MALLOC, CALLOC, REALLOC, FREE, ALIGNED_ALLOC, POSIX_MEMALIGN, MEMALIGN };

struct counts {
    _Atomic uint32_t armed;
    _Atomic uint32_t found; /* 1: the library's addresses are known */
    _Atomic uint64_t in_library[KINDS];
    _Atomic uint64_t in_io_threads[KINDS];
    _Atomic uint32_t io_tids[IO_TIDS];
};

static struct counts *counts;
static _Atomic uintptr_t low, high;
static __thread int32_t own_tid __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void map_counts(void) {
    const char *path = getenv("LUMEN_COUNTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *base = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (base != MAP_FAILED) counts = base;
}

static int look(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size;
    (void)unused;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "liblumen_uring.so")) return 0;
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (start < from) from = start;
        if (start + info->dlpi_phdr[i].p_memsz > to) to = start + info->dlpi_phdr[i].p_memsz;
    }
    atomic_store(&high, to);
    atomic_store(&low, from);
    atomic_store(&counts->found, 1);
    return 1;
}

/* Whether the instruction before `from` is a call of free through the library's linkage table. */
static int calls_free(const uint8_t *from) {
#if defined(__x86_64__)
    int32_t distance;
    void *target;
    if (from[-6] == 0xff && from[-5] == 0x15) { /* call *free@GOTPCREL(%rip) */
        memcpy(&distance, from - 4, 4);
        memcpy(&target, from + distance, sizeof target);
        return target == (void *)free;
    }
    if (from[-5] != 0xe8) return 0; /* no direct call */
    memcpy(&distance, from - 4, 4);
    const uint8_t *stub = from + distance;
    if (memcmp(stub, "\xf3\x0f\x1e\xfa", 4) == 0) stub += 4; /* endbr64 */
    if (*stub == 0xf2) stub++;                               /* bnd */
    if (stub[0] != 0xff || stub[1] != 0x25) return 0;        /* jmp *free@GOT(%rip) */
    memcpy(&distance, stub + 2, 4);
    memcpy(&target, stub + 6 + distance, sizeof target);
    return target == (void *)free;
#else
    (void)from;
    return 0; /* the I/O threads' count still tells */
#endif
}

static void count(enum kind kind, void *from) {
    if (!counts || !atomic_load_explicit(&counts->armed, memory_order_relaxed)) return;
    if (!atomic_load_explicit(&counts->found, memory_order_acquire)) dl_iterate_phdr(look, NULL);
    uintptr_t at = (uintptr_t)from;
    if (at >= atomic_load_explicit(&low, memory_order_relaxed) &&
        at < atomic_load_explicit(&high, memory_order_relaxed) &&
        (kind != FREE || calls_free(from))) {
        atomic_fetch_add_explicit(&counts->in_library[kind], 1, memory_order_relaxed);
    }
    if (!own_tid) own_tid = (int32_t)syscall(SYS_gettid);
    for (int i = 0; i < IO_TIDS; i++) {
        if (atomic_load_explicit(&counts->io_tids[i], memory_order_relaxed) != (uint32_t)own_tid)
            continue;
        atomic_fetch_add_explicit(&counts->in_io_threads[kind], 1, memory_order_relaxed);
    }
}

#define FROM __builtin_extract_return_addr(__builtin_return_address(0))

void *malloc(size_t bytes) {
    count(MALLOC, FROM);
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes) {
    count(CALLOC, FROM);
    return __libc_calloc(number, bytes);
}

void *realloc(void *memory, size_t bytes) {
    count(REALLOC, FROM);
    return __libc_realloc(memory, bytes);
}

void free(void *memory) {
    count(FREE, FROM);
    __libc_free(memory);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    count(ALIGNED_ALLOC, FROM);
    return __libc_memalign(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    count(MEMALIGN, FROM);
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory_out, size_t alignment, size_t bytes) {
    count(POSIX_MEMALIGN, FROM);
    void *memory = __libc_memalign(alignment, bytes);
    if (!memory) return ENOMEM;
    *memory_out = memory;
    return 0;
}
