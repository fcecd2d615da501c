"""The Python clients of the native protocol: one that waits and one for asyncio.

`from lumen_uring import Client, AsyncClient` is the way in. Nothing here knows the server's code.
"""
