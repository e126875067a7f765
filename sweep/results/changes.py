"""What has changed since a study was last run: the code and data of recorded runs, and which runs it wants.

`plan` and `run` name it before anything is written again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from lr_sweep.analysis.record.columns import PROPOSALS, RUNGS, files_text, other_versions
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_rows, read_wanted_rows, recorded_studies
from lr_sweep.common.source_code import source_versions, version_here
from lr_sweep.common.text import counted
from lr_sweep.datasets import SHIPPED, TASKS, task_sources
from lr_sweep.sweep.results.directory import Results, write_parquet
from lr_sweep.sweep.results.run_state import LABELS, Row, State, flattened, label, read_ends, started_ids
from lr_sweep.sweep.search.state import Reconciled
from lr_sweep.sweep.study.backbones import is_unknown
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.checkpoint import newest_history
from lr_sweep.trainables.models import FAMILIES
from lr_sweep.trainables.run import engine_for, id_of

ENGINES = {
    "stacked": "lr_sweep.trainables.stacked.engine",
    "plain": "lr_sweep.trainables.plain.engine",
    "own": "lr_sweep.trainables.own.engine",
}
"""The module that each engine is in, by name: importing it would import torch, which `plan` does without."""
MOST_VALUES = 5
"""Labels or options that a line names."""


def code_of(task: str, modules: Collection[str]) -> dict[str, str]:
    """Return the versions of the files that a task's data and the numbers of these modules come from, by path."""
    engine_code, task_code = source_versions(sorted(modules)), task_sources(TASKS[task])
    return engine_code | {file: version for file, version in task_code.items() if version_here(file) == version}


def code_of_tasks(study: Study, examples: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return for each task the versions of what its runs' numbers come from; `examples` is from `own_examples`."""
    if study.files is not None:  # their own code is in their ids
        return dict.fromkeys(study.tasks, source_versions([ENGINES["own"]]))
    sizes = [model.size for model in study.bodies.values()]
    modules = {ENGINES[engine_for(size, study.resources.engine)] for size in sizes}
    modules |= {FAMILIES[size.family] for size in sizes}  # imported by name
    return {
        task: code_of(task, modules)
        | {name: version for name, version in examples.items() if name == _examples_of(task)}
        for task in study.tasks
    }


def own_examples(study: Study, data_dir: Path) -> dict[str, str]:
    """Load the study's tasks that are not shipped, and return the versions of their examples by name.

    So mismatches between `load` and `shape` end a `run` before it starts (DataError, see `load_checked`), and data that
    changed under the same `checksum` is noticed.
    """
    from lr_sweep.datasets.loaded import examples_version, load_checked  # imported late: `plan` loads nothing

    own = {name: task.options for name, task in study.data_sets.items() if name not in SHIPPED}
    loaded = {name: load_checked(name, TASKS[name], options, data_dir) for name, options in own.items()}
    return {_examples_of(name): examples_version(data) for name, data in loaded.items()}


def _examples_of(task: str) -> str:
    return f"the examples of {task}"


def version_now(examples: Mapping[str, str], name: str) -> str | None:
    """Return the version of a file of the checkout, or of a task's examples, by its name; None: not known."""
    return examples.get(name) or version_here(name)


def change_lines(reconciled: Reconciled, results: Results, examples: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield lines that name recorded runs of a study trained by other code or data than what is here; mostly none.

    `examples` are from `own_examples`; None: data was not loaded.
    """
    now = partial(version_now, examples or {})
    files_of = cache(lambda code: tuple(sorted(other_versions(code, now))))  # most runs have the same code
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for run_id, code in _codes(reconciled, results):
        if files := files_of(code):
            found[files].append(run_id)
    to_train = {run.run_id for run in reconciled.to_train}
    for files, run_ids in found.items():
        ends = [reconciled.ends[run_id] for run_id in run_ids if run_id in reconciled.ends]
        commits = sorted({end["git_commit"][:7] for end in ends if end["git_commit"]})
        at = f" (commit {', '.join(commits)})" if commits else ""
        were = "run was" if len(run_ids) == 1 else "runs were"
        yield f"{len(run_ids)} recorded {were} trained by another version of {files_text(files)}{at}"
        if resuming := to_train.intersection(run_ids):
            yield f"{len(resuming)} of them would resume with this version, so their curves would be of two versions"
        yield "if the change affects numbers, give --results a new directory; otherwise do nothing"


def _codes(reconciled: Reconciled, results: Results) -> Iterator[tuple[str, str]]:
    """Yield run ids with what is known of the code that trained them: from the row, else from the newest checkpoint."""
    for run_id, state in reconciled.states.items():
        if run_id in reconciled.ends:
            if code := reconciled.ends[run_id]["code"]:
                yield run_id, code
        elif state is State.STARTED and results.uri is None:  # a store's checkpoints are not here
            yield run_id, json.dumps(newest_history(results.checkpoints(run_id)))


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """What a study no longer wants of what it wanted when it was last run."""

    text: str | None
    """A line about the runs among them that have results; None: there are none, or none is lost."""
    cells: frozenset[Cell]
    """Cells whose runs became others under the same names: what was proposed or stopped is of the former ones."""


def replaced_by(study: Study, wanted: Sequence[WantedRun], results: Results) -> Replaced:
    """Compare what a study wants with what it wanted when it was last run; call this before that is written again."""
    rows = _no_longer_wanted(study.study, wanted, results)
    unknown = {run.cell for run in wanted if is_unknown(run.run.weights_checksum)}
    rows = [row for row in rows if _cell(row) not in unknown]  # else ids are compared that are not known yet
    named = {_labels(run.row()) for run in wanted} if rows else set()
    cells = frozenset(_cell(row) for row in rows if _labels(row) in named)
    ends, started = read_ends(results, [row["run_id"] for row in rows], ("content",)), started_ids(results)
    failed = {run_id for run_id, end in ends.items() if end["status"] == State.FAILED}
    known = (ends.keys() | started) - failed
    lost = [row for row in rows if row["run_id"] in known]
    return Replaced(text=_text(study, lost, wanted, ends, results) if lost else None, cells=cells)


def _no_longer_wanted(study: str, wanted: Sequence[WantedRun], results: Results) -> list[Row]:
    if not results.exists() or study not in recorded_studies(results.root):
        return []
    try:
        before = read_wanted_rows(results.root, study)
    except RecordError:  # `run` writes it again
        return []
    now = {run.run_id for run in wanted}
    return [row for row in before if row["run_id"] not in now]


def restart_cells(results: Results, study: str, cells: frozenset[Cell]) -> None:
    """Drop what was proposed and stopped in cells whose runs are others now: it rests on the former ones."""
    for path, columns in ((results.proposals(study), PROPOSALS), (results.rungs(study), RUNGS)):
        rows = read_rows(path, columns) or []
        kept = [row for row in rows if _cell(row) not in cells]
        if len(kept) < len(rows):
            write_parquet(path, kept, columns)


def renamed_lines(study: Study, wanted: Sequence[WantedRun], results: Results) -> Iterator[str]:
    """Say which recorded studies have this one's runs under the name of another task, that of the study by default."""
    if study.files is None or list(study.tasks) != [study.study] or not results.exists():
        return
    contents = [run.run.content() for run in wanted]
    for other in recorded_studies(results.root):
        ids = [id_of(content | {"task": other}) for content in contents] if other != study.study else []
        if ends := read_ends(results, ids):
            yield (
                f"{counted(len(ends), 'recorded run')} of study {other} would be this study's but for the task's name, "
                f"by default the study's; with `tasks: {{{other}: {{}}}}` in the study they are not trained again"
            )


def _cell(row: Row) -> Cell:
    return Cell(row["task"], row["model"], row["variant"])


def _labels(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in LABELS)


def _text(
    study: Study, lost: Sequence[Row], wanted: Sequence[WantedRun], ends: Mapping[str, Row], results: Results
) -> str:
    over = sum(row["run_id"] in ends and State(ends[row["run_id"]]["status"]).over for row in lost)
    alone = len({row["run_id"] for row in lost} - _wanted_by_others(study.study, results))
    up_to = "up to " if study.winners is not None else ""  # which rates these are is not known yet
    collected = f"; {alone} of them are wanted by no other study, and `gc` would offer them" if alone else ""
    return (
        f"{up_to}{counted(len(lost), 'recorded run')} of study {study.study} ({over} complete) would no longer be "
        f"wanted: {_difference(lost, wanted, ends)}{collected}"
    )


def _difference(lost: Sequence[Row], wanted: Sequence[WantedRun], ends: Mapping[str, Row]) -> str:
    """Return what the lost runs have that the study has not: labels, else options of the first that has ended."""
    now = [run.row() for run in wanted]
    for name in LABELS:
        if gone := sorted({row[name] for row in lost} - {row[name] for row in now}):
            shown = [label({name: value}, name) for value in gone]
            return f"the study has no {name.replace('_', ' ')} {_some(shown)}"
    named = {_labels(row): run for row, run in zip(now, wanted, strict=True)}
    for row in lost:
        if row["run_id"] in ends and (run := named.get(_labels(row))):
            before, after = flattened(json.loads(ends[row["run_id"]]["content"])), flattened(run.run.content())
            names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
            return f"the study has another {_some([_option(name) for name in names])}"
    return "the study has none like them"


def _option(name: str) -> str:
    kind, _, file = name.partition(".")
    if kind in ("code", "data") and file:  # files of the user's own training function
        return f"version of {file}"
    return "version of the task's data or code" if name == "data_checksum" else name


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST_VALUES} more" if len(texts) > MOST_VALUES else ""
    return ", ".join(texts[:MOST_VALUES]) + more


def _wanted_by_others(study: str, results: Results) -> set[str]:
    found: set[str] = set()
    for other in recorded_studies(results.root):
        with suppress(RecordError):  # what a damaged study wants is unknown
            found |= {row["run_id"] for row in read_wanted_rows(results.root, other)} if other != study else set()
    return found
