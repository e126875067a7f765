"""A study that was carried to another machine is complete there, and can be trained further."""

from __future__ import annotations

from pathlib import Path

from sweep.archive_import import import_archive
from sweep.placement import Placement
from sweep.reconcile import State, reconcile
from sweep.recorder import Recorder
from sweep.results import Results
from sweep.study import Resources
from sweep.trials import assignment
from tests.carried_record import new_results, packed
from tests.tiny_study import curves, runs_of, write_study
from trainables.cohort import RunSession


def test_a_study_is_complete_where_it_was_imported(tmp_path: Path) -> None:
    """And with its checkpoints a raised budget goes on from there, to the numbers of a run never moved."""

    def train(to: Results, num_steps: int) -> list[int]:
        """Train all there is to train; return the steps that runs were taken up at."""
        wanted = runs_of(write_study(tmp_path, rates=(1e-2,), num_steps=num_steps), to.root)
        recorder, first_steps = Recorder(to, wanted, 1.0), []
        for run in reconcile(wanted, to).to_train:
            events = list(RunSession(assignment(run, Placement(resources=Resources()), to, tmp_path, 1e3)).events(1e3))
            first_steps.append(events[0]["step"])
            for event in events:
                recorder.event(event)
        return first_steps

    here, there, bare, unmoved = (new_results(tmp_path / name) for name in ("here", "there", "bare", "unmoved"))
    assert train(here, 20) == [0, 0]
    import_archive(packed(here), there)
    import_archive(packed(here, checkpoints=False), bare)
    for moved in (there, bare):
        states = reconcile(runs_of(tmp_path / "tiny.yaml", moved.root), moved).states
        assert list(states.values()) == [State.COMPLETE] * 2
        assert train(moved, 20) == []
    assert (train(there, 40), train(bare, 40), train(unmoved, 40)) == ([20, 20], [0, 0], [0, 0])
    assert curves(there.root) == curves(bare.root) == curves(unmoved.root)
    assert import_archive(packed(there), here).startswith("0 runs added, 2 replaced by longer ones, 0 already here")
