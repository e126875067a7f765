"""The runs that the gate compares: those of a table that chose no learning rate, and the stored baseline."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Interval

from lr_sweep.analysis.judge.readers.sources import read_sources
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.checks.finding import swept_cells
from lr_sweep.analysis.statistics.checks.grid import grid_findings
from lr_sweep.analysis.statistics.comparisons.sequential import MIN_SEEDS, NUM_SEEDS
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.common.errors import UserError, reason
from lr_sweep.common.files import write_json
from lr_sweep.common.limits import Positive
from lr_sweep.common.text import counted, rate_text

from .judge import runs_read
from .names import SPLITS, listed
from .reading import Reading, validated
from .runs import Runs
from .table_file import TableFile, read_bounded

MOST_VALUE = 1e30
Value = Annotated[float, Interval(ge=-MOST_VALUE, le=MOST_VALUE)]
"""A value of a run: squares of its variance are floats, too."""
_GUARD = re.compile(r"(?P<name>\w+)(?:(?P<sign><=|>=)(?P<factor>\d{0,9}\.?\d{1,9})x)?")


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
        if found is None:
            raise UserError(
                f"--guard: got {text!r}, want METRIC, or a limit such as memory_gb<=1.05x"
            )
        return cls(
            found["name"], {"<=": False, ">=": True}.get(found["sign"]), float(found["factor"] or 1)
        )


def check_pairs(seeds: Sequence[int], values: Sequence[float]) -> None:
    """Raise ValueError if seeds and values are not as many."""
    if len(seeds) != len(values):
        raise ValueError(f"it has {len(seeds)} seeds and {len(values)} values, want as many")


@dataclass(frozen=True, kw_only=True)
class Side:
    """Fresh runs of the baseline or of the candidate: their seeds chose no learning rate."""

    metric: Metric
    seeds: Sequence[int]
    """Seeds that ended with a value, rising."""
    values: Sequence[Value]
    learning_rate: Positive | None = None
    num_failed: int = 0
    """Runs that diverged or ended without a value."""
    next_seed: int = 0
    condition: str = ""
    """Why another learning rate may be better; empty: nothing shows it."""
    rates_to_add: Sequence[Positive] = ()
    guards: Mapping[str, Side] = field(default_factory=dict)
    """These runs by the metrics of the guards."""

    def __post_init__(self) -> None:
        """Raise ValueError if seeds and values are not as many."""
        check_pairs(self.seeds, self.values)

    @property
    def better(self) -> Floats:
        """Values, where more is better."""
        return self.metric.sign * np.array(self.values, float)

    def text(self, name: str) -> str:
        """Describe the runs."""
        said = f"{name}: {counted(len(self.values), 'fresh seed')}"
        said += f" at learning rate {rate_text(self.learning_rate)}" if self.learning_rate else ""
        if self.values:
            mean, deviation = float(np.mean(self.values)), float(np.std(self.values))
            said += f", mean {self.metric.test} {self.metric.text(mean, deviation)}"
        return said + (f", {counted(self.num_failed, 'failed run')}" if self.num_failed else "")

    def lacking(self) -> str:
        """Say that the runs, or those with a guard's value, are too few for a baseline; empty: they are enough."""
        fewest = min(len(side.values) for side in (self, *self.guards.values()))
        if fewest >= MIN_SEEDS:
            return ""
        seeds = f"got {counted(fewest, 'fresh seed')}, want {NUM_SEEDS}, at least {MIN_SEEDS}"
        return f"{seeds}: train further seeds of the accepted recipe and store them all"

    def store(self, path: Path) -> None:
        """Write it as a baseline; raises UserError if its runs are too few, or if it would replace another file."""
        if lacking := self.lacking():
            raise UserError(f"--accept: {lacking}")
        if path.exists():
            stored_side(path)
        write_json(path, asdict(self))


def stored_side(path: Path) -> Side:
    """Read a stored baseline; raises UserError."""
    try:
        side = validated(Side, read_bounded(path))
        if lacking := side.lacking():
            raise ValueError(lacking)
        return side
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: no baseline ({reason(error)}): `gate NEW.json TABLE --accept` writes one"
        ) from error


def read_side(table: str, reading: Reading, guards: Sequence[Guard] = ()) -> Side:
    """Read the fresh runs of a table.

    Raises UserError with every mistake in the table, or why its runs cannot be compared; ListingError as `judge`.
    """
    tables = read_sources([table])
    runs, meanings = _read(tables, reading)
    side, guarded = _side(runs, meanings), dict[str, Side]()
    columns = {role: name for role, name in meanings.columns.items() if role not in SPLITS}
    for name, higher, _ in guards:
        given = {**columns, "validation": name}
        read = replace(reading, columns=given, higher_is_better=higher)
        guarded[name] = _side(*_read(tables, read), side.learning_rate)
    return replace(side, guards=guarded)


def _read(tables: Sequence[TableFile], reading: Reading) -> tuple[Runs, Reading]:
    """Read the runs of one variant on one task; a table without learning rates has none that were tuned."""
    runs, reading = runs_read(tables, reading)
    for role in ("task", "variant"):
        names = runs.wanted[role].unique().tolist()
        if len(names) > 1:
            advice = _advice(role, names[0], reading, len(names) == len(runs.wanted))
            raise UserError(f"{tables[0].path} has several {role}s ({listed(names)}): {advice}")
    if "tuned" in reading.columns:
        advice = "keep the rows of one, as by --where COLUMN=VALUE"
        raise UserError(f"{tables[0].path} has several tuned settings: {advice}")
    return runs, reading


def _advice(role: str, name: str, reading: Reading, are_single: bool) -> str:
    """Say how to keep the runs of one variant; `are_single`: each has one run, so they may be repeats."""
    column = reading.columns.get(role, "COLUMN")
    if role == "variant" and are_single:
        columns = shlex.quote(f"variant=,run={column}")
        repeats = f"if they are repeats of one recipe, give --columns {columns}"
        return f"{repeats}; if not, name the runs of one alone"
    return f"keep the rows of one, as by --where {shlex.quote(f'{column}={name}')}"


def _side(runs: Runs, reading: Reading, rate: float | None = None) -> Side:
    """Return the runs at a learning rate, but those of seeds at several; `rate` None: these chose it by validation."""
    metric, wanted = runs.info.metric, runs.wanted
    num_rates = wanted.groupby("seed")["learning_rate"].nunique()
    tuning = num_rates.index[num_rates > 1] if "seed" in reading.columns else num_rates.index[:0]
    of_sweep = replace(runs, wanted=wanted[wanted["seed"].isin(tuning)])
    swept = of_sweep.summary() if len(tuning) and rate is None else None
    rates = wanted["learning_rate"].drop_duplicates()
    if swept is not None:
        rates = swept.cells["learning_rate"]
    if rate is not None:
        rates = rates[rates.eq(rate)]
    if len(rates) > 1 or rates.isna().any():
        why = "several learning rates, and no seed with validation data at several"
        raise UserError(f"{why}: keep the rows of one")
    cells = swept_cells(swept) if swept else []
    findings = [finding for cell in cells for finding in grid_findings(cell)]
    finding = next((finding for finding in findings if finding.condition), None)
    summarised = runs.summary().runs.sort_values("seed")
    is_fresh = ~summarised["seed"].isin(tuning) & summarised["learning_rate"].isin(rates)
    ended = summarised[is_fresh & summarised["status"].ne("missing")]
    has_value = ended["test"].notna()
    return Side(
        metric=metric,
        seeds=ended["seed"][has_value].astype(int).tolist(),
        values=ended["test"][has_value].tolist(),
        learning_rate=None if metric.untuned else float(rates.iloc[0]),
        num_failed=int((ended["status"].eq("diverged") | ~has_value).sum()),
        next_seed=int(wanted["seed"].max()) + 1,
        condition=finding.condition if finding else "",
        rates_to_add=sorted(finding.learning_rates) if finding else (),
    )
