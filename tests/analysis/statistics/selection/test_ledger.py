"""The ledger of a study small enough to add up by hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord

pytestmark = pytest.mark.usefixtures("undrawn")

CURVE = [(100, 0.5, 0.5), (200, 0.5, 0.5), (300, 0.5, 0.5)]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Budget 300 steps. A cell with everything, and one of an earlier version that counted no lost steps."""
    made = SyntheticRecord(tmp_path / "results")
    for rate in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        made.want(rate, 0)
    rows = made.wanted[:]
    made.end(rows[0], CURVE, "complete", 300, device_s=30.0)
    made.end(rows[1], CURVE, "complete", 300, device_s=60.0, lost_steps=100)  # 20 s went with a worker
    made.end(rows[2], CURVE[:1], "diverged", 150, 150, device_s=15.0)
    made.end(rows[3], [*CURVE, (600, 0.5, 0.5)], "complete", 600, device_s=80.0, lost_steps=60)  # half is another's
    for seed in (0, 1):
        old = made.add(1e-3, seed, CURVE, variant="frozen-pretrained")
        path = Paths(made.results).run(old)
        pq.write_table(pq.read_table(path).drop_columns(["lost_steps", "engine", "code"]), path)
    made.write()
    return made.results


def test_the_ledger_by_hand(results: Path) -> None:
    """Used: 30 + (60 + 20) + 15 + (80 + 8) / 2."""
    report = write_report(results, "small")
    text = (report.folder / "ledger.md").read_text().splitlines()
    rows = [[entry.strip() for entry in line.split("|")[1:-1]] for line in text[2:] if line]
    assert rows[2:] == [
        ["mnist", "gpt2", "frozen-random", "4/5", "169", "24", "15"],
        ["mnist", "gpt2", "frozen-pretrained", "2/2", "60", "unknown", "0"],
        ["total", "", "", "6/7", "229", "at least 24", "15"],
    ]
    for page in ("report.md", "index.html"):
        assert "What it cost" in (report.folder / page).read_text()
        assert "at least 24" in (report.folder / page).read_text()
    csv = (report.folder / "ledger.csv").read_text().splitlines()
    assert csv[0] == "task,model,variant,num_runs,num_ended,num_lost_unknown,used_s,lost_s,diverged_s"
    assert csv[1] == "mnist,gpt2,frozen-random,5,4,0,169.0,24.0,15.0"


def test_lost_steps_are_unknown_of_a_run_that_failed_before_its_first_evaluation(tmp_path: Path) -> None:
    """Without an evaluation it has no pace to count lost steps by."""
    made = SyntheticRecord(tmp_path / "results")
    made.want(1e-3, 0)
    made.end(made.wanted[0], [], "failed", 0, failure="broken", device_s=0.0, lost_steps=7)
    table = (write_report(made.write(), "small").folder / "ledger.md").read_text()
    assert "| 1/1 | 0 | unknown | 0 |" in table
