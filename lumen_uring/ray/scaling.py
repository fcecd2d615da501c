"""How many servers there should be, for Ray Serve's autoscaler: by their own load.

Called by Ray Serve's controller. Its default policy counts requests that go through Ray, and none
of Lumen's do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

METRIC: Final = "lumen_utilization"
TARGET: Final = 0.7  # docs/FLEET.md: what a server of four takes over when one of them goes


def by_utilization(context: Any) -> tuple[float, dict[str, Any]]:
    """A policy of Ray Serve: as many servers as bring their utilization to TARGET.

    Args:
        context: ray.serve.config.AutoscalingContext.

    Returns:
        How many, which Ray bounds and delays as autoscaling_config says; and no state.
    """
    found: Mapping[Any, float] = (context.aggregated_metrics or {}).get(METRIC) or {}
    if not found:
        return context.target_num_replicas, {}
    mean = sum(found.values()) / len(found)
    return mean * context.current_num_replicas / TARGET, {}
