"""What is left of a study costs: device time and wall time with a range, and what leaving something out saves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from analysis.text import rate_text
from sweep.known_runs import checkpoint_step
from sweep.packing import cohorts
from sweep.placement import Placement
from sweep.reconcile import Reconciled
from sweep.results import Results
from sweep.runs import WantedRun, by_cell
from sweep.standing import State
from sweep.text import aligned, counted, duration
from sweep.time_left import wall_time
from sweep.timings import BUSY, Cell, Span, Timing


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What training what is left takes, at most: runs that diverge stop early."""

    to_train: Sequence[WantedRun]
    """Runs that are left, in the study's order."""
    num_trials: int
    at_once: int
    """Trials that train at the same time."""
    device: str
    """`cpu` or `cuda`."""
    timings: dict[Cell, Timing]
    """Of the cells of which it is known."""
    device_s: dict[str, Span]
    """By run id; runs of cells that are not timed are left out."""
    wall_s: Span
    """Of the runs that are timed; the start of Ray and of trials left out."""

    def of(self, runs: Iterable[WantedRun]) -> Span:
        """Return the device seconds of those of the runs that are left and timed."""
        return _sum(self.device_s[run.run_id] for run in runs if run.run_id in self.device_s)


def estimate_cost(
    reconciled: Reconciled, timings: dict[Cell, Timing], placement: Placement, at_once: int, results: Results
) -> Cost:
    """Work out what training what is left takes.

    Args:
        reconciled: what is left.
        timings: as `find_timings` gives them.
        placement: what each trial holds.
        at_once: trials that train at the same time.
        results: where checkpoints are: what a run has trained is not paid again.
    """
    groups = cohorts(reconciled.to_train, placement.resources, at_once)
    device_s = {}
    for run in reconciled.to_train:
        if run.cell in timings:
            started = reconciled.states[run.run_id] is not State.NEW
            steps = run.num_steps - ((checkpoint_step(results, run.run_id) or 0) if started else 0)
            device_s[run.run_id] = timings[run.cell].step_s.times(max(0, steps) * placement.devices_per_trial)
    trials = [
        _sum(device_s[run.run_id] for run in group if run.run_id in device_s).times(1 / placement.devices_per_trial)
        for group in groups
    ]
    wall_s = Span(
        low=wall_time([trial.low for trial in trials], at_once),
        middle=wall_time([trial.middle for trial in trials], at_once),
        high=wall_time([trial.high for trial in trials], at_once),
    )
    return Cost(
        to_train=reconciled.to_train,
        num_trials=len(groups),
        at_once=at_once,
        device=placement.device,
        timings=timings,
        device_s=device_s,
        wall_s=wall_s,
    )


def cost_lines(cost: Cost) -> list[str]:
    """Return the cost for the terminal."""
    if not cost.to_train:
        return ["cost       nothing: everything is trained"]
    if not cost.device_s:
        return [f"cost       not known: {_untimed(cost)}"]
    unit = "GPU-hours" if cost.device == "cuda" else "core-hours"
    total = cost.of(cost.to_train)
    rows = [("", "task", "model", "variant", "to train", unit, "range", "timed by")]
    for cell, runs in by_cell(cost.to_train).items():
        rows.append(("", *cell, str(len(runs)), *_cell_entries(cost, cell, runs)))
    missing = by_cell(cost.to_train).keys() - cost.timings.keys()
    atleast = "at least " if missing else ""
    return [
        f"cost       {atleast}{_hours(total.middle)} {unit} ({_range(total)}) for what is left, if no run diverges",
        *aligned(rows, right=(4, 5)),
        *([f"           {_untimed(cost)}"] if missing else []),
        f"wall time  {atleast}{duration(cost.wall_s.middle)} ({duration(cost.wall_s.low)} to "
        f"{duration(cost.wall_s.high)}) with {counted(cost.at_once, 'trial')} at once; starting Ray is not in it",
        *_savings(cost, unit),
        f"range      from all steps as quick as the quickest timed to all as slow as the slowest; {_devices(cost)}",
        *_warning(cost),
    ]


def _cell_entries(cost: Cost, cell: Cell, runs: Sequence[WantedRun]) -> tuple[str, str, str]:
    if cell not in cost.timings:
        return "unknown", "", ""
    device_s = cost.of(runs)
    return _hours(device_s.middle), _range(device_s), cost.timings[cell].source


def _untimed(cost: Cost) -> str:
    cells = by_cell(cost.to_train).keys() - cost.timings.keys()
    return f"{counted(len(cells), 'cell')} not timed yet; `plan --measure` times a few steps of each on this machine"


def _devices(cost: Cost) -> str:
    """Say what was timed where: the reader knows whether the runs will train on such a device."""
    return f"timed on {' and '.join(sorted({timing.device for timing in cost.timings.values()}))}"


def _warning(cost: Cost) -> list[str]:
    shares = [timing.others_share for timing in cost.timings.values() if timing.others_share is not None]
    if not shares:
        return []
    if max(shares) < BUSY:
        return ["           what was measured had this machine to itself; beside other trials and Ray it is slower"]
    return [
        f"           while it was measured, other processes used up to {max(shares):.0%} of the CPUs: the range goes",
        "           from a machine without them to one where they slow training down as much again; `plan --measure`",
        "           on a quiet machine narrows it",
    ]


def _savings(cost: Cost, unit: str) -> list[str]:
    """Say what the dearest seed and the dearest learning rate cost, where there are several."""
    axes: dict[str, tuple[Callable[[WantedRun], float], Callable[[float], str]]] = {
        "seed": (lambda run: run.run.seed, "{:.0f}".format),
        "learning rate": (lambda run: run.run.learning_rate, rate_text),
    }
    lines: list[str] = []
    for axis, (value_of, text_of) in axes.items():
        runs: dict[float, list[WantedRun]] = {}
        for run in cost.to_train:
            runs.setdefault(value_of(run), []).append(run)
        saved = {value: cost.of(runs[value]).middle for value in sorted(runs, reverse=True)}
        if len(saved) > 1:
            dearest = max(saved, key=lambda value: saved[value])
            head = "           " if lines else "savings    "
            lines.append(f"{head}{_hours(saved[dearest])} {unit} without {axis} {text_of(dearest)}")
    return lines


def _sum(spans: Iterable[Span]) -> Span:
    found = list(spans)
    return Span(
        low=sum(span.low for span in found),
        middle=sum(span.middle for span in found),
        high=sum(span.high for span in found),
    )


def _range(device_s: Span) -> str:
    return f"{_hours(device_s.low)} to {_hours(device_s.high)}"


def _hours(seconds: float) -> str:
    """Return seconds as hours to three digits."""
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
