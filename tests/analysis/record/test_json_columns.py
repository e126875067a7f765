"""Texts that are no JSON, or not the JSON that a column wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from lr_sweep.analysis.record.read import RecordError, is_sound, read_wanted, read_wanted_rows
from lr_sweep.analysis.study_report import write_report
from lr_sweep.tests.support.records import SyntheticRecord

SOUND = [
    ("versions", "{}"),
    ("versions", '{"torch": "2.15.0"}'),
    ("code", "[]"),
    ("code", '[{"from_step": 0, "files": null}, {"from_step": 300, "files": {"a.py": "1f"}}]'),
    ("options", '{"batch_size": 8}'),
]
WRONG = [
    ("versions", "{oops"),
    ("versions", "[" * 100_000),
    ("versions", '["torch"]'),
    ("versions", '{"torch": 2}'),
    ("code", "null"),
    ("code", '{"from_step": 0, "files": null}'),
    ("code", '[{"files": null}]'),
    ("code", '[{"from_step": 0}]'),
    ("code", '[{"from_step": "0", "files": null}]'),
    ("code", '[{"from_step": 0, "files": {"a.py": 1}}]'),
    ("options", "[]"),
]


@pytest.mark.parametrize(
    ("name", "text", "sound"), [*((*each, True) for each in SOUND), *((*each, False) for each in WRONG)]
)
def test_what_a_column_wants(name: str, text: str, sound: bool) -> None:
    assert is_sound(name, text) == sound


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("name", "text"), [("versions", "{oops"), ("code", "null")])
def test_a_report_ends_in_a_message(tmp_path: Path, name: str, text: str) -> None:
    made = SyntheticRecord(tmp_path)
    made.want(1e-3, 0)
    made.end(made.wanted[-1], [(300, 0.5, 0.5)], "complete", 300, **{name: text})
    with pytest.raises(RecordError, match=f"as {name}, want what docs/record.md says. `verify` names the file"):
        write_report(made.write(), "small")


def test_options_of_wanted_runs(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [(300, 0.5, 0.5)])
    made.wanted[-1]["options"] = "[]"
    results = made.write()
    for read in (read_wanted, read_wanted_rows):
        with pytest.raises(RecordError, match=r"wanted\.parquet: got '\[\]' as options"):
            read(results, "small")
