"""What a running server says of itself: the metrics page, statistics in words, profiles.

Reads the lock-free counters of the statistics file; no request waits for it.
"""
