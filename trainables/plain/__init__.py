"""The plain engine: one run, in eager PyTorch, and what the other engines share with it."""
