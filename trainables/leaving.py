"""Whether the machine of this process will be taken away soon, as `ray drain-node` announces it to Ray."""

from __future__ import annotations


def leaving_nodes() -> set[str]:
    """Return the ids of nodes that are to go, by Ray's head; on those nothing new is started."""
    from ray._private.state import state

    return set(state.get_draining_nodes())
