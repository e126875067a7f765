"""Variants compared seed by seed, each at the learning rate that validation chose for it."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.aggregate import Summary
from analysis.sections import Block, Paragraph
from analysis.selection import CELL
from analysis.table_formats import Table, write_tables
from analysis.tables import signed_points
from analysis.text import NO_VALUE
from analysis.uncertainty import REPORT_SEED, Floats, interval_table, interval_text, intervals, t_interval

MAX_EXACT_SEEDS = 20
"""Up to here all sign flips are gone through (a million); with more seeds there is no p."""
SUM_ERROR = 1e-9
"""Sums of accuracy differences closer than this are equal."""

COLUMNS = [
    *("task", "model", "variant", "other", "num_pairs", "difference", "low", "high"),
    *("p", "smallest_p", "holm_p", "note"),
]


def sign_flip_p(differences: Floats) -> float:
    """Return the exact two-sided p of "the sign of each seed's difference is a coin flip".

    The share of all 2^n flips whose sum is at least as far from 0 as the observed one (Fisher's randomisation test).

    Raises:
        ValueError: no differences, or more than `MAX_EXACT_SEEDS`.
    """
    if not 1 <= len(differences) <= MAX_EXACT_SEEDS:
        raise ValueError(f"got {len(differences)} differences, want 1 to {MAX_EXACT_SEEDS}")
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return float(np.mean(np.abs(sums) >= abs(differences.sum()) - SUM_ERROR))


def smallest_p(num_pairs: int) -> float:
    """Return the smallest p that so many seeds can attain, all differences of one sign: 0.25 for 3."""
    return min(1.0, 2.0 ** (1 - num_pairs))


def holm(p_values: Floats) -> Floats:
    """Correct for several tests (Holm 1979): reject where the result is below the level; NaN stays NaN, uncounted."""
    corrected = np.full(len(p_values), math.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    scaled = p_values[order] * (len(order) - np.arange(len(order)))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return corrected


def comparisons(summary: Summary) -> pd.DataFrame:
    """Compare every two variants within each task and model, by the seeds where both have a value.

    Returns:
        One row a task, model and pair: `task`, `model`, `variant`, `other`, `num_pairs` (seeds), `difference` (mean
        test accuracy of `variant` less that of `other`), `low` and `high` (95% t interval; fractions), `p` (sign
        flips), `smallest_p` (attainable with so many seeds), `holm_p` (`p` corrected over the tasks of the same model
        and pair) and `note`. NaN: none. The choice of the two learning rates is in none of these.
    """
    rows = [
        _compare(dict(zip(["task", "model", "variant", "other"], [*group, first, second], strict=True)), by_seed)
        for group, by_seed in _tuned(summary)
        for first, second in combinations(by_seed.columns, 2)
    ]
    found = pd.DataFrame(rows, columns=[name for name in COLUMNS if name != "holm_p"])
    corrected = pd.Series(math.nan, index=found.index)
    for _, family in found.groupby(["model", "variant", "other"], sort=False):
        corrected[family.index] = holm(family["p"].to_numpy(dtype=float))
    return found.assign(holm_p=corrected)[COLUMNS]


def comparison_table(found: pd.DataFrame) -> Table:
    """Show the result of `comparisons`: differences in points of percent."""
    rows = tuple(_row(pair) for pair in found.to_dict("records"))
    what = (
        "Test accuracy of the first variant less that of the second, each at the learning rate that validation chose "
        "for it, by seed: mean and 95% t interval, in points. p: exact, over all sign flips of the seeds' differences; "
        "smallest p: what so many seeds can attain, so a p equal to it is the strongest result there could be, "
        "and 3 seeds never reach 0.05. Holm p: corrected over the tasks of a model and pair, not over pairs. The "
        "learning rates are taken as chosen: their uncertainty is in the intervals of the cells, not here."
    )
    header = (
        "task",
        "model",
        "variants",
        "seeds",
        "difference",
        "95% interval",
        "p",
        "smallest p",
        "Holm p",
        "remarks",
    )
    return Table(title="Variants compared", caption=what, header=header, rows=rows)


def write_uncertainty(folder: Path, summary: Summary, pairs: pd.DataFrame) -> list[Block]:
    """Write the tables `intervals` and `comparisons` in every format; return the body of the report's section.

    Args:
        folder: where to write.
        summary: the study's numbers.
        pairs: from `comparisons`.
    """
    cells = intervals(summary, np.random.default_rng(REPORT_SEED))
    shown, compared = interval_table(cells), comparison_table(pairs)
    write_tables(folder, {"intervals": shown}, cells)
    write_tables(folder, {"comparisons": compared}, pairs)
    return [shown, compared if len(pairs) else Paragraph("One variant: nothing to compare.")]


def _tuned(summary: Summary) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Give for each task and model the test accuracy, seeds x variants, at each variant's chosen learning rate."""
    chosen = summary.cells[[*CELL, "learning_rate"]]
    runs = summary.runs.merge(chosen, on=[*CELL, "learning_rate"], how="inner")
    found = []
    for group, cells in summary.cells.groupby(["task", "model"], sort=False):
        rows = runs[(runs["task"] == group[0]) & (runs["model"] == group[1])]
        by_seed = rows.pivot(index="seed", columns="variant", values="test_accuracy")
        found.append((group, by_seed.reindex(columns=list(cells["variant"]))))
    return found


def _compare(pair: dict[str, Any], by_seed: pd.DataFrame) -> dict[str, Any]:
    both = by_seed[[pair["variant"], pair["other"]]].dropna()
    differences = (both[pair["variant"]] - both[pair["other"]]).to_numpy(dtype=float)
    num_pairs = len(differences)
    interval = t_interval(differences)
    has_p = 2 <= num_pairs <= MAX_EXACT_SEEDS
    return {
        **pair,
        "num_pairs": num_pairs,
        "difference": float(differences.mean()) if num_pairs else math.nan,
        "low": interval.low,
        "high": interval.high,
        "p": sign_flip_p(differences) if has_p else math.nan,
        "smallest_p": smallest_p(num_pairs) if has_p else math.nan,
        "note": _note(differences, len(by_seed)),
    }


def _note(differences: Floats, num_seeds: int) -> str:
    num_pairs = len(differences)
    if num_pairs == 0:
        return "no seed where both have a value"
    if num_pairs == 1:
        return "one seed: no interval, no p"
    if num_pairs > MAX_EXACT_SEEDS:
        return f"more than {MAX_EXACT_SEEDS} seeds: no exact p"
    some = f"{num_pairs} of {num_seeds} seeds have both" if num_pairs < num_seeds else ""
    same = "no spread between seeds" if np.ptp(differences) < SUM_ERROR else ""
    return "; ".join(filter(None, [some, same]))


def _row(pair: dict[Any, Any]) -> tuple[str, ...]:
    difference = signed_points(pair["difference"])
    return (
        str(pair["task"]),
        str(pair["model"]),
        f"{pair['variant']} − {pair['other']}",
        str(pair["num_pairs"]),
        difference,
        interval_text(pair["low"], pair["high"]),
        *(_p_text(pair[name]) for name in ("p", "smallest_p", "holm_p")),
        pair["note"],
    )


def _p_text(p: float) -> str:
    return NO_VALUE if math.isnan(p) else f"{p:.2g}"
