"""A replica of Ray Serve that looks after a server on its node.

Made and called by Ray Serve, on the event loop of user code. What would hold that loop up runs on
other threads. No request for a model passes here, but for clients that ask Ray Serve's proxy: they
are sent on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lumen_uring.ray import directory, scaling
from lumen_uring.ray.child import ChildError
from lumen_uring.ray.directory import Server
from lumen_uring.ray.plan import Plan
from lumen_uring.ray.start import Running, place, start

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_REPORT_S: Final = 5.0
_log = logging.getLogger("ray.serve")  # where Ray shows what replicas say


class Lumen:
    """One server, from its start to its drain.

    Args:
        plan: its settings.
    """

    def __init__(self, plan: Plan) -> None:
        import ray
        from ray import serve

        context, here = serve.get_replica_context(), ray.get_runtime_context()
        has_folder = (here.runtime_env or {}).get("working_dir")
        base = place(plan, os.getcwd() if has_folder else None)
        self._running: Running = start(plan, ray.util.get_node_ip_address(), base, os.environ)
        self._id, self._node = context.replica_id.unique_id, here.get_node_id()
        self._directory = directory.name_of(context.app_name, context.deployment)
        self._actor: Any = None
        self._running.child.watch(self._end)
        _log.info("Lumen serves at %s", self._running.url)
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        if niceness > 0:
            _log.warning(
                "Lumen has niceness %d, which Ray gives its workers: other programs of this node "
                "go first. RAY_worker_niceness=0 where `ray start` runs changes that.",
                niceness,
            )

    async def check_health(self) -> None:
        """Ray replaces a replica whose server has ended or does not answer.

        Raises:
            ChildError: that is so.
        """
        if not await asyncio.to_thread(self._running.is_live):
            raise ChildError(f"the server at {self._running.url} does not answer")
        await self._report()

    def address(self) -> str:
        """The server's address, for other deployments."""
        return self._running.url

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What scaling.py goes by."""
        return {scaling.METRIC: await asyncio.to_thread(self._running.utilization)}

    async def __call__(self, request: Request) -> Response:
        """Answers Ray Serve's proxy: with a list of the servers at the application's own path, and
        otherwise with this server's address for the same path."""
        from starlette.responses import JSONResponse, RedirectResponse

        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        if path in ("", "/") and request.method == "GET":
            found = await asyncio.to_thread(directory.look_up, self._directory)
            return JSONResponse({"servers": [dataclasses.asdict(one) for one in found]})
        query = f"?{request.url.query}" if request.url.query else ""
        there = f"{self._running.url}{quote(path)}{query}"
        return RedirectResponse(there, HTTPStatus.TEMPORARY_REDIRECT)

    def __del__(self) -> None:
        """Ends the server: called by Ray as it takes the replica away, before the process ends."""
        running = getattr(self, "_running", None)
        if running is None:
            return  # it never started
        self._leave()
        if not running.stop():
            _log.warning("Lumen at %s did not end in time, and was killed", running.url)

    def _end(self) -> None:
        """Ends this process, which Ray notices at once. It would wait for three failed checks."""
        try:
            self._running.child.check()
        except ChildError as error:
            _log.error("Lumen at %s: %s", self._running.url, error)
        logging.shutdown()
        os._exit(1)

    async def _report(self) -> None:
        """Never fails: a server that cannot report serves on."""
        try:
            server = self._described(await asyncio.to_thread(self._running.is_ready))
            if self._actor is None:
                self._actor = await asyncio.to_thread(directory.of, self._directory)
            await asyncio.wait_for(self._actor.put.remote(server), _REPORT_S)
        except Exception as error:
            self._actor = None  # it is made again
            _log.warning("Lumen at %s cannot report: %s", self._running.url, error)

    def _leave(self) -> None:
        try:
            directory.leave(self._directory, self._id)
        except Exception as error:
            _log.warning("Lumen at %s cannot leave: %s", self._running.url, error)

    def _described(self, is_ready: bool) -> Server:
        running = self._running
        return Server(
            id=self._id,
            node=self._node,
            url=running.url,
            host=running.host,
            port=running.settings.port,
            agent_port=running.settings.agent_port,
            is_ready=is_ready,
        )


def options(plan: Plan, given: dict[str, Any]) -> dict[str, Any]:
    """Those of serve.deployment that fit a server, where the user names no others.

    Args:
        plan: its settings.
        given: the user's.
    """
    drain_s = plan.drain_s()
    chosen: dict[str, Any] = {
        "max_replicas_per_node": 1,
        "health_check_period_s": 1.0,
        "health_check_timeout_s": 10.0,
        "graceful_shutdown_wait_loop_s": 0.1,
        "graceful_shutdown_timeout_s": drain_s + 15.0,
        "max_ongoing_requests": 100,
        **given,
    }
    scaled = chosen.get("autoscaling_config")
    if isinstance(scaled, dict) and "policy" not in scaled:
        policy = {"policy_function": f"{scaling.__name__}:{scaling.by_utilization.__name__}"}
        chosen["autoscaling_config"] = {**scaled, "policy": policy}
    return chosen
