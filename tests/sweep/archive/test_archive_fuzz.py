"""Archives made up to do harm: refused with a reason, in little time and memory."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lr_sweep.analysis.record.columns import CURVES, schema
from lr_sweep.analysis.record.parquet import parquet_bytes
from lr_sweep.common.files import sealed, sealed_text
from lr_sweep.sweep.archive.format import max_bytes
from lr_sweep.tests.support.archive_fuzz import header, imported, spoiled, tar_of
from lr_sweep.tests.support.records import files, four_runs, run_id_of

MOST_SECONDS, MOST_MB = 20.0, 1000.0


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a results directory that may be in an archive."""
    results = four_runs(tmp_path_factory.mktemp("sound") / "results")
    path = results.study("second") / "study.json"
    path.write_text(json.dumps(sealed(json.loads(path.read_text()))))
    (results.study("second") / "second.yaml").write_bytes(sealed_text("study: second\n"))
    return {name: content for name, content in files(results.root).items() if max_bytes(name) >= 0}


@pytest.mark.parametrize("cases", [44, pytest.param(500, marks=pytest.mark.slow)])
def test_made_up_archives_are_refused_in_little_time_and_memory(
    members: dict[str, bytes], tmp_path: Path, cases: int
) -> None:
    archives = [tmp_path / "sound.tar"]
    archives[0].write_bytes(tar_of(members))
    for number in range(cases):
        kind, content = spoiled(number, members)
        archives.append(tmp_path / f"{number}-{kind}.tar")
        archives[-1].write_bytes(content)
    sound, *found = imported(tmp_path, archives)
    assert sound["outcome"] == "taken", sound
    assert len(found) == cases
    assert [each for each in found if each["outcome"] not in ("taken", "refused")] == []
    assert [each for each in found if each["seconds"] > MOST_SECONDS] == []
    print(f"{cases} cases: at most {max(each['seconds'] for each in found):.1f} s, {found[-1]['peak_mb']:.0f} MB")
    assert found[-1]["peak_mb"] < MOST_MB
    assert sum(each["outcome"] == "refused" for each in found) > cases / 2  # else they would not be read as archives


def test_few_bytes_that_stand_for_many_are_refused_below_300_mb(members: dict[str, bytes], tmp_path: Path) -> None:
    """A curve of four million equal rows in 195 kB, 100 MB of lists in a manifest, and a header of a GiB."""
    rows = 4_000_000
    columns = {field.name: pa.array(np.ones(rows), field.type) for field in schema(CURVES) if field.name != "run_id"}
    curve = pa.table({"run_id": pa.repeat(run_id_of(0), rows), **columns}, schema(CURVES))
    many_rows = {f"curves/{run_id_of(0)}.parquet": parquet_bytes(curve)}
    assert len(many_rows[f"curves/{run_id_of(0)}.parquet"]) < 1_000_000
    (tmp_path / "rows.tar").write_bytes(tar_of(members | many_rows))
    lists = b'{"archive":1,"format":1,"files":{"a":[' + b"[]," * 33_000_000 + b"[]]}}"
    (tmp_path / "lists.tar").write_bytes(tar_of(members, lists))
    for name, kind in (("pax", tarfile.XHDTYPE), ("name", tarfile.GNUTYPE_LONGNAME)):
        with (tmp_path / f"{name}.tar").open("wb") as file:
            file.write(header("long", 1 << 30, kind))
            file.seek(1 << 30, io.SEEK_CUR)  # a hole: it takes no room on the disk
            file.write(tar_of(members))
    nested = {"studies/first/study.json": b"[" + b"[]," * 300_000 + b"[]]"}
    (tmp_path / "study.tar").write_bytes(tar_of(members | nested))
    found = imported(tmp_path, [tmp_path / f"{name}.tar" for name in ("rows", "lists", "pax", "name", "study")])
    assert [each["outcome"] for each in found] == ["refused"] * 5, found
    assert max(each["peak_mb"] for each in found) < 300, found
    reasons = ("it has 4,000,000 rows, want at most 100,000", "its manifest.json ", "a header of 1073741824 bytes")
    for each, reason in zip(found, [*reasons, reasons[-1], "got list, want a JSON object"], strict=True):
        assert reason in each["message"]
