"""`verify STUDY`: trains a few steps of each cell of a training function, and says whether they repeat and resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.plan.placement import Placement, check_beforehand
from lr_sweep.sweep.study.runs import by_cell, expected_runs
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.own.probe import probe
from lr_sweep.trainables.own.run import TrainingFunctionError, own_run


def probe_study(study: Study, data_dir: Path, say: Callable[[str], None]) -> int:
    """Pass a line a cell to `say`; return how many are not deterministic, resume inexactly, or fail.

    Raises UserError for a study that has no training function of the user's own, or whose device is not here.
    """
    if study.files is None:
        raise UserError(f"{study.study} has no training function of its own (`trainable`): nothing to probe")
    placement, num_problems = Placement(resources=study.resources), 0
    check_beforehand(placement, study.for_gpus)
    for cell, (first, *_) in by_cell(expected_runs(study, {}, data_dir, {})).items():
        try:
            found = probe(own_run(first.run), placement.device)
            sound, text = not found.random and not found.lost, found.text()
        except TrainingFunctionError as error:
            sound, text = False, str(error)
        num_problems += not sound
        say(f"{'' if sound else 'problem: '}{study.study} {' '.join(cell)}: {text}")
    return num_problems
