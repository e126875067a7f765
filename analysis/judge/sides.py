"""Sides of a comparison: the runs of a baseline or a candidate at one rate, from a table, and the stored baseline."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from lr_sweep.analysis.judge.judge import RunsRead, runs_read
from lr_sweep.analysis.judge.layouts import arranged
from lr_sweep.analysis.judge.names import SPLITS, is_rate, listed
from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.runs import Runs
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.checks.finding import CheckFinding, swept_cells
from lr_sweep.analysis.statistics.checks.grid import grid_findings
from lr_sweep.analysis.statistics.comparisons.noise import RUN, WINDOW, CellValues
from lr_sweep.analysis.statistics.selection.best import Floats, best_learning_rates
from lr_sweep.analysis.statistics.selection.summary import summarise
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import read_plain, write_json
from lr_sweep.common.text import counted, rate_text

FORMAT = 1
STORED = ".json"
"""Ending of the name of a stored baseline."""
MARK = '"num_rates"'
"""Text that a stored baseline has, and a table in JSON has not."""
MOST_BYTES = 10_000_000
VARIANT = "#"
"""Mark before the variant of a table that is meant."""
_GUARD = re.compile(r"(?P<name>.+?)(?:(?P<sign><=|>=)(?P<factor>\d*\.?\d+)x)?")


class Guard(NamedTuple):
    """A metric by which the candidate must not be worse."""

    name: str
    higher_is_better: bool | None
    """None: the name decides."""
    factor: float
    """Limit, as a multiple of the baseline's mean."""

    @classmethod
    def read(cls, text: str) -> Guard:
        """Read `memory_gb<=1.05x`, or a name alone."""
        found = _GUARD.fullmatch(text)
        if found is None or not found["name"].isidentifier():
            raise UserError(f"--guard: got {text!r}, want METRIC, or a limit such as memory_gb<=1.05x")
        return cls(found["name"], {"<=": False, ">=": True}.get(found["sign"]), float(found["factor"] or 1))


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """The values of a guard's metric, of the runs that count."""

    higher_is_better: bool
    values: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Side:
    """The runs of the baseline or of the candidate."""

    metric: Metric
    learning_rate: float | None = None
    num_rates: int = 1
    tuning: Sequence[int] = ()
    """Seeds that chose the rate."""
    seeds: Sequence[int] = ()
    """Other seeds that ended at the rate with a value, rising."""
    values: Sequence[float] = ()
    """Their values."""
    num_lost: int = 0
    """Ended runs of other seeds without a value."""
    num_diverged: int = 0
    """Runs of other seeds that diverged, with an earlier value or without."""
    others: Sequence[int] = ()
    """Other seeds, which are not at the rate."""
    next_seed: int = 0
    window: Sequence[Sequence[float | None]] = ()
    """Values at the rate and those beside it, `WINDOW` x tuning seeds; None: no such run."""
    num_steps: int = 0
    condition: str = ""
    """Why another learning rate may be better; empty: nothing says so."""
    rates_to_add: Sequence[float] = ()
    guards: Mapping[str, Guarded] = field(default_factory=dict)

    @property
    def num_ended(self) -> int:
        """Ended runs that count, with a value or without."""
        return len(self.values) + self.num_lost

    @property
    def better(self) -> Floats:
        """Values, where more is better."""
        return self.metric.sign * np.array(self.values, float)

    @property
    def tuned(self) -> Floats:
        """The window, where more is better; `WINDOW` x 0: a table without tuning."""
        return self.metric.sign * np.array(self.window, float).reshape(WINDOW, len(self.tuning))

    def text(self, name: str) -> str:
        """Say how the rate was chosen, and what the fresh runs gave."""
        at = "" if self.learning_rate is None else f"learning rate {rate_text(self.learning_rate)}, "
        how = f"chosen from {self.num_rates} by {seeds_text(self.tuning)}; " if self.tuning else ""
        said = f"{name}: {at}{how}{counted(len(self.values), 'fresh seed')}"
        if len(self.values):
            mean, deviation = float(np.mean(self.values)), float(np.std(self.values))
            said += f", mean {self.metric.test} {self.metric.text(mean, deviation)}"
        said += f"; left out: {counted(self.num_lost, 'run')} without a value" if self.num_lost else ""
        return said + (f"; not at that rate: {seeds_text(self.others)}" if self.others else "")


def side_reader(source: str, name: str, guards: Sequence[Guard] = ()) -> Callable[[Reading], Side]:
    """Return how one side is read: a stored baseline, or a table (`TABLE#VARIANT`: one of its variants).

    Raises UserError, as what it returns does: with every mistake in a table, or why its runs cannot be compared. That
    raises QuestionError, too: there are readings that are equally good.
    """
    if name == "baseline" and source.endswith(STORED) and (stored := _stored(Path(source))) is not None:
        return lambda _: stored
    table, variant, files = _source(source)

    def read(reading: Reading) -> Side:
        found = _side(name, *_read(table, variant, files, reading))
        columns = {role: column for role, column in reading.columns.items() if role not in SPLITS}
        each = {guard.name: _read(table, variant, files, _of_guard(guard, reading, columns))[0] for guard in guards}
        return replace(found, guards={name: _guarded(found, read) for name, read in each.items()})

    return read


def store(path: Path, side: Side) -> None:
    """Write a baseline, to be committed to a repository; raises UserError if it would replace another file."""
    if path.suffix != STORED or (path.exists() and MARK.encode() not in read_plain(path, MOST_BYTES)):
        raise UserError(f"--accept: {path} is no stored baseline: name one that ends in {STORED}, or a new file")
    write_json(path, {"format": FORMAT, **asdict(side)})


def _stored(path: Path) -> Side | None:
    """Read what `store` wrote; None: it is a table in JSON."""
    try:
        text = read_plain(path, MOST_BYTES).decode()
        if MARK not in text:
            return None
        content = json.loads(text)
        if (version := content.pop("format", None)) != FORMAT:
            raise ValueError(f"its format is {version}, this version has {FORMAT}")
        guards = {name: Guarded(**each) for name, each in content["guards"].items()}
        return Side(**{**content, "metric": Metric(**content["metric"]), "guards": guards})
    except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: no baseline ({reason(error)}): write it by `gate {path} TABLE --accept`") from error


def _of_guard(guard: Guard, reading: Reading, columns: Mapping[str, str]) -> Reading:
    return replace(
        reading,
        metric=guard.name,
        higher_is_better=guard.higher_is_better,
        columns={**columns, "validation": guard.name, "test": "", "train": ""},
    )


def _guarded(side: Side, read: RunsRead) -> Guarded:
    metric = read.info.metric
    runs = summarise(read.runs.wanted, read.runs.ended, read.runs.curves, metric).runs
    runs = runs[runs["seed"].isin(side.seeds)].sort_values("seed")
    if side.learning_rate is not None:
        runs = runs[runs["learning_rate"].eq(side.learning_rate)]
    return Guarded(higher_is_better=metric.higher_is_better, values=runs["test_accuracy"].dropna().tolist())


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


def _side(name: str, read: RunsRead, has_rates: bool) -> Side:
    metric = read.info.metric
    runs = summarise(read.runs.wanted, read.runs.ended, read.runs.curves, metric).runs
    num_rates = runs["learning_rate"].nunique()
    rate, tuning = (runs["learning_rate"].iloc[0], []) if num_rates == 1 else _chosen(name, runs, read)
    chosen = read.runs.wanted["seed"].isin(tuning)
    at_rate, free = runs["learning_rate"].eq(rate), ~runs["seed"].isin(tuning)
    fresh = runs[free & at_rate & runs["status"].ne("missing")].sort_values("seed")
    measured = fresh[fresh["test_accuracy"].notna()]
    rates, seeds, tests = (runs.loc[~free, column].to_numpy() for column in RUN)
    window = CellValues.of(rates, seeds, tests).window(rate, len(tuning))
    finding = _condition(replace(read.runs, wanted=read.runs.wanted[chosen]), metric) if tuning else None
    return Side(
        metric=metric,
        learning_rate=float(rate) if has_rates else None,
        num_rates=num_rates,
        tuning=tuning,
        seeds=measured["seed"].astype(int).tolist(),
        values=measured["test_accuracy"].tolist(),
        num_lost=len(fresh) - len(measured),
        num_diverged=int(fresh["status"].eq("diverged").sum()),
        others=sorted(runs[free & ~at_rate]["seed"].astype(int)),
        next_seed=int(runs["seed"].max()) + 1,
        window=[[None if math.isnan(each) else each for each in row] for row in window.tolist()],
        num_steps=int(fresh["num_steps"].max()) if len(fresh) else 0,
        condition=finding.condition if finding else "",
        rates_to_add=sorted(finding.learning_rates) if finding else (),
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
    tuning = sorted(num_rates[num_rates > 1].index.astype(int))
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


def seeds_text(seeds: Sequence[int]) -> str:
    """Write `seed 3`, `seeds 0 to 4`, or `seeds 1, 5, 7`."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {listed([str(seed) for seed in seeds])}"
