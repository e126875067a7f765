"""Tables that this program wrote name their own metric: `export`, a report's `runs.csv`, its runs in MLflow."""

from __future__ import annotations

from dataclasses import replace

from lr_sweep.analysis.metric import ACCURACY, Metric
from lr_sweep.analysis.report.blocks import as_written
from lr_sweep.common.errors import UserError

from .names import SPLITS, plain
from .table_file import TableFile


def exported(table: TableFile) -> tuple[TableFile, Metric | None]:
    """Return a table with what its columns say of its metric, and this metric; None: it is another program's.

    Raises UserError for several metrics.
    """
    names = {plain(name): name for name in reversed([*table.frame])}
    if not set(ACCURACY.columns) <= names.keys():
        return table, None
    columns = [names[name] for name in ACCURACY.columns]
    facts = set(table.frame[columns].itertuples(index=False, name=None))
    if len(facts) > 1:
        listed = ", ".join(sorted(metric for metric, *_ in facts))
        advice = f"judge those of one: --where {names['metric_name']}=NAME"
        raise UserError(f"got runs of several metrics, {listed}: {advice}")
    ((metric, higher, fraction),) = facts
    values = {split: names.get(split, names.get(plain(f"{split}_{metric}"))) for split in SPLITS}
    known = table.known | {split: name for split, name in values.items() if name}
    is_higher = higher.lower() == "true"
    said = Metric(
        name=as_written(metric),
        higher_is_better=is_higher,
        is_fraction=fraction.lower() == "true",
    )
    return replace(table, known=known, higher_is_better=is_higher), said
