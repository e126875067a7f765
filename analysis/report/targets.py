"""Steps to a target: sentences and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.columns import Row
from lr_sweep.analysis.statistics.comparisons.target import StepsCompared
from lr_sweep.analysis.statistics.selection.best import CELL
from lr_sweep.analysis.statistics.selection.summary import GROUP
from lr_sweep.common.text import rate_text

from .blocks import Section, Table, table_of_rows, write_csv
from .numbers import ends_text, p_text, p_value, seconds_text


def target_section(
    folder: Path, metric: Metric, steps: StepsCompared
) -> tuple[Section, Sequence[str]]:
    """Write when variants reach the target; also return the sentences."""
    cells, pairs = steps
    best = cells.drop_duplicates(GROUP)
    tables = [targets_table(cells, metric)]
    if len(pairs):
        tables.append(pairs_table(pairs.merge(best[CELL]), len(pairs)))
    write_csv(cells, folder / "targets.csv")
    write_csv(pairs, folder / "target_pairs.csv")
    sentences = []
    for _, rows in cells.groupby(GROUP, sort=False):
        first = rows.iloc[0].to_dict()
        where = f"{first['task']}, {first['model']}: " if len(best) > 1 else ""
        sentences.append(where + target_text(first, pairs.merge(rows[GROUP].head(1)), metric))
    return Section("Steps to a target", tables), sentences


def target_text(first: Row, pairs: pd.DataFrame, metric: Metric) -> str:
    """Say which variant reaches the target first: `first` of a task and model, whose `pairs` begin with its own."""
    goal = f"{metric.validation} {metric.text(first['target'])}"
    if first["short"]:
        return f"No variant reaches {goal} within its budget."
    text = f"{first['variant']} reaches {goal}{' first' if len(pairs) else ''}, in "
    steps = f"{seconds_text(first['steps'])} steps"
    if first["at_first"]:
        return f"{text}at most {steps}: it is there at its first evaluation."
    interval = _interval_text(first)
    text += f"{steps} (95% interval {interval})" if interval else steps
    if pairs.empty:
        return f"{text}."
    text += f"; {_slower_text(pairs.iloc[0].to_dict())}"
    if len(pairs) > 1:
        text += f"; {pairs['distinguishable'].sum()} of {len(pairs)} pairs differ significantly"
    return f"{text}."


def _interval_text(cell: Row) -> str:
    if math.isnan(cell["high"]):
        return ""
    return f"{seconds_text(cell['low'])} to {seconds_text(cell['high'])}"


def _slower_text(pair: Row) -> str:
    known = "not significant"
    if pair["distinguishable"]:
        known = f"corrected p {p_text(pair['corrected_p'])}"
    if not math.isnan(pair["ratio_high"]):
        known = f"95% interval {ends_text(pair['ratio_low'], pair['ratio_high'])}; {known}"
    return f"{pair['other']} needs {_ratio_text(pair)} times as many ({known})"


def _ratio_text(pair: Row) -> str:
    return f"{'over ' if pair['other_short'] else ''}{pair['ratio']:.3g}"


def targets_table(cells: pd.DataFrame, metric: Metric) -> Table:
    """Show when each variant reaches the target."""
    caption = (
        "Each variant at the learning rate that reaches the target first. The curve is the mean over seeds, fitted "
        'around its crossing; the 95% interval has the noise of runs and of evaluations. "Over" is the budget of a '
        "variant that does not reach the target."
    )
    rows = []
    for cell in cells.to_dict("records"):
        bound = "over " if cell["short"] else "at most " if cell["at_first"] else ""
        rows.append(
            {
                **{name: cell[name] for name in CELL},
                "learning rate": rate_text(cell["learning_rate"]),
                metric.validation: metric.text(cell["target"]),
                "steps": f"{bound}{seconds_text(cell['steps'])}",
                "95% interval": "" if cell["short"] else _interval_text(cell),
                "reached": f"{cell['num_reached']} of {cell['num_runs']}",
            }
        )
    return table_of_rows("When variants reach the target", caption, rows)


def pairs_table(pairs: pd.DataFrame, num_pairs: int) -> Table:
    """Show pairs of `StepsCompared.pairs`, of so many."""
    caption = (
        "How many times as fast as the second variant the first one reaches the target, with a 95% interval for this "
        "pair alone (Welch's t on log steps, from the runs at the chosen rates). The corrected p covers all pairs of "
        "the study (Holm). A variant that does not reach the target counts with its budget: it has no interval, and is "
        "never called faster."
    )
    if len(pairs) < num_pairs:
        caption += f" Only pairs with the fastest variant are shown; `target_pairs.csv` has all {num_pairs}."
    rows = []
    for pair in pairs.to_dict("records"):
        is_tested = not math.isnan(pair["corrected_p"])
        rows.append(
            {
                "task": pair["task"],
                "model": pair["model"],
                "variants": f"{pair['variant']} and {pair['other']}",
                "times as fast": _ratio_text(pair),
                "95% interval": ends_text(pair["ratio_low"], pair["ratio_high"]),
                "corrected p": p_value(pair["corrected_p"]),
                "different": ("yes" if pair["distinguishable"] else "no")
                if is_tested
                else "not known",
                "remarks": pair["note"],
            }
        )
    return table_of_rows("How much faster", caption, rows)
