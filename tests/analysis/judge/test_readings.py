"""Files as tools and people write them: right at once or after one offered command, or refused; never wrong.

`readings/` has them, with their truths in `expected.json`; most hold the runs of `support.judged`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from lr_sweep.analysis.judge.judge import judged
from lr_sweep.analysis.judge.reading import MOST_CHOICES, QuestionError, Reading, save_reading, saved_reading
from lr_sweep.benchmarks.judge_readings import outcome
from lr_sweep.common.errors import UserError
from lr_sweep.tests.support.judged import RUNS, accuracy, chosen, judge, rows_of, study_of

READINGS = Path(__file__).parent / "readings"
TRUTHS = json.loads((READINGS / "expected.json").read_text())
KINDS = [
    *("ray", "hydra_logs", "lightning_logs", "wandb", "trackio", "mlruns", "keras_tuner", "trainer", "equals_logs"),
    *("in_prose.md", "nested_keys.json", "packed.zip", "agent.tsv", "no_rate.csv", "unknown_names.csv"),
    "sheet.xlsx",
]
"""Files of the quick test, one of each reader."""


def found(name: str) -> str:
    return outcome(READINGS / name, TRUTHS[name])[0]


@pytest.mark.parametrize("name", KINDS)
def test_a_file_is_read_or_its_first_offer_works(name: str) -> None:
    assert found(name) in ("first", "offer")


@pytest.mark.slow
def test_no_file_is_read_wrongly() -> None:
    counts = Counter(found(name) for name in TRUTHS)
    assert counts["wrong"] == 0
    assert counts["first"] + counts["offer"] + counts["refused"] >= 0.95 * len(TRUTHS), counts


ROWS = [f"{variant},{rate},{seed},{accuracy(variant, rate, seed)}" for variant, rate, seed in RUNS]
BEST = {"a": (1e-2, 0.71875), "b": (1e-1, 0.84375)}


def test_columns_are_given_by_position_and_rows_by_a_value(tmp_path: Path) -> None:
    text = rows_of("x,,z,w", [*ROWS, "c,0.1,0,9"])
    given = {"variant": "#1", "learning_rate": "#2", "seed": "#3", "validation": "#4"}
    reading = Reading(columns=given, higher_is_better=True, where=["x!=c"])
    assert chosen(study_of(tmp_path, text, reading)) == BEST
    with pytest.raises(UserError, match="--where y=1: want COLUMN=VALUE .* of x, #2, z, w"):
        study_of(tmp_path, text, Reading(where=["y=1"]))


def test_every_offer_leads_to_a_report_and_there_are_few(tmp_path: Path) -> None:
    text = rows_of("opti,rate,rep,score", ROWS)
    with pytest.raises(QuestionError) as raised:
        study_of(tmp_path, text)
    assert 1 <= len(raised.value.choices) <= MOST_CHOICES
    for choice in raised.value.choices:
        assert len(study_of(tmp_path, text, choice.reading).summary.runs)


def test_without_a_rate_nothing_is_chosen_and_the_reading_is_kept_with_its_reasons(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(rows_of("what,seed,val_loss,state", "a,0,1,keep a,1,2,keep b,0,3,keep b,1,0,crash"))
    study, reading = judged([tmp_path / "t.csv"], Reading())
    assert study.summary.cells["validation_mean"].tolist() == [1.5, 3.0]
    assert any(line.startswith("NO LEARNING RATE: nothing was tuned") for line in study.about_table)
    assert "edge" not in {each.check for each in study.findings}
    save_reading(tmp_path / "judge.yaml", reading, study.about_table)
    assert (tmp_path / "judge.yaml").read_text().startswith("# read as: variant = what (guessed: it names what was")
    again = judge([tmp_path / "t.csv"], saved_reading(tmp_path / "judge.yaml"))
    assert again.summary.cells.equals(study.summary.cells)


def test_rates_that_fall_within_runs_count_with_the_largest(tmp_path: Path) -> None:
    rows = [f"{v}{r},{v},{r / step},{s},{step},{accuracy(v, r, s)}" for v, r, s in RUNS if s == 0 for step in (1, 2)]
    study = study_of(tmp_path, rows_of("run_id,variant,lr,seed,step,val_acc", rows))
    assert {name: rate for name, (rate, _) in chosen(study).items()} == {"a": 1e-2, "b": 1e-1}
    assert any(line.startswith("lr changes within runs, as a schedule does") for line in study.about_table)
