"""How many runs the tables of Lu et al. 2021 want and share, for docs/lu2021.md: `python -m benchmarks.lu2021_runs`.

Needs neither data nor weights: ids of runs that start from weights which are not here are provisional, but as equal.
"""

from __future__ import annotations

from pathlib import Path

from lr_sweep.analysis.paper.published import TABLES
from lr_sweep.sweep.study.backbones import find_backbones
from lr_sweep.sweep.study.file import load_study
from lr_sweep.sweep.study.runs import wanted_runs

NOWHERE = Path("/nowhere")
HEADER = (
    "| table | cells | runs | of these in tables above | runs, swept | of these in tables above |",
    "|---|---|---|---|---|---|",
)


def main() -> None:
    """Print the table as Markdown, and a sentence on what is shared otherwise."""
    print("\n".join(lines()))


def lines() -> list[str]:
    """Return the lines of the table and the sentence after it."""
    fixed, swept = (
        {table: run_ids(f"lu2021-table{table}{ending}") for table in TABLES}
        for ending in ("", "-swept")
    )
    rows = []
    for table, text in TABLES.items():
        num_cells = len(list(load_study(f"lu2021-table{table}").cell_list()))
        counts = (
            f"{len(ids[table])} | {len(ids[table] & above(ids, table))}" for ids in (fixed, swept)
        )
        rows.append(f"| {table}. {text.title} | {num_cells} | {' | '.join(counts)} |")
    all_fixed, all_swept = (above(ids, max(TABLES) + 1) for ids in (fixed, swept))
    sums = sum(map(len, fixed.values())), sum(map(len, swept.values()))
    total = f"| all | | {sums[0]} | {sums[0] - len(all_fixed)} | {sums[1]} | {sums[1] - len(all_swept)} |"
    rothermel = run_ids("rothermel2021-table1")
    small = [run_ids(f"lu2021-table{table}-small") for table, text in TABLES.items() if text.small]
    return [
        *HEADER,
        *rows,
        total,
        "",
        f"{len(all_fixed)} and {len(all_swept)} different runs, {len(all_fixed & all_swept)} of them in both: all "
        f"tables in both ways are {len(all_fixed | all_swept)} runs. "
        f"{len(all_swept & rothermel)} of the swept ones are `rothermel2021-table1`'s. "
        f"The {len(small)} small tables want {sum(map(len, small))} runs, {len(set().union(*small))} different ones.",
    ]


def run_ids(study: str) -> set[str]:
    """Return the ids of a shipped study's runs."""
    loaded = load_study(study)
    return {run.run_id for run in wanted_runs(loaded, find_backbones(loaded, NOWHERE), NOWHERE)}


def above(ids: dict[int, set[str]], table: int) -> set[str]:
    """Return the ids of the tables before one."""
    return {run_id for other, found in ids.items() if other < table for run_id in found}


if __name__ == "__main__":
    main()
