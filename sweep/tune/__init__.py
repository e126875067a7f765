"""In: the runs to train. Out: Ray Tune trials, and their events as the record."""

import os
import sys

if "ray" not in sys.modules:  # Ray reads this while it is imported; its workers have their raylet's
    # Ray (2.60) takes the parent of a process for its raylet, and ends a process whose parent has ended, as after
    # `nohup`, if the raylet dies. With an id of its own it outlives the raylet, and resumes with a new one.
    os.environ["RAY_RAYLET_PID"] = str(os.getpid())
