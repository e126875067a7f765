"""The record that the benchmark of reports makes is one that a report can be written from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lr_sweep.analysis.study_report import write_report
from lr_sweep.benchmarks.report_scale import STUDY, Size, make_record


def test_a_small_one(tmp_path: Path) -> None:
    size = Size(tasks=1, rates=3, seeds=2, evaluations=4)
    assert size.runs == 24
    make_record(tmp_path / "results", size, np.random.default_rng(0))
    assert "24 runs wanted: 24 complete" in write_report(tmp_path / "results", STUDY).text
