"""Imports a training function once, in a process of its own, before anything starts that would fail with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lr_sweep.trainables.own.code import (
    FAILURE,
    OwnCodeError,
    TrainingFunctionError,
    import_function,
    own_traceback,
    unpacked,
)
from lr_sweep.trainables.own.run import OwnFiles, OwnRun


def check_import(run: OwnRun, files: OwnFiles) -> None:
    """Import a run's function as a worker does, in a process that ends then.

    Raises:
        OwnCodeError, DataError: its files are not here, or not those of the run.
        TrainingFunctionError: it cannot be imported; the message says why.
    """
    with unpacked(run, files) as folder:
        command = (sys.executable, "-P", "-m", __name__, run.trainable, str(folder), *run.code)
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    if ended.returncode:
        _, marked, why = ended.stderr.rpartition(FAILURE)
        code = "" if marked else f"the process that imported it ended with code {ended.returncode}\n"
        raise TrainingFunctionError(f"{code}{why.strip()}".strip())


def _import(trainable: str, folder: str, *code: str) -> int:
    try:
        import_function(trainable, Path(folder), dict.fromkeys(code, ""))
    except OwnCodeError as error:
        print(f"{FAILURE} {error}", file=sys.stderr)
    except BaseException as error:
        print(f"{FAILURE}\n{own_traceback(error, Path(folder))}", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    result = _import(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(result)  # threads that the module started would keep it alive
