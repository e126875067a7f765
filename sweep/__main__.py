"""`python -m lr_sweep.sweep` is `lr-sweep`."""

from lr_sweep.trainables.worker import hide_checkout

hide_checkout()  # before any library looks for Hugging Face's `datasets`

from lr_sweep.sweep.cli.parser import command  # noqa: E402

if __name__ == "__main__":
    command()
