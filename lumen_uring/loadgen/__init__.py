"""The parts of `lumen bench`: requests, sizes, figures and the folder that it writes.

The load itself is C's (lumen_uring/ring/load.py).
"""
