/* sleep.pml: producers, a bounded MPMC queue, sleeping workers, and the end; for SPIN, exhaustive.
 *
 * After queue_mpmc.c (claim and publish are two steps, so that a producer may stop between them),
 * waitset.c, worker.c (pop_or_sleep, next_job, chain_wake) and server/server.c (lm_thread_ended). One step
 * of the model is one atomic operation of the code; memory is sequentially consistent.
 *
 * Without STOP each worker takes one job and is then busy for good: a state in which nothing can
 * move is a lost wake-up. With STOP workers take jobs until the end is announced, and all must end.
 * Mutants, each of which must fail: NO_WAKE NO_RECHECK NO_CHAIN NO_WAKE_ALL NO_STOP_CHECK
 */
#define CAPACITY 2
#define PRODUCERS 2
#define WORKERS 2

byte head, tail;
byte sequence[CAPACITY];
byte value[CAPACITY];
bool sleeper[WORKERS]; /* the bits of the one word */
bool woken[WORKERS];   /* the futexes */
bool stop;
byte taken[PRODUCERS];
byte taken_count;
byte running = PRODUCERS;

/* push: cannot be full here, for there are as many jobs as places. */
inline push(v) {
    atomic { assert(sequence[tail % CAPACITY] == tail); at = tail; tail++ }
    value[at % CAPACITY] = v;
    sequence[at % CAPACITY] = at + 1
}

inline pop() {
    found = false;
    at = head;
    do
    :: sequence[at % CAPACITY] == at + 1 ->
        if
        :: atomic { head == at -> head++ }
            got = value[at % CAPACITY];
            sequence[at % CAPACITY] = at + CAPACITY;
            found = true;
            break
        :: atomic { head != at -> at = head }
        fi
    :: sequence[at % CAPACITY] < at + 1 -> break
    :: sequence[at % CAPACITY] > at + 1 -> at = head
    od
}

inline take_bit() {
    atomic {
        hit = sleeper[pick];
        sleeper[pick] = false
    }
}

/* Any sleeper may be the warmest. Reading the word and clearing a bit are two operations. */
inline wake_one() {
    hit = false;
#ifndef NO_WAKE
    do
    :: atomic { sleeper[0] -> pick = 0 }; take_bit(); if :: hit -> break :: else fi
    :: atomic { sleeper[1] -> pick = 1 }; take_bit(); if :: hit -> break :: else fi
    :: atomic { !sleeper[0] && !sleeper[1] -> break }
    od;
    if :: hit -> woken[pick] = true :: else fi
#endif
}

inline wake_all() {
#ifndef NO_WAKE_ALL
    bool first, second;
    atomic { first = sleeper[0]; second = sleeper[1]; sleeper[0] = false; sleeper[1] = false }
    if :: first -> woken[0] = true :: else fi;
    if :: second -> woken[1] = true :: else fi
#else
    skip
#endif
}

proctype producer(byte id) {
    byte at, pick;
    bool hit;
    push(id);
    wake_one();
#ifdef STOP
    (taken_count == PRODUCERS); /* io.c:drained */
    atomic { running--; hit = (running == 0) }
    if
    :: hit -> stop = true; wake_all()
    :: else
    fi
#endif
}

proctype worker(byte id) {
    byte at, got, pick;
    bool found, hit;
again:
    pop();
    if
    :: found -> goto job
    :: else
    fi;
#ifdef STOP
    if :: stop -> goto done :: else fi;
#endif
    woken[id] = false;
    sleeper[id] = true; /* W1 */
#ifndef NO_RECHECK
    pop();
#endif
    if
    :: found -> sleeper[id] = false; goto job
    :: else
    fi;
#if defined(STOP) && !defined(NO_STOP_CHECK)
    if :: stop -> sleeper[id] = false; goto again :: else fi;
#endif
    (woken[id]); /* futex */
    sleeper[id] = false;
    goto again;
job:
    atomic { taken[got]++; assert(taken[got] == 1); taken_count++ }
#ifndef NO_CHAIN
    if
    :: tail > head -> wake_one()
    :: else
    fi;
#endif
#ifdef STOP
    goto again;
#endif
done:
    skip
}

init {
    atomic {
        sequence[1] = 1;
        run producer(0); run producer(1);
        run worker(0); run worker(1)
    }
}
