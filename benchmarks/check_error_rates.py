"""How often each check fires on sound studies and on planted faults: `python -m benchmarks.check_error_rates`.

Studies are drawn (`simulated_studies.py`) and judged by the report's own functions. Numbers depend on `--seed` alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.statistics.checks.finding import CheckFinding
from lr_sweep.analysis.statistics.checks.sweep import check_sweep
from lr_sweep.analysis.statistics.checks.variants import unequal_tuning
from lr_sweep.analysis.statistics.comparisons.pairs import comparisons
from lr_sweep.analysis.statistics.selection.summary import summarise
from lr_sweep.benchmarks import simulated_studies as simulated
from lr_sweep.benchmarks.simulated_studies import Frames, Truth, any_setting, drawn, sound
from lr_sweep.common.text import counted

Fault = Callable[[Truth, np.random.Generator], Frames]
"""Draws a study of a truth, with a fault in it."""

CHECKS = (
    "edge",
    "cliff",
    "narrow",
    "unstable",
    "improving",
    "gap",
    "stuck",
    "identical",
    "diverged",
)
"""Of which a sound study may have findings by chance; `diverged` is a note of its cliffs."""
NUM_TASKS = (1, 2, 4)


def in_truth(plant: Callable[[Truth, np.random.Generator], Truth]) -> Fault:
    """Return a fault that is planted before the study is drawn."""
    return lambda truth, rng: drawn(plant(truth, rng), rng)


def in_frames(damage: Callable[[Frames], Frames]) -> Fault:
    """Return a fault that is planted into the drawn study."""
    return lambda truth, rng: damage(drawn(truth, rng))


FAULTS: dict[str, tuple[Fault, str]] = {
    "peak beyond the grid": (in_truth(simulated.beyond_the_end), "edge"),
    "peak between two rates, 4 to 8 points higher": (
        in_truth(simulated.between_two_rates),
        "narrow",
    ),
    "rises into a cliff": (in_truth(simulated.rising_into_a_cliff), "cliff"),
    "only the smallest rate trains": (in_truth(simulated.mostly_diverged), "untuned"),
    "a seed diverged at the best rate": (in_truth(simulated.one_seed_diverged), "unstable"),
    "still rising": (in_truth(simulated.still_rising), "improving"),
    "test 10 points below validation": (in_truth(simulated.lower_test), "gap"),
    "a run missing": (in_truth(simulated.one_run("missing")), "missing"),
    "a run failed": (in_truth(simulated.one_run("failed")), "missing"),
    "inputs that are all alike": (in_frames(simulated.constant), "stuck"),
    "a cell's evaluations copied": (in_frames(simulated.copied), "identical"),
    "a variant with two rates fewer": (in_frames(simulated.without_upper_rates), "unequal"),
    "two learning rates": (in_frames(simulated.two_rates), "untuned"),
}
"""The fault, and the check that finds it."""


class Family(NamedTuple):
    """Sound studies of one kind."""

    settings: Mapping[str, Any] = {}
    """Fields of `Setting`."""
    change: Callable[[Frames, Truth, np.random.Generator], Frames] = lambda frames, *_: frames
    """Change that is made to each drawn study."""
    metric: Metric = ACCURACY


NORMAL = Family()
FAMILIES = {
    "one noise at all rates": NORMAL,
    "noise that doubles from rate to rate": Family({"noise_step": 2.0}),
    "noise that triples from rate to rate": Family({"noise_step": 3.0}),
    "splits of 100 examples": Family({"num_examples": 100}),
    "losses, exploded above the middle rate": Family(
        {}, simulated.exploded, Metric(name="loss", higher_is_better=False, is_fraction=False)
    ),
}


def judged(frames: Frames, metric: Metric = ACCURACY) -> list[CheckFinding]:
    """Run every check of a report but those of code versions."""
    summary = summarise(frames.wanted, frames.runs, frames.curves, metric)
    return [*check_sweep(summary, frames.curves), *unequal_tuning(summary)]


def on_sound_studies(
    num_studies: int, num_tasks: int, rng: np.random.Generator, family: Family = NORMAL
) -> Counter[tuple[str, str]]:
    """Count the sound studies with a finding, by check and level, and those that pass (`passes`, `--strict`)."""
    found: Counter[tuple[str, str]] = Counter()
    for _ in range(num_studies):
        truth = sound(replace(any_setting(rng, num_tasks), **family.settings), rng)
        findings = judged(family.change(drawn(truth, rng), truth, rng), family.metric)
        found.update({(each.check, each.level) for each in findings})
        found["passes", "--strict"] += all(each.level == "note" for each in findings)
    return found


def share_found(
    fault: Fault, check: str, num_studies: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the shares of studies of one task where a fault is found in its cell: as a problem, and at all."""
    problems = found = 0
    for _ in range(num_studies):
        findings = judged(fault(sound(any_setting(rng, 1), rng), rng))
        levels = {
            each.level
            for each in findings
            if (each.check, each.variant) == (check, simulated.VARIANTS[-1])
        }
        problems += "problem" in levels
        found += bool(levels)
    return problems / num_studies, found / num_studies


def family_wise_error(
    num_studies: int, num_tasks: int, num_seeds: int, rng: np.random.Generator
) -> float:
    """Return the share of studies of four equal variants in which any pair is distinguishable."""
    claims = 0
    for _ in range(num_studies):
        setting = any_setting(rng, num_tasks, equal=True)
        setting = replace(setting, num_seeds=num_seeds, num_evaluations=6, step=0.5, num_rates=5)
        frames = drawn(sound(setting, rng), rng)
        claims += bool(
            comparisons(summarise(frames.wanted, frames.runs, frames.curves))[
                "distinguishable"
            ].any()
        )
    return claims / num_studies


def main(arguments: list[str] | None = None) -> None:
    """Print the rates that docs/checks.md sums up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=400, help="in each entry of a table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", choices=TABLES, action="append", help="by default all")
    args = parser.parse_args(arguments)
    for name in args.table or TABLES:
        print(
            *TABLES[name](args.studies, np.random.default_rng(args.seed)),
            sep="\n",
            end="\n\n",
            flush=True,
        )


def _sound_table(num_studies: int, rng: np.random.Generator) -> list[str]:
    counts = [on_sound_studies(num_studies, num_tasks, rng) for num_tasks in NUM_TASKS]
    return _found_table(
        ["sound studies", *(counted(number, "task") for number in NUM_TASKS)], counts, num_studies
    )


def _families_table(num_studies: int, rng: np.random.Generator) -> list[str]:
    counts = [on_sound_studies(num_studies, 1, rng, family) for family in FAMILIES.values()]
    return _found_table(["sound studies of one task", *FAMILIES], counts, num_studies)


def _found_table(
    header: list[str], counts: list[Counter[tuple[str, str]]], num_studies: int
) -> list[str]:
    rows = [("passes `--strict`", [("passes", "--strict")])]
    rows += [
        (f"`{check}`: problem, note", [(check, "problem"), (check, "note")]) for check in CHECKS
    ]
    return _table(
        header,
        [
            [
                name,
                *(
                    ", ".join(_percent(found[key] / num_studies) for key in keys)
                    for found in counts
                ),
            ]
            for name, keys in rows
        ],
    )


def _fault_table(num_studies: int, rng: np.random.Generator) -> list[str]:
    header = [
        "planted in one cell of a study of one task",
        "check",
        "found as a problem",
        "found as either",
    ]
    rows = [
        [name, f"`{check}`", *map(_percent, share_found(fault, check, num_studies, rng))]
        for name, (fault, check) in FAULTS.items()
    ]
    return _table(header, rows)


def _family_table(num_studies: int, rng: np.random.Generator) -> list[str]:
    header = ["seeds", *(counted(number, "task") for number in NUM_TASKS)]
    rows = [
        [
            str(seeds),
            *(
                _percent(family_wise_error(num_studies, num_tasks, seeds, rng))
                for num_tasks in NUM_TASKS
            ),
        ]
        for seeds in (3, 5, 10)
    ]
    return _table(header, rows)


TABLES = {
    "sound": _sound_table,
    "families": _families_table,
    "faults": _fault_table,
    "family": _family_table,
}


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


if __name__ == "__main__":
    main()
