"""Models that come and go while a server serves: calls that load and unload, folders that change.

Runs on the server's thread of control; no request waits for it.
"""
