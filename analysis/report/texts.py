"""What reports say: the texts of `texts.yaml` and the tables of `tables.yaml`, filled in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import DictLoader, Environment, StrictUndefined, Template
from ruamel.yaml import YAML

from lr_sweep.analysis.report.blocks import Table
from lr_sweep.common.text import NO_VALUE, rate_text

LEAST_P = 0.001
"""Smallest p value that a sentence writes as a number."""
MOST_STEPS = 10
"""Best steps of a cell that a table lists; of more seeds it has the range, and `cells.csv` has all."""


def say(text: str, **values: Any) -> str:
    """Return one of the texts with values in the places of their names."""
    return _templates().get_template(text).render(values)


def laid_out(table: str, frame: pd.DataFrame, **values: Any) -> Table:
    """Lay out a frame as one of the tables; `values` and `rows`, their number, are for its templates."""
    values["rows"] = len(frame)
    title, caption, headings, entries = _table(table)
    names = [heading.render(values) for heading in headings]
    shown = [block for name, block in zip(names, entries.blocks.values(), strict=True) if name]
    records: list[dict[Any, Any]] = frame.to_dict("records")
    rows = [entries.new_context(values | row) for row in records]  # once a row: it takes longest
    return Table(
        title=title.render(values),
        caption=caption.render(values),
        header=tuple(filter(None, names)),
        rows=tuple(tuple("".join(block(row)) for block in shown) for row in rows),
    )


@cache
def _templates() -> Environment:
    templates = Environment(loader=DictLoader(_read("texts.yaml")), undefined=StrictUndefined)
    templates.filters |= {
        "rate": rate_text,
        "steps": _steps,
        "interval": _interval,
        "p_value": _known("{:.2g}".format),
        "p_text": _p_text,
        "about": _known(lambda rate: rate_text(float(f"{rate:.2g}"))),
        "slope": _known("{:.2f}".format),
        "ends": _ends,
        "seconds": _known(
            lambda seconds: f"{seconds:,.0f}" if abs(seconds) >= 100 else f"{seconds:.3g}"
        ),
    }
    templates.tests["nan"] = math.isnan
    return templates


@cache
def _table(name: str) -> tuple[Template, Template, list[Template], Template]:
    """Return the title, the caption, the headings, and the entries of a table: blocks of one template, in order."""
    new, table = _templates().from_string, _read("tables.yaml")[name]
    entries = "".join(_entry(i, *column) for i, column in enumerate(table["columns"].items()))
    return (
        new(table["title"]),
        new(table["caption"]),
        [new(heading) for heading in table["columns"]],
        new(entries),
    )


def _known(text: Callable[[float], str]) -> Callable[[float], str]:
    """Return a filter that writes a number, with a sign of minus in place of its hyphen; NaN: no value."""
    return lambda number: (
        NO_VALUE if math.isnan(number) else re.sub("^-", "\N{MINUS SIGN}", text(number))
    )


def _entry(number: int, heading: str, entry: str | None) -> str:
    return f"{{% block column_{number} %}}{entry or f'{{{{ {heading} }}}}'}{{% endblock %}}"


@cache
def _read(name: str) -> Any:
    return YAML(typ="safe", pure=True).load(Path(__file__).with_name(name))


def _steps(best_steps: object) -> str:
    if not isinstance(best_steps, tuple):
        return NO_VALUE
    many = len(best_steps) > MOST_STEPS
    return f"{min(best_steps)} to {max(best_steps)}" if many else " ".join(map(str, best_steps))


def _interval(ends: Sequence[str]) -> str:
    return NO_VALUE if NO_VALUE in ends else f"[{', '.join(ends)}]"


def _ends(ends: Sequence[float]) -> str:
    """Write the ends of an interval, which may be open to one side or to both."""
    low, high = (_templates().filters["seconds"](end) for end in ends)
    is_low, is_high = (math.isfinite(end) and end != 0 for end in ends)
    if is_low and is_high:
        return f"{low} to {high}"
    return f"at least {low}" if is_low else f"at most {high}" if is_high else NO_VALUE


def _p_text(p: float) -> str:
    return f"< {LEAST_P:g}" if p < LEAST_P else f"{p:.2g}"
