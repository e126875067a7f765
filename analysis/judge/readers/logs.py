"""Logs as rows: lines with a metric of validation or test, as `step:100 val_loss:3.2` or `{'eval_loss': 3.2}`."""

from __future__ import annotations

import ast
import re

from lr_sweep.analysis.judge.fields import is_number
from lr_sweep.analysis.judge.names import ROLES, SPLITS, is_metric, is_rate, plain, split_of
from lr_sweep.common.files import Fields

_PAIR = re.compile(
    r"""['"]?([A-Za-z][\w./@-]*(?:[ ][A-Za-z]\w*){0,2}?)['"]?(?:\s*[:=]\s*|[ ])['"]?"""
    r"""([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf)(?![\w.])""",
    re.IGNORECASE,
)
_SETTING = re.compile(r"""([A-Za-z]\w*)=('[^']*'|"[^"]*"|[^\s,()]+)""")
_LINE = re.compile(r"\s*([A-Za-z][\w. ]{0,40}?)\s*[:=]\s*['\"]?([\w.+-]+)['\"]?\s*")
_HAS_SPLIT = re.compile("|".join(sorted(SPLITS["validation"] | SPLITS["test"])), re.IGNORECASE)
STEPS = ROLES["step"]
NAMED = {name for role in ("learning_rate", "seed", "variant", "model", "task") for name in ROLES[role]}


def log_rows(text: str) -> list[tuple[int, Fields]]:
    """Return the evaluations in a log, each with the number of its line; empty: it is none.

    An evaluation without a step has the last one above it. The settings are those of a line of argparse, and lines
    above the first evaluation such as `lr: 0.1`.
    """
    rows: list[tuple[int, Fields]] = []
    settings: Fields = {}
    step: Fields = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("Namespace("):
            settings = {f"config.{name}": _value(value) for name, value in _SETTING.findall(line)}
        elif not rows:
            settings |= _setting(line)
        found = dict(_PAIR.findall(line)) if _HAS_SPLIT.search(line) or line[:20].lower().find("ep") >= 0 else {}
        counted = {name: value for name, value in found.items() if plain(name) in STEPS}
        if any(is_metric(name) and split_of(name) in ("validation", "test") for name in found):
            rows.append((number, {**settings, **(step if not counted else {}), **found}))
        step = counted or step
    stepped = [each for each in rows if any(plain(name) in STEPS for name in each[1])]
    return stepped or rows


def _setting(line: str) -> Fields:
    pair = _LINE.fullmatch(line)
    known = pair and (is_number(pair[2]) if is_rate(pair[1]) else plain(pair[1]) in NAMED)
    return {f"config.{pair[1]}": _value(pair[2])} if pair and known else {}


def _value(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
