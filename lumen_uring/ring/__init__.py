"""The only door from Python to C: the engine's library, its statistics file, liburing, the runtime.

Imported by server.py and by the commands, on the main thread. ctypes appears nowhere else in the
package. Nothing here loads a library at import: that happens on first use.
"""
