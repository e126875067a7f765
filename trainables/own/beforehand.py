"""A training function before a sweep, in a process of its own: can it be imported, and does it resume exactly?"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from lr_sweep.trainables.own.code import (
    FAILURE,
    OwnCodeError,
    TrainingFunctionError,
    import_function,
    own_traceback,
    unpacked,
)
from lr_sweep.trainables.own.probe import probe
from lr_sweep.trainables.own.run import OwnRun

TRIED_S = 20.0
"""Seconds that the trial of a training function may take."""
FOUND = "found by the trial:"
"""Begins what the trial found, as the last line of the process."""


def look_at(run: OwnRun, device: str | None) -> str:
    """Import a run's function as a worker does, then try it on a device (`probe`); None: do not try it.

    Returns what differs between two trainings, or a training and a resumed one, as a sentence without its subject;
    empty: nothing, or the trial failed, as the run then will, which reports it. Raises DataError if its data files are
    not here or not those of the run, and TrainingFunctionError, with the reason, if it cannot be imported.
    """
    with unpacked(run) as folder:
        ended = subprocess.run(
            (sys.executable, "-P", "-m", __name__),
            input=pickle.dumps((run, folder, device)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    printed = ended.stderr.decode(errors="replace")
    if ended.returncode:
        _, marked, why = printed.rpartition(FAILURE)
        code = "" if marked else f"the process that imported it ended with code {ended.returncode}\n"
        raise TrainingFunctionError(f"{code}{why.strip()}".strip())
    return printed.rpartition(FOUND)[2].strip() if FOUND in printed else ""


def _main(run: OwnRun, folder: Path, device: str | None) -> int:
    try:
        import_function(run.files.trainable, folder, run.files.code)
    except BaseException as error:
        why = f" {error}" if isinstance(error, OwnCodeError) else f"\n{own_traceback(error, folder)}"
        print(f"{FAILURE}{why}", file=sys.stderr)
        return 1
    if device is not None:
        tried = threading.Thread(target=_try, args=(run, device), daemon=True)
        tried.start()
        tried.join(TRIED_S)
        if tried.is_alive():
            text = f"takes more than {TRIED_S:.0f} s for a few steps: `verify` says whether it resumes exactly"
            print(f"{FOUND} {text}", file=sys.__stderr__)  # the trial redirects the other
    return 0


def _try(run: OwnRun, device: str) -> None:
    with suppress(BaseException):  # it fails in training, too, which is reported there
        found = probe(run, device)
        if found.random or found.lost:
            print(f"{FOUND} is {found.text()}", file=sys.stderr)


if __name__ == "__main__":
    result = _main(*pickle.load(sys.stdin.buffer))  # noqa: S301 - from our own process
    assert sys.__stderr__ is not None
    sys.__stderr__.flush()
    os._exit(result)  # threads that the module started would keep it alive
