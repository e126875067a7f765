"""Whether the machine that this process is on will be taken away soon, as Ray was told by `ray drain-node`."""

from __future__ import annotations

import time
from collections.abc import Callable

CHECK_EVERY_S = 5.0
"""Of the two minutes that a spot machine's notice gives."""


class MachineLeavesError(Exception):
    """Runs were saved and are to go on elsewhere."""


def leaving_nodes() -> set[str]:
    """Return the ids of nodes that are to go, by Ray's head; on those nothing new is started."""
    from ray._private.state import state

    return set(state.get_draining_nodes())


class MachineWatch:
    """Looks now and then; each look asks Ray's head.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_at = clock()

    def leaves(self) -> bool:
        """Tell whether this machine is to go. Called often."""
        import ray

        if self._clock() - self._looked_at < CHECK_EVERY_S:
            return False
        self._looked_at = self._clock()
        return ray.get_runtime_context().get_node_id() in leaving_nodes()
