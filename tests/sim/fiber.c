/* fiber.c: the server's threads as fibers: each runs until it waits or gives its turn away. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "sim.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define START_SWITCH(save, bottom, bytes) __sanitizer_start_switch_fiber(save, bottom, bytes)
#define FINISH_SWITCH(save, bottom, bytes) __sanitizer_finish_switch_fiber(save, bottom, bytes)
#define FORGET(memory, bytes) __asan_unpoison_memory_region(memory, bytes)
#else
#define START_SWITCH(save, bottom, bytes) ((void)(save), (void)(bottom), (void)(bytes))
#define FINISH_SWITCH(save, bottom, bytes) ((void)(save), (void)(bottom), (void)(bytes))
#define FORGET(memory, bytes) ((void)(memory), (void)(bytes))
#endif

enum { STACK_BYTES = 1 << 20 };

struct stack {
    ucontext_t context;
    void *memory;
    void *fake;
    void *(*body)(void *);
    void *argument;
};

struct fiber fibers[FIBERS_MAX];
uint32_t fiber_count;
static struct stack stacks[FIBERS_MAX];
static ucontext_t scheduler;
static void *scheduler_fake;
static const void *scheduler_bottom;
static size_t scheduler_bytes;
static struct fiber *running;

void fibers_reset(void) {
    fiber_count = 0;
    running = NULL;
}

struct fiber *fiber_self(void) {
    return running;
}

static struct stack *stack_of(const struct fiber *fiber) {
    return &stacks[fiber - fibers];
}

/* Leaves the running fiber for the scheduler. */
static void leave(void) {
    struct fiber *self = running;
    struct stack *stack = stack_of(self);
    running = NULL;
    START_SWITCH(self->ended ? NULL : &stack->fake, scheduler_bottom, scheduler_bytes);
    swapcontext(&stack->context, &scheduler);
    FINISH_SWITCH(stack->fake, &scheduler_bottom, &scheduler_bytes);
}

static void enter(void) {
    struct stack *stack = stack_of(running);
    FINISH_SWITCH(NULL, &scheduler_bottom, &scheduler_bytes);
    stack->body(stack->argument);
    running->ended = true;
    SIM_TRACE("has ended");
    leave();
}

void fiber_start(const char *name, void *(*body)(void *), void *argument) {
    SIM_CHECK(fiber_count < FIBERS_MAX, "FIBERS_MAX is too small");
    struct fiber *fiber = &fibers[fiber_count++];
    struct stack *stack = stack_of(fiber);
    *fiber = (struct fiber){.context = stack, .name = name};
    if (!stack->memory) {
        stack->memory =
            mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SIM_CHECK(stack->memory != MAP_FAILED, "no memory for a stack");
        mprotect(stack->memory, 4096, PROT_NONE);
    }
    FORGET(stack->memory, STACK_BYTES); /* of the fiber before, which never returned */
    stack->body = body;
    stack->argument = argument;
    stack->fake = NULL;
    getcontext(&stack->context);
    stack->context.uc_stack.ss_sp = (uint8_t *)stack->memory + 4096;
    stack->context.uc_stack.ss_size = STACK_BYTES - 4096;
    stack->context.uc_link = NULL;
    makecontext(&stack->context, enter, 0);
    /* AddressSanitizer would clear all of it at every switch. */
    stack->context.uc_stack.ss_size = 0;
}

void fiber_resume(struct fiber *fiber) {
    struct stack *stack = stack_of(fiber);
    fiber->blocked_on = NULL;
    running = fiber;
    START_SWITCH(&scheduler_fake, (uint8_t *)stack->memory + 4096, STACK_BYTES - 4096);
    swapcontext(&scheduler, &stack->context);
    FINISH_SWITCH(scheduler_fake, NULL, NULL);
}

void fiber_yield(void) {
    if (running) leave();
}

bool fiber_block(const void *on, uint64_t until_ns) {
    struct fiber *self = running;
    SIM_CHECK(self, "the scheduler itself cannot wait");
    self->blocked_on = on;
    self->wake_at_ns = until_ns;
    self->woken = false;
    leave();
    return self->woken;
}

uint32_t fiber_unblock(const void *on, uint32_t most) {
    uint32_t count = 0;
    uint32_t start = fiber_count ? sim_below(fiber_count) : 0;
    for (uint32_t i = 0; i < fiber_count && count < most; i++) {
        struct fiber *fiber = &fibers[(start + i) % fiber_count];
        if (fiber->ended || fiber->blocked_on != on) continue;
        fiber->blocked_on = NULL;
        fiber->woken = true;
        count++;
    }
    return count;
}
