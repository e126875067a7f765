"""Logs as rows: lines with a metric of validation or test, as `step:100 val_loss:3.2` or `{'eval_loss': 3.2}`."""

from __future__ import annotations

import re

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.names import SPLITS, is_metric, is_named, is_rate, split_of
from lr_sweep.analysis.judge.readers.labels import SETTING
from lr_sweep.common.files import Fields

_PAIR = re.compile(
    r"""['"]?([A-Za-z][\w./@-]*(?:[ ][A-Za-z]\w*){0,2}?)['"]?(?:\s*[:=]\s*|[ ])['"]?"""
    r"""([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf)(?![\w.])""",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(r"""([A-Za-z]\w*)=('[^']*'|"[^"]*"|[^\s,()]+)""")
_LINE = re.compile(r"\s*([A-Za-z][\w. ]{0,40}?)\s*[:=]\s*['\"]?([\w.+-]+)['\"]?\s*")
_HAS_SPLIT = re.compile("|".join(sorted(SPLITS["validation"] | SPLITS["test"])), re.IGNORECASE)


def log_rows(text: str) -> list[tuple[int, Fields]]:
    """Return the evaluations in a log, each with the number of its line; empty: it is none.

    An evaluation without a step has the last one above it. The settings are those of a line of argparse, and lines
    above the first evaluation such as `lr: 0.1`. A log without evaluations that has a learning rate is a run without a
    value, which was killed.
    """
    rows: list[tuple[int, Fields]] = []
    settings: Fields = {}
    step: Fields = {}
    above: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("Namespace("):
            settings = {f"{SETTING}{name}": value.strip("'\"") for name, value in _ARGUMENT.findall(line)}
        elif not rows and (pair := _LINE.fullmatch(line)):
            is_known = is_named(pair[1], "seed", "variant", "model", "task")
            if is_number(pair[2]) if is_rate(pair[1]) else is_known:
                settings[f"{SETTING}{pair[1]}"] = pair[2]
        found = dict(_PAIR.findall(line)) if _HAS_SPLIT.search(line) else {}
        if found or "ep" in line[:20].lower():
            above.append(line)
        if any(is_metric(name) and split_of(name) in ("validation", "test") for name in found):
            step = next(filter(None, map(_step, reversed(above))), step)
            rows.append((number, {**settings, **step, **found}))
            above = []
    stepped = [row for row in rows if any(is_named(name, "step") for name in row[1])]
    return stepped or rows or [(1, settings) for name in settings if is_rate(name)][:1]


def _step(line: str) -> Fields:
    return {name: value for name, value in _PAIR.findall(line) if is_named(name, "step")}
