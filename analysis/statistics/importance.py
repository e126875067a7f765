"""What moved the accuracy: how much of its variation over the grid each axis explains."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import FanovaImportanceEvaluator, get_param_importances

AXES = ["learning_rate", "variant", "seed"]
NUM_TREES = 32
MIN_RUNS = 8
"""Below this many runs with a value a random forest has nothing to learn from."""
MAX_SEEDS = 8
"""Of more seeds so many are drawn, with all their runs: each more doubles the time (8 take 1 s, 15 take 99 s)."""
MAX_RUNS = 300
"""Of more runs a random sample of this size is taken, with a fixed seed: the time grows faster than the runs."""


def importances(runs: pd.DataFrame) -> pd.DataFrame:
    """Share out the variation of the runs' best validation accuracy between learning rate, variant and seed.

    fANOVA (Hutter et al. 2014) as Optuna has it: a random forest is fitted to the runs, the learning rate on a log
    scale, and the variances of its main effects are scaled to sum to 1. Interactions are not shown; runs without a
    value are not in it. The same record gives the same numbers.

    Args:
        runs: task, model, `validation_accuracy` and the columns of `AXES`.

    Returns:
        One row a task and model: `task`, `model`, `num_runs`, a share for each of `AXES` (they sum to 1; NaN: none),
        and `note`, why there is none or that a sample was taken, or empty.
    """
    rows: list[dict[str, Any]] = []
    for (task, model), group in runs.groupby(["task", "model"], sort=False):
        known = group.dropna(subset=["validation_accuracy"])
        shares, note = _shares(known)
        left_out = f"{len(group) - len(known)} runs without a value are left out" if len(known) < len(group) else ""
        notes = "; ".join(filter(None, [note, left_out]))
        rows.append({"task": task, "model": model, "num_runs": len(known), **shares, "note": notes})
    return pd.DataFrame(rows, columns=["task", "model", "num_runs", *AXES, "note"])


def _shares(known: pd.DataFrame) -> tuple[dict[str, float], str]:
    if len(known) < MIN_RUNS:
        return {}, f"only {len(known)} runs have a value, {MIN_RUNS} needed"
    notes = []
    seeds = np.sort(known["seed"].unique())
    if len(seeds) > MAX_SEEDS:
        notes.append(f"from {MAX_SEEDS} of {len(seeds)} seeds, drawn at random")
        known = known[known["seed"].isin(np.random.default_rng(0).choice(seeds, MAX_SEEDS, replace=False))]
    if len(known) > MAX_RUNS:
        notes.append(f"from a random sample of {MAX_RUNS} runs")
        known = known.sample(MAX_RUNS, random_state=np.random.default_rng(0)).sort_index()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            evaluator = FanovaImportanceEvaluator(n_trees=NUM_TREES, seed=0)
            found = get_param_importances(_as_optuna_study(known), evaluator=evaluator)
    except (RuntimeError, ValueError) as error:  # for instance every run has the same accuracy
        return {}, f"Optuna: {error}"
    return {axis: float(found.get(axis, 0.0)) for axis in AXES}, "; ".join(notes)


def _as_optuna_study(known: pd.DataFrame) -> optuna.Study:
    rates = known["learning_rate"]
    space: dict[str, BaseDistribution] = {
        "learning_rate": FloatDistribution(rates.min(), rates.max(), log=True),
        "variant": CategoricalDistribution(known["variant"].unique().tolist()),
        "seed": CategoricalDistribution(sorted(known["seed"].unique().tolist())),
    }
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # else it logs that it created a study
    study = optuna.create_study(direction="maximize")
    for params, value in zip(known[AXES].to_dict("records"), known["validation_accuracy"], strict=True):
        study.add_trial(optuna.create_trial(params=params, distributions=space, value=value))
    return study
