"""Runs that are equal to the last bit are one run that is there twice, and no seeds: they count once.

Runs with seeds of their own stay, equal or not. Without a column of seeds a single value may be equal by chance, as an
accuracy on few examples: then runs are the same where every repeat has an equal, or where whole curves agree.
"""

from __future__ import annotations

import pandas as pd

from lr_sweep.analysis.judge.names import SPLITS
from lr_sweep.analysis.judge.rows import LOSS
from lr_sweep.analysis.judge.settings import RATE
from lr_sweep.common.text import counted

MEASURED = {*SPLITS, "step", "num_steps", "status", "diverged"}
LEAST_EQUAL = 4
"""Different values of one run that are no chance if another run has them all."""


def without_repeats(rows: pd.DataFrame, remarks: list[str]) -> pd.DataFrame:
    """Leave out runs that equal an earlier one of their cell, learning rate and seed in all that was measured."""
    is_curve = "run" not in rows and "step" in rows  # a row is then an evaluation of the one run of its rate and seed
    whose = rows["run"] if "run" in rows else pd.Series(rows.index, rows.index)
    measured = [name for name in map(str, rows) if name in MEASURED or name.startswith(LOSS)]
    prints = pd.util.hash_pandas_object(rows[measured], index=False)
    key = [*RATE, *(["seed"] if "seed" in rows else [])]
    runs = rows[key].assign(print=prints.groupby(whose).transform("sum"), whose=whose).drop_duplicates("whose")
    again = runs.duplicated([*key, "print"])
    if "seed" not in rows and not is_curve:
        again &= _are_no_chance(
            rows[[name for name in measured if name in SPLITS or name.startswith(LOSS)]], runs, whose
        )
    if not again.any():
        return rows
    what = counted(int(again.sum()), "row" if is_curve else "run")
    advice = "" if "seed" in rows else "; if these are seeds, name their column: --columns seed=NAME"
    remarks.append(f"left out: {what} equal to an earlier one to the last bit: a repeat is no further seed{advice}")
    return rows[~whose.isin(runs["whose"][again])]


def _are_no_chance(values: pd.DataFrame, runs: pd.DataFrame, whose: pd.Series) -> pd.Series[bool]:
    """Return which runs are the same as those that they equal, where no column has seeds."""
    several = values.melt(ignore_index=False)["value"]
    different = several.groupby(whose.reindex(several.index).to_numpy()).nunique()
    number = pd.Series(different.reindex(runs["whose"]).to_numpy(), runs.index)
    repeated = runs.duplicated(RATE, keep=False) & number.gt(0)
    has_equal = runs.duplicated([*RATE, "print"], keep=False)
    return number.ge(LEAST_EQUAL) | bool(repeated.any() and has_equal[repeated].all())
