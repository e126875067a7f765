"""Bundles: what a study decides beforehand, its record and its report, as a folder with a list of its files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path

import pyarrow as pa

from lr_sweep.analysis.record.columns import CURVES, RUNS, Columns, table
from lr_sweep.analysis.record.parquet import MAX_ROWS, parquet_bytes, read_each
from lr_sweep.analysis.record.paths import Paths, RecordError
from lr_sweep.analysis.record.read import read_rows, read_run_rows, read_wanted_rows
from lr_sweep.analysis.study_report import write_report
from lr_sweep.common.errors import UserError
from lr_sweep.common.files import Fields, make_folder, read_plain, whole_folder, write_bytes
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.datasets.files import default_data_dir
from lr_sweep.sweep.results.directory import Results, read_state
from lr_sweep.sweep.results.validation import read_options
from lr_sweep.sweep.search.state import StudyState
from lr_sweep.sweep.study.backbones import Backbone, find_backbones, is_unknown
from lr_sweep.sweep.study.file import study_of, study_to_yaml
from lr_sweep.sweep.study.runs import wanted_runs
from lr_sweep.sweep.study.settings import Resources
from lr_sweep.sweep.study.study import Study

from .listing import MOST_BYTES, write_files, write_list

STUDY_FILES = (Paths.facts, Paths.options, Paths.wanted, Paths.proposals, Paths.rungs)
"""Paths of a recorded study's files that a bundle has."""
RUN_ID = re.compile("[0-9a-f]{16}")
RULE, RECORD, REPORT = "rule", "record", "report"
"""Folders of a bundle: the study with its code, its record, its report."""
PLANNED = "planned-runs.csv"
"""The runs that a study wants before any result is known."""
PLANNED_COLUMNS = ("run_id", "task", "model", "variant", "learning_rate", "seed", "num_steps")
SHOWN = (".html", ".json", ".csv")
"""Endings of a report's files that a bundle has; the page contains its figures."""
VERSIONS = f"{REPORT}/versions.json"
WRITERS = ("lr-sweep", "matplotlib", "numpy", "pandas", "scipy")
"""Packages on which a report's text and figures depend."""
README = """This folder is a claim that you can check. `SHA256SUMS` lists its files, and `report/index.html` says
which machines, versions and data the runs had. In an environment with these versions, this command
trains five of the runs again and computes the report again:

    lr-sweep challenge FOLDER --runs 5
"""


def rule_files(study: Study, backbones: Mapping[str, Backbone], data_dir: Path) -> dict[str, bytes]:
    """Return what a study decides before it trains, as bytes by name: the study, its code, the runs planned.

    Resources are left out, which change no number. Raises UserError if some weights are not here.
    """
    if unknown := [name for name, each in backbones.items() if is_unknown(each.checksum)]:
        raise UserError(
            f"the weights of {', '.join(unknown)} are not here, so the ids of runs are not known: "
            f"`lr-sweep data {study.study}` fetches them, with --pretrain it trains them"
        )
    processes = study.resources.processes_per_run
    shared = study.model_copy(update={"resources": Resources(processes_per_run=processes)})
    code = study.files.code if study.files else {}
    text = io.StringIO()
    writer = csv.DictWriter(text, PLANNED_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(run.row() for run in wanted_runs(study, backbones, data_dir))
    return {
        **{f"{RULE}/{name}": content for name, content in code.items()},
        f"{RULE}/{study.study}.yaml": study_to_yaml(shared).encode(),
        PLANNED: text.getvalue().encode(),
    }


def register(study: Study, backbones: Mapping[str, Backbone], data_dir: Path, folder: Path) -> str:
    """Write what a study decides into a new folder, and return the SHA-256 of its list."""
    files = rule_files(study, backbones, data_dir)
    with _new(folder) as new:
        write_files(new, files)
        return write_list(new)


def write_bundle(results: Results, name: str, study_folder: Path | None, folder: Path) -> str:
    """Write the bundle of a recorded study into a new folder, and return the SHA-256 of its list.

    Args:
        results: its results directory.
        name: of the study.
        study_folder: where the study's code is; None: where `run` read it.
        folder: must not exist.

    Raises UserError if the code is no longer that of the runs, or if runs are missing.
    """
    started = read_state(results.started(name))
    code_folder = study_folder or Path(started.get("folder") or results.root)
    data_dir = Path(started.get("data_dir") or default_data_dir())
    study = study_of(read_options(results.options(name)), code_folder)
    backbones = find_backbones(study, results.pretrained, data_dir)
    state = StudyState(study, backbones, results, data_dir)
    ids = [row["run_id"] for row in read_wanted_rows(results.root, name)]
    ended = {row["run_id"] for row in read_run_rows(results.root, ids, ["run_id"])}
    _check(name, ids, {run.run_id for run in state.wanted}, ended)
    with _new(folder) as new, scratch_folder("bundle-") as scratch:
        write_files(new, rule_files(study, backbones, data_dir))
        write_files(new, _record_files(results, name, ids))
        write_files(new, report_files(unpacked(new / RECORD, name, scratch), name))
        return write_list(new)


def _new(folder: Path) -> AbstractContextManager[Path]:
    if folder.exists():
        raise UserError(f"{folder} exists already: name a folder that does not")
    make_folder(folder.parent)
    return whole_folder(folder)


def _check(name: str, recorded: Sequence[str], wanted: set[str], ended: set[str]) -> None:
    if wanted != set(recorded):
        raise UserError(
            f"{name}: the study, its code or its data are no longer those of the recorded runs. "
            f"Restore them, or give the path of the study's file beside that code"
        )
    if missing := len(wanted - ended):
        raise UserError(f"{name}: {missing} of its runs have not ended: `lr-sweep run` trains them")


def report_files(results: Results, name: str) -> dict[str, bytes]:
    """Write a study's report, and return what a bundle has of it and the bundle's README, as bytes by name."""
    written = write_report(results.root, name)
    shown = [path for path in written.files if path.suffix in SHOWN]
    versions = {package: metadata.version(package) for package in WRITERS}
    return {
        **{f"{REPORT}/{path.name}": path.read_bytes() for path in shown},
        VERSIONS: json.dumps(versions, indent=1).encode(),
        "README.md": README.encode(),
    }


def _record_files(results: Results, name: str, ids: Sequence[str]) -> dict[str, bytes]:
    paths = [path_of(results, name) for path_of in STUDY_FILES]
    files = {f"{RECORD}/{path.name}": path.read_bytes() for path in paths if path.exists()}
    for stem, folder, columns in (
        ("runs", results.runs, RUNS),
        ("curves", results.curves, CURVES),
    ):
        files |= _in_parts(stem, _joined(folder, ids, columns))
    return files


def _joined(folder: Path, ids: Sequence[str], columns: Columns) -> pa.Table:
    tables = [rows for _, rows in read_each(folder, ids, columns)]
    return pa.concat_tables([table([], columns), *tables])


def _in_parts(stem: str, rows: pa.Table) -> dict[str, bytes]:
    """Return Parquet files of as many rows as are read at once."""
    starts = range(0, rows.num_rows, MAX_ROWS)
    parts = enumerate((rows.slice(start, MAX_ROWS) for start in starts), start=1)
    return {f"{RECORD}/{stem}-{number}.parquet": parquet_bytes(part) for number, part in parts}


def unpacked(record: Path, name: str, root: Path) -> Results:
    """Write a bundle's record into a new results directory, and return it.

    Args:
        record: the bundle's folder of the record.
        name: of the study.
        root: where the directory is made.

    Raises RecordError for a file that cannot be read.
    """
    results = Results(root / "claimed")
    results.prepare()
    make_folder(results.study(name))
    for path_of in STUDY_FILES:
        path = path_of(results, name)
        if (packed := record / path.name).exists():
            write_bytes(path, read_plain(packed, MOST_BYTES), durable=False)
    _split(record, "runs", RUNS, results.run)
    _split(record, "curves", CURVES, results.curve)
    return results


def _split(record: Path, stem: str, columns: Columns, path_of: Callable[[str], Path]) -> None:
    """Write the rows of each run into a file of its own."""
    by_run = defaultdict[str, list[Fields]](list)
    for path in sorted(record.glob(f"{stem}-*.parquet")):
        for row in read_rows(path, columns) or []:
            by_run[str(row["run_id"])].append(row)
    for run_id, rows in by_run.items():
        if not RUN_ID.fullmatch(run_id):  # it becomes the name of a file
            raise RecordError(f"{record}: got {run_id!r} as the id of a run, want 16 hex digits")
        write_bytes(path_of(run_id), parquet_bytes(table(rows, columns)), durable=False)
