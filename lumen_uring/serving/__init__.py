"""One server's process: start, main loop, log, banner, signals and service manager.

Called by `lumen serve`, on the main thread.
"""
