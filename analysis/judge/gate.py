"""The gate: is a candidate better than the stored baseline, as far as fresh seeds show, and which seeds to run next?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from lr_sweep.analysis.statistics.comparisons import sequential
from lr_sweep.analysis.statistics.comparisons.failures import failed_runs
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, rate_text

from .sides import Guard, Side
from .stream import append_turn, lock_of, read_turns, turn_of
from .table_file import printable

NUM_ASKED = 2
"""Seeds that are asked for at once."""
UNSEEN = 0.05
"""Probability that no run of a candidate has failed yet, at the failure rate that is still possible."""
Outcome = Literal["accept", "reject", "run", "open"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Answer of the gate; docs/gate.md describes its fields, which are the keys of its JSON."""

    decision: Outcome
    why: str
    seeds: Sequence[int]
    more: int
    rates: Sequence[float]
    gain: float
    low: float
    high: float
    num_seeds: int
    level: float
    about: Sequence[str]

    def text(self) -> str:
        """Return all of it, the decision first."""
        wanted = ""
        if self.seeds:
            wanted = f" seeds {', '.join(map(str, self.seeds))} (at most {self.more} more)"
        if self.rates:
            rates = ", ".join(map(rate_text, self.rates))
            wanted = f": add learning rates {rates} to the baseline"
        return "\n  ".join([f"{self.decision}{wanted}: {self.why}", *self.about])


@dataclass(frozen=True)
class Comparison:
    """A baseline, a candidate, and the limits that the candidate has to keep."""

    baseline: Side
    candidate: Side
    guards: Sequence[Guard] = ()
    min_gain: float = 0.0
    """Least gain that is looked for, in points or the metric's unit; 0: `min_sd` standard deviations."""
    min_sd: float = sequential.MIN_SD
    """Least gain in standard deviations of the noisier side's runs."""
    max_seeds: int = sequential.NUM_SEEDS
    """Seeds after which the candidate is accepted or rejected."""
    level: float = sequential.FALSE_ACCEPT
    """One-sided error rate of the test."""

    def __post_init__(self) -> None:
        """Raise UserError if seeds are too few, the two have other metrics, or the baseline lacks a guard."""
        if self.max_seeds < sequential.MIN_SEEDS:
            raise UserError(
                f"max_seeds: got {self.max_seeds}, want at least {sequential.MIN_SEEDS}: "
                "fewer seeds may lack all of their rare bad runs"
            )
        metrics = [each.metric for each in (self.baseline, self.candidate) if each.values]
        said = [
            f"{each.test} ({each.better} is better{', in percent' * each.is_fraction})"
            for each in metrics
        ]
        if len(set(said)) > 1:
            raise UserError(f"the baseline has {said[0]}, the candidate {said[1]}: give --columns")
        if lacking := [each.name for each in self.guards if each.name not in self.baseline.guards]:
            raise UserError(
                f"--guard {lacking[0]}: the baseline has no values of it: store it with this --guard"
            )

    @property
    def values(self) -> Floats:
        """Values of the candidate that count, where more is better."""
        return self.candidate.better[: self.max_seeds]

    @property
    def gain(self) -> tuple[float, float, float]:
        """Gain of the candidate's mean, and the ends of its interval at the test's level; NaN: too few seeds."""
        base, values = self.baseline.better, self.values
        gain = float(values.mean() - base.mean()) if len(values) else math.nan
        if len(values) < sequential.FIRST_LOOK:
            return gain, math.nan, math.nan
        low = sequential.lower_bound(base, values, self.level)
        high = -sequential.lower_bound(-base, -values, self.level)
        return gain, float(low), float(high)

    def gate(self) -> Gate:
        """Decide."""
        outcome, why = self.outcome()
        left = self.max_seeds - len(self.values) if outcome == "run" else 0
        asked = range(self.candidate.next_seed, self.candidate.next_seed + min(NUM_ASKED, left))
        gain, low, high = self.gain
        return Gate(
            decision=outcome,
            why=why,
            seeds=asked,
            more=left,
            rates=self.baseline.rates_to_add if outcome == "open" else (),
            gain=gain,
            low=low,
            high=high,
            num_seeds=len(self.values),
            level=self.level,
            about=list(self.about()),
        )

    def streamed(self, log: Path, name: str) -> Gate:
        """Decide a candidate of a stream, and write its log; raises UserError."""
        with lock_of(log):
            turn = turn_of(read_turns(log), printable(name), self.candidate)
            answer = replace(self, level=turn.level).gate()
            if answer.decision in ("accept", "reject"):
                turn = replace(turn, decision=answer.decision)
            append_turn(log, turn)
        error = f"at most {sequential.FALSE_ACCEPT:.0%} of all accepted candidates have no gain"
        about = f"candidate {turn.number} of the stream: {error}"
        return replace(answer, about=[*answer.about, about])

    def outcome(self) -> tuple[Outcome, str]:
        """Return the decision, and a sentence with the numbers."""
        gain, base = self.gain_text(), self.baseline.better
        least = self.min_gain / self.baseline.metric.scale
        concluded = sequential.conclude(
            base, self.values, self.level, self.max_seeds, least, self.min_sd
        )
        num_seeds, failed = len(self.values), self.candidate.num_failed
        if worse := "; ".join(filter(None, map(self.guard_text, self.guards))):
            return "reject", worse
        if concluded.is_rejected:
            is_last = num_seeds == self.max_seeds
            lacking = "no gain is certain" if is_last else "a gain of the least size is unlikely"
            return "reject", f"after {counted(num_seeds, 'seed')} {lacking}: {gain}"
        if failed > self.baseline.num_failed:
            counts = f"{failed} of its runs failed, of the baseline {self.baseline.num_failed}"
            return "reject", f"{counts}: {gain}"
        if self.baseline.condition:
            return "open", f"{gain} {self.baseline.condition}"
        if concluded.is_accepted:
            return "accept", f"the candidate is better: {gain}"
        return "run", f"it is undecided after {num_seeds} of {self.max_seeds} seeds: {gain}"

    def guard_text(self, guard: Guard) -> str:
        """Say that the candidate is worse than a guard allows; empty: no loss is shown."""
        base, candidate = self.baseline.guards[guard.name], self.candidate.guards[guard.name]
        if not sequential.is_worse(guard.factor * base.better, candidate.better):
            return ""
        limit = f"{guard.factor:g} times the baseline's" if guard.factor != 1 else "the baseline's"
        return f"{guard.name} is worse than {limit} mean, {np.mean(base.values):.4g}: {np.mean(candidate.values):.4g}"

    def gain_text(self) -> str:
        """Write the gain with its interval."""
        metric, (gain, low, high) = self.baseline.metric, self.gain
        if math.isnan(gain):
            return "it has no value yet"
        text = f"it gains {metric.amount_text(gain, (high - low) / 2)} in {metric.test}"
        if math.isnan(low):
            return text
        outside = float(f"{200 * self.level:.2g}")
        ends = " to ".join(metric.ends_text(low, high))
        return f"{text} ({100 - outside:.9g}% interval {ends})"

    def failures(self) -> str:
        """Say how many runs failed, or how many of the candidate's may fail unseen."""
        is_fraction, base = self.baseline.metric.is_fraction, self.baseline.better
        sides = base, self.values
        of_base, of_candidate = (failed_runs(side, is_fraction).sum() for side in sides)
        counts = (
            f"baseline {of_base} of {len(base)}, candidate {of_candidate} of {len(self.values)}"
        )
        unseen = 1 - UNSEEN ** (1 / max(len(self.values), 1))
        hidden = f"up to {unseen:.0%} of the candidate's runs may still fail"
        text = f"no run is far below the others, but {hidden}"
        if of_base or of_candidate:
            text = f"runs far below the others: {counts}"
        return f"{text}; a gain may be one of the runs that work"

    def about(self) -> Iterator[str]:
        """Yield sentences on both sides and the error rate."""
        yield self.baseline.text("baseline")
        yield self.candidate.text("candidate")
        yield self.failures()
        yield f"at most {self.level:.2g} of candidates without a gain are accepted (docs/statistics.md)"

    def drift_text(self) -> str:
        """Say that the candidate's runs, of nights in their order, became worse than the baseline; empty: no."""
        nights, metric = self.candidate.values, self.baseline.metric
        sums = sequential.drift(self.baseline.better, self.candidate.better)
        if not (alarms := np.flatnonzero(sums >= sequential.ALARM)).size:
            return ""
        first = int(np.flatnonzero(np.append(0.0, sums[: alarms[0]]) == 0)[-1])
        mean = metric.text(float(np.mean(nights[first : alarms[0] + 1])), float(np.std(nights)))
        return f"worse than the baseline since night {first + 1}, by night {alarms[0] + 1}: mean {metric.test} {mean}"
