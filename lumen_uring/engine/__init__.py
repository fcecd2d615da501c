"""The native engine's side in Python: which graphs it can run, and the file that C reads.

Called when a model is loaded, in the process that tries it.
"""
