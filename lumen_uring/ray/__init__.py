"""Lumen on a Ray cluster: one server on each node, placed, watched and ended by Ray Serve.

Called by a user's driver. A replica of the deployment starts a server as its child, and looks
after it; requests go to the server's own port and never through Python.

    from ray import serve
    from lumen_uring.ray import deployment, servers

    serve.run(deployment("config.yaml"))
    print([server.url for server in servers()])

Each node needs Lumen installed. Importing this package needs no Ray, calling it does.
"""

from __future__ import annotations

from lumen_uring.ray.deploy import application, deployment, servers
from lumen_uring.ray.directory import Server

__all__ = ["Server", "application", "deployment", "servers"]
