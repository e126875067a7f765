"""Which step and which learning rate are chosen, and what a study has at them."""
