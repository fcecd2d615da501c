"""What a driver calls: the deployment, and the list of its servers.

On the driver's main thread. Ray is imported here and on nodes alone, once it is needed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from lumen_uring.errors import LumenError
from lumen_uring.ray import directory
from lumen_uring.ray.directory import Server
from lumen_uring.ray.plan import make
from lumen_uring.ray.replica import Lumen, options


def deployment(
    config: str | os.PathLike[str] | None = None,
    *,
    overrides: Sequence[str] = (),
    models: Sequence[str] = (),
    name: str = "lumen",
    **given: Any,
) -> Any:
    """An application of Ray Serve: one Lumen on each node.

    Args:
        config: a settings file of the driver's machine, whose text is sent to each node. Paths in
            it begin at its folder, which each node must have, or in the `working_dir` that Ray
            brings along. None: Lumen's defaults.
        overrides: "KEY=VALUE" as --set has them.
        models: "NAME=PATH" as --model has them; paths begin as those of `config`.
        name: of the deployment.
        given: what serve.deployment takes. Without `num_replicas` and `autoscaling_config` there
            is a server for each node that has a CPU to give now. `ray_actor_options` with
            `num_cpus` gives each server so many workers, unless its settings name a number.

    Returns:
        For serve.run.

    Raises:
        LumenError: Ray is not installed.
        ConfigError: the settings file cannot be read.
    """
    serve = _serve()
    plan = make(config, overrides, models, given.get("max_replicas_per_node") or 1)
    cpus = (given.get("ray_actor_options") or {}).get("num_cpus") or 0
    if cpus >= 1 and not plan.named("engine", "thread_count", {}):
        workers = f"engine.thread_count={int(cpus)}"
        plan = dataclasses.replace(plan, overrides=(workers, *plan.overrides))
    chosen = options(plan, given)
    if chosen.get("num_replicas") is None and not chosen.get("autoscaling_config"):
        chosen["num_replicas"] = _nodes() * plan.per_node
    return serve.deployment(Lumen, name=name, **chosen).bind(plan)


def application(arguments: dict[str, Any]) -> Any:
    """`deployment` for files of `serve deploy`: `import_path: lumen_uring.ray:application`.

    Args:
        arguments: those of `deployment`, under `args` in that file.
    """
    return deployment(**arguments)


def servers(app: str = "default", name: str = "lumen") -> list[Server]:
    """The servers that there are, also those that are not ready.

    Args:
        app: the application's name, as serve.run has it.
        name: the deployment's.

    Raises:
        LumenError: Ray is not installed.
    """
    _serve()
    return directory.look_up(directory.name_of(app, name))


def _serve() -> Any:
    try:
        from ray import serve
    except ImportError as error:
        raise LumenError(
            f'Ray Serve is not installed ({error}): pip install "ray[serve]"'
        ) from None
    return serve


def _nodes() -> int:
    """How many nodes have a CPU to give."""
    import ray

    if not ray.is_initialized():
        ray.init(namespace="serve")
    return max(1, sum(bool(n["Alive"] and n["Resources"].get("CPU", 0) >= 1) for n in ray.nodes()))
