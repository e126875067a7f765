"""The check `inexact`: were runs interrupted whose resume may have changed their numbers?"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from lr_sweep.analysis.record.columns import DOUBTFUL, INEXACTLY
from lr_sweep.analysis.statistics.selection.best import each_cell
from lr_sweep.analysis.statistics.selection.summary import StudySummary

from .finding import CheckFinding, Level, finding_of

FIX = (
    "`run --restart-inexact` trains them anew; what is named resumes exactly if it is "
    "passed to `session.steps`, which makes new runs"
)


def inexact_findings(
    wanted: pd.DataFrame, runs: pd.DataFrame, summary: StudySummary
) -> Iterator[CheckFinding]:
    """Report cells with such runs: as a problem where an inexact one is at the chosen rate."""
    inexact = set(runs.loc[runs["resumed"] == INEXACTLY, "run_id"])
    inexact_at_chosen = inexact.intersection(summary.chosen_runs["run_id"])
    for cell, rows in each_cell(wanted):
        is_problem = not inexact_at_chosen.isdisjoint(rows["run_id"])
        for resumed, text in resume_texts(rows, runs):
            is_inexact = resumed == INEXACTLY
            level: Level = "problem" if is_problem and is_inexact else "note"
            fix = FIX if is_inexact else ""
            yield finding_of(cell, "inexact", level, text, fix)


def resume_texts(wanted: pd.DataFrame, runs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield each of `DOUBTFUL` that wanted runs have, and a text that counts these runs."""
    is_wanted = runs["run_id"].isin(wanted["run_id"])
    runs = runs.loc[is_wanted, ["resumed", "not_saved"]]  # other columns would be copied each time
    for resumed in DOUBTFUL:
        doubtful = runs[runs["resumed"].eq(resumed)]
        how = ", and whether they resumed exactly was not checked"
        if resumed == INEXACTLY:
            how = f" and resumed inexactly (not saved: {_lost_by(doubtful)})"
        if len(doubtful):
            share = f"{len(doubtful)} of {len(wanted)} runs"
            yield resumed, f"{share} were interrupted{how}"


def _lost_by(runs: pd.DataFrame) -> str:
    texts = runs["not_saved"].dropna()
    names = {name for text in texts for name in text.split(", ")}
    return ", ".join(sorted(names)) or "not known"
