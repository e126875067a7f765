"""The program `lr-sweep`, also as `python -m lr_sweep.sweep`."""

import os
import signal


def _leave(*_: object) -> None:
    os.write(2, b"stopped\n")
    os._exit(130)


_ctrl_c = signal.getsignal(signal.SIGINT)
if _ctrl_c is signal.default_int_handler:  # it is not in a background job of a shell's script
    # The imports take a second, in which Ctrl-C would print a traceback.
    signal.signal(signal.SIGINT, _leave)

from lr_sweep.trainables.worker import hide_checkout  # noqa: E402

hide_checkout()  # before any library looks for Hugging Face's `datasets`

from lr_sweep.sweep.cli.parser import command  # noqa: E402

signal.signal(signal.SIGINT, _ctrl_c)
if __name__ == "__main__":
    command()
