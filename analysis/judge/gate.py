"""The gate: is a candidate better than the stored baseline, as far as fresh seeds show, and which seeds to run next?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from lr_sweep.analysis.judge.sides import Guard, Side
from lr_sweep.analysis.judge.stream import append_turn, lock_of, read_turns, turn_of
from lr_sweep.analysis.judge.table_file import printable
from lr_sweep.analysis.statistics.comparisons import sequential
from lr_sweep.analysis.statistics.comparisons.decide import SECOND, UNDECIDED, Pairs, Settings
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.statistics.comparisons.noise import Noise, padded
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted, rate_text

NUM_ASKED = 2
"""Seeds that are asked for at once."""
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
        seeds = (
            f" seeds {', '.join(map(str, self.seeds))} (about {self.more} more)"
            if self.seeds
            else ""
        )
        rates = (
            f": add learning rates {', '.join(map(rate_text, self.rates))} to the baseline"
            if self.rates
            else ""
        )
        return "\n  ".join([f"{self.decision}{seeds}{rates}: {self.why}", *self.about])


@dataclass(frozen=True)
class Comparison:
    """A baseline, a candidate, and the limits that the candidate has to keep."""

    baseline: Side
    candidate: Side
    guards: Sequence[Guard] = ()
    min_gain: float = 0.0
    """Least gain that is looked for, in points or the metric's unit; 0: `min_sd` standard deviations."""
    min_sd: float = sequential.MIN_SD
    max_seeds: int = sequential.NUM_SEEDS
    """Seeds after which the candidate is accepted or rejected."""
    level: float = sequential.FALSE_ACCEPT
    """One-sided error rate of the test."""

    def __post_init__(self) -> None:
        """Raise UserError if the two have other metrics, or the baseline lacks a guard."""
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

    @cached_property
    def decision(self) -> Decision:
        """All runs of both, as `decide` compares two variants, where the noise of the baseline is known."""
        noise = [self.baseline.better.var(ddof=1), len(self.baseline.values) - 1.0]
        return Decision(
            cells=(("", "", "baseline"), ("", "", "candidate")),
            rates=(math.nan, math.nan),
            values=padded([self.baseline.better, self.values]),
            num_used=np.array([len(self.baseline.values), len(self.values)]),
            pairs=Pairs.named([(1, 0)]),
            known=Noise(*np.array([[math.nan, 0.0], noise]).T),
            tuned=np.empty((2, 0)),
            settings=Settings(),
            metric=self.baseline.metric,
        )

    def concluded(self, values: Floats) -> sequential.Concluded:
        """Test the candidate with these values."""
        least = self.min_gain / self.baseline.metric.scale
        looks = sequential.looks(self.baseline.better, values, least, self.min_sd)
        return sequential.conclude(looks, self.level, self.max_seeds)

    def gate(self) -> Gate:
        """Decide."""
        outcome, why = self.outcome()
        left = self.max_seeds - len(self.values) if outcome == "run" else 0
        asked = range(self.candidate.next_seed, self.candidate.next_seed + min(NUM_ASKED, left))
        if asked and len(self.values):  # if the next seeds are as those so far
            left = int(self.concluded(np.resize(self.values, self.max_seeds)).num_seeds) - len(
                self.values
            )
        found = self.decision.found
        return Gate(
            decision=outcome,
            why=why,
            seeds=asked,
            more=left,
            rates=self.baseline.rates_to_add if outcome == "open" else (),
            gain=float(found.difference[0]),
            low=float(found.low[0]),
            high=float(found.high[0]),
            num_seeds=len(self.values),
            level=self.level,
            about=list(self.about()),
        )

    def streamed(self, log: Path, name: str) -> Gate:
        """Decide a candidate of a stream, and write its log; raises UserError."""
        with lock_of(log):
            turn = turn_of(read_turns(log), printable(name), self.candidate)
            found = replace(self, level=turn.level).gate()
            if found.decision in ("accept", "reject"):
                evidence = float(self.concluded(self.values).evidence)
                turn = replace(turn, decision=found.decision, evidence=evidence)
            append_turn(log, turn)
        error = f"at most {sequential.FALSE_ACCEPT:.0%} of all accepted candidates have no gain"
        return replace(
            found, about=[*found.about, f"candidate {turn.number} of the stream: {error}"]
        )

    def outcome(self) -> tuple[Outcome, str]:
        """Return the decision, and a sentence with the numbers."""
        gain, found, failed = (
            self.gain_text(),
            self.concluded(self.values).outcome,
            self.candidate.num_failed,
        )
        if worse := "; ".join(filter(None, map(self.guard_text, self.guards))):
            return "reject", worse
        if found == SECOND:
            lacking = (
                "a gain of the least size is unlikely"
                if len(self.values) < self.max_seeds
                else "no gain is certain"
            )
            return "reject", f"after {counted(len(self.values), 'seed')} {lacking}: {gain}"
        if failed > self.baseline.num_failed:
            return (
                "reject",
                f"{failed} of its runs failed, of the baseline {self.baseline.num_failed}: {gain}",
            )
        if self.baseline.condition:
            return "open", f"{gain} {self.baseline.condition}"
        if found == UNDECIDED:
            return "run", f"it is open whether the candidate is better: {gain}"
        return "accept", f"the candidate is better: {gain}"

    def guard_text(self, guard: Guard) -> str:
        """Say that the candidate is worse than a guard allows; empty: no loss is shown."""
        base, candidate = self.baseline.guards[guard.name], self.candidate.guards[guard.name]
        if not sequential.is_worse(guard.factor * base.better, candidate.better):
            return ""
        limit = f"{guard.factor:g} times the baseline's" if guard.factor != 1 else "the baseline's"
        return f"{guard.name} is worse than {limit} mean, {np.mean(base.values):.4g}: {np.mean(candidate.values):.4g}"

    def gain_text(self) -> str:
        """Write the gain with its interval."""
        found, metric = self.decision.found, self.baseline.metric
        gain, low, high = (float(each[0]) for each in (found.difference, found.low, found.high))
        if math.isnan(gain):
            return "it has no value yet"
        interval = (
            "" if math.isnan(low) else f" (95% interval {' to '.join(metric.ends_text(low, high))})"
        )
        return f"it gains {metric.amount_text(gain, (high - low) / 2)} in {metric.test}{interval}"

    def about(self) -> Iterator[str]:
        """Yield sentences on both sides and the error rate."""
        yield self.baseline.text("baseline")
        yield self.candidate.text("candidate")
        yield from filter(None, [self.decision.failures(), self.decision.unequal()])
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
