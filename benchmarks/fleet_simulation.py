"""A sweep of 10,000 runs of GPT-2 on a simulated fleet of 200 nodes x 8 GPUs: how long, at what price, what is lost.

Everything printed is simulated (benchmarks/fleet.py). Runs and cohorts are made by the sweep's own code; step times,
rates of loss and prices are what the options say, by default assumptions, which are printed first. Times are those of
floors for one H200, faster than any program can be: compare the rows; they do not predict what a sweep will take.
`python -m benchmarks.fleet_simulation`, half a minute; docs/fleet.md discusses the result.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lr_sweep.benchmarks.fleet import Fleet, Outcome, simulate
from lr_sweep.benchmarks.fleet_study import CHECKPOINT_EVERY_S, FLOORS, FLOORS_FROM, Costs, checkpoint_gb, study_runs
from lr_sweep.sweep.plan.packing import cohorts
from lr_sweep.sweep.study.runs import WantedRun
from lr_sweep.sweep.study.study import Resources

IDLE_S = 600.0
"""The setting of cluster.yaml."""
INTERVALS_S = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The sweep, and the fleet as it is unless a table says otherwise."""

    runs: Sequence[WantedRun]
    costs: Costs
    fleet: Fleet
    dollars_per_hour: float
    """Price of a node."""
    seeds: Sequence[int]

    def cohorts(self, runs_per_trial: int | None = None) -> list[tuple[WantedRun, ...]]:
        """Pack the runs as `run` would on this fleet."""
        at_once = self.fleet.num_nodes * self.fleet.gpus_per_node
        return cohorts(self.runs, Resources(gpus_per_trial=1, runs_per_trial=runs_per_trial), at_once)

    def outcomes(self, every_s: float | None, runs_per_trial: int | None = None) -> list[Outcome]:
        """Simulate once a seed."""
        trials = [self.costs.trial(cohort, every_s) for cohort in self.cohorts(runs_per_trial)]
        return [simulate(trials, self.fleet, np.random.default_rng(seed)) for seed in self.seeds]

    def row(self, name: str, every_s: float | None, runs_per_trial: int | None = None) -> str:
        """Simulate, and return a table's row."""
        found, groups = self.outcomes(every_s, runs_per_trial), self.cohorts(runs_per_trial)
        work_s = sum(self.costs.trial(group, every_s).work_s for group in groups)
        gb_per_s = self.costs.storage_gb_per_s
        columns = [
            name,
            str(len(groups)),
            _spread(found, lambda o: o.makespan_s / 3600, "{:.2f}"),
            _spread(found, lambda o: o.paid_s / 3600 * self.dollars_per_hour / 1000, "{:.1f}"),
            _spread(found, lambda o: 100 * o.lost_s / work_s, "{:.2f}"),
            _spread(found, lambda o: 100 * o.checkpoints_s / work_s, "{:.1f}"),
            _spread(found, lambda o: o.checkpoints_s * gb_per_s / o.makespan_s, "{:.1f}"),
            _spread(found, lambda o: o.num_lost_nodes, "{:.0f}"),
            str(max(o.most_failures for o in found)),
            f"{max(o.peak_driver_load for o in found):.2f}",
        ]
        return f"| {' | '.join(columns)} |"


HEADER = (
    "trials",
    "makespan, h",
    "cost, 1000 $",
    "lost, % of work",
    "held up by checkpoints, % of work",
    "written on average, GB/s",
    "nodes lost",
    "most failures of a trial",
    "driver's peak load",
)


def _spread(outcomes: Sequence[Outcome], value: Callable[[Outcome], float], form: str) -> str:
    """Return the mean, and least to most where they differ as written."""
    values = [value(outcome) for outcome in outcomes]
    least, most = form.format(min(values)), form.format(max(values))
    return form.format(float(np.mean(values))) + (f" ({least} to {most})" if least != most else "")


def _table(first: str, rows: Sequence[str]) -> str:
    head = f"| {' | '.join([first, *HEADER])} |\n|{'---|' * (len(HEADER) + 1)}"
    return "\n".join([head, *rows, ""])


def interval_tables(scene: Scene) -> None:
    """Print makespan, cost and losses by checkpoint interval, for spot machines without and with a notice."""
    silent = dataclasses.replace(scene, fleet=dataclasses.replace(scene.fleet, notice_s=0.0))
    for title, given in (("without a notice", silent), (f"with {scene.fleet.notice_s:g} s of notice", scene)):
        print(f"Spot machines {title}, by training between checkpoints\n")
        rows = [given.row(f"{every_s:g} s", every_s) for every_s in INTERVALS_S]
        rows.append(given.row(f"evaluation, and {CHECKPOINT_EVERY_S:g} s", None))
        print(_table("checkpoint every", rows), flush=True)


def best_intervals(scene: Scene) -> None:
    """Print what theory says: sqrt(2 C M), C a checkpoint's seconds, M the mean time to a loss (Young 1974)."""
    per_hour = scene.fleet.failures_per_hour + scene.fleet.interruptions_per_hour
    print("| cohort | runs | checkpoint, GB | holds up, s | best interval without a notice, s |\n|---|---|---|---|---|")
    shown = {cohort[0].cell: cohort for cohort in reversed(scene.cohorts()) if cohort[0].variant.endswith("-random")}
    for cell, cohort in sorted(shown.items()):
        seconds = checkpoint_gb(cohort) / scene.costs.storage_gb_per_s
        best = f"{math.sqrt(2 * seconds * 3600 / per_hour):.0f}" if per_hour else "-"
        print(f"| {cell[0]}, {cell[2]} | {len(cohort)} | {checkpoint_gb(cohort):.2f} | {seconds:.2f} | {best} |")
    print()


def kind_table(scene: Scene, on_demand_dollars: float) -> None:
    """Print on-demand machines beside spot ones."""
    on_demand = dataclasses.replace(
        scene,
        fleet=dataclasses.replace(scene.fleet, interruptions_per_hour=0.0),
        dollars_per_hour=on_demand_dollars,
    )
    rows = [on_demand.row("on demand", 300.0), scene.row("spot", 300.0)]
    print("On demand or spot, with notice, a checkpoint every 300 s\n")
    print(_table("machines", rows), flush=True)


def packing_table(scene: Scene) -> None:
    """Print makespans by cohort size: a run-step is taken to cost the same in each."""
    free = dataclasses.replace(scene, costs=dataclasses.replace(scene.costs, result_s=0.0, evaluation_s=0.0))
    drivers = (("", scene), (", were the driver free", free))
    sizes = (1, 2, 4, None)
    rows = [given.row(f"{size or 'as packed'}{which}", 300.0, size) for which, given in drivers for size in sizes]
    print("Runs a trial, a checkpoint every 300 s\n")
    print(_table("runs a trial", rows), flush=True)


def driver_table(scene: Scene) -> None:
    """Print fleets of several sizes: at a peak load above 1 the driver holds training up."""
    rows = []
    for num_nodes in (25, 50, 100, 200, 400, 800):
        sized = dataclasses.replace(scene, fleet=dataclasses.replace(scene.fleet, num_nodes=num_nodes))
        rows.append(sized.row(f"{num_nodes}", 300.0))
    costs = scene.costs
    print(
        f"The driver saturates at {_per_s(costs.result_s)} results/s, or {_per_s(costs.evaluation_s)} evaluations/s, "
        f"or a mixture. Nodes, a checkpoint every 300 s\n"
    )
    print(_table("nodes", rows), flush=True)


def _per_s(seconds: float) -> str:
    return f"{1 / seconds:.0f}" if seconds else "any number of"


def main() -> None:
    """Print assumptions and tables."""
    given = _arguments()
    assumed: dict[str, Any] = {"label": FLOORS_FROM, "run_step_ms": FLOORS}
    times = json.loads(given.step_times.read_text()) if given.step_times else assumed
    fleet = Fleet(
        num_nodes=given.nodes,
        gpus_per_node=given.gpus_per_node,
        node_start_s=given.node_start_s,
        worker_start_s=given.worker_start_s,
        trial_start_s=given.trial_start_ms / 1000,
        idle_s=IDLE_S,
        failures_per_hour=given.failures_per_hour,
        interruptions_per_hour=given.interruptions_per_hour,
        notice_s=given.notice_s,
    )
    costs = Costs(
        run_step_ms=times["run_step_ms"],
        storage_gb_per_s=given.storage_gb_per_s,
        result_s=given.result_ms / 1000,
        evaluation_s=given.evaluation_ms / 1000,
    )
    runs = study_runs()
    scene = Scene(runs=runs, costs=costs, fleet=fleet, dollars_per_hour=given.spot_dollars, seeds=range(given.seeds))
    _print_assumptions(scene, times, given)
    best_intervals(scene)
    interval_tables(scene)
    kind_table(scene, given.on_demand_dollars)
    packing_table(scene)
    driver_table(scene)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options: tuple[tuple[str, float, str], ...] = (
        ("--nodes", 200, "at most"),
        ("--gpus-per-node", 8, "each holds one trial"),
        ("--node-start-s", 300.0, "from asking for a machine to the first trial on it"),
        ("--worker-start-s", 6.4, "process and imports; measured on two virtual cores"),
        ("--trial-start-ms", 34.0, "of the driver, one trial after the other; measured (benchmarks.trial_overhead)"),
        ("--result-ms", 1.5, "of the driver, a result of a trial; measured (benchmarks.driver_events)"),
        ("--evaluation-ms", 4.0, "of the driver, an evaluation of a run; measured (benchmarks.driver_events)"),
        ("--failures-per-hour", 1 / 6300, "of a node; 419 in 54 days of 2,048 nodes (Llama 3, 2024, section 3.3.4)"),
        ("--interruptions-per-hour", 0.05, "of a spot node; assumed"),
        ("--notice-s", 120.0, "before a spot node is taken away"),
        ("--storage-gb-per-s", 1.0, "at which one GPU's process writes checkpoints; assumed"),
        ("--on-demand-dollars", 60.0, "a node-hour; assumed"),
        ("--spot-dollars", 25.0, "a node-hour; assumed"),
        ("--seeds", 5, "simulations of each row, with seeds 0, 1, ..."),
    )
    for name, default, words in options:
        parser.add_argument(name, type=type(default), default=default, help=f"{words}; default {default:g}")
    parser.add_argument(
        "--step-times",
        type=Path,
        help='measured ones, JSON: {"label": "...", "run_step_ms": {"frozen": {"64": 0.34, ...}, "unfrozen": ...}}',
    )
    return parser.parse_args()


def _print_assumptions(scene: Scene, times: dict[str, Any], given: argparse.Namespace) -> None:
    print("Simulated, not measured. Assumptions:\n")
    print(f"- step times: {times['label']}; {json.dumps(times['run_step_ms'])} ms a run-step by number of tokens")
    for name, value in vars(given).items():
        if name != "step_times":
            print(f"- {name.replace('_', ' ')}: {value:.4g}")
    work_s = sum(scene.costs.run_step_s(run) * run.num_steps for run in scene.runs)
    gpus = scene.fleet.num_nodes * scene.fleet.gpus_per_node
    print(f"- a machine without work is released after {IDLE_S:g} s")
    print(
        f"- work: {len(scene.runs)} runs, {work_s / 3600:,.0f} GPU-hours; {work_s / 3600 / gpus:.2f} h if shared evenly"
    )
    print(f"- seeds {', '.join(map(str, scene.seeds))}; mean (least to most)\n")


if __name__ == "__main__":
    main()
