"""The samplers of a search: the next points of a cell, by its observations alone.

Nothing is kept between rounds: each is made from the search's seed, the cell and the observations. So a search that was
killed proposes what it would have proposed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy.stats import qmc

from lr_sweep.analysis.statistics.rates.refinement import Observation
from lr_sweep.common.files import Fields, ReadFields
from lr_sweep.sweep.study.search import ADAPTIVE, NUM_FIRST, Point, Range, Search

PARAMETER = "learning_rate"

Tried = Sequence[tuple[Point, Observation]]
"""All earlier points of a cell with what is known of each, in the order of their proposals."""


def next_points(
    search: Search, cell: Sequence[str], tried: Tried, number: int, *, maximise: bool, seed: int = 0
) -> list[Point]:
    """Return the next `number` points of a cell (task, model, variant), at other learning rates than those `tried`.

    `maximise`: whether higher values are better; `seed`: of the sampler, 0 in every study.
    """
    # Samplers that read values begin with some points that depend on none.
    num_first = number
    if search.sampler in ADAPTIVE:
        num_first = min(number, max(0, NUM_FIRST - len(tried)))
    rates = {point.learning_rate for point, _ in tried}
    points: list[Point] = []

    def add(point: Point) -> None:
        taken = rates | {new.learning_rate for new in points}
        points.append(point._replace(learning_rate=search.untried(point.learning_rate, taken)))

    for index in range(len(tried), len(tried) + num_first):
        add(_unguided(search, index, seed))
    if number > num_first:
        sampler = _sampler(search, _key(seed, cell, len(tried)))
        for point in _guided(search, sampler, tried, points, number - num_first, maximise=maximise):
            add(point)
    return points


def _unguided(search: Search, index: int, seed: int) -> Point:
    """Return a point that depends on no value: the same in every cell, so that cells compare at equal rates."""
    dimensions = 1 + len(search.space)
    if search.sampler == "random":
        return search.point_at(np.random.default_rng([seed, index]).random(dimensions).tolist())
    sequence = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(seed))
    positions = sequence.random_base2(7)  # a search has at most 100 rates
    return search.point_at(positions[index].tolist())


def _guided(
    search: Search,
    sampler: optuna.samplers.BaseSampler,
    tried: Tried,
    pending: Sequence[Point],
    number: int,
    *,
    maximise: bool,
) -> list[Point]:
    """Ask Optuna's sampler; it knows the pending points of the same round, and keeps away from them."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=sampler,
        direction="maximize" if maximise else "minimize",
    )
    axes = distributions(search)
    earlier = [(parameters(point), observation) for point, observation in tried]
    study.add_trials(_trials(earlier, axes, maximise=maximise))
    for point in pending:
        study.enqueue_trial(parameters(point))
    asked = [study.ask(axes) for _ in range(len(pending) + number)]
    return [_point(search, trial.params) for trial in asked[len(pending) :]]


def distributions(search: Search) -> dict[str, BaseDistribution]:
    """Return what Optuna chooses from, by parameter."""
    return {PARAMETER: FloatDistribution(search.low, search.high, log=True)} | {
        name: FloatDistribution(axis.low, axis.high, log=axis.is_log)
        if isinstance(axis, Range)
        else CategoricalDistribution(axis)
        for name, axis in search.space.items()
    }


def parameters(point: Point) -> Fields:
    """Return a point as Optuna has it."""
    return {PARAMETER: point.learning_rate, **point.options}


def _point(search: Search, params: ReadFields) -> Point:
    axes = search.space.items()
    options = {
        name: axis.rounded(params[name]) if isinstance(axis, Range) else params[name]
        for name, axis in axes
    }
    return Point(params[PARAMETER], options)


def _sampler(search: Search, seed: int) -> optuna.samplers.BaseSampler:
    if search.sampler == "gp":
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=1)
    joint = bool(search.space)  # of one parameter it is the same, with other numbers
    return optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=0, constant_liar=True, multivariate=joint
    )


def _key(seed: int, cell: Sequence[str], number: int) -> int:
    digest = hashlib.sha256(json.dumps([seed, *cell, number]).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _trials(
    tried: Sequence[tuple[ReadFields, Observation]],
    axes: Mapping[str, BaseDistribution],
    *,
    maximise: bool,
) -> list[FrozenTrial]:
    """Return trials for the sampler; a rate at which a seed diverged or was stopped early counts as the worst value.

    As a failure it would be ignored, and proposed again; far worse than any value, it would flatten a Gaussian
    process. A rate whose runs were lost says nothing, and is left out, as is one outside the axes, which may have been
    others in earlier rounds.
    """
    trials: list[tuple[FrozenTrial, Observation]] = []
    for params, observation in tried:
        with suppress(ValueError):  # it is outside the axes
            trial = create_trial(
                state=TrialState.COMPLETE,
                params=dict(params),
                distributions=dict(axes),
                value=0.0,
            )
            trials.append((trial, observation))

    values = [observation.value for _, observation in trials if observation.value is not None]
    worst = (min(values) if maximise else max(values)) if values else 0.0
    for trial, observation in trials:
        trial.value = worst if observation.value is None else observation.value
    return [trial for trial, observation in trials if observation.outcome != "lost"]
