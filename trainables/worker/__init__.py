"""A worker's life: the Ray trainable, the session of its cohort, its memory, its events."""
