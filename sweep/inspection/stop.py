"""`stop`: ask a sweep that is running to end one of its runs."""

from __future__ import annotations

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.inspection.show import find_run
from lr_sweep.sweep.results import run_state
from lr_sweep.sweep.results.directory import Results, storage_problems


def request_stop(results: Results, given: str) -> str:
    """Leave a file that the run's worker finds within seconds; return what happens next.

    Raises:
        UserError: no such run, it has ended, or nothing is running there.
    """
    run = find_run(results, given)
    if all(run_state.state_of(budget, run.row, run.started).over for budget in run.budgets.values()):
        raise UserError(f"run {run.run_id} is {run.status}: want one that has not ended; `ls` lists them")
    if not results.being_written():
        raise UserError(f"no sweep is running in {results.root}; the next `run` takes a part with --only")
    with storage_problems(results.root):
        results.request_stop(run.run_id)
    return f"run {run.run_id} ends at its next report, within seconds of training; one that waits ends when it starts"
