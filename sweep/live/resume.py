"""Sweeps that the live page starts: `run` of a recorded study, in a process that outlives the page's server."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.common.files import end_of
from lr_sweep.sweep.results.directory import Results, read_state
from lr_sweep.sweep.study.file import read_yaml

Child = subprocess.Popen[bytes]
OPTIONS = {"data-dir": "data_dir", "cpus": "cpus"}
"""Of `run`, by what `started.json` calls them. No address: a foreign record's is not to be connected to at a click."""
MOST_LOG = 10_000
"""Bytes of a log's end in which its last line is looked for."""


def study_file(results: Results, study: str) -> Path | None:
    """Return the file with which `run` resumes a study; None: it needs a function whose files are not here.

    Files in the results directory are not taken: it may be someone else's, and its code is not to run at a click.
    """
    recorded, folder = results.options(study), read_state(results.started(study)).get("folder")
    if not recorded.exists() or not _names_function(recorded.read_bytes()):
        return recorded if recorded.exists() else None
    if not isinstance(folder, str) or not folder or "\0" in folder:
        return None
    files = [Path(folder, f"{study}{ending}").resolve() for ending in (".yaml", ".yml")]
    return next((file for file in files if file.is_file() and results.root not in file.parents), None)


@lru_cache(maxsize=32)
def _names_function(study: bytes) -> bool:
    """Return whether a study's YAML names a function of the user's own, or may do so, in any spelling."""
    if b"trainable" not in study and b"\\" not in study:  # which may stand for its letters
        return False
    try:
        found = read_yaml(study.decode())
    except (UserError, UnicodeDecodeError):
        return True
    return not isinstance(found, dict) or "trainable" in found


class Resumed:
    """The `run` that was started last for each study."""

    def __init__(self, results: Results) -> None:
        self.results, self._children = results, dict[str, Child]()

    def start(self, study: str, *, retry: bool) -> None:
        """Start `run` of a study as it is recorded, unless one is running; what it prints goes to a log.

        A study of the user's own function is read from the file with which it was started.
        `retry`: train failed runs again, and stopped ones further. Raises UserError if one runs.
        """
        if self.results.being_written() or self.is_running():
            raise UserError(f"a sweep is running in {self.results.root} already: wait for it, or stop it")
        if (file := study_file(self.results, study)) is None:
            raise UserError(f"the files of {study} are not here: start `run` where they are")
        # The module by its whole name: this process's current folder may be any.
        run = [sys.executable, "-m", "lr_sweep.sweep", "run", str(file), *self._given(study)]
        self.results.logs.mkdir(exist_ok=True)
        with self._log(study).open("wb") as log:
            self._children[study] = subprocess.Popen(
                [*run, "--results", str(self.results.root), *(["--retry-failed"] if retry else [])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _given(self, study: str) -> list[str]:
        """Return the data directory and CPUs with which the study was started last, as options of `run`."""
        started = read_state(self.results.started(study))
        return [f"--{name}={started[key]}" for name, key in OPTIONS.items() if started.get(key) is not None]

    def is_running(self) -> bool:
        """Return whether one that was started here has not ended; it may hold no lock yet, or none any more."""
        return any(child.poll() is None for child in self._children.values())

    def problems(self) -> dict[str, str]:
        """Return what those that failed said last, by study."""
        failed = [study for study, child in self._children.items() if child.poll() not in (None, 0, 130)]
        return {study: self._last_line(study) for study in failed}

    def _last_line(self, study: str) -> str:
        lines = end_of(self._log(study), MOST_LOG).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def _log(self, study: str) -> Path:
        return self.results.logs / f"ui-{study}.log"
