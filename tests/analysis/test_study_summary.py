"""One reader of a study's summary: the report, the Python API and the mirror say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.record.columns import RUNGS
from lr_sweep.analysis.record.paths import Paths
from lr_sweep.analysis.record.study import SearchRange
from lr_sweep.analysis.study_report import write_report
from lr_sweep.sweep.api import Sweep
from lr_sweep.sweep.inspection.status import status_text
from lr_sweep.sweep.results.directory import Results
from lr_sweep.tests.support.records import SyntheticRecord, write

SEARCH = {"sampler": "gp", "low": 1e-5, "high": 1e-1, "rates": 4, "space": []}
FIELDS = {
    "study": "small",
    "tasks": {"digits": {"num_steps": 300}},
    "models": {"small": {"size": {"layers": 1, "heads": 1, "width": 8}}},
    "variants": ["frozen-random"],
    "learning_rates": [1e-3],
    "seeds": [0],
    "protocol": {"evaluate_every": 100},
}


def searched_and_stopped(folder: Path) -> Path:
    """One of four learning rates was stopped at step 100; the facts are of an earlier version."""
    made = SyntheticRecord(folder)
    for rate, accuracy in {1e-4: 0.5, 1e-3: 0.6, 1e-2: 0.5}.items():
        made.add(rate, 0, [(300, accuracy, accuracy)])
    made.want(1e-1, 0)
    made.end(made.wanted[-1], [(100, 0.2, 0.2)], "stopped", 100, stopped_at_step=100)
    results = made.write(search=SEARCH, winners=2, stop_early={"rule": "halving", "eta": 3}, paired=True)
    labels = {"task": "mnist", "model": "gpt2", "variant": "frozen-random", "learning_rate": 1e-1}
    write(
        Paths(results).rungs("small"), [labels | {"step": 100, "value": 0.2, "num_compared": 4, "kept": False}], RUNGS
    )
    return results


@pytest.mark.usefixtures("undrawn")
def test_the_api_counts_as_the_report_does(tmp_path: Path) -> None:
    results = searched_and_stopped(tmp_path)
    summary = Sweep(FIELDS, results).summary()
    assert summary.runs["status"].tolist() == ["complete", "complete", "complete", "stopped"]
    assert summary.search == SearchRange(**SEARCH)
    assert (summary.winners, summary.refinement) == (2, None)
    assert (
        "4 runs wanted: 3 complete, 0 diverged, 0 failed, 1 stopped, 0 missing." in write_report(results, "small").text
    )
    assert ["all", "3", "0", "0", "1", "0", "0"] in map(str.split, status_text(Results(results), "small").splitlines())
