"""Studies drawn at random with known truth, as the frames that the checks read; and faults planted into them.

Accuracy over the learning rate is a bell in its logarithm; over the steps it approaches its end exponentially. Runs
differ by noise, and so do their evaluations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lr_sweep.analysis.statistics.selection.best import Floats

VARIANTS = ("frozen-random", "frozen-pretrained", "unfrozen-random", "unfrozen-pretrained")
CHANCE = 0.1
BUDGET = 1200
SPLIT_NOISE = 0.004
"""Standard deviation of a split's examples, in each of validation and test."""
WIDTHS = {
    (0.5, 5): (1.2, 1.5),
    (0.5, 7): (1.2, 2.2),
    (0.5, 9): (1.2, 3.0),
    (1.0, 5): (2.5, 2.9),
    (1.0, 7): (2.5, 4.0),
}
"""By step of the grid (decades) and number of rates: widths of bells (one standard deviation, in decades). At worst the
grid misses 1.6 points of such a peak, and its ends lie 4 points below it."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a simulated study is like."""

    num_tasks: int
    num_seeds: int
    num_rates: int
    step: float
    """Of the grid, in decades."""
    noise: float
    """Standard deviation between runs, as a fraction of 1; that between evaluations is half as large."""
    num_evaluations: int
    noise_step: float = 1.0
    """Ratio of the noise at neighbouring rates; `noise` is that at the middle one."""

    @property
    def log_rates(self) -> Floats:
        """log10 of the learning rates, around 1e-3."""
        return self.step * (np.arange(self.num_rates) - self.num_rates // 2) - 3.0

    @property
    def middle(self) -> float:
        """log10 of the middle rate."""
        return float(self.log_rates[self.num_rates // 2])


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Arrays tasks x variants (x rates, x seeds) from which a study is drawn; faults change them."""

    setting: Setting
    best: Floats
    """Accuracy at the peak."""
    peak: Floats
    """log10 of the learning rate there."""
    width: Floats
    """Of the bell, in decades."""
    pace: Floats
    """Time constants of a learning curve in the budget."""
    gap: Floats
    """Validation less test."""
    status: np.ndarray
    """x rates x seeds: `complete`, `diverged`, `failed` or `missing`; only complete runs have evaluations."""

    @property
    def accuracy(self) -> Floats:
        """Accuracy at the end of training, tasks x variants x rates."""
        away = (self.setting.log_rates - self.peak[..., None]) / self.width[..., None]
        bell: Floats = CHANCE + (self.best[..., None] - CHANCE) * np.exp(-(away**2) / 2)
        return bell


@dataclass(frozen=True, kw_only=True)
class Frames:
    """What `summarise` and `check_sweep` take."""

    wanted: pd.DataFrame
    runs: pd.DataFrame
    curves: pd.DataFrame


def any_setting(rng: np.random.Generator, num_tasks: int) -> Setting:
    """Draw a setting: 3 to 10 seeds, 5 to 9 rates, noise of 0.5 to 2 points, 6 to 100 evaluations."""
    step, num_rates = list(WIDTHS)[rng.integers(len(WIDTHS))]
    return Setting(
        num_tasks=num_tasks,
        num_seeds=int(rng.choice([3, 5, 10])),
        num_rates=num_rates,
        step=step,
        noise=float(rng.uniform(0.005, 0.02)),
        num_evaluations=int(rng.choice([6, 12, 20, 50, 100])),
    )


def sound(setting: Setting, rng: np.random.Generator) -> Truth:
    """Draw a study without a fault: peaks inside the grid, resolved by it, and curves that have become flat.

    Every other task has a cliff: two or more steps above the peak all runs diverge.
    """
    cells = (setting.num_tasks, len(VARIANTS))
    peak = setting.middle + setting.step * rng.uniform(-0.5, 0.5, cells)
    status = np.full((*cells, setting.num_rates, setting.num_seeds), "complete", dtype=object)
    cliff = setting.log_rates > peak[..., None] + 1.75 * setting.step
    status[cliff & (np.arange(setting.num_tasks) % 2 == 1)[:, None, None]] = "diverged"
    low, high = WIDTHS[setting.step, setting.num_rates]
    return Truth(
        setting=setting,
        best=rng.uniform(0.5, 0.9, cells),
        peak=peak,
        width=rng.uniform(low, high, cells),
        pace=rng.uniform(8, 20, cells),
        gap=np.zeros(cells),
        status=status,
    )


def faulty(truth: Truth, **values: object) -> Truth:
    """Return a truth with other values in the cell where faults are planted: the first task's last variant."""
    changed = {name: getattr(truth, name).copy() for name in values}
    for name, value in values.items():
        changed[name][0, -1] = value
    return replace(truth, **changed)


def drawn(truth: Truth, rng: np.random.Generator) -> Frames:
    """Draw runs and their evaluations."""
    setting = truth.setting
    shape = truth.status.shape
    growth = setting.noise_step ** (np.arange(setting.num_rates) - setting.num_rates // 2)
    run_noise = rng.normal(0, setting.noise, shape) * growth[:, None]
    end = truth.accuracy[..., None] + run_noise
    steps = np.linspace(0, BUDGET, setting.num_evaluations + 1)[1:].round().astype(int)
    left = np.exp(-truth.pace[..., None, None, None] * steps / BUDGET)
    curve = end[..., None] - (end[..., None] - CHANCE) * left
    curve = curve + rng.normal(0, setting.noise / 2, curve.shape)
    validation, test = (
        curve + SPLIT_NOISE * rng.normal(size=curve.shape[:-1])[..., None] for _ in range(2)
    )
    test = test - truth.gap[..., None, None, None]
    wanted = _wanted(truth)
    ends = np.where(truth.status == "complete", BUDGET, BUDGET // 2).ravel()
    runs = wanted[["run_id"]].assign(
        status=truth.status.ravel(), num_steps=ends, diverged_at_step=pd.NA, failure=""
    )
    runs.loc[runs["status"] == "diverged", "diverged_at_step"] = BUDGET // 2
    complete = (truth.status == "complete").ravel()
    numbers = {
        name: values.reshape(-1, len(steps))[complete].ravel().clip(0, 1).round(4)
        for name, values in (
            ("train", validation + 0.02),
            ("validation", validation),
            ("test", test),
        )
    }
    curves = pd.DataFrame(
        {
            "run_id": np.repeat(wanted["run_id"].to_numpy()[complete], len(steps)),
            "step": np.tile(steps, int(complete.sum())),
            **numbers,
        }
    )
    known = runs[runs["status"] != "missing"].astype({"diverged_at_step": "Int64"})
    return Frames(wanted=wanted, runs=known.reset_index(drop=True), curves=curves)


def _wanted(truth: Truth) -> pd.DataFrame:
    tasks = [f"task-{number}" for number in range(truth.setting.num_tasks)]
    rates = [float(f"{10**log_rate:.3g}") for log_rate in truth.setting.log_rates]
    names = [tasks, VARIANTS, rates, range(truth.setting.num_seeds)]
    index = pd.MultiIndex.from_product(names, names=["task", "variant", "learning_rate", "seed"])
    frame = index.to_frame(index=False).assign(
        model="gpt2", num_steps=BUDGET, pretrained_on=None, data_origin="drawn"
    )
    return frame.assign(
        run_id=[f"{number:06d}" for number in range(len(frame))], trained_parameters=None
    )


# Faults: each changes the truth of one cell (task 0, last variant), or of its task.


def beyond_the_end(truth: Truth, rng: np.random.Generator) -> Truth:
    """Plant a peak one to two steps beyond an end of the grid."""
    end = rng.choice([0, -1])
    shift = (1 if end else -1) * rng.uniform(1, 2) * truth.setting.step
    return faulty(truth, status="complete", peak=truth.setting.log_rates[end] + shift)


def mostly_diverged(truth: Truth, rng: np.random.Generator) -> Truth:
    """Plant a cell where only the smallest rate trains."""
    rates = truth.setting.log_rates
    return faulty(truth, status=np.where(rates > rates[0], "diverged", "complete")[:, None])


def one_seed_diverged(truth: Truth, rng: np.random.Generator) -> Truth:
    """Plant a seed that diverged at the best rate, 6 points or more better than its neighbours."""
    setting = truth.setting
    planted = faulty(truth, status="complete", peak=setting.middle, width=setting.step * 1.6)
    planted.status[0, -1, setting.num_rates // 2, 0] = "diverged"
    return planted


def still_rising(truth: Truth, rng: np.random.Generator) -> Truth:
    """Plant curves that have 1 to 2 time constants in the budget: 3 points or more are gained in the last quarter."""
    return faulty(truth, pace=rng.uniform(1, 2))


def lower_test(truth: Truth, rng: np.random.Generator) -> Truth:
    """Plant a test accuracy that is 10 points lower."""
    return faulty(truth, gap=0.1)


def one_run(status: str) -> Callable[[Truth, np.random.Generator], Truth]:
    """Return what plants a run that failed, or that is missing."""

    def plant(truth: Truth, rng: np.random.Generator) -> Truth:
        changed = truth.status.copy()
        changed[0, -1, 0, 0] = status
        return replace(truth, status=changed)

    return plant


def constant(frames: Frames) -> Frames:
    """Plant one accuracy at every evaluation of the first task, as of a model that reads nothing."""
    ids = frames.wanted.loc[frames.wanted["task"] == "task-0", "run_id"]
    curves = frames.curves.copy()
    curves.loc[curves["run_id"].isin(ids), ["train", "validation", "test"]] = CHANCE
    return replace(frames, curves=curves)


def without_upper_rates(frames: Frames) -> Frames:
    """Plant a variant that was given two rates fewer."""
    rates = sorted(frames.wanted["learning_rate"].unique())
    lacks = (frames.wanted["variant"] == VARIANTS[-1]) & frames.wanted["learning_rate"].isin(
        rates[-2:]
    )
    return replace(frames, wanted=frames.wanted[~lacks].reset_index(drop=True))


def two_rates(frames: Frames) -> Frames:
    """Plant a study of two learning rates."""
    rates = sorted(frames.wanted["learning_rate"].unique())
    middle = len(rates) // 2
    kept = frames.wanted["learning_rate"].isin(rates[middle - 1 : middle + 1])
    return replace(frames, wanted=frames.wanted[kept].reset_index(drop=True))
