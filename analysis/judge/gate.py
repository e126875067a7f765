"""The gate: is a candidate better than a baseline, as far as fresh seeds show, and which seeds to run next?

Seeds that chose a learning rate say how noisy its runs are, and nothing else: their mean is the best of several.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lr_sweep.analysis.judge.reading import Reading, asking
from lr_sweep.analysis.judge.sides import Guard, Side, seeds_text, side_reader
from lr_sweep.analysis.judge.stream import Stream
from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.statistics.comparisons.decide import FIRST_LOOK, SECOND, UNDECIDED, Pairs, Settings
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.statistics.comparisons.noise import Noise, cell_noise, padded
from lr_sweep.analysis.statistics.comparisons.sequential import (
    BASELINE_SEEDS,
    FALSE_ACCEPT,
    FEWEST_SEEDS,
    MAX_SEEDS,
    MIN_SD,
    Concluded,
    Looks,
    Stored,
    conclude,
    is_worse,
    levels_of,
    looks,
)
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, rate_text

FORMAT = 1
NUM_ASKED = 2
"""Seeds that are asked for at once."""
SKEWED_ACCEPT = 0.1
"""Share of candidates without a gain that are accepted where noise is skewed and unequal (docs/statistics.md)."""
Outcome = Literal["accept", "reject", "run", "open"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits that a candidate has to keep."""

    min_gain: float = 0.0
    """Least gain that is looked for, in points or the metric's unit; 0: `min_sd` standard deviations."""
    min_sd: float = MIN_SD
    max_seeds: int = MAX_SEEDS
    guards: Sequence[Guard] = ()


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Answer of the gate; its JSON has the same keys."""

    decision: Outcome
    why: str
    """A sentence with the numbers."""
    seeds: Mapping[str, Sequence[int]]
    """To run next, by side; empty once it is decided."""
    more: int | None
    """About how many seeds are left until it is decided, if these are as those so far; None: not known."""
    rates: Sequence[float]
    """To add to the baseline, which may be better at one of them; only of `open`."""
    gain: float | None
    """Mean of the candidate less that of the baseline, in the metric's own unit; better is positive."""
    low: float | None
    """95% interval of the gain."""
    high: float | None
    num_seeds: Mapping[str, int]
    """Seeds of each side that count."""
    level: float
    """One-sided error rate of this candidate's test."""
    about: Sequence[str]
    """Sentences on both sides, and on the error rate."""

    def text(self) -> str:
        """Return all of it, the decision first."""
        return "\n".join([f"{self.headline()}: {self.why}", *(f"  {line}" for line in self.about)])

    def headline(self) -> str:
        """Return the decision and what to run."""
        first = self.decision if self.decision != "run" else f"run {_asked_text(self.seeds)}"
        first += f" (about {self.more} more)" if self.more else ""
        return first + (f", add {', '.join(map(rate_text, self.rates))} to the baseline" if self.rates else "")

    def markdown(self, title: str) -> str:
        """Return it as Markdown, for a job's summary and a comment."""
        rows = [f"- {line}" for line in self.about]
        return "\n".join(
            [f"### {title}: {self.headline()}", "", f"{self.why[0].upper()}{self.why[1:]}.", "", *rows, ""]
        )

    def as_json(self) -> Mapping[str, Any]:
        """Return the document of `gate --json`."""
        return {"format": FORMAT, **asdict(self)}


def gate(
    baseline: str | Path,
    candidate: str | Path,
    reading: Reading,
    limits: Limits = Limits(),
    stream: Path | None = None,
) -> Gate:
    """Compare a candidate with a baseline.

    Args:
        baseline: what `accept` wrote, or a table as `judged` reads it; `TABLE#VARIANT`: one of its variants.
        candidate: a table.
        reading: of both.
        limits: what the candidate has to show.
        stream: log of all candidates, which is written; None: this is the only one.

    Raises:
        UserError: with every mistake in a table, or why two cannot be compared.
        QuestionError: there are readings that are equally good.
    """
    if str(baseline) == str(candidate):
        raise UserError(f"baseline and candidate are both {baseline}: name two tables, or TABLE#VARIANT twice")
    sources = {"baseline": str(baseline), "candidate": str(candidate)}
    readers = [side_reader(source, name, limits.guards) for name, source in sources.items()]
    first, second = asking(lambda reading: [read(reading) for read in readers], reading)
    log = Stream(stream) if stream else None
    turn = log.turn(str(candidate), second.values) if log else None
    compared = Comparison(baseline=first, candidate=second, limits=limits, level=turn.level if turn else FALSE_ACCEPT)
    found = compared.gate()
    if log and turn:
        log.add(turn, {"candidate": str(candidate), **compared.line(found.decision)})
        error = f"at most {FALSE_ACCEPT:.0%} of all accepted candidates are no gain (ADDIS); this one's level is"
        found = replace(
            found, about=[*found.about[:-1], log.text(first.seeds), f"{error} {turn.level:.2g}", *_next_step(found)]
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A candidate and its baseline, as they were read."""

    baseline: Side
    candidate: Side
    limits: Limits
    level: float = FALSE_ACCEPT
    """One-sided error rate of the test."""

    def __post_init__(self) -> None:
        """Raise UserError if the two have other metrics, or one lacks a guard."""
        if len({_measured(side.metric) for side in self.sides if side.values}) > 1:
            texts = " and ".join(_metric_text(side.metric) for side in self.sides)
            raise UserError(f"baseline and candidate have other metrics, {texts}: give --metric or --columns")
        if lacking := [each.name for each in self.limits.guards if each.name not in self.baseline.guards]:
            raise UserError(f"--guard {lacking[0]}: the baseline has no values of it: store it with this --guard")

    @property
    def sides(self) -> tuple[Side, Side]:
        """The baseline and the candidate."""
        return self.baseline, self.candidate

    @property
    def metric(self) -> Metric:
        """Metric of both."""
        return self.baseline.metric

    @property
    def values(self) -> Floats:
        """Values of the candidate that count, where more is better."""
        return self.candidate.better[: self.limits.max_seeds]

    @cached_property
    def decision(self) -> Decision:
        """All runs of both, as `decide` compares two variants: interval, failed runs, unequal noise."""
        return Decision(
            cells=(("", "", "baseline"), ("", "", "candidate")),
            rates=tuple(side.learning_rate or math.nan for side in self.sides),
            values=padded([self.baseline.better, self.values]),
            num_used=np.array([side.num_ended for side in self.sides]),
            pairs=Pairs.named([(1, 0)]),
            known=cell_noise(padded([side.tuned for side in self.sides])),
            tuned=padded([side.tuned[0] for side in self.sides]),
            settings=Settings(max_seeds=self.limits.max_seeds),
            metric=self.metric,
        )

    @cached_property
    def levels(self) -> Floats:
        """One-sided level after each seed."""
        return levels_of(self.level, self.limits.max_seeds)

    @property
    def loss_levels(self) -> Floats:
        """One-sided level of a loss after each seed: unlike a gain, a loss may be shown by two."""
        return levels_of(FALSE_ACCEPT, self.limits.max_seeds, FIRST_LOOK)

    @property
    def is_worse(self) -> bool:
        """Whether a loss is shown, by the same test."""
        return bool(is_worse(self.looks(self.values), self.loss_levels))

    def looks(self, values: Floats) -> Looks:
        """Compare the candidate, with these values, after each of them."""
        stored = Stored.of(self.baseline.better, Noise(*(each[0] for each in self.decision.known)))
        return looks(stored, values, self.limits.min_gain / self.metric.scale, self.limits.min_sd)

    def concluded(self, values: Floats) -> Concluded:
        """Test the candidate with these values."""
        return conclude(self.looks(values), self.levels)

    def gate(self) -> Gate:
        """Decide."""
        outcome, why = self.outcome()
        gain, low, high = (_number(float(each[0])) for each in _interval(self.decision))
        used = len(self.values) + self.candidate.num_lost
        asked = {"baseline": 0, "candidate": 0}
        if outcome == "run" and len(self.baseline.values) < FEWEST_SEEDS:
            asked["baseline"] = BASELINE_SEEDS - len(self.baseline.values)
        elif outcome == "run":
            asked["candidate"] = min(NUM_ASKED, self.limits.max_seeds - used)
        sides = {"baseline": self.baseline, "candidate": self.candidate}
        return Gate(
            decision=outcome,
            why=why,
            seeds={name: range(sides[name].next_seed, sides[name].next_seed + n) for name, n in asked.items() if n},
            more=self.more() if asked["candidate"] else None,
            rates=self.baseline.rates_to_add if outcome == "open" else (),
            gain=gain,
            low=low,
            high=high,
            num_seeds={"baseline": len(self.baseline.values), "candidate": len(self.values)},
            level=self.level,
            about=list(self.about()),
        )

    def outcome(self) -> tuple[Outcome, str]:
        """Return the decision, and a sentence with the numbers."""
        said, condition = self.gain_text(), self.baseline.condition
        found, used = self.concluded(self.values).outcome, len(self.values) + self.candidate.num_lost
        if worse := [text for each in self.limits.guards if (text := self.guard_text(each))]:
            return "reject", "; ".join(worse)
        if found == SECOND or (found == UNDECIDED and used >= self.limits.max_seeds):
            return "reject", f"{self.no_gain_text(used)}{said and f': {said}'}"
        if condition:
            return "open", f"{said} {condition}" if said else condition.partition(": ")[2]
        if (number := len(self.baseline.values)) < FEWEST_SEEDS:
            return "run", f"the baseline has {counted(number, 'fresh seed')}: at least {FEWEST_SEEDS} are needed"
        if found == UNDECIDED:
            return "run", f"it is open whether the candidate is better{said and f': {said}'}"
        if self.candidate.num_diverged > self.baseline.num_diverged:
            numbers = [f"{each.num_diverged} of the {counted(each.num_ended, 'fresh run')}" for each in self.sides]
            return "reject", f"{numbers[1]} of the candidate diverged, of the baseline {numbers[0]}; else {said}"
        return "accept", f"the candidate is better: {said}"

    def no_gain_text(self, used: int) -> str:
        """Say that the least gain is unlikely, or that all seeds showed none."""
        if used >= self.limits.max_seeds:
            return f"with {counted(len(self.values), 'seed')} no gain was shown"
        least = self.metric.amount_text(self.limits.min_gain / self.metric.scale)
        deviations = f"{self.limits.min_sd:g} standard deviations"
        return f"a gain of {least if self.limits.min_gain else deviations} is unlikely"

    def more(self) -> int | None:
        """Return about how many seeds are left, if the next ones are as those so far; None: there are none so far."""
        if not len(self.values):
            return None
        return max(1, int(self.concluded(np.resize(self.values, self.limits.max_seeds)).num_seeds) - len(self.values))

    def guard_text(self, guard: Guard) -> str:
        """Say by how much the candidate is worse than a guard allows; empty: no loss is shown."""
        base, candidate = self.baseline.guards[guard.name], self.candidate.guards[guard.name]
        sign = 1 if base.higher_is_better else -1
        stored = Stored.of(sign * guard.factor * np.array(base.values, float))
        found = looks(stored, sign * np.array(candidate.values, float)[: self.limits.max_seeds])
        if not len(candidate.values) or not is_worse(found, self.loss_levels):
            return ""
        limit = f"{guard.factor:g} times the baseline's" if guard.factor != 1 else "the baseline's"
        return (
            f"{guard.name} is worse than {limit}: mean {np.mean(candidate.values):.4g}, "
            f"of the baseline {np.mean(base.values):.4g}"
        )

    def gain_text(self) -> str:
        """Write the gain with its interval; empty: a side has no value."""
        gain, low, high = (float(each[0]) for each in _interval(self.decision))
        if math.isnan(gain):
            return ""
        said = f"it gains {self.metric.amount_text(gain, (high - low) / 2)} in {self.metric.test}"
        if math.isnan(low):
            return f"{said}; nothing is known of the noise"
        return f"{said} (95% interval {' to '.join(self.metric.ends_text(low, high))})"

    def about(self) -> Iterator[str]:
        """Yield sentences on both sides; the last one is on the error rate."""
        sides = {"baseline": self.baseline, "candidate": self.candidate}
        yield from (side.text(name) for name, side in sides.items())
        steps = [f"{side.num_steps:,}" for side in sides.values() if side.num_steps]
        if len(set(steps)) > 1:
            yield f"trained for {' and '.join(steps)} steps: the gain may be of that"
        if alone := [name for name, side in sides.items() if not side.tuning]:
            yield f"{' and '.join(alone)}: one learning rate is there; its seeds must not have chosen it"
        if failures := self.decision.failures():
            yield failures
        elif (unequal := self.decision.unequal()).startswith("the runs of the candidate"):
            share = f"{SKEWED_ACCEPT:.0%} of candidates without a gain"
            yield f"{unequal}: if rare ones are far off, {share} may be accepted"
        yield f"at most {self.level:.0%} of candidates without a gain are accepted (docs/statistics.md)"

    def line(self, decision: Outcome) -> Mapping[str, Any]:
        """Return what a stream's log has of it."""
        evidence = float(self.concluded(self.values).evidence)
        return {
            "decision": "run" if decision == "open" else decision,
            "seeds": list(self.candidate.seeds),
            "values": list(self.candidate.values),
            "evidence": min(evidence, self.level) if decision == "accept" else max(evidence, 1.001 * self.level),
            "baseline": list(self.baseline.seeds),
        }


def _next_step(found: Gate) -> list[str]:
    if found.decision != "accept":
        return []
    return [f"next: train {BASELINE_SEEDS} other seeds of the candidate, and store them with --accept: those it was "
            "accepted by look better than they are"]  # fmt: skip


def _interval(decision: Decision) -> tuple[Floats, Floats, Floats]:
    found = decision.found
    return found.difference, found.low, found.high


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _measured(metric: Metric) -> tuple[object, ...]:
    return metric.name, metric.higher_is_better, metric.is_fraction, metric.reported_on


def _metric_text(metric: Metric) -> str:
    unit = " from 0 to 1" if metric.is_fraction else ""
    return f"{metric.test}{unit} ({metric.better} is better)"


def _asked_text(seeds: Mapping[str, Sequence[int]]) -> str:
    return " and ".join(f"{seeds_text(each)} of the {name}" for name, each in seeds.items())
