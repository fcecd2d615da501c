# ruff: noqa: E501 (a table of source text)
"""Breaks the sources in one place at a time and names what notices.

    mutants.py short|full [name...]

Each mutant is one replaced piece of text in a copy of c/src, built and given to the explorer, first
sequentially consistent, then with weak memory. The short form stops at the first evidence. The full
form names all, gives those of the queues to a ThreadSanitizer stress too, and shows that a mutant
which changes nothing, by the argument beside it, survives. Exit status 1: another one survives, or
one of those does not.
"""

from __future__ import annotations

import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "c" / "src"
INCLUDE = SOURCE.parent / "include"
WORKPLACES = 2


@dataclass(frozen=True)
class Mutant:
    """One replaced text, and where to look for the damage."""

    name: str
    file: str
    old: str
    new: str
    scenarios: str  # beginnings of their names
    equivalent: str = ""  # why it changes nothing
    stress: str = ""  # the queue that the ThreadSanitizer stress exercises


MPMC, SPSC, SCQ = "parts/queue_mpmc.c", "parts/queue_spsc.c", "parts/queue_scq.c"
NAIVE, WAITSET = "parts/queue_naive.c", "parts/waitset.c"
WORKER, IO, DUE, REPLY = "work/worker.c", "io.c", "io_due.c", "flow/reply.c"
THREADS = "flow/threads.c"
TLS, TLS_TURN = "flow/tls.c", "flow/tls_turn.c"
ADVANCE, SUBMIT, REST = "flow/advance.c", "flow/submit.c", "flow/rest.c"
JOBS, NODE, NODE_H = "work/jobs.c", "flow/node.c", "flow/node.h"
SEQUENCES = "models/sequences.c"
ATOMICS = "base/atomics.h"
SLEEP = "sleep stop"
TAIL_CAS = "if (lm_cas_weak_relaxed_u64(&queue->tail, &tail, tail + 1)) {"
OR_W1 = "(void)lm_or_acq_rel_u64(&set->sleepers, 1ull << index);"
OR_P1 = "lm_or_acq_rel_u64(&set->sleepers, 0)"
I1 = "(void)lm_exchange_acq_rel_u32(&io->wants_returns, 1);"
W2 = "lm_exchange_acq_rel_u32(&io->wants_returns, 0) == 1"
S1 = "lm_exchange_acq_rel_u32(&connection->sender, 1) == 0"


def relaxed(what: str, word: str, operand: str) -> str:
    """A read-modify-write that orders nothing."""
    return f"atomic_{what}_explicit(&{word}.value, {operand}, memory_order_relaxed)"


MUTANTS = (
    # mpmc
    Mutant(
        "mpmc P1 relaxed",
        MPMC,
        "lm_load_acquire_u64(&cell->sequence);\n        int64_t lag = (int64_t)(sequence - tail)",
        "lm_load_relaxed_u64(&cell->sequence);\n        int64_t lag = (int64_t)(sequence - tail)",
        "mpmc-mixed mpmc-2x2",
        stress="mpmc",
    ),
    Mutant(
        "mpmc P2 relaxed",
        MPMC,
        "lm_store_release_u64(&cell->sequence, tail + 1)",
        "lm_store_relaxed_u64(&cell->sequence, tail + 1)",
        "mpmc-mixed mpmc-2x2",
        stress="mpmc",
    ),
    Mutant(
        "mpmc C1 relaxed",
        MPMC,
        "lm_load_acquire_u64(&cell->sequence);\n        int64_t lag = (int64_t)(sequence - (head",
        "lm_load_relaxed_u64(&cell->sequence);\n        int64_t lag = (int64_t)(sequence - (head",
        "mpmc-mixed mpmc-2x2",
        stress="mpmc",
    ),
    Mutant(
        "mpmc C2 relaxed",
        MPMC,
        "lm_store_release_u64(&cell->sequence, head",
        "lm_store_relaxed_u64(&cell->sequence, head",
        "mpmc-mixed mpmc-2x2",
        stress="mpmc",
    ),
    Mutant(
        "mpmc claim by load and store",
        MPMC,
        TAIL_CAS,
        "if (lm_load_relaxed_u64(&queue->tail) == tail) { lm_store_relaxed_u64(&queue->tail, tail + 1);",
        "mpmc-2x2",
        stress="mpmc",
    ),
    Mutant(
        "mpmc publish before write",
        MPMC,
        "cell->value = value;",
        "lm_store_release_u64(&cell->sequence, tail + 1);\n cell->value = value;",
        "mpmc-mixed",
        stress="mpmc",
    ),
    # spsc
    Mutant(
        "spsc P1 relaxed",
        SPSC,
        "lm_load_acquire_u64(&queue->head)",
        "lm_load_relaxed_u64(&queue->head)",
        "spsc",
        stress="spsc",
    ),
    Mutant(
        "spsc P2 relaxed",
        SPSC,
        "lm_store_release_u64(&queue->tail, tail + 1)",
        "lm_store_relaxed_u64(&queue->tail, tail + 1)",
        "spsc",
        stress="spsc",
    ),
    Mutant(
        "spsc C1 relaxed",
        SPSC,
        "lm_load_acquire_u64(&queue->tail)",
        "lm_load_relaxed_u64(&queue->tail)",
        "spsc",
        stress="spsc",
    ),
    Mutant(
        "spsc C2 relaxed",
        SPSC,
        "lm_store_release_u64(&queue->head, head + 1)",
        "lm_store_relaxed_u64(&queue->head, head + 1)",
        "spsc",
        stress="spsc",
    ),
    # scq: each load and store
    Mutant(
        "scq push: entry load relaxed",
        SCQ,
        "lap_of(ring, tail);\n        uint64_t seen = lm_load_seq_cst_u64(entry)",
        "lap_of(ring, tail);\n        uint64_t seen = lm_load_relaxed_u64(entry)",
        "scq",
        equivalent="a stale entry makes the compare-and-swap fail or skips a position, at most",
    ),
    Mutant(
        "scq push: head load relaxed",
        SCQ,
        "lm_load_seq_cst_u64(&ring->head) - tail",
        "lm_load_relaxed_u64(&ring->head) - tail",
        "scq",
        equivalent="who marked the entry had moved the head before, and the entry's load brings that",
    ),
    Mutant(
        "scq push: threshold load relaxed",
        SCQ,
        "if (lm_load_seq_cst_u64(&ring->threshold) !=",
        "if (lm_load_relaxed_u64(&ring->threshold) !=",
        "scq",
        equivalent="not with these threads: the tail and the entry have brought all but each consumer's last step",
    ),
    Mutant(
        "scq push: threshold store relaxed",
        SCQ,
        "lm_store_seq_cst_u64(&ring->threshold",
        "lm_store_relaxed_u64(&ring->threshold",
        "scq",
    ),
    Mutant(
        "scq push: threshold store dropped",
        SCQ,
        "lm_store_seq_cst_u64(&ring->threshold, full_threshold(ring));",
        ";",
        "scq",
    ),
    Mutant(
        "scq push: safe bit ignored",
        SCQ,
        "(entry_safe(seen) || (int64_t)(lm_load_seq_cst_u64(&ring->head) - tail) <= 0)",
        "true",
        "scq",
    ),
    Mutant(
        "scq pop: unsafe mark dropped",
        SCQ,
        "entry_make(entry_lap(seen), 0, entry_index(seen))",
        "seen",
        "scq",
    ),
    Mutant(
        "scq pop: threshold load relaxed",
        SCQ,
        "if ((int64_t)lm_load_seq_cst_u64(&ring->threshold) < 0)",
        "if ((int64_t)lm_load_relaxed_u64(&ring->threshold) < 0)",
        "scq",
    ),
    Mutant(
        "scq pop: entry load relaxed",
        SCQ,
        "lap_of(ring, head);\n        uint64_t seen = lm_load_seq_cst_u64(entry)",
        "lap_of(ring, head);\n        uint64_t seen = lm_load_relaxed_u64(entry)",
        "scq",
        equivalent="every way on is a read-modify-write of the entry, which reads the newest",
    ),
    Mutant(
        "scq pop: tail load relaxed",
        SCQ,
        "uint64_t tail = lm_load_seq_cst_u64(&ring->tail)",
        "uint64_t tail = lm_load_relaxed_u64(&ring->tail)",
        "scq",
    ),
    Mutant(
        "scq catch-up: head load relaxed",
        SCQ,
        "head = lm_load_seq_cst_u64(&ring->head);",
        "head = lm_load_relaxed_u64(&ring->head);",
        "scq",
        equivalent="the head only grows: a stale one pulls the tail less far, a help and no more",
    ),
    Mutant(
        "scq catch-up: tail load relaxed",
        SCQ,
        "        tail = lm_load_seq_cst_u64(&ring->tail);",
        "        tail = lm_load_relaxed_u64(&ring->tail);",
        "scq",
        equivalent="a stale tail makes the compare-and-swap fail once more",
    ),
    Mutant(
        "scq catch-up dropped",
        SCQ,
        "ring_catch_up(ring, tail, head + 1);",
        ";",
        "scq",
        equivalent="it saves steps: a producer behind the head finds its entries passed and goes on",
    ),
    Mutant(
        "scq adds relaxed",
        ATOMICS,
        "atomic_fetch_add_explicit(&a->value, n, memory_order_seq_cst)",
        "atomic_fetch_add_explicit(&a->value, n, memory_order_relaxed)",
        "scq",
    ),
    Mutant(
        "scq or relaxed",
        ATOMICS,
        "atomic_fetch_or_explicit(&a->value, bits, memory_order_seq_cst)",
        "atomic_fetch_or_explicit(&a->value, bits, memory_order_relaxed)",
        "scq",
        equivalent="the load of the entry before it has acquired, and the rings' other words release",
    ),
    Mutant(
        "scq cas relaxed",
        ATOMICS,
        "a->value, expected, v, memory_order_seq_cst,\n                                                   memory_order_seq_cst",
        "a->value, expected, v, memory_order_relaxed,\n memory_order_relaxed",
        "scq",
        stress="scq",
    ),
    # waitset, worker
    Mutant(
        "waitset W1 relaxed",
        WAITSET,
        OR_W1,
        f"(void){relaxed('fetch_or', 'set->sleepers', '1ull << index')};",
        SLEEP,
    ),
    Mutant(
        "waitset W1 by load and store",
        WAITSET,
        OR_W1,
        "lm_store_relaxed_u64(&set->sleepers, lm_load_relaxed_u64(&set->sleepers) | 1ull << index);",
        SLEEP,
    ),
    Mutant("waitset P1 relaxed", WAITSET, OR_P1, relaxed("fetch_or", "set->sleepers", "0"), SLEEP),
    Mutant("waitset P1 plain load", WAITSET, OR_P1, "lm_load_relaxed_u64(&set->sleepers)", SLEEP),
    Mutant("waitset P1 acquire load", WAITSET, OR_P1, "lm_load_acquire_u64(&set->sleepers)", SLEEP),
    Mutant(
        "waitset cancel by load and store",
        WAITSET,
        "(void)lm_and_acq_rel_u64(&set->sleepers, ~(1ull << index));",
        "lm_store_release_u64(&set->sleepers, lm_load_acquire_u64(&set->sleepers) & ~(1ull << index));",
        SLEEP,
    ),
    Mutant(
        "waitset wake_one: wake dropped", WAITSET, "            wake_seat(set, index);\n", "", SLEEP
    ),
    Mutant(
        "waitset wake_one: futex dropped",
        WAITSET,
        "    futex(&set->seats[index].woken, FUTEX_WAKE, 1, NULL);\n",
        "",
        SLEEP,
    ),
    Mutant(
        "waitset wake_one: flag dropped",
        WAITSET,
        "    lm_store_relaxed_u32(&set->seats[index].woken, 1);\n",
        "",
        SLEEP,
    ),
    Mutant(
        "waitset prepare: flag not reset",
        WAITSET,
        "    lm_store_relaxed_u32(&seat->woken, 0);\n",
        "",
        SLEEP,
    ),
    Mutant(
        "waitset wake_all dropped",
        THREADS,
        "        lm_waitset_wake_all(&node->waitset);\n",
        "",
        "stop",
    ),
    Mutant(
        "wake_all relaxed",
        WAITSET,
        "uint64_t sleepers = lm_and_acq_rel_u64(&set->sleepers, 0);",
        f"uint64_t sleepers = {relaxed('fetch_and', 'set->sleepers', '0')};",
        "stop",
    ),
    Mutant(
        "worker: look after prepare dropped",
        JOBS,
        "bool found = pop(worker, job_out) || steal(worker, job_out);",
        "bool found = false;",
        SLEEP,
    ),
    Mutant(
        "worker: stop after prepare dropped",
        JOBS,
        "if (found || must_leave(worker)) {",
        "if (found) {",
        "stop",
    ),
    Mutant(
        "worker: chain wake dropped",
        JOBS,
        "&line->queue) > 0) lm_node_wake_worker(node);",
        "&line->queue) > 0) return;",
        SLEEP,
    ),
    Mutant(
        "line: left without a last look",
        JOBS,
        "if (must_leave(worker)) return pop(worker, job_out);",
        "if (must_leave(worker)) return false;",
        "line",
    ),
    Mutant(
        "line: sealed and nobody woken",
        NODE,
        "    lm_waitset_wake_all(&node->waitset);\n",
        "",
        "line",
    ),
    Mutant(
        "line: a queue that blocks is not stopped",
        NODE,
        "    lm_queue_stop(&line->queue);\n",
        "",
        "line",
    ),
    Mutant(
        "line: sealed relaxed",
        NODE,
        "lm_store_release_u32(&line->sealed, 1);",
        "lm_store_relaxed_u32(&line->sealed, 1);",
        "line",
    ),
    Mutant(
        "line: published relaxed",
        NODE,
        "lm_store_release_u64(&node->line, (uintptr_t)other_line(node));",
        "lm_store_relaxed_u64(&node->line, (uintptr_t)other_line(node));",
        "line",
    ),
    Mutant(
        "line: more workers than it has a use for",
        JOBS,
        "worker->index >= line->workers",
        "worker->index > line->workers",
        "line",
    ),
    Mutant(
        "steal: no look after the announcement",
        JOBS,
        "bool found = pop(worker, job_out) || steal(worker, job_out);",
        "bool found = pop(worker, job_out);",
        "steal",
    ),
    Mutant(
        "steal: nobody of another node is woken",
        NODE_H,
        "if (lm_waitset_wake_one(&node->waitset)) return;",
        "if (lm_waitset_wake_one(&node->waitset) || true) return;",
        "steal",
    ),
    Mutant(
        "sequences: nobody looks for a twin",
        SEQUENCES,
        "        if (found == key) return LM_SEQUENCE_BUSY;\n",
        "",
        "sequence",
    ),
    Mutant(
        "sequences: the key is shown late",
        SEQUENCES,
        "lm_store_seq_cst_u64(&sequences->keys[own], key);",
        "lm_store_release_u64(&sequences->keys[own], key);",
        "sequence",
    ),
    Mutant(
        "sequences: claimed without another look",
        SEQUENCES,
        "bool is_it = lm_load_relaxed_u64(&sequences->keys[at]) == key;",
        "bool is_it = true;",
        "sequence",
    ),
    Mutant(
        "sequences: left relaxed",
        SEQUENCES,
        "lm_store_release_u64(&one->state, state);",
        "lm_store_relaxed_u64(&one->state, state);",
        "sequence",
    ),
    Mutant(
        "sequences: ended relaxed",
        SEQUENCES,
        "lm_store_release_u64(&sequences->keys[at], 0);",
        "lm_store_relaxed_u64(&sequences->keys[at], 0);",
        "sequence",
    ),
    Mutant(
        "sequences: an idle one that is no longer",
        SEQUENCES,
        "        if (is_idle(sequences, one, now_ns)) return true;\n",
        "        return true;\n",
        "sequence",
    ),
    Mutant(
        "sequences: one that was just left is unknown",
        SEQUENCES,
        "if (lm_load_relaxed_u64(&sequences->keys[at]) == key) return LM_SEQUENCE_BUSY;",
        "if (lm_load_relaxed_u64(&one->state) == LM_SEQUENCE_IS_BUSY) return LM_SEQUENCE_BUSY;",
        "sequence",
    ),
    Mutant(
        "rest: no second look",
        REST,
        "    if (is_enough(line, 0)) {\n",
        "    if (line->workers_sleep) {\n",
        "rest",
    ),
    Mutant(
        "rest: nobody is woken",
        REST,
        "lm_waitset_wake_all(&node->resting);",
        "return;",
        "rest",
    ),
    Mutant(
        "rest: woken at one depth alone",
        REST,
        "line->workers_sleep && !is_enough(line, 0)",
        "lm_queue_depth(&line->queue) == line->workers",
        "rest",
    ),
    Mutant(
        "waitset W1 relaxed, as rests see it",
        WAITSET,
        OR_W1,
        f"(void){relaxed('fetch_or', 'set->sleepers', '1ull << index')};",
        "rest",
    ),
    Mutant(
        "waitset: wake all relaxed, as rests see it",
        WAITSET,
        "    uint64_t sleepers = lm_and_acq_rel_u64(&set->sleepers, 0);\n    for",
        f"    uint64_t sleepers = {relaxed('fetch_and', 'set->sleepers', '0')};\n    for",
        "rest",
    ),
    Mutant(
        "worker: chain wake with one producer not",
        JOBS,
        "if (line->workers_sleep && lm_queue",
        "if (node->io_count > 1 && lm_queue",
        SLEEP,
    ),
    Mutant(
        "hand-over: wake dropped",
        SUBMIT,
        "        if (io->line->workers_sleep) lm_node_wake_worker(io->node);\n",
        "",
        "hand-over",
    ),
    Mutant(
        "hand-over: refused push forgotten",
        SUBMIT,
        "while (lm_spsc_peek(&io->ready, &job) && lm_queue_push(&io->line->queue, job)) {\n        (void)lm_spsc_pop(&io->ready, &job);",
        "while (lm_spsc_pop(&io->ready, &job) && lm_queue_push(&io->line->queue, job)) {",
        "hand-over",
    ),
    Mutant(
        "stop: set after the wake",
        THREADS,
        "    lm_store_release_u32(&shared->workers_stop, 1);\n"
        "    for (uint32_t n = 0; n < shared->node_count; n++) {\n",
        "    for (uint32_t n = 0; n <= shared->node_count; n++) {\n"
        "        if (n == shared->node_count) lm_store_release_u32(&shared->workers_stop, 1);\n"
        "        if (n == shared->node_count) break;\n",
        "stop",
    ),
    # the way back
    Mutant("returns I1 missing", IO, I1, "", "wants"),
    Mutant(
        "returns I1 relaxed",
        IO,
        I1,
        f"(void){relaxed('exchange', 'io->wants_returns', '1')};",
        "wants",
    ),
    Mutant(
        "returns I1 plain store", IO, I1, "lm_store_release_u32(&io->wants_returns, 1);", "wants"
    ),
    Mutant(
        "returns W2 relaxed",
        WORKER,
        W2,
        f"{relaxed('exchange', 'io->wants_returns', '0')} == 1",
        "wants",
    ),
    Mutant(
        "returns W2 load, then store",
        WORKER,
        f"bool wanted = {W2};",
        "bool wanted = lm_load_acquire_u32(&io->wants_returns) == 1;\n    lm_store_release_u32(&io->wants_returns, 0);",
        "wants",
    ),
    Mutant(
        "returns W2 plain load", WORKER, W2, "lm_load_acquire_u32(&io->wants_returns) == 1", "wants"
    ),
    Mutant(
        "returns: depth after the flag dropped",
        DUE,
        "    if (lm_mpmc_depth(&io->returns) == 0) return NEVER;\n",
        "    if (io) return NEVER;\n",
        "wants",
    ),
    Mutant("returns: ring wake dropped", WORKER, "if (wanted || (outcome", "if ((outcome", "wants"),
    Mutant(
        "token S1 relaxed",
        REPLY,
        S1,
        f"{relaxed('exchange', 'connection->sender', '1')} == 0",
        "send-token",
    ),
    Mutant(
        "token S1 load, then store",
        REPLY,
        f"return {S1};",
        "if (lm_load_acquire_u32(&connection->sender)) return false;\n    lm_store_relaxed_u32(&connection->sender, 1);\n    return true;",
        "send-token",
    ),
    Mutant(
        "token S2 relaxed",
        REPLY,
        "lm_store_release_u32(&connection->sender, 0)",
        "lm_store_relaxed_u32(&connection->sender, 0)",
        "send-token",
    ),
    Mutant(
        "token: flush after a return dropped",
        ADVANCE,
        "        lm_reply_flush(io, connection);\n",
        "",
        "send-token",
    ),
    Mutant(
        "token: unsent reply rings nobody",
        WORKER,
        "(wanted || (outcome != LM_OUTCOME_SENT && outcome != LM_OUTCOME_DROPPED &&\n                   outcome != LM_OUTCOME_OVERDUE))",
        "(wanted)",
        "send-token",
    ),
    # greeted connections
    Mutant("greeted: nobody rings", TLS, "        lm_ring_wake(to->ring);\n", "", "greeted"),
    Mutant(
        "greeted: rings before it pushes",
        TLS,
        "        if (!lm_spsc_push(&to->tls->greeted, fd)) continue;\n        lm_ring_wake(to->ring);\n",
        "        lm_ring_wake(to->ring);\n        if (!lm_spsc_push(&to->tls->greeted, fd)) continue;\n",
        "greeted",
    ),
    Mutant(
        "greeted: a full ring counts as given",
        TLS,
        "if (!lm_spsc_push(&to->tls->greeted, fd)) continue;",
        "(void)lm_spsc_push(&to->tls->greeted, fd);",
        "greeted-tight",
    ),
    Mutant(
        "greeted: one a turn",
        TLS_TURN,
        "while (io->tls && lm_spsc_pop(&io->tls->greeted, &fd))",
        "if (io->tls && lm_spsc_pop(&io->tls->greeted, &fd))",
        "greeted",
    ),
    # naive
    Mutant(
        "naive: signal dropped",
        NAIVE,
        "        queue->tail++;\n        pthread_cond_signal(&queue->not_empty);",
        "        queue->tail++;",
        "wait stop-naive",
    ),
    Mutant(
        "naive: hand-on signal dropped",
        NAIVE,
        "if (queue->head != queue->tail) pthread_cond_signal(&queue->not_empty);",
        "",
        "wait",
    ),
    Mutant(
        "naive: broadcast at stop dropped",
        NAIVE,
        "    pthread_cond_broadcast(&queue->not_empty);\n",
        "",
        "stop-naive",
    ),
    Mutant(
        "naive: push without lock",
        NAIVE,
        "    pthread_mutex_lock(&queue->lock);\n    bool room",
        "    bool room",
        "naive wait",
    ),
    Mutant(
        "naive: if for while",
        NAIVE,
        "while (!batch_ready(queue, &until)) {",
        "if (!batch_ready(queue, &until)) {",
        "wait stop-naive",
    ),
)


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def build(workplace: Path) -> str:
    made = run(
        [
            "make",
            "-s",
            "-C",
            str(HERE),
            f"{workplace}/build/explore",
            f"SOURCE={workplace}/src",
            f"BUILD={workplace}/build",
            f"INCLUDE={INCLUDE}",
        ]
    )
    return "" if made.returncode == 0 else made.stdout + made.stderr


def explore(workplace: Path, mutant: Mutant, thorough: bool) -> list[str]:
    """The evidence against it: in which modes a schedule failed; without `thorough` the first."""
    found: list[str] = []
    command = [f"{workplace}/build/explore", "short", *mutant.scenarios.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            words = line.split()
            if words[:1] == ["FAILED"] and "schedules," in words and words[2] not in found:
                found.append(words[2])
                if not thorough:
                    process.kill()
                    return found
    if process.returncode not in (0, 1):
        found.append("crash")
    return found


def stress(workplace: Path, mutant: Mutant) -> bool:
    sources = [str(p) for p in sorted((workplace / "src/parts").glob("queue*.c"))]
    program = str(workplace / "stress")
    made = run(
        [
            "gcc",
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O1",
            "-g",
            "-w",
            "-fsanitize=thread",
            "-pthread",
            f"-I{HERE}",
            f"-I{workplace}/src",
            f"-I{INCLUDE}",
            f"{HERE}/linearizability.c",
            f"{HERE}/history.c",
            *sources,
            f"{workplace}/src/base/error.c",
            "-o",
            program,
        ]
    )
    if made.returncode != 0:
        raise SystemExit(made.stderr)
    try:
        return run([program, "--stress", "2000", mutant.stress], timeout=60).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def judge(workplace: Path, mutant: Mutant, full: bool) -> tuple[str, bool]:
    """What is said of it, and whether it is as it should be."""
    file = workplace / "src" / mutant.file
    before = file.read_text()
    if before.count(mutant.old) != 1:
        return f"STALE: its text occurs {before.count(mutant.old)} times in {mutant.file}", False
    file.write_text(before.replace(mutant.old, mutant.new))
    try:
        failed = build(workplace)
        if failed:
            return f"DOES NOT BUILD\n{failed}", False
        killers = explore(workplace, mutant, full)
        if full and mutant.stress and stress(workplace, mutant):
            killers.append("TSan stress")
    finally:
        file.write_text(before)
    if mutant.equivalent:
        text = f"NOT EQUIVALENT: {killers}" if killers else f"equivalent: {mutant.equivalent}"
        return text, not killers
    return ", ".join(killers) or "SURVIVES", bool(killers)


def main() -> int:
    full, names = sys.argv[1:2] == ["full"], sys.argv[2:]
    began = time.monotonic()
    wanted = [m for m in MUTANTS if not names or any(name in m.name for name in names)]
    wanted = [m for m in wanted if full or not m.equivalent]
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def judge_somewhere(mutant: Mutant) -> tuple[str, bool]:
        workplace = free.get()
        try:
            return judge(workplace, mutant, full)
        finally:
            free.put(workplace)

    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(WORKPLACES) as pool:
        for number in range(WORKPLACES):
            workplace = Path(temporary) / str(number)
            shutil.copytree(SOURCE, workplace / "src")
            failed = build(workplace)
            if failed:
                print(failed)
                return 2
            free.put(workplace)
        print(f"{'mutant':40} killed by")
        bad = 0
        for mutant, (text, good) in zip(wanted, pool.map(judge_somewhere, wanted), strict=True):
            print(f"{mutant.name:40} {text}", flush=True)
            bad += not good
    print(f"{len(wanted)} mutants, {bad} not as they should be, {time.monotonic() - began:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
