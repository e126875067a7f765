"""The verdict as a badge for a README: an image that needs no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from html import escape

import pandas as pd

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.report.verdict import MINUS, amounts_text, turned
from lr_sweep.analysis.statistics.comparisons.decision import Decision
from lr_sweep.analysis.statistics.comparisons.verdicts import Conditions

BADGE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="lr-sweep: {text}">'
    '<title>lr-sweep: {text}</title><rect width="{width}" height="20" rx="3" fill="#444"/>'
    '<path d="M66 0h{right}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H66z" fill="{colour}"/>'
    '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
    '<text x="7" y="14" textLength="52">lr-sweep</text>'
    '<text x="73" y="14" textLength="{length}" lengthAdjust="spacingAndGlyphs">{text}</text></g></svg>\n'
)
LABEL, MARGIN, LETTER = 66, 14, 6.6
"""Pixels of the badge's first half, around the text of its second, and of a letter."""
COLOURS = {"decided": "#1a7f4b", "equal": "#0b57a4", "conditional": "#9a5b00", "open": "#666"}
"""White letters have a contrast of 4.5:1 or more on each."""
MOST_LETTERS = 60


Outcome = tuple[str, str]
"""A kind of `COLOURS`, and what is known in words."""


def badge_svg(found: pd.DataFrame, metric: Metric, decision: Decision | None, conditions: Conditions) -> str:
    """Draw the verdict: of the tasks, or of the pairs that fresh seeds decide; of several it counts the kinds.

    `found`: the result of `verdicts.verdicts`; empty where no learning rate is chosen.
    """
    said = list(_outcomes(found, metric) if decision is None else _decided(decision, conditions))
    kinds = Counter(kind for kind, _ in said)
    worst = next((kind for kind in reversed(COLOURS) if kinds[kind]), "open")
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in COLOURS if kinds[kind])
    several = f"{counts} of {len(said)} {'tasks' if decision is None else 'pairs'}"
    text = said[0][1] if len(said) == 1 else several if said else "no learning rate chosen"
    text = text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
    length = round(LETTER * len(text))
    sizes = {"length": length, "width": LABEL + MARGIN + length, "right": MARGIN + length - 3}
    return BADGE.format(text=escape(text), colour=COLOURS[worst], **sizes)


def _outcomes(found: pd.DataFrame, metric: Metric) -> Iterator[Outcome]:
    for row in found.to_dict("records"):
        leads, certain = row["leads"], row["certain"]
        if certain:
            half = next((lead.high - lead.low) / 2 for lead in leads if lead.over in certain.losers)
            winners = _named(certain.winners, [lead.over for lead in leads if lead.over not in certain.winners])
            yield "decided", _gain(winners, amounts_text(certain, half, metric), metric)
        elif any(lead.distinguishable for lead in leads):
            yield "conditional", "conditional"
        elif leads and all(lead.equal for lead in leads):
            yield "equal", "equal"
        else:
            yield "open", "open"


def _decided(decision: Decision, conditions: Conditions) -> Iterator[Outcome]:
    for found in decision.table().to_dict("records"):
        row = turned(found, decision.metric)
        amount = decision.metric.amount_text(abs(row["difference"]), (row["high"] - row["low"]) / 2)
        if row["outcome"] not in ("ahead", "behind"):
            kind = "equal" if row["outcome"] == "equal" else "open"
            yield kind, kind
        elif conditions.get((row["task"], row["model"], row["other"])):
            yield "conditional", "conditional"
        else:
            yield "decided", _gain(row["variant"], amount, decision.metric)


def _gain(winners: str, amount: str, metric: Metric) -> str:
    return f"{winners} {'+' if metric.higher_is_better else MINUS}{amount}"


def _named(winners: Sequence[str], others: Collection[str]) -> str:
    """Name variants by the word that the names of all of them, and of no other, begin with, or count them."""
    words, theirs = ({name.partition("-")[0] for name in names} for names in (winners, others))
    if len(winners) == 1:
        return winners[0]
    return words.pop() if len(words) == 1 and not words & theirs else f"{len(winners)} variants"
