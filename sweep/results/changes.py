"""What has changed since a study was last run: the code and data of recorded runs, and which runs it wants.

`plan` and `run` name it before anything is written again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lr_sweep.analysis.record.columns import (
    INEXACTLY,
    PROPOSALS,
    RUNGS,
    Columns,
    files_text,
    other_versions,
)
from lr_sweep.analysis.record.paths import RecordError
from lr_sweep.analysis.record.read import read_rows, read_wanted_rows, recorded_studies
from lr_sweep.analysis.record.study import key_of
from lr_sweep.common.files import remove_below
from lr_sweep.common.object_store import ObjectStore, reachable
from lr_sweep.common.source_code import source_versions, version_here
from lr_sweep.common.text import counted
from lr_sweep.datasets import SHIPPED, TASKS, task_sources
from lr_sweep.sweep.search.state import Reconciled
from lr_sweep.sweep.study.backbones import is_unknown
from lr_sweep.sweep.study.only import select
from lr_sweep.sweep.study.runs import Cell, WantedRun
from lr_sweep.sweep.study.study import Study
from lr_sweep.trainables.checkpoint import newest_history, newest_progress
from lr_sweep.trainables.models import FAMILIES
from lr_sweep.trainables.run import engine_for

from .directory import Results, write_parquet
from .run_state import LABELS, Row, State, flattened, read_ends

ENGINES = {
    "stacked": "lr_sweep.trainables.stacked.engine",
    "plain": "lr_sweep.trainables.plain.engine",
    "own": "lr_sweep.trainables.own.engine",
}
"""The module that each engine is in, by name: importing it would import torch, which `plan` does without."""
MOST_NAMED = 5
"""Options that a line names."""


def code_of(task: str, modules: Collection[str]) -> dict[str, str]:
    """Return the versions of the files that a task's data and the numbers of these modules come from, by path."""
    engine_code, task_code = source_versions(sorted(modules)), task_sources(TASKS[task])
    return engine_code | {
        file: version for file, version in task_code.items() if version_here(file) == version
    }


def code_of_tasks(study: Study, examples: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return for each task the versions of what its runs' numbers come from; `examples` is from `own_examples`."""
    if study.files is not None:  # their own code is in their ids
        return dict.fromkeys(study.tasks, source_versions([ENGINES["own"]]))
    sizes = [model.size for model in study.bodies.values()]
    modules = {ENGINES[engine_for(size, study.resources.engine)] for size in sizes}
    modules |= {FAMILIES[size.family] for size in sizes}  # imported by name
    codes = {task: code_of(task, modules) for task in study.tasks}
    for task, code in codes.items():
        if (name := _examples_of(task)) in examples:
            code[name] = examples[name]
    return codes


def own_examples(study: Study, data_dir: Path) -> dict[str, str]:
    """Load the study's tasks that are not shipped, and return the versions of their examples by name.

    So mismatches between `load` and `shape` end a `run` before it starts (DataError, see `load_checked`), and data that
    changed under the same `checksum` is noticed.
    """
    from lr_sweep.datasets.loaded import (
        examples_version,
        load_checked,
    )  # imported late: `plan` loads nothing

    own = {name: task.options for name, task in study.data_sets.items() if name not in SHIPPED}
    loaded = {
        name: load_checked(name, TASKS[name], options, data_dir) for name, options in own.items()
    }
    return {_examples_of(name): examples_version(data) for name, data in loaded.items()}


def _examples_of(task: str) -> str:
    return f"the examples of {task}"


def version_now(examples: Mapping[str, str], name: str) -> str | None:
    """Return the version of a file of the checkout, or of a task's examples, by its name; None: not known."""
    return examples.get(name) or version_here(name)


def change_lines(
    reconciled: Reconciled, results: Results, examples: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield lines that name recorded runs of a study trained by other code or data than what is here; mostly none.

    The last line counts runs that resumed inexactly. `examples` are from `own_examples`; None: data was not loaded.
    """
    now = partial(version_now, examples or {})
    changed: Counter[tuple[str, ...]] = Counter()
    for code, num_runs in Counter(_codes(reconciled, results)).items():
        changed[tuple(sorted(other_versions(code, now)))] += num_runs
    del changed[()]
    for files, num_runs in changed.items():
        were = "run was" if num_runs == 1 else "runs were"
        yield f"{num_runs} recorded {were} trained by another version of {files_text(files)}"
        yield "if the change affects numbers, give --results a new directory; otherwise do nothing"
    if number := len(inexact_runs(reconciled, results)):
        runs = counted(number, "run")
        yield f"{runs} resumed inexactly; `run --restart-inexact` trains them anew"


def _codes(reconciled: Reconciled, results: Results) -> Iterator[str]:
    """Yield what is known of the code that trained each run: from its row, else from its newest checkpoint."""
    for run_id, state in reconciled.states.items():
        if run_id in reconciled.ends:
            if code := reconciled.ends[run_id]["code"]:
                yield code
        elif state is State.STARTED and results.uri is None:  # a store's checkpoints are not here
            yield json.dumps(newest_history(results.checkpoints(run_id)))


class Replaced(NamedTuple):
    """What a study no longer wants of what it wanted when it was last run."""

    line: str | None
    """A line about the recorded runs among them; None: there are none."""
    cells: frozenset[Cell]
    """Cells in which other runs have the labels of earlier ones: what was proposed or stopped there no longer holds."""


def replaced_by(study: Study, wanted: Sequence[WantedRun], results: Results) -> Replaced:
    """Compare what a study wants with what it wanted when it was last run; call this before that is written again."""
    unknown = {
        run.cell for run in wanted if is_unknown(run.run.weights_checksum)
    }  # their ids are not known yet
    now = {run.run_id for run in wanted}
    rows = [
        row
        for row in _wanted_before(study, results)
        if row["run_id"] not in now and _cell(row) not in unknown
    ]
    named = {_labels(run.row()): run for run in wanted} if rows else {}
    successors = {row["run_id"]: named[_labels(row)] for row in rows if _labels(row) in named}
    cells = frozenset(run.cell for run in successors.values())
    ends = read_ends(results, [row["run_id"] for row in rows], ("content",))
    if not ends:
        return Replaced(None, cells)
    number = "1 recorded run is" if len(ends) == 1 else f"{len(ends)} recorded runs are"
    line = f"{number} no longer wanted and left out of the report, but kept until `gc`"
    if replaced := [run_id for run_id in ends if run_id in successors]:
        difference = _difference(ends[replaced[0]], successors[replaced[0]])
        line = f"{line}: the study has another {difference}"
    return Replaced(line, cells)


def _wanted_before(study: Study, results: Results) -> Sequence[Row]:
    if not results.exists() or study.study not in recorded_studies(results.root):
        return []
    with suppress(RecordError):  # `run` writes it again
        return read_wanted_rows(results.root, study.study)
    return []


def restart_cells(results: Results, study: str, cells: frozenset[Cell]) -> None:
    """Drop what was proposed and stopped in cells whose runs are others now: it rests on the former ones."""
    for path, columns in ((results.proposals(study), PROPOSALS), (results.rungs(study), RUNGS)):
        _drop(path, columns, lambda row: _cell(row) in cells)


def inexact_runs(reconciled: Reconciled, results: Results) -> list[WantedRun]:
    """Return the runs that resumed inexactly: by their rows, or by checkpoints here of runs to train."""
    resumed = {
        run_id: end["resumed"]
        for run_id, end in reconciled.ends.items()
        if reconciled.states[run_id].over
    }
    for run in reconciled.to_train:
        saved = newest_progress(results.checkpoints(run.run_id))
        resumed[run.run_id] = saved.get("resumed")
    chosen = select(reconciled.wanted, reconciled.only)
    return [run for run in chosen if resumed.get(run.run_id) == INEXACTLY]


def restart_runs(results: Results, study: str, runs: Sequence[WantedRun]) -> None:
    """Remove what is recorded and saved of runs, so that they train anew from their first step.

    A kill leaves no row without its curve. It leaves the newest checkpoint of a run, which says how
    the run resumed, or no checkpoint.
    """
    judged = {key_of(run.row()) for run in runs if not run.fresh}
    _drop(results.rungs(study), RUNGS, lambda row: key_of(row) in judged)
    for run_id in [run.run_id for run in runs]:
        recorded = results.run(run_id), results.curve(run_id)
        folder = results.checkpoints(run_id)
        oldest_first = sorted(folder.glob("*"))
        for path in (*recorded, *oldest_first, folder):
            with suppress(FileNotFoundError):
                remove_below(results.root, path)
        if results.uri is not None:
            store = ObjectStore(results.uri)
            with reachable(store.uri):
                for name in sorted(store.names(f"checkpoints/{run_id}")):
                    store.remove(name)


def _drop(path: Path, columns: Columns, is_void: Callable[[Row], bool]) -> None:
    rows = read_rows(path, columns) or []
    kept = [row for row in rows if not is_void(row)]
    if len(kept) < len(rows):
        write_parquet(path, kept, columns)


def _cell(row: Row) -> Cell:
    return Cell(row["task"], row["model"], row["variant"])


def _labels(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in LABELS)


def _difference(end: Row, run: WantedRun) -> str:
    """Return the options in which a recorded run and the wanted one of the same labels differ."""
    before, after = flattened(json.loads(end["content"])), flattened(run.run.content())
    names = sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(_option, names[:MOST_NAMED])) + more


def _option(name: str) -> str:
    kind, _, file = name.partition(".")
    if kind in ("code", "data") and file:  # files of the user's own training function
        return f"version of {file}"
    return "version of the task's data or code" if name == "data_checksum" else name
