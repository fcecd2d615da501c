"""What the server costs: CPU time, memory, perf's counters (for tools/perfstat.py)."""
