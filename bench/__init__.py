"""Benchmarks, by theme. `make help` lists them; each target has the name of its program.

    common/  what all share: a server of its own, a load on it, cores, the small model
    report/  tables, pictures and pages, as functions from figures to text
    load/    throughput and latency: modes, backends, HTTP, overload
    peers/   beside other servers, and under other people's clients
    crowd/   many connections, and slow ones
    perf/    what the server costs: CPU time, memory, perf's counters
    micro/   one part at a time

A program is run from the checkout's folder: `python -m bench.THEME.NAME`. Themes import common and
report; common imports no other folder of bench. `make -C c bench` builds the C programs.
"""
