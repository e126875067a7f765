"""What a study wants and what the record holds of it, computed once a round: `run`, `plan` and proposals read it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.results.reconcile import Reconciled, reconcile
from lr_sweep.sweep.search.proposals import proposed_of, read_stored
from lr_sweep.sweep.study.backbones import Backbone
from lr_sweep.sweep.study.only import ALL_RUNS, Only
from lr_sweep.sweep.study.runs import stand_in_runs, stopped_rates, wanted_runs
from lr_sweep.sweep.study.study import Study


class StudyState:
    """A study at one moment: what was proposed for it, the runs that it wants, and what has become of them.

    A state does not change: once runs have ended or more was proposed, `again` reads the next one. `only` and
    `max_attempts` say which runs are to be trained (`reconcile`). Raises RecordError for damaged files, and DataError
    if data files are there but cannot be identified.
    """

    def __init__(
        self,
        study: Study,
        backbones: Mapping[str, Backbone],
        results: Results,
        data_dir: Path,
        *,
        only: Only = ALL_RUNS,
        max_attempts: int = 0,
    ) -> None:
        self.study, self.backbones, self.results, self.data_dir = study, backbones, results, data_dir
        self.only, self.max_attempts = only, max_attempts
        self.stored = read_stored(results, study)
        self.proposed = proposed_of(study, self.stored)
        self.wanted = wanted_runs(study, backbones, data_dir, self.proposed)
        self.stopped = stopped_rates(study, results.root)

    @cached_property
    def reconciled(self) -> Reconciled:
        """The wanted runs with their states."""
        return reconcile(
            self.wanted, self.results, max_attempts=self.max_attempts, only=self.only, stopped=self.stopped
        )

    def expected(self, most_fresh: Mapping[tuple[str, str, str], int] | None = None) -> Reconciled:
        """Return the wanted runs and stand-ins for those that are not proposed yet (`stand_in_runs`)."""
        found = stand_in_runs(self.study, self.backbones, self.data_dir, self.proposed, self.wanted, most_fresh)
        return self.reconciled.with_new(found)

    def again(self, max_attempts: int) -> StudyState:
        """Return the study's state as it is now."""
        return StudyState(
            self.study, self.backbones, self.results, self.data_dir, only=self.only, max_attempts=max_attempts
        )
