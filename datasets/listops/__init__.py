"""ListOps of the Long Range Arena: the task, its generator and the reader of the release."""
