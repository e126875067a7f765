"""What MLflow shows of a study: its options as params, the results of its cells as metrics, charts of its runs."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lr_sweep.analysis.metric import Metric
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.report.blocks import Row
from lr_sweep.analysis.report.tables import mean_sem_text, seeds_text
from lr_sweep.analysis.statistics.selection import CELL
from lr_sweep.analysis.study_summary import read_summary
from lr_sweep.common.text import NO_VALUE, rate_text
from lr_sweep.sweep.mirror.content import allowed, as_text
from lr_sweep.sweep.results.run_state import flattened
from lr_sweep.sweep.results.validation import read_options

NAMED_FIRST = ("learning_rate", "seed", "variant", "model", "task")
"""Labels of a run by how much they differ within a study: MLflow cuts long names at their end."""
NAMED_ALWAYS = ("learning_rate", "seed")
MOST_DRAWN = 100
"""Runs in a chart, the best; MLflow reads a hundred at first."""
CHARTS: tuple[dict[str, Any], ...] = (
    {
        "type": "SCATTER",
        "xaxis": {"key": "log10_learning_rate", "type": "METRIC"},
        "yaxis": {"key": "test_at_best", "type": "METRIC"},
    },
    {
        "type": "LINE",
        "metricKey": "validation_accuracy",
        "lineSmoothness": 0,
        "scaleType": "linear",
        "xAxisKey": "step",
        "xAxisScaleType": "linear",
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "range": {},
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    },
    {"type": "BAR", "metricKey": "test_at_best"},
)
"""As MLflow's page describes a chart."""
_MAX_PARAM_LENGTH = 500
"""Characters, of the oldest servers that are in use."""
_CELL_METRICS = ("test_mean", "test_sem", "validation_mean", "learning_rate")
_NOTE_COLUMNS = ("task", "model", "variant", "learning rate", "test", "complete runs")
_MAX_NOTE_LENGTH = 5000
"""Characters; MLflow takes 8000, its hosted form 5000."""


def naming_labels(wanted: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the labels that name a study's runs: rate and seed, of which rounds add more, and others that differ."""
    return [name for name in NAMED_FIRST if name in NAMED_ALWAYS or len({row[name] for row in wanted}) > 1]


@dataclass(frozen=True, kw_only=True)
class MirroredStudy:
    """What the record holds of one study, in MLflow's terms."""

    name: str
    title: str
    metric: Metric
    options: dict[str, Any]
    """As it was last run, with all defaults."""
    cells: list[Row]
    """Rows of `StudySummary.cells`."""

    @classmethod
    def read(cls, results: Path, name: str) -> MirroredStudy:
        """Read a study and summarise its runs; raises RecordError if a file is missing or damaged."""
        read = read_summary(results, name)
        path = Paths(results).options(name)
        return cls(
            name=name,
            title=read.info.title,
            metric=read.info.metric,
            options=read_options(path),
            cells=[dict(cell) for cell in read.summary.cells.to_dict("records")],
        )

    def params(self) -> dict[str, str]:
        """Return the options, nested ones as `protocol.batch_size`."""
        options = {name: value for name, value in self.options.items() if name != "title"}
        return {allowed(key): as_text(value)[:_MAX_PARAM_LENGTH] for key, value in flattened(options).items()}

    def metrics(self) -> dict[str, float]:
        """Return the result of each cell at its chosen learning rate: `test_mean/TASK/MODEL/VARIANT` and so on."""
        return {
            allowed("/".join([name, *(cell[key] for key in CELL)])): float(cell[name])
            for cell in self.cells
            for name in _CELL_METRICS
            if math.isfinite(cell[name])
        }

    def note(self) -> str:
        """Return the title and the results as Markdown, as far as they fit; MLflow shows it on the study's page."""
        lines = [self.title, "", f"| {' | '.join(_NOTE_COLUMNS)} |", "|---" * len(_NOTE_COLUMNS) + "|"]
        rows = [f"| {' | '.join(self._note_entries(cell))} |" for cell in self.cells]
        while rows and len("\n".join([*lines, *rows])) > _MAX_NOTE_LENGTH:
            rows.pop()
        left = len(self.cells) - len(rows)
        return "\n".join([*lines, *rows, *([f"\nand {left} more cells, in the report"] if left else [])])

    def _note_entries(self, cell: Row) -> list[str]:
        chosen = NO_VALUE if math.isnan(cell["learning_rate"]) else rate_text(cell["learning_rate"])
        runs = f"{cell['complete']} of {cell['num_wanted']}"
        return [*(cell[key] for key in CELL), chosen, mean_sem_text(cell, self.metric) + seeds_text(cell), runs]


def charts_view(study: MirroredStudy) -> dict[str, Any]:
    """Return a view of MLflow's page: the ended runs of a study, not nested, and charts of all of them."""
    section = _uuid(study.name, "section")
    own = {"validation_accuracy": f"validation_{allowed(study.metric.name)}"}
    charts = [{key: own.get(str(value), value) for key, value in chart.items()} for chart in CHARTS]
    same = {"metricSectionId": section, "deleted": False, "isGenerated": False, "runsCountToCompare": MOST_DRAWN}
    return {
        "searchFilter": f"tags.`sweep.kind` = 'run' AND tags.`sweep.studies` LIKE '%,{study.name},%'",
        "orderByKey": "metrics.`test_at_best`",  # MLflow nests runs below their study only in the order of time
        "orderByAsc": not study.metric.higher_is_better,
        "compareRunCharts": [{**chart, "uuid": _uuid(study.name, chart["type"]), **same} for chart in charts],
        "compareRunSections": [{"uuid": section, "name": study.name, "display": True, "isReordered": False}],
        "runsHiddenMode": "SHOW_ALL",
    }


def _uuid(*words: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(words)))
