"""A results directory of a tiny study that was trained here, without Ray."""

from __future__ import annotations

from pathlib import Path

from sweep.placement import Placement
from sweep.recorder import Recorder
from sweep.results import Results
from sweep.run_study import write_wanted
from sweep.runs import WantedRun
from sweep.study_file import load_study
from sweep.trials import assignment
from tests.tiny_study import runs_of
from trainables.cohort import RunSession


def train(study: Path, results: Results) -> list[WantedRun]:
    """Train what a study wants from where its checkpoints are; record it and the study; return its runs."""
    results.prepare()
    loaded, wanted = load_study(study), runs_of(study, results.root)
    write_wanted(results, loaded, wanted)
    recorder = Recorder(results, wanted, devices_per_trial=1.0)
    for run in wanted:
        here = Placement(resources=loaded.resources)
        for event in RunSession(assignment(run, here, results, results.root, 1000.0)).events(1000.0):
            recorder.event(event)
    return wanted
