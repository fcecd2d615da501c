"""One model on its way into an engine: its file, its cache entry, a try in another process.

Called at start, by `lumen inspect`, and where models come and go.
"""
