"""Tables that this program wrote name their own metric: `export --csv`, a report's `runs.csv`, its runs in MLflow."""

from __future__ import annotations

from collections.abc import Sequence

from lr_sweep.analysis.judge.names import JOIN, SPLITS, plain, words
from lr_sweep.analysis.judge.reading import Reading
from lr_sweep.analysis.judge.table_file import TableFile
from lr_sweep.analysis.metric import ACCURACY
from lr_sweep.analysis.report.blocks import as_written
from lr_sweep.common.errors import UserError

ROLES = {role: role for role in words("task model variant learning_rate seed status step")} | {
    "run": "run_id"
}
TRUTH = {"true": True, "false": False}


def exported_reading(tables: Sequence[TableFile], reading: Reading) -> Reading:
    """Return how tables of this program are to be read, with what the user says in its place.

    Tables of other programs, and those whose metric the user names, are read as `reading` says. Raises UserError for
    several metrics.
    """
    names = {plain(name): name for name in reversed(tables[0].columns)}
    says = [names.get(name, "") for name in ACCURACY.columns]
    if reading.metric or not all({*says} <= table.columns.keys() for table in tables):
        return reading
    name, *truths = _metric(tables, says)
    if not {*truths} <= TRUTH.keys():
        return reading
    values = {split: split if split in names else plain(f"{split}_{name}") for split in SPLITS}
    columns = {role: names[known] for role, known in {**ROLES, **values}.items() if known in names}
    columns["ignored"] = JOIN.join(says)  # read here, and nothing else
    higher, fraction = (TRUTH[truth] for truth in truths)
    return Reading(columns=columns, metric=name, higher_is_better=higher, is_fraction=fraction).but(
        reading
    )


def _metric(tables: Sequence[TableFile], says: Sequence[str]) -> list[str]:
    """Return the name of the only metric, and in small letters whether it is better higher, and a fraction."""
    metrics = {
        fields
        for table in tables
        for fields in zip(*(table.columns[name] for name in says), strict=True)
    }
    if len(metrics) > 1:
        named = ", ".join(sorted({name or ACCURACY.name for name, *_ in metrics}))
        raise UserError(
            f"got runs of several metrics, {named}: judge those of one: --where {says[0]}=NAME"
        )
    ((name, *truths),) = metrics
    return [as_written(name), *map(str.lower, truths)]
