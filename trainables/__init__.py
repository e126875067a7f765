"""Models, freezing, the training loop and the Ray trainable around it."""
