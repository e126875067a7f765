"""The report's chart while a study runs: its runs in the words of `status`, and no conclusion without grounds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from lr_sweep.analysis.record.columns import Row
from lr_sweep.common.files import Fields
from lr_sweep.common.text import NO_VALUE, counted
from lr_sweep.sweep.results.run_state import RunStates, State

NUM_RATES = 2
"""Learning rates that have all seeds, before a variant is compared."""
UNTUNED: Fields = {"optimum": None, "edge": "", "seeds": [], "fresh": None, "condition": ""}
"""Fields of a line about its chosen learning rate, before one is chosen."""
NO_HANDLE = {"tuned": [], "rates": [], "flips": [], "start": 0}
"""The handle of a panel in which nothing is compared yet."""
UNORDERED: Fields = {"tuned": [], "flips": []}
"""Fields of the handle about the tuned order, before the fresh seeds that give it have ended."""
States = Counter[State]
"""The number of runs in each state."""
ByRate = Mapping[tuple[str, float], States]
"""The states of the runs of a task and model, by variant and learning rate."""


def running_chart(chart: Fields, runs: RunStates[Row]) -> Fields:
    """Return what `chart_and_verdict` draws, for a study that is not over; a panel that waits has `pending`, a text."""
    panels = []
    for panel in chart["panels"]:
        by_rate: ByRate = defaultdict(Counter)
        fresh = States()
        for row in runs.wanted:
            if row["task"] == panel["task"] and row["model"] == panel["model"]:
                of_rate = by_rate[row["variant"], row["learning_rate"]]
                states = fresh if row["fresh"] else of_rate
                states[runs.states[row["run_id"]]] += 1
        drawn = _panel(panel, by_rate)
        if not _have_ended(fresh):
            drawn = {**drawn, "handle": {**drawn["handle"], **UNORDERED}}
        panels.append(drawn)
    return {**chart, "panels": panels}


def _panel(panel: Fields, by_rate: ByRate) -> Fields:
    pending = pending_text(by_rate)
    chosen = UNTUNED if pending else {}
    lines = []
    for line in panel["lines"]:
        points = []
        for point in line["points"]:
            states = by_rate[line["variant"], point["rate"]]
            is_chosen = point["chosen"] and not pending
            points.append({**point, **_in_words(point, states), "chosen": is_chosen})
        lines.append({**line, **chosen, "points": points})
    handle = NO_HANDLE if pending else _handle(panel["handle"], by_rate)
    return {**panel, "lines": lines, "handle": handle, "pending": pending}


def _in_words(point: Fields, states: States) -> Fields:
    lost = _lost(states)
    words = {"lost": lost}
    if lost and point["mean"] is None:
        words["text"] = f"{NO_VALUE} ({lost})"
    if point["kind"] == "none" and not _have_ended(states):
        words["kind"] = "waiting"
    return words


def _handle(handle: Fields, by_rate: ByRate) -> Fields:
    rates = []
    for rate in handle["rates"]:
        here = States()
        for (_, at), states in by_rate.items():
            if at == rate["rate"]:
                here += states
        rates.append({**rate, "lost": _lost(here)})
    return {**handle, "rates": rates}


def _lost(states: States) -> str:
    shown = [state for state in State if states[state] and state is not State.COMPLETE]
    return ", ".join(f"{states[state]} {state}" for state in shown)


def _have_ended(states: States) -> bool:
    return all(state.has_ended for state in states)


def pending_text(by_rate: ByRate) -> str:
    """Say what the conclusions on a task and model wait for; empty: nothing."""
    texts: list[tuple[int, str]] = []
    for variant in dict.fromkeys(variant for variant, _ in by_rate):
        rates = [states for (other, _), states in by_rate.items() if other == variant]
        num_whole = sum(all(state.over for state in states) for states in rates)
        needed = min(NUM_RATES, len(rates))
        if num_whole < needed:
            tried = counted(len(rates), "learning rate")
            seeds = counted(max(states.total() for states in rates), "seed")
            text = (
                f"{variant} has {num_whole} of {tried} with all {seeds}; "
                f"conclusions appear when each variant has {needed}."
            )
            texts.append((num_whole, text))
    return min(texts)[1] if texts else ""
