"""The runs that a sweep trains. Every event of a run comes here: it is recorded, then shown, judged and mirrored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lr_sweep.common.text import counted
from lr_sweep.sweep.mirror.mirror import MirrorThread
from lr_sweep.sweep.results.directory import read_state
from lr_sweep.sweep.results.recorder import Recorder
from lr_sweep.sweep.results.run_state import checkpoint_step
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.trainables.worker.messages import Finished, Printed, Report, Started, evaluations

from .failures import Failures
from .progress import StudyProgress
from .work import Work


class LiveRuns:
    """Passes on what happens to the runs that `work` is to train; `progress` has their statuses."""

    def __init__(
        self, work: Work, progress: StudyProgress, failures: Failures, mirror: MirrorThread
    ) -> None:
        self._work, self._progress = work, progress
        self._failures, self._mirror = failures, mirror
        options, study = work.options, work.state.study
        self._results, self._files = options.results, study.files
        status_file = self._results.progress(study.study)
        reached = read_state(status_file).get("training")  # of a driver that was killed
        status_file.unlink(missing_ok=True)
        self._recorder = Recorder(
            self._results,
            work.state.reconciled.to_train,
            options.placement.devices_per_trial,
            reached=reached,
            files=study.files,
        )

    def add(self, runs: Sequence[WantedRun]) -> None:
        """Expect further runs: the next round of a search."""
        self._recorder.add(runs)
        self._progress.add(runs)

    def event(self, event: Report) -> None:
        """Take in what a worker reports of a run."""
        if isinstance(event, Printed):
            self._recorder.event(event)
            return
        if self._progress.has_ended(event.run_id):  # its trial started again, for a later run
            return
        event = self._work.stopping.explained(event)
        self._recorder.event(event)
        self._progress.event(event)
        if isinstance(event, Started):
            for path in event.damaged:
                problem = f"{path} is damaged (its checksum differs)"
                self._work.news.put(f"{problem}; the run resumes from step {event.step}")
        if isinstance(event, Finished) or evaluations(event):
            self._work.stopping.event(event)
            self._failures.run_evaluated(event.run_id)
            self._mirror.changed(event.run_id)

    def tried(self, run_ids: Iterable[str]) -> list[WantedRun]:
        """Return the runs of a trial that an error broke off: those that trained, else all that have not ended."""
        left, training = self._progress.left(run_ids), self._progress.training()
        return [run for run in left if run.run_id in training] or left

    def interrupted(
        self, run_ids: Collection[str], text: str = "", *, is_failure: bool = False
    ) -> None:
        """Note that runs do not train at the moment; `text` is the reason, for their logs."""
        self._recorder.interrupted(run_ids, text, is_failure=is_failure)
        self._progress.interrupted(run_ids)

    def failed(self, runs: Iterable[WantedRun], reason: str) -> None:
        """Record that runs have ended by an error."""
        for run in runs:
            self._recorder.failed(run.run_id, reason)
            self._progress.failed(run.run_id)
            self._mirror.changed(run.run_id)

    def saved(self, run_ids: Collection[str]) -> str:
        """Return until which step runs are saved that no longer train; log it for each."""
        if self._results.uri is not None:  # another machine's checkpoints are not on this disk
            return f"{counted(len(run_ids), 'run')} saved in {self._results.uri}"
        steps = {run_id: self._saved_step(run_id) for run_id in run_ids}
        for run_id, step in steps.items():
            self._recorder.log(run_id, [saved_text([step])])
        return saved_text(steps.values())

    def _saved_step(self, run_id: str) -> int:
        """Return the step of a run's newest checkpoint on this disk; 0: it will be trained anew."""
        if self._files and self._files.command and not self._files.command.resumes:
            return 0
        return checkpoint_step(self._results, run_id) or 0


def saved_text(steps: Collection[int]) -> str:
    """Return `3 runs saved at step 40 to 120`, of runs with these steps; those at step 0 are trained anew."""
    saved = sorted(step for step in steps if step)
    texts = []
    if saved:
        ends = dict.fromkeys((saved[0], saved[-1]))
        texts.append(f"{counted(len(saved), 'run')} saved at step {' to '.join(map(str, ends))}")
    if num_anew := len(steps) - len(saved):
        texts.append(f"{counted(num_anew, 'run')} to be trained anew")
    return ", ".join(texts)
