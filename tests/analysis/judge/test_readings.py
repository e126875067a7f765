"""Files as tools and people write them: right at once, with the command of their truth, or refused; never wrong.

`readings/` has them, with their truths in `expected.json`; most hold the runs of `support.judged`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from lr_sweep.tests.support.judge_readings import OUTCOMES, outcome

READINGS = Path(__file__).parent / "readings"
TRUTHS = json.loads((READINGS / "expected.json").read_text())
QUICK = {
    **dict.fromkeys(("ray", "lightning_logs", "trackio", "keras_tuner", "equals_logs"), "at once"),
    **dict.fromkeys(("sheet.xlsx", "packed.zip", "runs.parquet", "optuna_journal.log", "in_prose.md"), "at once"),
    **dict.fromkeys(("hydra_logs", "trainer", "tensorboard", "nested_keys.json"), "command"),
    **dict.fromkeys(("figure.png", "german.csv"), "refused"),
}
"""Files of the quick test, one of each reader, and what becomes of them."""


@pytest.mark.parametrize(("name", "kind"), QUICK.items(), ids=QUICK)
def test_a_file_is_read_rightly_or_refused(name: str, kind: str) -> None:
    assert outcome(READINGS / name, TRUTHS[name]) == (kind, "")


@pytest.mark.slow
def test_no_file_is_read_wrongly() -> None:
    found = {name: outcome(READINGS / name, truths) for name, truths in TRUTHS.items()}
    failed = {name: why for name, why in found.items() if why[0] in ("useless", "wrong")}
    assert failed == {}
    assert Counter(kind for kind, _ in found.values()).keys() == {*OUTCOMES} - {"useless", "wrong"}
