/* returns.pml: slots that come back, and the I/O thread that asks to be woken; for SPIN.
 *
 * After io.c:wait_for_work and take_returns, and worker.c:give_back, with queue_mpmc.c's two steps.
 * The I/O thread wants every return and no time limit ends its wait: a state in which nothing can
 * move is a lost wake-up. Memory is sequentially consistent.
 * Mutants, each of which must fail: NO_WAKE NO_DEPTH PLAIN_EXCHANGE
 */
#define SLOTS 2

byte head, tail;
bool published[SLOTS];
bool wants;
byte rings;
byte returned;

proctype worker() {
    byte at;
    bool wanted;
    atomic { at = tail; tail++ }
    published[at] = true;
#ifdef PLAIN_EXCHANGE
    wanted = wants;
    wants = false;
#else
    atomic { wanted = wants; wants = false } /* W2 */
#endif
#ifndef NO_WAKE
    if :: wanted -> rings++ :: else fi
#endif
}

proctype io() {
    bool look;
    do
    :: true ->
        do
        :: head < SLOTS && published[head] -> head++; returned++
        :: !(head < SLOTS && published[head]) -> break
        od;
        if :: returned == SLOTS -> break :: else fi;
        wants = true; /* I1 */
#ifndef NO_DEPTH
        look = tail > head;
#endif
        if
        :: look -> skip /* limit 0 */
        :: !look -> (rings > 0)
        fi;
        rings = 0;
        wants = false
    od
}

init { atomic { run worker(); run worker(); run io() } }
