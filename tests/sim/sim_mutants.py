# ruff: noqa: E501 (a table of source text)
"""Breaks the sources in one place at a time: the simulation must notice each.

    sim_mutants.py [name...]

Each mutant is one replaced piece of text in a copy of c/src. It is built beside the objects of
`make build`, given the rules, then some thousand seeds; the first failure is named.
Exit status 1: a mutant survives.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "c" / "src"
SEEDS = 10000


@dataclass(frozen=True)
class Mutant:
    """One replaced text."""

    name: str
    file: str
    old: str
    new: str


ACCEPT, ADVANCE, CONNECTION = "flow/accept.c", "flow/advance.c", "flow/connection.c"
SLOTS, SLOT_WAIT, EVICTION = "flow/slots.c", "flow/slot_wait.c", "flow/eviction.c"
ESTIMATE, PARKING, RECEIVE, REPLY = (
    "flow/estimate.c",
    "flow/parking.c",
    "flow/receive.c",
    "flow/reply.c",
)
SHADOW = "flow/shadow.c"
IO, DUE, THREADS, TIMERS = "io.c", "io_due.c", "flow/threads.c", "flow/timers.c"
HTTP_ADMIT, HTTP_BLOCK, HTTP_HEAD, HTTP_REPLY, HTTP_STATS = (
    "dialects/http_admit.c",
    "dialects/http_block.c",
    "dialects/http_head.c",
    "dialects/http_reply.c",
    "dialects/http_stats.c",
)
HTTP2_PLACE, HTTP2_RECEIVE, HTTP2_SHELF, HTTP2_STREAMS = (
    "dialects/http2_place.c",
    "dialects/http2_receive.c",
    "dialects/http2_shelf.c",
    "dialects/http2_streams.c",
)
WORKER, BATCH, WIDTH, OWN = "work/worker.c", "work/batch.c", "work/width.c", "work/own.c"

MUTANTS = (
    # What the simulation found, as it was.
    Mutant("drained while it accepts", IO, " &&\n           !io->accepts_armed;", ";"),
    Mutant(
        "inline sleeps over work",
        DUE,
        "lm_spsc_depth(&io->own) > 0 || lm_answers_wait(io) ? 0 : NEVER;",
        "lm_answers_wait(io) ? 0 : NEVER;",
    ),
    Mutant(
        "starved while lingering",
        RECEIVE,
        "completion->result == -ENOBUFS && !lingers",
        "completion->result == -ENOBUFS",
    ),
    Mutant(
        "statistics in scrap",
        HTTP_STATS,
        "    struct lm_http_answer answer = {.code = 200, .body = io->http->draft};\n",
        "    io->http->draft = (char *)io->scrap;\n    struct lm_http_answer answer = {.code = 200, .body = io->http->draft};\n",
    ),
    Mutant(
        "linger ends before the reply",
        CONNECTION,
        "LM_LINGER_BYTES_MAX;\n    lm_connection_move(io, connection, LM_LIST_NONE);\n",
        "LM_LINGER_BYTES_MAX;\n    lm_connection_move(io, connection, LM_LIST_LINGERING);\n",
    ),
    Mutant(
        "linger counts before the reply",
        RECEIVE,
        "LM_READ_LINGER && connection->write_shut",
        "LM_READ_LINGER",
    ),
    Mutant(
        "starved has a deadline",
        TIMERS,
        "if (connection->list == LM_LIST_STARVED && connection->in.header_used == 0) return 0;",
        "",
    ),
    Mutant(
        "all that are due end at one go",
        TIMERS,
        "i < io->connections_used && expired < LM_EXPIRIES_PER_TURN; i++",
        "i < io->connections_used; i++",
    ),
    Mutant("sleeps in the middle of a sweep", DUE, "    if (io->sweep_at) return 0;\n", ""),
    # Accepting.
    Mutant(
        "accept is not armed again",
        ACCEPT,
        "if (!completion->more) io->accepts_armed &= ~(1u << completion->index);",
        "",
    ),
    Mutant(
        "accept is armed at each",
        ACCEPT,
        "if (!completion->more) io->accepts_armed &= ~(1u << completion->index);",
        "io->accepts_armed &= ~(1u << completion->index);",
    ),
    Mutant(
        "accept does not pause",
        ACCEPT,
        "io->accept_retry_ns = io->now_ns + LM_ACCEPT_PAUSE_MS * 1000000ull;",
        "",
    ),
    Mutant(
        "accept pauses for ever",
        ACCEPT,
        "io->now_ns + LM_ACCEPT_PAUSE_MS * 1000000ull",
        "UINT64_MAX",
    ),
    Mutant(
        "refused stays open",
        ACCEPT,
        "    close(fd);\n    return NULL;\n",
        "    return NULL;\n",
    ),
    # Receiving.
    Mutant(
        "buffer is not given back",
        RECEIVE,
        "    lm_io_buffer_return(io, connection->buffer);\n    connection->buffer = LM_NO_BUFFER;\n}\n\n/* One that waits",
        "    connection->buffer = LM_NO_BUFFER;\n}\n\n/* One that waits",
    ),
    Mutant(
        "buffer of an end is kept",
        RECEIVE,
        "if (completion->buffer != LM_NO_BUFFER) lm_io_buffer_return(io, completion->buffer);",
        "",
    ),
    Mutant(
        "ENOBUFS ends the connection",
        RECEIVE,
        "completion->result == -ENOBUFS && !lingers) {",
        "completion->result == -ENOBUFS && !lingers) {\n        lm_connection_abort(io, connection);\n    } else if (false) {",
    ),
    Mutant(
        "starved is retried at once",
        RECEIVE,
        "completion->result == -ENOBUFS && !lingers",
        "false",
    ),
    Mutant(
        "all starved are retried for each buffer",
        RECEIVE,
        "        left = io->buffers_returned;\n",
        "        left = starved->count;\n",
    ),
    Mutant(
        "starved is not retried",
        RECEIVE,
        "lm_connection_move(io, connection, LM_LIST_NONE);\n        lm_connection_mark(io, connection); /*",
        "(void)connection; /*",
    ),
    Mutant(
        "EINTR ends the connection",
        RECEIVE,
        "completion->result != -EINTR && completion->result != -EAGAIN &&",
        "",
    ),
    Mutant(
        "a short body counts as whole",
        RECEIVE,
        "    part_advance(request, bytes);\n",
        "    part_advance(request, request->parts[request->part_at].iov_len);\n",
    ),
    Mutant(
        "one byte too many is dropped",
        RECEIVE,
        "connection->in.discard_bytes -= taken;",
        "connection->in.discard_bytes -= taken + (connection->in.discard_bytes > taken);",
    ),
    Mutant(
        "pipelining has no end",
        CONNECTION,
        "connection->in_flight < lm_io_in_flight_max(io, connection)",
        "true",
    ),
    # Ends.
    Mutant(
        "closed with a receive armed",
        ADVANCE,
        "connection->ended && !connection->recv_armed && !busy",
        "connection->ended && !busy",
    ),
    Mutant(
        "closed with requests out",
        ADVANCE,
        "connection->ended && !connection->recv_armed && !busy",
        "connection->ended && !connection->recv_armed && !lm_connection_is_sending(connection)",
    ),
    Mutant(
        "slot released under a receive",
        CONNECTION,
        "if (has_slot && !connection->recv_armed) {",
        "if (has_slot) {",
    ),
    Mutant(
        "an end drops the answers",
        CONNECTION,
        "shut(io, connection, SHUT_RD);",
        "shut(io, connection, SHUT_RDWR);",
    ),
    Mutant(
        "an end does not shut down",
        CONNECTION,
        "    if (connection->recv_armed && !again) stop_receiving(io, connection);\n",
        "    (void)again;\n",
    ),
    Mutant(
        "the last reply ends nothing",
        ADVANCE,
        "connection->close_after_reply && !is_busy(connection)",
        "false",
    ),
    Mutant(
        "gone is not counted",
        CONNECTION,
        "if (drop_request(io, connection) &&",
        "if (!drop_request(io, connection) &&",
    ),
    Mutant("waiting replies leak", ADVANCE, "        lm_reply_drop_waiting(io, connection);\n", ""),
    Mutant(
        "work for who has left",
        RECEIVE,
        "    if (lm_transport_unanswered(io, connection) > 0 && !connection->read_shut &&",
        "    if (false && !connection->read_shut &&",
    ),
    Mutant(
        "an end that is kept quiet",
        HTTP_HEAD,
        "return lm_shared_is_leaving(io->shared) ||",
        "return",
    ),
    Mutant(
        "an end that a worker keeps quiet",
        HTTP_REPLY,
        "    if (lm_shared_is_leaving(shared)) request->last = true;\n",
        "",
    ),
    Mutant(
        "a request that is here is dropped",
        CONNECTION,
        "    if (!connection->recv_armed) {\n        lm_connection_end(io, connection);\n",
        "    if (true) {\n        lm_connection_end(io, connection);\n",
    ),
    Mutant(
        "no half-close",
        ADVANCE,
        "lm_transport_of(io, connection)->shut(io, connection, SHUT_WR);",
        "",
    ),
    Mutant(
        "generation stays",
        CONNECTION,
        "(connection->generation + 1) & 0xffffff",
        "connection->generation",
    ),
    Mutant(
        "not advanced after what is due",
        IO,
        "        lm_tls_begin_turn(io); /* for those that had no turn before */\n        lm_advance_all(io);\n",
        "",
    ),
    Mutant(
        "due before what came is advanced",
        IO,
        "        lm_advance_all(io); /* first:",
        "        /* first:",
    ),
    Mutant("a mark is lost", CONNECTION, "    io->marked_tail = connection->index;\n", ""),
    Mutant(
        "the ended stay on their lists",
        CONNECTION,
        "    if (connection->list != LM_LIST_LINGERING) lm_connection_move(io, connection, LM_LIST_NONE);\n",
        "",
    ),
    Mutant(
        "ended before what changed is seen",
        ADVANCE,
        "    if (connection->marked) return; /* something changed: it is advanced again */\n",
        "",
    ),
    # Replies.
    Mutant(
        "token is not taken",
        REPLY,
        "return lm_exchange_acq_rel_u32(&connection->sender, 1) == 0;",
        "(void)lm_exchange_acq_rel_u32(&connection->sender, 1);\n    return true;",
    ),
    Mutant(
        "token is not given back",
        REPLY,
        "    give_token(connection);\n    end(io, request);",
        "    end(io, request);",
    ),
    Mutant(
        "a part counts as sent",
        REPLY,
        "if (!lm_reply_move(&request->message, *sent_bytes_out)) return LM_OUTCOME_PARTIAL;",
        "lm_reply_move(&request->message, *sent_bytes_out);",
    ),
    Mutant(
        "unsent is forgotten",
        REPLY,
        "            append_reply(io, connection, request);\n        }\n        break;",
        "            lm_slots_release(io, request);\n        }\n        break;",
    ),
    Mutant(
        "own reply overtakes",
        REPLY,
        "bool token = !lm_connection_is_sending(connection) && take_token(connection);",
        "bool token = true;",
    ),
    Mutant(
        "partial own reply starts anew",
        REPLY,
        "    lm_reply_move(&request->message, sent_bytes);\n    if (token)",
        "    if (token)",
    ),
    Mutant("returned is not flushed", ADVANCE, "        lm_reply_flush(io, connection);\n", ""),
    Mutant(
        "send error is retried",
        REPLY,
        "bool retry = completion->result == -EINTR || completion->result == -EAGAIN;",
        "bool retry = completion->result < 0;",
    ),
    # HTTP.
    Mutant(
        "two HTTP requests at a time",
        "dialects/http.c",
        ".one_at_a_time = true",
        ".one_at_a_time = false",
    ),
    Mutant(
        "block is kept",
        HTTP_BLOCK,
        "    io->http->free_block = connection->in.block;\n    connection->in.block = LM_NO_BLOCK;",
        "    connection->in.block = LM_NO_BLOCK;",
    ),
    Mutant(
        "eviction forgets to read on",
        CONNECTION,
        "LM_LINGER_BYTES_MAX;\n    lm_connection_move(io, connection, LM_LIST_NONE);\n    lm_connection_mark(io, connection);\n",
        "LM_LINGER_BYTES_MAX;\n    lm_connection_move(io, connection, LM_LIST_NONE);\n",
    ),
    Mutant(
        "nothing ends lingering",
        ADVANCE,
        "        lm_connection_move(io, connection, LM_LIST_LINGERING);\n",
        "",
    ),
    Mutant(
        "refused body is read as a request",
        "dialects/http_refuse.c",
        "connection->in.read_state = connection->in.discard_bytes ? LM_READ_DISCARD : LM_READ_HEADER;",
        "connection->in.read_state = LM_READ_HEADER;",
    ),
    Mutant(
        "100 comes twice", HTTP_ADMIT, "    connection->in.call.expects_continue = false;\n", ""
    ),
    # Gate, admission, loop.
    Mutant("in_flight is not returned", SLOTS, "        io->in_flight--;\n", ""),
    Mutant(
        "work is not returned",
        ESTIMATE,
        "    io->work_ns -= request->cost_ns;\n    learn_cost(",
        "    learn_cost(",
    ),
    Mutant(
        "newcomers overtake",
        SLOTS,
        "if (is_overtaking(io, is_here) || !take_place(io, is_here)) return NULL;",
        "if (!take_place(io, is_here)) return NULL;",
    ),
    Mutant(
        "a place is not given back",
        SLOTS,
        "        lm_slots_answered(request);\n        lm_estimate_discharge(",
        "        lm_estimate_discharge(",
    ),
    Mutant(
        "a place without a slot is kept",
        SLOTS,
        "    give_place(io);\n    return NULL;",
        "    return NULL;",
    ),
    Mutant(
        "connections are not counted down",
        CONNECTION,
        "    (void)lm_sub_relaxed_u64(&io->shared->connections_open, 1); /* relaxed: a count alone */\n"
        "    io->connections_open--;",
        "    io->connections_open--;",
    ),
    Mutant(
        "bytes wait in a header buffer",
        RECEIVE,
        "    keep_bytes(io, connection);\n    if (connection->in.read_state",
        "    if (connection->in.read_state",
    ),
    Mutant(
        "lingering connections are slept over",
        DUE,
        "    {.list = LM_LIST_LINGERING, .list_ns = TICK_NS},\n",
        "",
    ),
    Mutant(
        "refused pushes are slept over",
        DUE,
        "    {.sleep_ns = refused_ns},\n",
        "",
    ),
    Mutant(
        "a share of a turn has no end",
        DUE,
        "{.list = LM_LIST_RESUMING, .list_ns = 0,",
        "{.list = LM_LIST_RESUMING, .list_ns = NEVER,",
    ),
    Mutant(
        "a copy is not counted back",
        SHADOW,
        "        io->shadows_out--;\n",
        "",
    ),
    Mutant(
        "a copied slot is used meanwhile",
        REPLY,
        "    if (!lm_shadow_take(io, request)) lm_slots_free(io, request);",
        "    (void)lm_shadow_take(io, request);\n    lm_slots_free(io, request);",
    ),
    Mutant(
        "a slot's last copy goes on",
        "flow/admit.c",
        "    request->shadow = (struct lm_shadow_run){0};\n",
        "",
    ),
    Mutant(
        "nobody is told of a copy's end",
        "work/shadow.c",
        "        lm_ring_wake(io->ring);\n",
        "",
    ),
    Mutant(
        "a probe has no end",
        ESTIMATE,
        "if (request->probe) cost->probing = false;",
        "",
    ),
    # Few free slots.
    Mutant(
        "suspended work counts",
        ESTIMATE,
        "    io->suspended++;\n    io->work_ns -= request->cost_ns;\n",
        "    io->suspended++;\n",
    ),
    Mutant(
        "suspended for ever",
        ESTIMATE,
        "    io->suspended -= request->suspended;\n",
        "",
    ),
    Mutant(
        "waits for bytes, polls nothing",
        SLOT_WAIT,
        "    lm_ring_poll(io->ring, connection->fd, connection->index, connection->generation);\n",
        "",
    ),
    Mutant(
        "the low mark stays",
        SLOT_WAIT,
        "    if (!lm_connection_expects(connection)) return;\n"
        "    lm_transport_of(io, connection)->wake_at(io, connection, 1);\n",
        "    if (!lm_connection_expects(connection)) return;\n",
    ),
    Mutant(
        "whose bytes came gets no slot",
        SLOT_WAIT,
        "    wait_for_slot(io, connection, is_part ? LM_LIST_WAITING_PART : LM_LIST_WAITING);",
        "    (void)is_part;",
    ),
    Mutant("parts are not retried", SLOT_WAIT, "    retry_parts(io);\n", ""),
    Mutant(
        "on the wrong list while held",
        SLOT_WAIT,
        "holds ? LM_LIST_EXPECTING_HELD : LM_LIST_EXPECTING",
        "LM_LIST_EXPECTING",
    ),
    Mutant(
        "waiters do not time out",
        SLOT_WAIT,
        "        if (connection->timer_ns <= io->now_ns) {\n            lm_slot_wait_turn_away",
        "        if (false) {\n            lm_slot_wait_turn_away",
    ),
    Mutant(
        "waiters are not retried",
        DUE,
        ".run = lm_slot_wait_retry",
        ".run = NULL",
    ),
    Mutant(
        "stalled are not evicted",
        EVICTION,
        "        if (!is_slow(io, connection, request, sending)) continue;",
        "        continue;",
    ),
    # Workers.
    Mutant(
        "overdue is answered twice",
        WORKER,
        "if (request->outcome == LM_OUTCOME_OVERDUE) return;",
        "",
    ),
    Mutant(
        "overdue is given to its connection",
        REPLY,
        "if (request->outcome == LM_OUTCOME_OVERDUE) {",
        "if (false) {",
    ),
    Mutant("batch keeps the reply", BATCH, "        part->iov_base = room;\n", ""),
    Mutant(
        "batch rows are mixed up",
        BATCH,
        "data[o] = (const uint8_t *)batch->outputs[o] + row * each;",
        "data[o] = batch->outputs[o];",
    ),
    # Idle connections without a descriptor.
    Mutant(
        "parks before it is submitted",
        PARKING,
        "if (!lm_ring_is_submitted(io->ring)) return;",
        "",
    ),
    Mutant(
        "starved without a deadline",
        ADVANCE,
        "    lm_timer_update(io, connection);\n",
        "    if (connection->list != LM_LIST_STARVED) lm_timer_update(io, connection);\n",
    ),
    Mutant(
        "parked for ever",
        CONNECTION,
        "lm_ring_cancel_recv_header(io->ring, connection->index, connection->generation);",
        ";",
    ),
    Mutant(
        "no descriptor, no retry",
        RECEIVE,
        "lm_connection_move(io, connection, LM_LIST_UNPARKING);",
        "(void)connection;",
    ),
    Mutant("sleeps before it parks", DUE, "    {.sleep_ns = parking_ns},\n", ""),
    Mutant(
        "kept after its end",
        CONNECTION,
        "        lm_fd_store_drop(io->fd_store, connection->index);\n        io->connections_parked--;",
        "        io->connections_parked--;",
    ),
    Mutant(
        "kept beside its descriptor",
        PARKING,
        "    lm_fd_store_drop(io->fd_store, connection->index);\n    connection->fd = fd;",
        "    connection->fd = fd;",
    ),
    # The end of the threads.
    Mutant(
        "the last I/O thread leaves the workers asleep",
        THREADS,
        "        lm_waitset_wake_all(&node->waitset);\n",
        "",
    ),
    Mutant(
        "the last I/O thread leaves a blocking queue open",
        THREADS,
        "        lm_queue_stop(&lm_node_line(node)->queue);\n",
        "",
    ),
    Mutant(
        "the first I/O thread that ends stops the workers",
        THREADS,
        "if (lm_sub_acq_rel_u64(running, 1) != 1 || role != LUMEN_ROLE_IO) return;",
        "(void)lm_sub_acq_rel_u64(running, 1);\n    if (role != LUMEN_ROLE_IO) return;",
    ),
    # What I/O threads run themselves.
    Mutant(
        "own: what takes long too",
        "flow/estimate.c",
        "return run_ns > 0 && run_ns <= LM_SHORT_RUN_NS;",
        "return run_ns > 0;",
    ),
    Mutant(
        "own: what is the workers' too",
        "flow/submit.c",
        "    case LUMEN_RUN_WORKER: return false;\n",
        "    case LUMEN_RUN_WORKER: return true;\n",
    ),
    Mutant(
        "own: all of it in one turn",
        OWN,
        "while (io->now_ns < until_ns && (count = take(io, jobs)) > 0) {",
        "while ((void)until_ns, (count = take(io, jobs)) > 0) {",
    ),
    Mutant(
        "own: a long Run ends nothing", OWN, "    lm_model_end_own_runs(model, computed_ns);\n", ""
    ),
    Mutant(
        "own: a core that is taken counts",
        OWN,
        "return computed_ns > before_ns ? computed_ns - before_ns : 0;",
        "return io->now_ns - began_ns + 0 * (computed_ns + before_ns);",
    ),
    Mutant(
        "own: what was computed before counts",
        OWN,
        "return computed_ns > before_ns ? computed_ns - before_ns : 0;",
        "return computed_ns + 0 * before_ns;",
    ),
    Mutant(
        "own: what is set counts",
        OWN,
        "return model->run == LUMEN_RUN_AUTO && io->node->thread_count > 0;",
        "return model && io->node->thread_count > 0;",
    ),
    Mutant(
        "own: what is here already stays",
        OWN,
        "    } while (!keeps(io, jobs[0]));",
        "    } while (false && !keeps(io, jobs[0]));",
    ),
    Mutant(
        "own: another model's Run is the first one's",
        OWN,
        " &&\n           model_of(io, next) == model)",
        ")",
    ),
    # Between two slices of a picture.
    Mutant(
        "between: the slot is not given back",
        WORKER,
        "        if (job != LM_NO_JOB) give_back(request->io, slot);\n        now_ns = lm_now_ns();\n",
        "        now_ns = lm_now_ns();\n",
    ),
    Mutant(
        "between: what is put back is lost",
        WORKER,
        "waits && lm_queue_push(queue, job)",
        "waits",
    ),
    Mutant(
        "between: pictures within pictures",
        "work/image_body.c",
        "worker->between(worker, request->pixels / SMALLER);",
        "worker->between(worker, UINT64_MAX);",
    ),
    Mutant(
        "between: more pictures than lanes",
        "work/image_body.c",
        "if (worker->between && desk_of(worker, request)->used < LANES)",
        "if (worker->between)",
    ),
    Mutant(
        "between: between_ns counts as the picture's",
        WORKER,
        "lm_now_ns() - request->popped_ns - worker->between_ns;",
        "lm_now_ns() - request->popped_ns;",
    ),
    Mutant(
        "between: one inside forgets what was before",
        WORKER,
        "worker->between_ns = before_ns + now_ns - began_ns;",
        "worker->between_ns += now_ns - began_ns;",
    ),
    Mutant(
        "pictures: charged by their bytes",
        "flow/submit.c",
        "        lm_estimate_suspend(io, request); /* it was charged by its bytes */\n",
        "",
    ),
    Mutant(
        "cache: a reply's rest over the kept outputs",
        "work/batch.c",
        "outputs[output] + (bytes - part->iov_len)",
        "outputs[output]",
    ),
    Mutant(
        "pictures: not measured",
        "flow/submit.c",
        "        lm_pictures_measure(request);\n",
        "",
    ),
    Mutant(
        "pictures: a form's end is the file's",
        "work/carrier.c",
        "[LM_CARRIER_FORM] = {.read = read_form}",
        "[LM_CARRIER_FORM] = {.read = lm_image_file_read}",
    ),
    Mutant(
        "pictures: a file is read as JSON",
        "work/carrier.c",
        "    request->carrier = is_form ? LM_CARRIER_FORM : LM_CARRIER_FILE;\n",
        "",
    ),
    # Streams of HTTP/2.
    Mutant(
        "http2: its carrier is ended over and over",
        HTTP2_STREAMS,
        " &&\n               !lm_load_relaxed_u32(&carrier->gone)) {",
        ") {",
    ),
    Mutant(
        "http2: whoever was slow loses answers",
        "dialects/http2.c",
        "lm_http2_streams_drop(io, carrier, http2->is_cut && !http2->has_failed);",
        "lm_http2_streams_drop(io, carrier, false);",
    ),
    Mutant(
        "http2: a skipped head's stream is not open",
        HTTP2_RECEIVE,
        "    if (http2->reader.block_of > http2->last_stream) "
        "http2->last_stream = http2->reader.block_of;\n",
        "",
    ),
    Mutant(
        "http2: shelves are counted too full",
        HTTP2_SHELF,
        "    http2->shelved -= (uint32_t)count;\n",
        "",
    ),
    Mutant(
        "http2: an end before what waits",
        HTTP2_STREAMS,
        "!stream->end_given && !stream->shelf)",
        "!stream->end_given)",
    ),
    Mutant(
        "http2: padding is no credit",
        HTTP2_RECEIVE,
        "        stream->recv_window -= (int64_t)(piece.before + http2->reader.pad);\n",
        "        stream->recv_window += (int64_t)http2->reader.pad;\n",
    ),
    Mutant(
        "http2: placed beyond the frame",
        HTTP2_PLACE,
        "    size_t most = http2->reader.left;\n",
        "    size_t most = SIZE_MAX;\n",
    ),
    Mutant(
        "http2: a slot that is written to is free",
        HTTP2_PLACE,
        "    connection->recv_armed = true;\n",
        "",
    ),
    Mutant(
        "http2: a reply's batch begins anew",
        "dialects/http2_send.c",
        "size_t all = message_bytes(message), used = before;",
        "size_t all = message_bytes(message), used = 0;",
    ),
    Mutant(
        "http2: a step whose frames have no room",
        HTTP2_STREAMS,
        "    if (has_room(io, carrier)) settle(io, carrier, stream);\n",
        "    settle(io, carrier, stream);\n",
    ),
    Mutant(
        "what fits no slot waits on: HTTP",
        "dialects/http_admit.c",
        "lm_slot_wait_outgrown(io, connection, bytes);",
        "(void)bytes;",
    ),
    Mutant(
        "what fits no slot waits on: native",
        "dialects/native.c",
        "        lm_slot_wait_outgrown(io, connection, bytes);\n",
        "",
    ),
    # The cores of sleeping workers.
    Mutant(
        "width no second look at the sleepers",
        WIDTH,
        "if (chosen && (asleep & chosen) == chosen && lm_queue_depth(&worker->line->queue) == 0)\n        return true;",
        "(void)asleep;\n    if (chosen && lm_queue_depth(&worker->line->queue) == 0) return true;",
    ),
    Mutant(
        "width no second look at the queue",
        WIDTH,
        "if (chosen && (asleep & chosen) == chosen && lm_queue_depth(&worker->line->queue) == 0)\n        return true;",
        "if (chosen && (asleep & chosen) == chosen) return true;",
    ),
    Mutant(
        "width not exclusive",
        WIDTH,
        "if (lm_exchange_acq_rel_u32(&width->taken, 1) != 0) return false;",
        "",
    ),
    Mutant(
        "width not given back",
        WIDTH,
        "lm_store_relaxed_u32(&width->owner, 0);\n    lm_store_release_u32(&width->taken, 0); /* as X2 */",
        "",
    ),
    Mutant("width helpers are not sent away", WORKER, "    lm_width_reclaim(worker);\n", ""),
    Mutant(
        "width helpers are not placed",
        WIDTH,
        "(void)lm_thread_pin_other(tid, shared->workers[seats[h]].cpu);",
        "",
    ),
)


def build(mutant: Mutant, place: Path) -> str:
    """Returns what the compiler says, or nothing."""
    source, objects = place / "src", place / "build"
    shutil.copytree(SOURCE, source)
    shutil.copytree(HERE / "build", objects)
    target = source / mutant.file
    text = target.read_text()
    if text.count(mutant.old) != 1:
        return f"the text is there {text.count(mutant.old)} times"
    target.write_text(text.replace(mutant.old, mutant.new))
    os.utime(target)
    made = subprocess.run(
        ["make", "-s", "build", f"SOURCE={source}", f"BUILD={objects}"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return made.stderr if made.returncode else ""


def first_failure(place: Path) -> str:
    """The words of the first failing rule, or else of the first failing seed; or nothing."""
    for what in (["--rules"], ["--seeds", "1", str(SEEDS)]):
        ran = subprocess.run(
            [str(place / "build" / "sim"), *what],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if ran.returncode:
            break
    else:
        return ""
    seed = re.search(r"^FAILED +(seed \d+|.*)", ran.stderr, re.MULTILINE)
    said = re.search(
        r"^(?:sim: .*|.*assertion failed.*|.*ERROR: AddressSanitizer.*)$", ran.stderr, re.MULTILINE
    )
    return f"{seed[1] if seed else '?'}: {said[0][:150] if said else ran.stderr[-200:]}"


def main(names: list[str]) -> int:
    """Returns the exit status."""
    subprocess.run(["make", "-s", "build"], cwd=HERE, check=True)
    survivors = 0
    for mutant in MUTANTS:
        if names and not any(name in mutant.name for name in names):
            continue
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            refused = build(mutant, place)
            noticed = "" if refused else first_failure(place)
        survivors += not noticed
        word = "killed" if noticed else "BROKEN" if refused else "SURVIVES"
        print(f"{word:9} {mutant.name:36} {noticed or refused[:200]}", flush=True)
    print(f"mutants: {survivors} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
