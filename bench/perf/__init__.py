"""The cost of the server: CPU time, memory, perf's counters (for tools/perfstat.py)."""
