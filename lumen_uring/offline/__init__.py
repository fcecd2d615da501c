"""Work on models without a server: `lumen quantize` and `lumen fit-router`.

Nothing in serving/ imports it.
"""
