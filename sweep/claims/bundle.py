"""Bundles: what a study decides beforehand, its runs and its report, as a folder with a list of its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lr_sweep.analysis.record.paths import Paths, RecordError
from lr_sweep.analysis.record.read import read_wanted_rows
from lr_sweep.analysis.study_report import write_report
from lr_sweep.common.files import ReadFields
from lr_sweep.common.scratch import scratch_folder
from lr_sweep.datasets.files import default_data_dir
from lr_sweep.sweep.inspection.verify import Verification
from lr_sweep.sweep.results.directory import Results, read_state
from lr_sweep.sweep.results.recorder import write_wanted
from lr_sweep.sweep.results.validation import read_options
from lr_sweep.sweep.search.rounds import next_proposals
from lr_sweep.sweep.search.state import StudyState
from lr_sweep.sweep.study.backbones import Backbone, find_backbones
from lr_sweep.sweep.study.file import study_of, study_to_yaml
from lr_sweep.sweep.study.study import Study

from .listing import write_files, write_listed

RULE, RECORD, REPORT = "rule", "record", "report"
"""Folders of a bundle: the study with its code, in a folder of its name; its runs; its report."""
SHOWN = (".html", ".json", ".csv")
"""Endings of a report's files that a bundle has; the page contains its figures."""
README = """This folder is a claim that you can check. `SHA256SUMS` lists its files, and `report/index.html` says
which machines, versions and data the runs had. In an environment with these versions, this command
trains five of the runs again and computes the report again:

    lr-sweep challenge FOLDER --runs 5
"""


def rule_files(study: Study) -> dict[str, bytes]:
    """Return what a study decides before it trains, as bytes by name: all its options, and its code."""
    files = {f"{study.study}.yaml": study_to_yaml(study).encode()}
    if study.files:
        files |= study.files.code
    return {f"{RULE}/{study.study}/{name}": content for name, content in files.items()}


def write_bundle(results: Results, name: str, code_folder: Path, folder: Path) -> str:
    """Write the bundle of a recorded study into a new folder, and return a text with the SHA-256 of its list.

    Args:
        results: its results directory.
        name: of the study.
        code_folder: where the study's own code is, if it has some.
        folder: must not exist.

    Raises RecordError as `computed_state`.
    """
    data_dir = Path(read_state(results.started(name)).get("data_dir", default_data_dir()))
    study = study_of(read_options(results.options(name)), code_folder)
    backbones = find_backbones(study, results.pretrained, data_dir)
    ids = [row["run_id"] for row in read_wanted_rows(results.root, name)]
    record = _record(results, name, ids)
    with scratch_folder("bundle-") as scratch:
        state = computed_state(study, backbones, data_dir, record, scratch)
        return write_listed(folder, bundle_files(state))


def computed_state(
    study: Study,
    backbones: Mapping[str, Backbone],
    data_dir: Path,
    files: ReadFields,
    folder: Path,
) -> StudyState:
    """Return what a study wants by its runs alone: its search, winners and fresh seeds are chosen again.

    Args:
        study: the study.
        backbones: its weights.
        data_dir: the folder of data sets.
        files: of its bundle, as bytes by name; those of the record are used.
        folder: gets a results directory with these runs.

    Raises RecordError if a run is missing or damaged, or has another id than its content.
    """
    results = Results(folder / RECORD)
    results.prepare()
    paths = Paths(Path(RECORD))
    used = f"{paths.runs}/", f"{paths.curves}/", str(paths.rungs(study.study))
    write_files(folder, {name: files[name] for name in files if name.startswith(used)})
    check(Verification(results).problems())
    state = StudyState(study, backbones, results, data_dir)
    while added := next_proposals(state):
        state = state.with_proposals(added)
    if left := len(state.reconciled.left):
        raise RecordError(
            f"{left} of the {len(state.wanted)} runs that {study.study} wants are missing: `lr-sweep run` trains "
            f"them. If the study, its code or its data are others than those of the runs, restore these."
        )
    write_wanted(results, study, state.wanted)
    return state


def check(problems: Iterable[str]) -> None:
    """Raise RecordError if there are problems, with a line each."""
    if text := "\n".join(problems):
        raise RecordError(text)


def bundle_files(state: StudyState) -> dict[str, bytes]:
    """Return the bundle of a computed state, as bytes by name."""
    results, name = state.results, state.study.study
    written = write_report(results.root, name)
    shown = (path for path in written.files if path.suffix in SHOWN)
    return {
        **rule_files(state.study),
        **_record(results, name, [run.run_id for run in state.wanted]),
        **_contents(REPORT, written.folder, shown),
        "README.md": README.encode(),
    }


def _record(results: Results, name: str, ids: Iterable[str]) -> dict[str, bytes]:
    paths = [path_of(run_id) for run_id in ids for path_of in (results.run, results.curve)]
    return _contents(RECORD, results.root, [*paths, results.rungs(name)])


def _contents(prefix: str, folder: Path, paths: Iterable[Path]) -> dict[str, bytes]:
    return {
        f"{prefix}/{path.relative_to(folder)}": path.read_bytes() for path in paths if path.exists()
    }
