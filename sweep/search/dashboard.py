"""What a search has tried, as Optuna studies that `optuna-dashboard` opens: made from the record, never read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.observations import Observation
from lr_sweep.common.files import whole_file
from lr_sweep.sweep.results.directory import Results
from lr_sweep.sweep.search.proposals import Proposal
from lr_sweep.sweep.search.samplers import distributions, parameters
from lr_sweep.sweep.study.runs import Cell
from lr_sweep.sweep.study.search import Search
from lr_sweep.sweep.study.study import Study

JOURNAL = "optuna-journal.log"
"""In the study's folder."""


def write_dashboard(
    results: Results,
    study: Study,
    proposals: Mapping[Cell, Sequence[Proposal]],
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
    """Return trials, failed where a seed has no value."""
    all_params = [parameters(each.point) for each in proposals]
    axes = {name: _axis(search, name, all_params) for name in dict.fromkeys(chain(*all_params))}
    return [
        create_trial(
            state=TrialState.FAIL if found.value is None else TrialState.COMPLETE,
            params=params,
            distributions={name: axes[name] for name in params},
            value=found.value,
            user_attrs={"round": proposal.round, "sampler": proposal.sampler, "outcome": found.outcome},
        )
        for proposal, params in zip(proposals, all_params, strict=True)
        if (found := observed.get(proposal.learning_rate))
    ]


def _axis(search: Search, name: str, all_params: Sequence[Mapping[str, Any]]) -> BaseDistribution:
    """Return what a parameter was chosen from, at least: earlier rounds may have had other axes."""
    axis, seen = distributions(search).get(name), [params[name] for params in all_params if name in params]
    if isinstance(axis, FloatDistribution) and all(isinstance(value, int | float) for value in seen):
        return FloatDistribution(min(axis.low, *seen), max(axis.high, *seen), log=axis.log)
    now = axis.choices if isinstance(axis, CategoricalDistribution) else ()
    return CategoricalDistribution(tuple(dict.fromkeys([*now, *seen])))
