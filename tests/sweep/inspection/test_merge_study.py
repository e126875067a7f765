"""A study that was merged into another directory is complete there, and can be trained further."""

from __future__ import annotations

import shutil
from pathlib import Path

from lr_sweep.sweep.inspection.merge import merge_results
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.reconcile import State, reconcile
from lr_sweep.sweep.results.recorder import Recorder
from lr_sweep.tests.support.records import new_results
from lr_sweep.tests.support.tiny_study import cohort_here, curves, events_of, runs_of, write_study


def test_a_study_is_complete_where_it_was_merged(tmp_path: Path) -> None:
    """With its checkpoints a raised budget resumes there, and ends with the numbers of a run that never moved."""

    def train(to: Results, num_steps: int) -> list[int]:
        """Train all there is to train; return the steps that runs resumed at."""
        wanted = runs_of(write_study(tmp_path, rates=(1e-2,), num_steps=num_steps), to.root)
        recorder, first_steps = Recorder(to, wanted, 1.0), []
        for run in reconcile(wanted, to).to_train:
            events = events_of(cohort_here([run], to, engine="plain"))
            first_steps.append(events[0].step)
            for event in events:
                recorder.event(event)
        return first_steps

    here, there, bare, unmoved = (new_results(tmp_path / name) for name in ("here", "there", "bare", "unmoved"))
    assert train(here, 20) == [0, 0]
    merge_results(str(here.root), there)
    shutil.copytree(here.root, tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints"))
    merge_results(str(tmp_path / "copy"), bare)
    for moved in (there, bare):
        states = reconcile(runs_of(tmp_path / "tiny.yaml", moved.root), moved).states
        assert list(states.values()) == [State.COMPLETE] * 2
        assert train(moved, 20) == []
    assert (train(there, 40), train(bare, 40), train(unmoved, 40)) == ([20, 20], [0, 0], [0, 0])
    assert curves(there.root) == curves(bare.root) == curves(unmoved.root)
    assert merge_results(str(there.root), here).startswith("0 runs added, 2 replaced by longer ones, 0 already here")
