"""The stored baseline of the gate: made from a table, and compared with the runs of nights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.sides import Guard, Side, side_reader, store
from lr_sweep.analysis.judge.stream import Stream
from lr_sweep.analysis.statistics.comparisons.sequential import ALARM, BASELINE_SEEDS, Stored, drift
from lr_sweep.analysis.statistics.selection.best import Floats
from lr_sweep.common.errors import UserError
from lr_sweep.common.text import counted


def accept(path: Path, table: str, reading: Reading, guards: Sequence[Guard], stream: Path | None) -> str:
    """Store a table's runs as the baseline; return what to print.

    Raises UserError if they are the runs by which a stream's candidate was accepted: these look better than they are.
    """
    side = side_reader(table, "candidate", guards)(reading)
    lines = [side.text(f"{path}")]
    last = Stream(stream).accepted if stream else None
    if last and set(zip(last["seeds"], last["values"], strict=True)) & set(zip(side.seeds, side.values, strict=True)):
        raise UserError(
            f"{table}: its runs made the gate accept {last['candidate']}, so they look better than they are: "
            f"store {BASELINE_SEEDS} further seeds, from {max(last['seeds']) + 1} on"
        )
    if last:
        mean = side.metric.text(float(np.mean(last["values"])), float(np.std(last["values"])))
        lines.append(f"{last['candidate']} was accepted with a mean of {mean}, which is biased upwards")
    if len(side.values) < BASELINE_SEEDS:
        lines.append(f"with {BASELINE_SEEDS} seeds more gains are found: store again when there are more")
    store(path, side)
    return "\n".join(lines)


def drifted(baseline: str, table: str, reading: Reading) -> tuple[bool, str]:
    """Return whether the runs of nights, in the order of their seeds, became worse than a baseline, and a sentence."""
    stored, nights = side_reader(baseline, "baseline")(reading), side_reader(table, "candidate")(reading)
    return drift_of(stored, nights.better)


def drift_of(baseline: Side, values: Floats) -> tuple[bool, str]:
    """As `drifted`; `values`: of the nights, more is better."""
    sums = drift(Stored.of(baseline.better), values)
    if not (sums >= ALARM).any():
        return False, f"no drift in {counted(len(values), 'night')}"
    night = int((sums >= ALARM).argmax())
    start = int(np.flatnonzero(np.append(0.0, sums[:night]) == 0)[-1])
    since = values[start : night + 1]
    text = baseline.metric.text(baseline.metric.sign * float(since.mean()), float(values.std()))
    where = f"mean {baseline.metric.test} {text} since night {start + 1}"
    return True, f"worse than the baseline, by the alarm of night {night + 1}: {where}"
