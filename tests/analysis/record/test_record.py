import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lr_sweep.analysis.record import read as record
from lr_sweep.analysis.record.columns import CURVES, RUNS, SPLITS, WANTED, best_of
from lr_sweep.analysis.record.paths import Paths, RecordError
from lr_sweep.analysis.record.study import Fresh
from lr_sweep.tests.support.records import SyntheticRecord, wanted_row


def test_what_is_written_is_read_with_its_types(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    complete = made.add(1e-3, 0, [(100, 0.5, 0.4), (300, 0.6, 0.5)])
    diverged = made.add(1e-2, 0, [], status="diverged", trained=7, diverged_at=7)
    unfinished = made.want(1e-4, 0)
    made.write_curve(unfinished, [(100, 0.3, 0.3)])
    made.write()
    runs = record.read_runs(tmp_path, [complete, diverged, unfinished]).set_index("run_id")
    assert list(runs.index) == [complete, diverged]
    assert runs["diverged_at_step"].dtype == "Int64"
    assert runs["diverged_at_step"].isna().tolist() == [True, False]
    assert str(runs["started_at"].dtype) == "datetime64[ms, UTC]"
    assert str(runs.loc[complete, "started_at"]) == "2026-01-02 12:00:00+00:00"
    curves = record.read_curves(tmp_path)
    assert sorted(curves["run_id"].unique()) == sorted([complete, unfinished])
    assert list(curves.columns) == [column.name for column in CURVES]
    assert curves.loc[curves["run_id"] == complete, "step"].tolist() == [100, 300]
    assert record.read_wanted(tmp_path, "small")["learning_rate"].tolist() == [1e-3, 1e-2, 1e-4]
    assert record.read_study(tmp_path, "small").title == "A small study"


def test_an_empty_record_reads_as_empty_frames(tmp_path: Path) -> None:
    assert list(record.read_runs(tmp_path).columns) == [column.name for column in RUNS]
    assert record.read_curves(tmp_path, ["a"]).empty


def test_a_file_of_other_columns_is_named_with_the_difference(tmp_path: Path) -> None:
    path = Paths(tmp_path).run("a")
    path.parent.mkdir()
    pq.write_table(pa.table({"run_id": [1]}), path)
    with pytest.raises(
        RecordError, match=r"a\.parquet.*run_id: got int64, want string; protocol_version: got no column"
    ):
        record.read_runs(tmp_path)


def test_a_folder_of_files_with_and_without_a_later_column_reads_as_one_table(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    paths = [Paths(tmp_path).run(made.add(1e-3, seed, [(300, 0.5, 0.4)])) for seed in (0, 1)]
    pq.write_table(pq.read_table(paths[0]).drop_columns(["lost_steps", "engine", "code"]), paths[0])
    rows = record.read_runs(tmp_path).set_index("run_id")
    assert pd.isna(rows["lost_steps"][paths[0].stem])
    assert rows["engine"][paths[0].stem] is None or pd.isna(rows["engine"][paths[0].stem])
    assert (rows["lost_steps"][paths[1].stem], rows["engine"][paths[1].stem]) == (0, "stacked")
    assert rows["lost_steps"].dtype == "Int64"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, r"unknown keys \['extra'\]"),
        ({"task": None}, r"\['task'\] may not be null"),
        ({"seed": datetime(2026, 1, 1)}, r"\['seed'\] have no time zone"),
        ({"seed": "zero"}, "Could not convert"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, pa.ArrowException, TypeError), match=message):
        record.table([wanted_row("a") | change], WANTED)
    with pytest.raises(ValueError, match=r"missing keys \['seed'\]"):
        record.table([{key: value for key, value in wanted_row("a").items() if key != "seed"}], WANTED)


def test_format_is_checked(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no results directory"):
        record.check_format(tmp_path / "none")
    with pytest.raises(RecordError, match=r"no format\.json"):
        record.check_format(tmp_path)
    for content, message in (
        ('{"format": 3}', "got format 3, want 1 or 2: read it with"),
        ("{", r"cannot read .*write .\"format\": 2. into it"),
    ):
        (tmp_path / "format.json").write_text(content)
        with pytest.raises(RecordError, match=message):
            record.check_format(tmp_path)
    for number in (1, 2):
        (tmp_path / "format.json").write_text(f'{{"format": {number}}}')
        record.check_format(tmp_path)


def test_curves_of_format_1_have_the_names_of_today(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.add(1e-3, 0, [(100, 0.5, 0.25)])
    made.write()
    curves = record.read_curves(tmp_path)
    (path,) = tmp_path.glob("curves/*.parquet")
    rows = pq.read_table(path)
    earlier = [f"{name}_accuracy" if name in SPLITS else name for name in rows.column_names]
    pq.write_table(rows.rename_columns(earlier), path)
    assert record.read_curves(tmp_path).equals(curves)
    assert record.read_curves(tmp_path, names=["step", "test"])["test"].tolist() == [0.25]


def test_an_unknown_study_lists_those_there_are(tmp_path: Path) -> None:
    made = SyntheticRecord(tmp_path)
    made.want(1e-3, 0)
    made.write()
    with pytest.raises(RecordError, match=r"no study 'large' in .*: it has small"):
        record.read_study(tmp_path, "large")
    with pytest.raises(RecordError, match="plain name"):
        record.read_study(tmp_path, "../small")


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        *[("study", None), ("title", 5), ("winners", "2"), ("selection", "last"), ("metric", "loss")],
        *[("metric.is_fraction", "no"), ("search.low", "a"), ("search.high", 0), ("search.rates", "many")],
        *[("search.space", 5), ("fresh", 5), ("fresh.max", 1), ("fresh.max", 2.5), ("fresh.max", 10**9)],
        *[("fresh.until_decided", 1), ("fresh.equal_within", -1), ("fresh.equal_within", "1")],
    ],
)
def test_facts_of_another_type_are_reported_with_their_file(tmp_path: Path, key: str, wrong: object) -> None:
    nested = {
        "metric": {"name": "loss", "higher_is_better": False, "is_fraction": False},
        "search": {"sampler": "gp", "low": 1e-4, "high": 0.1, "rates": 4},
        "fresh": {"max": 3, "until_decided": True, "equal_within": 1},
    }
    name, _, inner = key.partition(".")
    results = SyntheticRecord(tmp_path).write(**{name: nested[name] | {inner: wrong} if inner else wrong})
    with pytest.raises(RecordError, match=rf"study\.json: got {wrong!r} as {key}.*: run the study again"):
        record.read_study(results, "small")


@pytest.mark.parametrize(("min_difference", "within"), [(1.5, 1.5), (0, None)])
def test_what_earlier_versions_called_decide_is_read(tmp_path: Path, min_difference: float, within: float) -> None:
    decide = {"pairs": "all", "min_difference": min_difference, "max_seeds": 10, "error": 0.1}
    found = record.read_study(SyntheticRecord(tmp_path).write(decide=decide), "small")
    assert found.fresh == Fresh(max=10, until_decided=True, equal_within=within)
    assert found.equal_within == within


def test_a_study_that_wants_nothing_is_refused(tmp_path: Path) -> None:
    SyntheticRecord(tmp_path).write()
    with pytest.raises(RecordError, match="wants no runs"):
        record.read_wanted(tmp_path, "small")


def test_the_best_evaluation_is_the_first_of_the_highest_on_validation() -> None:
    points = [(10, 0.5, 0.9), (20, 0.7, 0.6), (30, 0.7, 0.8), (40, math.nan, 1.0)]
    curve = [{"step": s, "validation": v, "test": t} for s, v, t in points]
    assert best_of(curve) == {"best_step": 20, "validation_at_best": 0.7, "test_at_best": 0.6}
    assert best_of(curve[-1:]) == {"best_step": None, "validation_at_best": None, "test_at_best": None}


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
    assert record.is_sound(name, text) == sound
