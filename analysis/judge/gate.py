"""The gate: is a candidate better than a baseline, as far as fresh seeds show, and which seeds to run next?

It is a sequential test by the machinery of `decide`. Seeds that chose a learning rate say how noisy its runs are, and
nothing else: their mean is the best of several.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.judge.judge import RunsRead, runs_read
from lr_sweep.analysis.judge.layouts import arranged
from lr_sweep.analysis.judge.names import is_rate, listed
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.reading import Reading, asking
from lr_sweep.analysis.judge.runs import Runs
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, swept_cells
from lr_sweep.analysis.statistics.checks.grid import grid_findings
from lr_sweep.analysis.statistics.comparisons.decide import FIRST, FIRST_LOOK, UNDECIDED, Pairs, Settings
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.statistics.comparisons.noise import RUN, WINDOW, CellValues, Noise, cell_noise, padded
from lr_sweep.analysis.statistics.selection.best import Floats, best_learning_rates
from lr_sweep.analysis.statistics.selection.summary import summarise
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, rate_text

FALSE_ACCEPT = 0.05
"""Largest share of candidates without a gain that the gate accepts, over all looks."""
GATE_ERROR = 0.06
"""Error rate of the two-sided test. Half of it is each side's; the rest of `FALSE_ACCEPT` is for noise that is not
normal, by simulation (docs/statistics.md)."""
LOGNORMAL_ACCEPT = 0.1
"""The same share where the noise of both sides is lognormal and unequal (docs/statistics.md)."""
FIRST_LOOK_ALONE = 8
"""Seeds of each at the first look where nothing else says how noisy they are. Chosen by simulation."""
NUM_ASKED = 4
"""Seeds that are asked for at once."""
MAX_SEEDS = 20
"""Fresh seeds of each, if the user gives no other number."""
SIDES = ("baseline", "candidate")
VARIANT = "#"
"""Mark before the variant of a table that is meant."""
NONE = np.full((WINDOW, 0), math.nan)
"""The window of a table without tuning."""
Outcome = Literal["accept", "reject", "run", "open"]


class Side(NamedTuple):
    """The runs of the baseline or of the candidate."""

    name: str
    rate: float
    """NaN: the table has none."""
    num_rates: int
    tuning: Sequence[int]
    """Seeds that chose the rate."""
    fresh: pd.DataFrame
    """Rows as of `StudySummary.runs`: ended runs of other seeds at the rate, by seed."""
    others: Sequence[int]
    """Further seeds, which are not at the rate."""
    next_seed: int
    values: Floats
    """Values of fresh runs that have one, in the order of their seeds; more is better."""
    window: Floats
    """Values at the rate and those beside it, `WINDOW` x tuning seeds."""
    num_steps: int
    finding: CheckFinding | None
    """Why another learning rate may be better; None: nothing says so."""

    @property
    def num_diverged(self) -> int:
        """Fresh runs that diverged, with an earlier value or without."""
        return int(self.fresh["status"].eq("diverged").sum())

    def text(self, metric: Metric) -> str:
        """Say how the rate was chosen, and what the fresh runs gave."""
        at = "" if math.isnan(self.rate) else f"learning rate {rate_text(self.rate)}, "
        how = f"chosen from {self.num_rates} by {_seeds_text(self.tuning)}; " if self.tuning else ""
        said = f"{self.name}: {at}{how}{counted(len(self.values), 'fresh seed')}"
        if len(self.values):
            said += f", mean {metric.test} {metric.text(metric.sign * self.values.mean(), self.values.std())}"
        lost = len(self.fresh) - len(self.values)
        said += f"; left out: {counted(lost, 'run')} without a value" if lost else ""
        return said + (f"; not at that rate: {_seeds_text(self.others)}" if self.others else "")


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What the gate says."""

    outcome: Outcome
    why: str
    """A sentence with the numbers."""
    seeds: Mapping[str, Sequence[int]]
    """To run next, by side; empty once it is decided."""
    rates: Sequence[float]
    """To add to the baseline, which may be better at one of them; only of `open`."""
    about: Sequence[str]
    """Sentences on both sides, and on the error rate."""

    def text(self) -> str:
        """Return all of it, the outcome first."""
        first = self.outcome if self.outcome != "run" else f"run {_asked_text(self.seeds)}"
        first += f", add {', '.join(map(rate_text, self.rates))} to the baseline" if self.rates else ""
        return "\n".join([f"{first}: {self.why}", *(f"  {line}" for line in self.about)])


def gate(
    baseline: str | Path, candidate: str | Path, reading: Reading, *, min_gain: float = 0.0, max_seeds: int = MAX_SEEDS
) -> Gate:
    """Compare a candidate with a baseline.

    Args:
        baseline: a table, a folder or an address, as `judged` reads it; `TABLE#VARIANT`: one of its variants.
        candidate: the same.
        reading: of both.
        min_gain: what the candidate has to gain more than, in points or the metric's unit.
        max_seeds: fresh seeds of each, at most.

    Raises:
        UserError: with every mistake in a table, or why two cannot be compared.
        QuestionError: there are readings that are equally good.
    """
    if str(baseline) == str(candidate):
        raise UserError(f"baseline and candidate are both {baseline}: name two tables, or TABLE{VARIANT}VARIANT twice")
    sources = [_source(str(source)) for source in (baseline, candidate)]
    read = asking(lambda reading: [_read(*source, reading) for source in sources], reading)
    one, other = (each.info.metric for each, _ in read)
    if one != other:
        texts = " and ".join(_metric_text(metric) for metric in (one, other))
        raise UserError(f"baseline and candidate have other metrics, {texts}: give --metric or --columns")
    sides = [_side(name, *each, max_seeds) for name, each in zip(SIDES, read, strict=True)]
    return _concluded(sides, one, min_gain / one.scale, max_seeds)


def gate_settings(known: Noise, max_seeds: int) -> Settings:
    """Return the limits of the gate's test; `known`: what earlier runs say of the noise of each side, ... x 2."""
    first_look = FIRST_LOOK if (known.dof > 0).all() else min(FIRST_LOOK_ALONE, max_seeds)
    return Settings(max_seeds=max_seeds, error=GATE_ERROR, first_look=first_look)


def _source(named: str) -> tuple[str, str, Sequence[TableFile]]:
    """Return the table that the user names, its variant (empty: its only one), and what is read of the table."""
    table, mark, variant = named.rpartition(VARIANT)
    if not mark or Path(named).exists():
        table, variant = named, ""
    return table, variant, read_sources([table])


def _read(table: str, variant: str, sources: Sequence[TableFile], reading: Reading) -> tuple[RunsRead, bool]:
    """Read one side; returns its runs, of one variant on one task, and whether it has learning rates."""
    tables = [arranged(each, reading.columns)[0] for each in sources]
    names = {name for each in tables for name in each.columns}
    has_rates = "learning_rate" in reading.columns or any(map(is_rate, names))
    if not has_rates:  # a table of final runs may leave out the rate that they have in common
        tables = [replace(t, columns={**t.columns, "learning_rate": ["1"] * len(t.lines)}) for t in tables]
    read = runs_read(tables, reading)
    if read.is_tuned:
        raise UserError("nuisance: the gate compares runs of one setting: keep the rows of the chosen one")
    wanted = read.runs.wanted
    variants = list(dict.fromkeys(wanted["variant"]))
    if variant and variant not in variants:
        raise UserError(f"{table}{VARIANT}{variant}: no variant {variant!r} in {table}: there are {listed(variants)}")
    wanted = wanted[wanted["variant"] == variant] if variant else wanted
    for name in ("task", "variant"):
        if len(there := list(dict.fromkeys(wanted[name]))) > 1:
            one = f"name one, {shlex.quote(f'{table}{VARIANT}{there[0]}')}"
            advice = one if name == "variant" else "keep the rows of one"
            raise UserError(f"{table} has {len(there)} {name}s ({listed(there)}), the gate compares one: {advice}")
    return read._replace(runs=replace(read.runs, wanted=wanted)), has_rates


def _metric_text(metric: Metric) -> str:
    unit = " from 0 to 1" if metric.is_fraction else ""
    return f"{metric.test}{unit} ({metric.better} is better)"


def _side(name: str, read: RunsRead, has_rates: bool, max_seeds: int) -> Side:
    metric = read.info.metric
    runs = summarise(read.runs.wanted, read.runs.ended, read.runs.curves, metric).runs
    num_rates = runs["learning_rate"].nunique()
    rate, tuning = (runs["learning_rate"].iloc[0], []) if num_rates == 1 else _chosen(name, runs, read)
    chosen = read.runs.wanted["seed"].isin(tuning)
    at_rate, free = runs["learning_rate"].eq(rate), ~runs["seed"].isin(tuning)
    fresh = runs[free & at_rate & runs["status"].ne("missing")].sort_values("seed").head(max_seeds)
    rates, seeds, tests = (runs.loc[~free, column].to_numpy() for column in RUN)
    return Side(
        name=name,
        rate=rate if has_rates else math.nan,
        num_rates=num_rates,
        tuning=tuning,
        fresh=fresh,
        others=sorted(runs[free & ~at_rate]["seed"]),
        next_seed=int(runs["seed"].max()) + 1,
        values=metric.sign * fresh["test_accuracy"].dropna().to_numpy(float),
        window=CellValues.of(rates, seeds, tests).window(rate, len(tuning)) if tuning else NONE,
        num_steps=int(fresh["num_steps"].max()) if len(fresh) else 0,
        finding=_condition(replace(read.runs, wanted=read.runs.wanted[chosen]), metric) if tuning else None,
    )


def _condition(runs: Runs, metric: Metric) -> CheckFinding | None:
    """Return the finding on the runs that chose the rate that makes a comparison conditional."""
    (cell,) = swept_cells(summarise(runs.wanted, runs.ended, runs.curves, metric))
    return next((finding for finding in grid_findings(cell) if finding.condition), None)


def _chosen(name: str, runs: pd.DataFrame, read: RunsRead) -> tuple[float, list[int]]:
    """Return the rate that validation chooses, and the seeds that choose it: those with runs at several rates."""
    metric = read.info.metric
    if not metric.chosen_on:
        raise UserError(
            f"{name} has {runs['learning_rate'].nunique()} learning rates and no validation data, which choose one: "
            "keep the rows of one rate, or give --select-on-test"
        )
    num_rates = runs.groupby("seed")["learning_rate"].nunique()
    tuning = sorted(num_rates[num_rates > 1].index)
    if not read.has_seeds or not tuning:
        raise UserError(
            f"{name} has {runs['learning_rate'].nunique()} learning rates, and no seed that is at several of them: "
            "which runs chose the rate cannot be seen. Keep the rows of one rate, whose runs chose nothing"
        )
    choosing = runs[runs["seed"].isin(tuning)].drop(columns="test_accuracy")
    (rate,) = best_learning_rates(choosing, metric)["learning_rate"]
    if math.isnan(rate):
        raise UserError(f"{name} has no learning rate with a value: train its runs first")
    return rate, tuning


def _concluded(sides: Sequence[Side], metric: Metric, min_gain: float, max_seeds: int) -> Gate:
    known = cell_noise(padded([side.window for side in sides]))
    decision = Decision(
        cells=tuple(("", "", side.name) for side in sides),
        rates=tuple(side.rate for side in sides),
        values=padded([side.values for side in sides]) - np.array([[0.0], [min_gain]]),
        num_used=np.array([len(side.fresh) for side in sides]),
        pairs=Pairs.named([(1, 0)]),
        known=known,
        tuned=metric.sign * padded([side.window[0] for side in sides]),
        settings=gate_settings(known, max_seeds),
        metric=metric,
    )
    numbers = {cell[-1]: number for cell, number in decision.next_seeds(NUM_ASKED).items()}
    asked = {side.name: range(side.next_seed, side.next_seed + numbers.get(side.name, 0)) for side in sides}
    seeds = {name: each for name, each in asked.items() if each}
    outcome, why = _outcome(decision, sides, min_gain, bool(seeds))
    rates: Sequence[float] = ()
    if outcome != "reject" and (finding := sides[0].finding):
        outcome, seeds, rates = "open", {}, sorted(finding.learning_rates)
        gain = _gain_text(decision, min_gain)
        why = f"{gain} {finding.condition}" if gain else finding.condition.partition(": ")[2]
    steps = {side.num_steps for side in sides if side.num_steps}
    about = [side.text(metric) for side in sides]
    if len(steps) > 1:
        about.append(
            f"trained for {' and '.join(f'{side.num_steps:,}' for side in sides)} steps: the gain may be of that"
        )
    if alone := [side.name for side in sides if not side.tuning]:
        about.append(f"{' and '.join(alone)}: one learning rate is there; its seeds must not have chosen it")
    if failures := decision.failures():
        about.append(failures)
    elif unequal := decision.unequal():
        rare = f"if rare ones are far off (lognormal noise), {LOGNORMAL_ACCEPT:.0%} of candidates without a gain"
        about.append(f"{unequal}: {rare} may be accepted")
    gain = f"more than {metric.amount_text(min_gain)}" if min_gain else "nothing"
    about.append(
        f"at most {FALSE_ACCEPT:.0%} of candidates that gain {'no ' if min_gain else ''}{gain} are accepted, over all "
        f"looks up to {max_seeds} seeds (docs/statistics.md)"
    )
    return Gate(outcome=outcome, why=why, seeds=seeds, rates=rates, about=about)


def _outcome(decision: Decision, sides: Sequence[Side], min_gain: float, may_run: bool) -> tuple[Outcome, str]:
    baseline, candidate = sides
    metric, found = decision.metric, decision.found.outcome[0]
    said, limit = _gain_text(decision, min_gain), metric.amount_text(min_gain) if min_gain else ""
    more = f"gains more than {limit}" if min_gain else "is better"
    if may_run:
        return "run", f"it is open whether the candidate {more}{f': {said}' if said else ''}"
    if found == FIRST and candidate.num_diverged > baseline.num_diverged:
        numbers = [f"{each.num_diverged} of the {counted(len(each.fresh), 'fresh run')}" for each in sides]
        return "reject", f"{numbers[1]} of the candidate diverged, of the baseline {numbers[0]}; else {said}"
    if found == FIRST:
        return "accept", f"the candidate {more}: {said}"
    if found == UNDECIDED:
        number = counted(int(decision.num_values.min()), "seed")
        why = f"with {number} of each it was not shown that the candidate {more}"
        return "reject", f"{why}{f': {said}' if said else ''}"
    return "reject", f"the candidate {f'gains less than {limit}' if min_gain else 'is worse'}: {said}"


def _gain_text(decision: Decision, min_gain: float) -> str:
    metric, found = decision.metric, decision.found
    gain, low, high = (float(each[0]) + min_gain for each in (found.difference, found.low, found.high))
    if math.isnan(gain):
        return ""
    said = f"it gains {metric.amount_text(gain, (high - low) / 2)} in {metric.test}"
    if math.isnan(low):
        return f"{said}; nothing is known of the noise"
    return f"{said} (95% interval {' to '.join(metric.ends_text(low, high))})"


def _asked_text(seeds: Mapping[str, Sequence[int]]) -> str:
    texts = {name: _seeds_text(each) for name, each in seeds.items()}
    if len(texts) == len(SIDES) and len(set(texts.values())) == 1:
        return f"{next(iter(texts.values()))} of both"
    return " and ".join(f"{text} of the {name}" for name, text in texts.items())


def _seeds_text(seeds: Sequence[int]) -> str:
    """Write `seed 3`, `seeds 0 to 4`, or `seeds 1, 5, 7`."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {listed([str(seed) for seed in seeds])}"
