"""Throughput and latency of Lumen by mode, backend, protocol and load."""
