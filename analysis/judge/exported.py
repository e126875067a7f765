"""Tables that this program wrote name their own metric: `export --csv`, a report's `runs.csv`, its runs in MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lr_sweep.analysis.judge.names import JOIN, SPLITS, plain, words
from lr_sweep.analysis.judge.reading import Choice, QuestionError, Reading
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.report.blocks import as_written

ROLES = {role: role for role in words("task model variant learning_rate seed status step")} | {"run": "run_id"}
IGNORED = {"study", *(f"{split}_loss" for split in SPLITS)}
TRUTH = {"true": True, "false": False}


def exported_reading(tables: Sequence[TableFile], reading: Reading) -> Reading:
    """Return how tables of this program are to be read, with what the user says in its place.

    Tables of other programs, and those whose metric the user names, are read as `reading` says. Raises QuestionError
    for several metrics.
    """
    names = {plain(name): name for name in reversed(tables[0].columns)}
    says = [names.get(name, "") for name in ACCURACY.columns]
    is_named = reading.metric or reading.higher_is_better is not None or reading.columns.keys() & SPLITS.keys()
    if is_named or not all(table.columns.keys() >= {*says} for table in tables):
        return reading
    name, higher, fraction = _only_metric(tables, says)
    if not {higher.lower(), fraction.lower()} <= TRUTH.keys():
        return reading
    columns = _columns(names, name)
    ignored = {*says, *IGNORED.intersection(tables[0].columns)} - {*columns.values()}
    return Reading(
        columns=columns | {"ignored": JOIN.join(sorted(ignored))},
        metric=name,
        higher_is_better=TRUTH[higher.lower()],
        is_fraction=TRUTH[fraction.lower()],
    ).but(reading)


def _only_metric(tables: Sequence[TableFile], says: Sequence[str]) -> tuple[str, str, str]:
    metrics = {fields for table in tables for fields in zip(*(table.columns[name] for name in says), strict=True)}
    if len(metrics) > 1:
        named = {f"the runs of {name or ACCURACY.name}": f"{says[0]}={name}" for name, *_ in sorted(metrics)}
        choices = [Choice(runs, Reading(where=[where])) for runs, where in named.items()]
        raise QuestionError("the table has runs of several metrics: judge those of one", choices)
    ((name, higher, fraction),) = metrics
    return as_written(name), higher, fraction


def _columns(names: Mapping[str, str], metric: str) -> dict[str, str]:
    """Return column by meaning, where the table has it."""
    values = {split: next((x for x in (split, plain(f"{split}_{metric}")) if x in names), "") for split in SPLITS}
    return {role: names[name] for role, name in {**ROLES, **values}.items() if name in names}
