"""In: the runs to train. Out: Ray Tune trials, and their events as the record."""

from lr_sweep.trainables.worker.ray_internals import outlive_raylet

outlive_raylet()
