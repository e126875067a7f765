"""The samplers of a search: the next learning rates of a cell, by its observations alone.

Nothing is kept between rounds: each is made from the search's seed, the cell and the observations. So a search that was
killed proposes what it would have proposed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import optuna
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy.stats import qmc

from lr_sweep.analysis.statistics.observations import Observation
from lr_sweep.sweep.study.search import ADAPTIVE, NUM_FIRST, Search

PARAMETER = "learning_rate"


def next_rates(
    search: Search, cell: Sequence[str], observed: Sequence[Observation], number: int, *, maximise: bool
) -> list[float]:
    """Return a cell's next learning rates, all different from those observed.

    Args:
        search: of the study.
        cell: names of task, model and variant.
        observed: all earlier rates of the cell, in the order of their proposals.
        number: of rates to propose.
        maximise: whether higher values are better.
    """
    tried, found = [each.learning_rate for each in observed], list[float]()
    num_first = _num_first(search, len(tried), number)
    for index in range(len(tried), len(tried) + num_first):
        found.append(search.untried(_unguided(search, index), {*tried, *found}))
    if number > num_first:
        for rate in _guided(search, cell, observed, found, number - num_first, maximise=maximise):
            found.append(search.untried(rate, {*tried, *found}))
    return found


def _num_first(search: Search, num_tried: int, number: int) -> int:
    return min(number, max(0, NUM_FIRST - num_tried)) if search.sampler in ADAPTIVE else number


def _unguided(search: Search, index: int) -> float:
    """Return a rate that depends on no value: the same in every cell, so that cells compare at equal rates."""
    if search.sampler == "random":
        return search.rate_at(float(np.random.default_rng([search.seed, index]).random()))
    sequence = qmc.Sobol(1, scramble=True, rng=np.random.default_rng(search.seed))
    return search.rate_at(float(sequence.random_base2(7)[index, 0]))  # a search has at most 100 rates


def _guided(
    search: Search,
    cell: Sequence[str],
    observed: Sequence[Observation],
    pending: Sequence[float],
    number: int,
    *,
    maximise: bool,
) -> list[float]:
    """Ask Optuna's sampler; it knows the pending rates of the same round, and keeps away from them."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=_sampler(search, _key(search.seed, cell, len(observed))),
        direction="maximize" if maximise else "minimize",
    )
    range_ = FloatDistribution(search.low, search.high, log=True)
    inside = [each for each in observed if search.low <= each.learning_rate <= search.high]
    for trial in _trials(inside, range_, maximise=maximise):
        study.add_trial(trial)
    for rate in pending:
        study.enqueue_trial({PARAMETER: rate})
    asked = [study.ask({PARAMETER: range_}) for _ in range(len(pending) + number)]
    return [trial.params[PARAMETER] for trial in asked[len(pending) :]]


def _sampler(search: Search, seed: int) -> optuna.samplers.BaseSampler:
    if search.sampler == "gp":
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=1)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, constant_liar=True)


def _key(seed: int, cell: Sequence[str], number: int) -> int:
    """Return a sampler's seed for the proposals of a cell from a number on."""
    digest = hashlib.sha256(json.dumps([seed, *cell, number]).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _trials(observed: Sequence[Observation], range_: FloatDistribution, *, maximise: bool) -> list[FrozenTrial]:
    """Return trials for the sampler; a rate at which a seed diverged or was stopped early counts as the worst value.

    As a failure it would be ignored, and proposed again; far worse than any value, it would flatten a Gaussian
    process. A rate whose runs were lost says nothing, and is left out.
    """
    values = [each.value for each in observed if each.value is not None]
    worst = (min(values) if maximise else max(values)) if values else 0.0
    return [
        create_trial(
            state=TrialState.COMPLETE,
            params={PARAMETER: each.learning_rate},
            distributions={PARAMETER: range_},
            value=worst if each.value is None else each.value,
        )
        for each in observed
        if each.outcome != "lost"
    ]
