"""What a search has tried, as Optuna studies that `optuna-dashboard` opens: made from the record, never read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.observations import Observation
from lr_sweep.datasets.storage.files import whole_file
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.proposals import Proposal, Proposals
from lr_sweep.sweep.search.samplers import PARAMETER
from lr_sweep.sweep.study.own import AnyStudy
from lr_sweep.sweep.study.runs import Cell
from lr_sweep.sweep.study.search import Search

JOURNAL = "optuna-journal.log"
"""In the study's folder."""


def write_dashboard(
    results: Results,
    study: AnyStudy,
    proposals: Proposals,
    observed: Mapping[Cell, Mapping[float, Observation]],
    metric: Metric,
) -> None:
    """Write the journal: one Optuna study per cell, one trial per proposal that its cell's ended runs measured."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    assert study.search is not None, "a grid has no proposals"
    with whole_file(results.study(study.study) / JOURNAL) as partial:
        storage = JournalStorage(JournalFileBackend(str(partial)))
        for cell, of_cell in proposals.items():
            found = optuna.create_study(
                storage=storage,
                study_name=f"{study.study}: {' '.join(cell)}",
                direction="maximize" if metric.higher_is_better else "minimize",
            )
            found.set_user_attr("metric", metric.validation)
            found.add_trials(_trials(study.search, of_cell, observed.get(cell, {})))


def _trials(search: Search, proposals: Sequence[Proposal], observed: Mapping[float, Observation]) -> list[FrozenTrial]:
    rates = [search.low, search.high, *(each.learning_rate for each in proposals)]
    range_ = FloatDistribution(min(rates), max(rates), log=True)  # earlier rounds may have had another range
    return [
        _trial(proposal, observed[proposal.learning_rate], range_)
        for proposal in proposals
        if proposal.learning_rate in observed
    ]


def _trial(proposal: Proposal, observation: Observation, range_: FloatDistribution) -> FrozenTrial:
    """Return a trial, failed where a seed has no value."""
    return create_trial(
        state=TrialState.FAIL if observation.value is None else TrialState.COMPLETE,
        params={PARAMETER: proposal.learning_rate},
        distributions={PARAMETER: range_},
        value=observation.value,
        user_attrs={"round": proposal.round, "sampler": proposal.sampler, "outcome": observation.outcome},
    )
