"""The studies of Lu et al. 2021, one a table: its cells, with what `studies/lu2021/tables.yaml` says of them.

`lu2021-table3` has the learning rates of the paper, `lu2021-table3-swept` sweeps them. `lu2021-table3-small` sweeps
them with small models and tasks (`studies/lu2021/small.yaml`), on two cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lr_sweep.analysis.paper.lu2021.published import NAME, SMALL_TASKS, TABLES, entries
from lr_sweep.sweep.study.cells import AXES

STUDY_NAMES = [f"lu2021-table{table}{swept}" for table in TABLES for swept in ("", "-swept")]
STUDY_NAMES += [f"lu2021-table{table}-small" for table in SMALL_TASKS]

KINDS = {None: "", "-swept": ", learning rates swept", "-small": ", small models and tasks"}
"""Of studies of a table, by the end of their name: how their title ends."""

Cell = tuple[str, str, str]
"""Task, model and variant."""


def table_study(name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of one of `STUDY_NAMES` as a study file has it; `parts` is that of a file there.

    Entries of the table whose model `parts` lacks are left out.
    """
    found = NAME.fullmatch(name)
    assert found is not None, name
    table, kind = int(found["table"]), found["kind"]
    of_table = entries(table, small=kind == "-small")
    cells = list(dict.fromkeys(entry.cell for entry in of_table if entry.model in parts["models"]))
    rules = [rule for rule in parts["own"] if table in rule.get("tables", (table,))]
    used = dict(zip(AXES, map(set, zip(*cells, strict=True)), strict=True))
    return {
        "study": name,
        "title": f"Lu et al. 2021, table {table}: {TABLES[table].title}{KINDS[kind]}",
        **{axis: {key: parts[axis][key] for key in parts[axis] if key in used[axis]} for axis in AXES},
        "cells": tuple(_grouped(cells, rules, kind == "-swept")),
        "learning_rates": parts["swept" if kind == "-swept" else "learning_rates"],
        **{key: parts[key] for key in ("seeds", "protocol", "resources") if key in parts},
    }


def _grouped(cells: Iterable[Cell], rules: Iterable[Mapping[str, Any]], swept: bool) -> Iterator[dict[str, Any]]:
    """Yield entries of `cells`, each the tasks on which a model and variant are trained alike."""
    groups: dict[str, dict[str, Any]] = {}
    for cell in cells:
        task, model, variant = cell
        group: dict[str, Any] = {"tasks": (), "models": (model,), "variants": (variant,), "protocol": {}}
        for rule in rules:
            if all(name in rule.get(axis, (name,)) for axis, name in zip(AXES, cell, strict=True)):
                group["protocol"] = group["protocol"] | rule.get("protocol", {})
                if "learning_rates" in rule and not swept:
                    group["learning_rates"] = rule["learning_rates"]
        groups.setdefault(repr(group), group)["tasks"] += (task,)
    yield from groups.values()
