"""Lumen serves ONNX models with the lowest latency a machine can give.

This file is what `import lumen_uring` runs, on the importing thread. It gives the version and the
two clients, which load on first use: importing the package must stay free of work, of numpy and
of the C library, so that `lumen --help` answers at once on any machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lumen_uring.client.async_client import AsyncClient
    from lumen_uring.client.client import Client

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> Any:
    """Imports a client the first time it is asked for (PEP 562)."""
    if name == "Client":
        from lumen_uring.client.client import Client

        return Client
    if name == "AsyncClient":
        from lumen_uring.client.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module 'lumen_uring' has no attribute {name!r}")
