"""Figures of made-up studies, drawn in memory."""

from __future__ import annotations

from matplotlib.figure import Figure

from lr_sweep.analysis.report.chart import sweep_panels
from lr_sweep.analysis.report.figures import sweep_figure
from lr_sweep.analysis.statistics.selection.summary import StudySummary


def drawn_sweep(summary: StudySummary) -> Figure:
    """The metric of a study's first model against the learning rate."""
    return sweep_figure(summary, sweep_panels(summary))
