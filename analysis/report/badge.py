"""The verdict as a badge for a README: an image that needs no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.report.page import filled
from lr_sweep.analysis.report.verdict import MINUS, amounts_text, turned
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.statistics.comparisons.verdicts import Conditions

KINDS = ("open", "conditional", "equal", "decided")
"""States of a task, or of a pair; the badge has the colour of the first that there is."""
OF_PAIRS = {"ahead": "decided", "behind": "decided", "equal": "equal"}


def badge_svg(found: pd.DataFrame, metric: Metric, decision: Decision | None, conditions: Conditions) -> str:
    """Draw the verdict: of the tasks, or of the pairs that fresh seeds decide; of several it counts the kinds.

    `found`: the result of `verdicts.verdicts`; empty where no learning rate is chosen.
    """
    said = list(_of_tasks(found, metric) if decision is None else _of_pairs(decision, conditions))
    counts = Counter(kind for kind, _ in said)
    kinds = [kind for kind in KINDS if counts[kind]]
    several = f"{', '.join(f'{counts[kind]} {kind}' for kind in reversed(kinds))} of {len(said)}"
    text = said[0][1] if len(said) == 1 else several if said else "no learning rate chosen"
    return filled("badge.svg", text=text, kind=[*kinds, "open"][0])


def _of_tasks(found: pd.DataFrame, metric: Metric) -> Iterator[tuple[str, str]]:
    """Yield a kind of each task and model, and what the badge says if there is no other."""
    for row in found.to_dict("records"):
        leads, certain = row["leads"], row["certain"]
        if certain:
            half = next((lead.high - lead.low) / 2 for lead in leads if lead.over in certain.losers)
            winners = _named(certain.winners, [lead.over for lead in leads if lead.over not in certain.winners])
            yield "decided", _gain(winners, amounts_text(certain, half, metric), metric)
        else:
            equal = leads and all(lead.equal for lead in leads)
            kind = "conditional" if any(lead.distinguishable for lead in leads) else "equal" if equal else "open"
            yield kind, kind


def _of_pairs(decision: Decision, conditions: Conditions) -> Iterator[tuple[str, str]]:
    for found in decision.table().to_dict("records"):
        row, kind = turned(found, decision.metric), OF_PAIRS.get(found["outcome"], "open")
        if kind == "decided" and conditions.get((row["task"], row["model"], row["other"])):
            kind = "conditional"
        amount = decision.metric.amount_text(abs(row["difference"]), (row["high"] - row["low"]) / 2)
        yield kind, _gain(row["variant"], amount, decision.metric) if kind == "decided" else kind


def _gain(winners: str, amount: str, metric: Metric) -> str:
    return f"{winners} {'+' if metric.higher_is_better else MINUS}{amount}"


def _named(winners: Sequence[str], others: Collection[str]) -> str:
    """Name variants by the word that the names of all of them, and of no other, begin with, or count them."""
    if len(winners) == 1:
        return winners[0]
    words, theirs = ({name.partition("-")[0] for name in names} for names in (winners, others))
    return words.pop() if len(words) == 1 and not words & theirs else f"{len(winners)} variants"
